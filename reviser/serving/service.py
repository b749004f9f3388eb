"""Between the endpoints and the model: who may ask now, in which thread it is worked on, and what ends it early.

A request is admitted or turned away at once, waits for one of `concurrency` places, and is worked on in a thread
whose writer sends everything to the scheduler. A client that goes away, a limit of time and the end of the server
cancel it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request

from reviser.decoding.writer import Writer
from reviser.serving.failures import RequestError
from reviser.serving.meters import Meters
from reviser.serving.scheduler import Scheduler, Task, TaskCancelledError
from reviser.serving.serve_config import ServeConfig
from reviser.serving.served_writer import ServedWriter

T = TypeVar("T")
S = TypeVar("S")
Work = Callable[[ServedWriter], T]
Told = Callable[[S], None]


class ClientGoneError(Exception):
    """Nobody is there to read the answer."""


class Service:
    """A writer that many clients use at once. It is made outside of an event loop and used inside of one."""

    def __init__(self, writer: Writer, config: ServeConfig) -> None:
        self.writer, self.config = writer, config
        self.scheduler = Scheduler(writer, config.rows)
        self.meters = Meters(self.scheduler)
        self.is_draining = False
        self.num_admitted = 0
        """Requests that wait or are worked on."""
        self._places = asyncio.Semaphore(config.concurrency)
        self._pool = ThreadPoolExecutor(config.concurrency, "reviser-request")
        self._tasks: set[Task] = set()
        self._post = Post()

    def start(self) -> None:
        self.scheduler.start()

    def close(self) -> None:
        self.scheduler.close()
        self._pool.shutdown(cancel_futures=True)

    @property
    def status(self) -> str:
        return "draining" if self.is_draining else "ok"

    def cancel_all(self) -> None:
        """End all work; those who wait are told that the server stops."""
        for task in list(self._tasks):
            self.scheduler.cancel(task)

    def view(self, task: Task) -> ServedWriter:
        """The writer that works for a task."""
        return ServedWriter(self.writer, self.scheduler, task)

    async def answer(self, client: Request, work: Work[T]) -> T:
        """What `work` gives; `ClientGoneError` where nobody waits for it any more."""
        running = self._begin(work)
        gone = asyncio.create_task(_wait_gone(client))
        try:
            await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                self.meters.requests_cancelled.inc()
                raise ClientGoneError
            return running.result()
        finally:
            gone.cancel()
            running.cancel()

    def stream(self, work: Callable[[ServedWriter, Told[S]], T]) -> AsyncIterator[S | T]:
        """All that `work` tells on the way, then what it gives. A request that is turned away is so at once."""
        self._post.loop, told = asyncio.get_running_loop(), asyncio.Queue[S | None]()
        tell = partial(self._post.send, told)
        return self._listen(self._begin(lambda writer: work(writer, tell)), told)

    async def _listen(self, running: asyncio.Task[T], told: asyncio.Queue[S | None]) -> AsyncIterator[S | T]:
        # What was told last has been put before the work was done.
        running.add_done_callback(lambda _: told.put_nowait(None))
        try:
            while (item := await told.get()) is not None:
                yield item
            yield running.result()
        finally:
            if not running.done():
                self.meters.requests_cancelled.inc()
            running.cancel()

    def _begin(self, work: Work[T]) -> asyncio.Task[T]:
        """Admit a request and start it."""
        if self.is_draining:
            raise RequestError.busy("the server is shutting down; ask another or try again later", 503)
        if self.num_admitted >= self.config.concurrency + self.config.queue:
            raise RequestError.busy(f"{self.num_admitted} requests are in work or waiting; try again later")
        self.num_admitted += 1
        running = asyncio.create_task(self._work(work))
        running.add_done_callback(self._end)
        return running

    def _end(self, running: asyncio.Task[T]) -> None:
        self.num_admitted -= 1
        # Where the client has gone, nobody asks how it ended.
        if not running.cancelled():
            running.exception()

    async def _work(self, work: Work[T]) -> T:
        task, loop, limit = Task(), asyncio.get_running_loop(), self.config.timeout_s
        self._tasks.add(task)
        try:
            async with asyncio.timeout(limit):
                with self.meters.requests_waiting.track_inprogress():
                    await self._places.acquire()
                try:
                    with self.meters.requests_active.track_inprogress():
                        return await loop.run_in_executor(self._pool, work, self.view(task))
                finally:
                    self._places.release()
        except TimeoutError:
            raise RequestError(504, f"not done after {limit:g} s; ask for less, or raise --timeout-s") from None
        except TaskCancelledError:
            raise RequestError.busy("the server is shutting down and did not finish this", 503) from None
        finally:
            self._tasks.discard(task)
            if not task.is_cancelled:
                self.scheduler.cancel(task)


class Post:
    """What other threads put into queues of the event loop, which is woken once for all that a step of the batch
    tells its clients."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[tuple[asyncio.Queue[Any], object]] = deque()
        self._is_called = False

    def send(self, queue: asyncio.Queue[Any], item: object) -> None:
        assert self.loop is not None
        self._waiting.append((queue, item))
        if not self._is_called:
            self._is_called = True
            self.loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # What is put in from here on calls again, whether or not it is taken now.
        self._is_called = False
        while self._waiting:
            queue, item = self._waiting.popleft()
            queue.put_nowait(item)


async def _wait_gone(client: Request) -> None:
    """Until the client has closed the connection; its body has been read."""
    while (await client.receive())["type"] != "http.disconnect":
        pass
