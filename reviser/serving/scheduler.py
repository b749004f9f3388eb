"""One thread that owns the model: everything that is decoded or read for anybody is done there, one step at a time.

    requests' threads   write(task, requests, sampling)  ->  wait  ->  what each grew into
    the model's thread  take orders; a step of each batch that is busy; hand out what has finished; again

There is a running batch for each way of sampling, and a few of them at most, for each has a cache. A task whose
sampling has none waits until one is idle; those that come later wait behind it, so nobody waits forever. A cancelled
task leaves its rows before the next step.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

from reviser.decoding.cpu.step import CpuStep, has_cpu_kernels
from reviser.decoding.presets import Sampling
from reviser.decoding.requests import Decoded, Request, check_room
from reviser.decoding.writer import Writer
from reviser.serving.running_engine import RunningEngine, Told

T = TypeVar("T")
Key = tuple[Sampling, int]
Watch = Callable[[int, Told], bool]
"""Called in the model's thread with the number of a request and its new actions; it must not block. Where it says so,
the request ends with these actions."""
MAX_ENGINES = 4
"""Ways of sampling that have a batch at the same time."""


class TaskCancelledError(Exception):
    """The task is not wanted any more."""


class Task:
    """All that is decoded for one client."""

    def __init__(self) -> None:
        self.is_cancelled = False


@dataclass(eq=False, slots=True)
class _Group:
    """Requests of one call, which waits for all of them."""

    task: Task
    requests: Sequence[Request]
    key: Key
    watch: Watch | None
    result: Future[list[Decoded]] = field(default_factory=Future)
    numbers: dict[int, int] = field(default_factory=dict)
    """The number in `requests` of each key in the engine."""
    written: dict[int, Decoded] = field(default_factory=dict)


class Scheduler:
    """Runs a writer's model in a thread of its own, from `start` to `close`."""

    def __init__(self, writer: Writer, num_rows: int = 16) -> None:
        writer.model.eval()
        self._writer, self._model, self._num_rows = writer, writer.model, num_rows
        # Beyond a number of rows an engine's own kernels give way to torch's, whose last bits depend on the batch.
        self._steps = writer.kernels or (CpuStep(writer.model) if has_cpu_kernels(writer.model) else None)
        self._orders: deque[Callable[[], None]] = deque()
        self._news = threading.Condition()
        self._is_closed = False
        self._engines: OrderedDict[Key, RunningEngine] = OrderedDict()
        self._parked: deque[_Group] = deque()
        self._owners: dict[int, _Group] = {}
        """The group of each key in an engine."""
        self._next_key = 0
        self.num_actions = 0
        """Chosen since the start."""
        self._thread = threading.Thread(target=self._run, name="reviser-model", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread; whoever waits is told that his task is cancelled."""
        with self._news:
            self._is_closed = True
            self._news.notify()
        self._thread.join()

    @property
    def num_decoding(self) -> int:
        """Rows that are taken."""
        return sum(engine.num_decoding for engine in list(self._engines.values()))

    @property
    def num_waiting(self) -> int:
        """Texts that wait for a row."""
        parked = sum(len(group.requests) for group in list(self._parked))
        return parked + sum(engine.num_waiting for engine in list(self._engines.values()))

    def write(
        self,
        task: Task,
        requests: Sequence[Request],
        sampling: Sampling,
        num_alternatives: int = 0,
        watch: Watch | None = None,
    ) -> list[Decoded]:
        """What each request grows into; waits for it. `TaskCancelledError` where the task is."""
        for request in requests:
            check_room(request.draft, self._model.config, request.max_actions)
        group = _Group(task, requests, (sampling, num_alternatives), watch)
        self._order(lambda: self._parked.append(group))
        return group.result.result()

    def call(self, task: Task, work: Callable[[], T]) -> T:
        """What `work` gives when it is run between two steps, for it uses the model; waits for it."""
        result: Future[T] = Future()

        def run() -> None:
            if task.is_cancelled:
                result.set_exception(TaskCancelledError())
                return
            try:
                result.set_result(work())
            except BaseException as error:
                result.set_exception(error)

        self._order(run)
        return result.result()

    def cancel(self, task: Task) -> None:
        """Free all that a task holds, before the next step; its calls end in `TaskCancelledError`."""
        task.is_cancelled = True
        with self._news:
            if not self._is_closed:
                self._orders.append(lambda: self._leave(task))
                self._news.notify()

    def _order(self, order: Callable[[], None]) -> None:
        with self._news:
            if self._is_closed:
                raise TaskCancelledError
            self._orders.append(order)
            self._news.notify()

    def _run(self) -> None:
        while True:
            with self._news:
                while not (self._orders or self._is_closed or self._owners):
                    self._news.wait()
                orders, self._orders = self._orders, deque()
                is_closed = self._is_closed
            for order in orders:
                order()
            if is_closed:
                self._fail([*self._parked, *self._owners.values()], TaskCancelledError())
                return
            self._place()
            for engine in [each for each in self._engines.values() if each.is_busy]:
                self._advance(engine)
                # New ones join between steps, not after a round of all batches.
                self._place()

    def _place(self) -> None:
        """Give parked groups to batches, first come, first served."""
        while self._parked:
            group = self._parked[0]
            engine = None if group.task.is_cancelled else self._engine(group.key)
            if engine is None and not group.task.is_cancelled:
                return
            self._parked.popleft()
            if engine is None:
                self._fail([group], TaskCancelledError())
            else:
                self._join(group, engine)

    def _join(self, group: _Group, engine: RunningEngine) -> None:
        for number, request in enumerate(group.requests):
            key, self._next_key = self._next_key, self._next_key + 1
            try:
                engine.add(key, request, is_watched=group.watch is not None)
            except Exception as error:
                self._fail([group], error)
                return
            group.numbers[key], self._owners[key] = number, group
        if not group.requests:
            group.result.set_result([])

    def _engine(self, key: Key) -> RunningEngine | None:
        """The batch of a way of sampling, a new one where there is room or an idle one to take the place of."""
        if key not in self._engines:
            idle = next((each for each, engine in self._engines.items() if not engine.is_busy), None)
            if len(self._engines) >= MAX_ENGINES:
                if idle is None:
                    return None
                del self._engines[idle]
            sampling, num_alternatives = key
            engine = RunningEngine(self._model, sampling, self._num_rows, self._steps, num_alternatives)
            self._engines[key] = engine
        # The first is the one that was used longest ago.
        self._engines.move_to_end(key)
        return self._engines[key]

    def _advance(self, engine: RunningEngine) -> None:
        try:
            told, done = engine.advance()
        except Exception as error:
            # What the engine holds cannot be trusted any more.
            key = next(key for key, each in self._engines.items() if each is engine)
            del self._engines[key]
            self._fail([group for group in self._owners.values() if group.key == key], error)
            return
        over = [each.key for each in told if self._tell(each)]
        for number, decoded in [*done, *engine.finish(over)]:
            group = self._owners.pop(number, None)
            if group is None:
                continue
            group.written[group.numbers[number]] = decoded
            self.num_actions += len(decoded.actions)
            if len(group.written) == len(group.requests):
                group.result.set_result([group.written[place] for place in range(len(group.requests))])

    def _tell(self, told: Told) -> bool:
        """Tell whoever watches a request, and hear whether it is over; an error of his fails him alone."""
        group = self._owners.get(told.key)
        if group is None or group.watch is None:
            return False
        try:
            return group.watch(group.numbers[told.key], told)
        except Exception as error:
            self._fail([group], error)
            return False

    def _leave(self, task: Task) -> None:
        self._fail(
            [group for group in [*self._parked, *self._owners.values()] if group.task is task], TaskCancelledError()
        )

    def _fail(self, groups: Sequence[_Group], error: Exception) -> None:
        """Take groups out of everything, and tell those who wait for them why."""
        for group in dict.fromkeys(groups):
            for key in group.numbers:
                self._owners.pop(key, None)
                if group.key in self._engines:
                    self._engines[group.key].drop(key)
            if group in self._parked:
                self._parked.remove(group)
            if not group.result.done():
                group.result.set_exception(error)
