"""Work on the processes of a Ray cluster: items in, results out, in order, whatever dies on the way.

    with connected("auto") as cluster:
        for result in cluster.map_in_order(make_worker, items, Actors(num_cpus=1)):
            ...

`make_worker` is called once in each process and gives the function that is called with each item. Each process has at
most two items at a time; items whose process dies are done again by another, so a function that always gives the same
for the same item gives the same results on any number of processes.

Ray's actors do this, not Ray Data, which knows neither the number of a line, from which its seed is made, nor which
results have been kept, which is where a killed run resumes. Here the items stay with the caller, in order, and the
other machines need none of the caller's files.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Generic, TypeVar

from reviser.errors import ClusterError, ConfigError, MissingPackageError
from reviser.plugins import VARIABLE, load_inherited

Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Callable[[Any], Any]
EACH = 2
"""Items that a process has at a time: it begins with the next while the first comes to its end."""
AHEAD = 3
"""Items a process that are begun before the first of them is done; a slow one stops the others no earlier."""
TRIES = 3
"""How many processes may die of an item before it is given up."""
REACH_S = 10.0
"""How long a cluster may take to answer."""
START_S = 300.0
"""How long the cluster may take to start the first process; making its worker may take longer."""


@dataclass(frozen=True, slots=True)
class Actors:
    """How many processes, and what each takes of the cluster; 0 are as many as there is room for."""

    count: int = 0
    num_cpus: int = 1
    num_gpus: int = 0

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ConfigError(f"{self.count} actors were asked for; there must be at least 1")
        if self.num_cpus < 1:
            raise ConfigError(f"an actor of {self.num_cpus} cores was asked for; it must have at least 1")


class _Process:
    """What runs in a process of the cluster; two threads call it."""

    def __init__(self, make: Callable[[], Work]) -> None:
        self._make, self._workers, self._making = make, list[Work](), Lock()

    def answer(self) -> None:
        """Nothing, but only where there is a process."""

    def prepare(self) -> None:
        """Make the worker, so that what is wrong with it is an error of a call."""
        with self._making:
            if not self._workers:
                load_inherited()
                self._workers.append(self._make())

    def work(self, item: Any) -> Any:
        self.prepare()
        return self._workers[0](item)


@dataclass(eq=False, slots=True)
class _Actor:
    """A process as its owner sees it."""

    handle: Any
    ready: Any
    """What tells that the worker is made."""
    num_items: int = 0


@dataclass(eq=False, slots=True)
class _ActorItem(Generic[Item, Result]):
    """An item on its way; without an actor it waits for one."""

    item: Item
    actor: _Actor | None = None
    reference: Any = None
    num_tries: int = 0
    results: list[Result] = field(default_factory=list)
    """The one result, once it is there."""


class Cluster:
    """A cluster that this process is connected to."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    def count_actors(self, wanted: Actors) -> int:
        """How many processes there will be."""
        if wanted.count:
            return wanted.count
        has = self._ray.cluster_resources()
        name, each = ("GPU", wanted.num_gpus) if wanted.num_gpus else ("CPU", wanted.num_cpus)
        count = int(has.get(name, 0) // each)
        if not count:
            raise ClusterError(
                f"the cluster has {has.get(name, 0):g} {name}s, and an actor takes {each}; add machines, or give "
                "actors less"
            )
        return count

    def map_in_order(
        self, make: Callable[[], Callable[[Item], Result]], items: Iterable[Item], wanted: Actors
    ) -> Generator[Result, None, None]:
        """What the workers make of each item, in order; items are taken as they are needed."""
        crew: _Crew[Item, Result] = _Crew(self._ray, make, wanted, self.count_actors(wanted))
        try:
            yield from crew.run(iter(items))
        finally:
            crew.close()


class _Crew(Generic[Item, Result]):
    """The processes of one call."""

    def __init__(self, ray: Any, make: Callable[[], Work], wanted: Actors, count: int) -> None:
        self._ray, self._make, self._count = ray, make, count
        # Ray gives GPUs by this, and limits threads to the cores.
        options = {"num_cpus": wanted.num_cpus, "num_gpus": wanted.num_gpus, "max_concurrency": EACH}
        self._kind = ray.remote(_Process).options(**options)
        self._actors = [self._start() for _ in range(count)]
        self._jobs: deque[_ActorItem[Item, Result]] = deque()

    def _start(self) -> _Actor:
        handle = self._kind.remote(self._make)
        return _Actor(handle, handle.prepare.remote())

    def run(self, items: Iterator[Item]) -> Iterator[Result]:
        self._check_room()
        is_more = True
        while is_more or self._jobs:
            while (actor := self._find_free()) is not None:
                job = next((each for each in self._jobs if each.actor is None), None)
                if job is None:
                    if not is_more or len(self._jobs) >= AHEAD * self._count:
                        break
                    try:
                        job = _ActorItem(next(items))
                    except StopIteration:
                        is_more = False
                        break
                    self._jobs.append(job)
                self._send(job, actor)
            self._collect()
            while self._jobs and self._jobs[0].results:
                yield self._jobs.popleft().results[0]

    def _check_room(self) -> None:
        """Refuse a cluster on which none of the processes starts."""
        asked = [each.handle.answer.remote() for each in self._actors]
        if not self._ray.wait(asked, num_returns=1, timeout=START_S)[0]:
            raise ClusterError(
                f"no process has started on the cluster in {START_S:.0f} s; it may be busy, or its machines too small"
            )

    def _find_free(self) -> _Actor | None:
        """The process with the least to do, of those that run: others may wait for room for long."""
        free = {each.ready: each for each in self._actors if each.num_items < EACH}
        ready, _ = self._ray.wait(list(free), num_returns=len(free), timeout=0) if free else ([], [])
        return min((free[each] for each in ready), key=lambda each: each.num_items, default=None)

    def _send(self, job: _ActorItem[Item, Result], actor: _Actor) -> None:
        if job.num_tries >= TRIES:
            raise ClusterError(
                f"{TRIES} processes of the cluster died one after the other at the same work, perhaps for lack of "
                "memory; give each more, or less to do at a time"
            )
        actor.num_items += 1
        job.actor, job.reference, job.num_tries = actor, actor.handle.work.remote(job.item), job.num_tries + 1

    def _collect(self) -> None:
        """Wait a little for results, or for processes where nothing is under way."""
        under_way = {each.reference: each for each in self._jobs if each.actor is not None and not each.results}
        asked = list(under_way) or [each.ready for each in self._actors]
        done, _ = self._ray.wait(asked, num_returns=1, timeout=1.0)
        for reference in done:
            job = under_way.get(reference)
            try:
                result = self._ray.get(reference)
            except self._ray.exceptions.RayActorError:
                dead = job.actor if job else next(each for each in self._actors if each.ready == reference)
                if dead is not None:
                    self._replace(dead)
            except self._ray.exceptions.RayTaskError as error:
                raise (error.cause or error) from None
            else:
                if job is not None and job.actor is not None:
                    job.results, job.actor.num_items = [result], job.actor.num_items - 1

    def _replace(self, dead: _Actor) -> None:
        """Another process in the place of one that died; what that had to do waits for any."""
        if dead in self._actors:
            self._actors[self._actors.index(dead)] = self._start()
        for job in self._jobs:
            if job.actor is dead and not job.results:
                job.actor, job.reference = None, None

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor.handle)


@contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """A cluster: `local` starts one on this machine for as long as it is needed, `auto` is the one that this machine
    belongs to, and anything else the address of one (HOST:PORT)."""
    try:
        import ray
    except ImportError:
        raise MissingPackageError("ray", "--ray", "pip install 'reviser[ray]'") from None
    was_connected = ray.is_initialized()
    if not was_connected:
        _connect(ray, address)
    try:
        yield Cluster(ray)
    finally:
        if not was_connected:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Refuse an address at which nothing listens: Ray itself tries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), REACH_S):
            return
    except ValueError:
        reason = "not of the form HOST:PORT"
    except OSError as error:
        reason = error.strerror or str(error)
    raise ClusterError(_explain(address, reason))


def _explain(address: str, reason: str) -> str:
    return f"no Ray cluster at {address!r} ({reason}); start one with `ray start --head`, or give --ray local"


def _connect(ray: Any, address: str) -> None:
    if address not in ("local", "auto"):
        _check_reachable(address)
    # Nothing is sent to anybody unless the user asks for it.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    variables = {VARIABLE: os.environ[VARIABLE]} if os.environ.get(VARIABLE) else {}
    try:
        ray.init(
            address=address,
            runtime_env={"env_vars": variables} if variables else None,
            include_dashboard=False if address == "local" else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split()).partition(". ")[0][:200].rstrip(".")
        raise ClusterError(_explain(address, reason)) from None
