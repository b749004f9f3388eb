"""Many clients of one model get what each would get alone, however they come and go."""

import asyncio
import random
import threading
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from served import make_writer, wait_until

from reviser.decoding.presets import DEFAULT, GREEDY, Sampling
from reviser.decoding.requests import Request
from reviser.errors import ConfigError
from reviser.serving.scheduler import MAX_ENGINES, Scheduler, Task, TaskCancelledError
from reviser.serving.served_writer import ServedWriter
from reviser.serving.service import Post

WRITERS = [make_writer("move"), make_writer("jump", "delete", "replace")]
SAMPLINGS = [DEFAULT, GREEDY, *(Sampling(temperature=0.5 + 0.1 * each) for each in range(MAX_ENGINES))]
ENDLESS = Sampling(stop_bias=-99.0)


@pytest.fixture(params=WRITERS, ids=["mover", "editor"])
def writer(request):
    return request.param


@pytest.fixture
def scheduler(writer):
    made = Scheduler(writer, num_rows=3)
    made.start()
    yield made
    made.close()


def list_jobs(writer, draw):
    """A random job, as a function of the writer that does it."""
    seed, sampling = draw.randrange(9), draw.choice(SAMPLINGS)
    text = "".join(draw.choices("abc é😀", k=draw.randrange(6)))
    kinds = [
        lambda w: [each.text for each in w.generate([text, "x"], n=2, seed=seed, sampling=sampling, max_actions=12)],
        lambda w: [each.text for each in w.infill(text, "yz", n=2, best_of=2, seed=seed, max_actions=12)],
        lambda w: [each.text for each in w.infill("a", "b", "c", seed=seed, sampling=sampling, max_actions=12)],
    ]
    if "delete" in writer.config.operators:
        kinds.append(lambda w: w.edit(f"He go {text} home.", min_probability=0.0, passes=2))
    return draw.choice(kinds)


@pytest.mark.parametrize("seed", range(2))
def test_the_same_seed_gives_the_same_text_whoever_else_is_served(writer, scheduler, seed):
    draw = random.Random(seed)
    jobs = [list_jobs(writer, draw) for _ in range(14)]
    delays, is_cancelled = [draw.random() * 0.2 for _ in jobs], [draw.random() < 0.3 for _ in jobs]
    results = {}

    def work(number):
        threading.Event().wait(delays[number])
        task = Task()
        if is_cancelled[number]:
            threading.Timer(delays[number] / 4, scheduler.cancel, [task]).start()
        try:
            results[number] = jobs[number](ServedWriter(writer, scheduler, task))
        except TaskCancelledError:
            assert is_cancelled[number]

    threads = [threading.Thread(target=work, args=[number]) for number in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number for number, gone in enumerate(is_cancelled) if not gone} <= set(results)
    for number, result in results.items():
        assert result == jobs[number](writer)
    assert (scheduler.num_decoding, scheduler.num_waiting) == (0, 0)


def test_events_are_those_of_the_writer(writer, scheduler):
    heard = []
    draft = writer.gaps(["ab", "cd"])
    text = ServedWriter(writer, scheduler, Task()).follow(draft, heard.append, 20, seed=3, sampling=DEFAULT, number=1)
    alone = list(writer.stream(draft, max_actions=20, seed=3, number=1))
    assert [(each.step, each.action, each.canvas) for each in heard] == [
        (each.step, each.action, each.canvas) for each in alone
    ]
    assert [[action for action, _ in each.alternatives] for each in heard] == [
        [action for action, _ in each.alternatives] for each in alone
    ]
    assert text.text == writer.collect(draft, alone, 20).text


def test_a_cancelled_task_frees_its_rows_and_those_who_wait_go_on(writer, scheduler):
    drafts = [writer.continuation(prompt) for prompt in "abc"]
    first, ended = Task(), threading.Event()

    def hold():
        try:
            while True:
                scheduler.write(first, [Request(draft, 50) for draft in drafts], ENDLESS)
        except TaskCancelledError:
            ended.set()

    threading.Thread(target=hold).start()
    wait_until(lambda: scheduler.num_decoding == 3)
    scheduler.cancel(first)
    assert ended.wait(5)
    wait_until(lambda: scheduler.num_decoding == 0)
    assert len(scheduler.write(Task(), [Request(drafts[0], 3)], ENDLESS)) == 1
    with pytest.raises(TaskCancelledError):
        scheduler.call(first, lambda: 1)


def test_what_is_wrong_with_one_request_is_told_to_its_client_alone(writer, scheduler):
    with pytest.raises(ConfigError, match="max_actions=0 must be at least 1"):
        scheduler.write(Task(), [Request(writer.continuation("a"), 0)], DEFAULT)

    def fail():
        raise ConfigError("no")

    with pytest.raises(ConfigError, match="no"):
        scheduler.call(Task(), fail)
    assert scheduler.write(Task(), [], DEFAULT) == []


def test_a_broken_batch_fails_those_in_it_and_the_next_is_new(writer, scheduler, monkeypatch):
    from reviser.serving.running_engine import RunningEngine

    def fail(self):
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(RunningEngine, "advance", fail)
        with pytest.raises(RuntimeError, match="broken"):
            scheduler.write(Task(), [Request(writer.continuation("a"), 3)], DEFAULT)
    assert len(scheduler.write(Task(), [Request(writer.continuation("a"), 3)], DEFAULT)) == 1


def test_the_end_of_the_scheduler_ends_all_waiting(writer):
    scheduler, ended = Scheduler(writer, num_rows=1), threading.Event()
    scheduler.start()

    def hold():
        try:
            while True:
                scheduler.write(Task(), [Request(writer.continuation("a"), 50)] * 4, ENDLESS)
        except TaskCancelledError:
            ended.set()

    threading.Thread(target=hold).start()
    wait_until(lambda: scheduler.num_decoding == 1)
    scheduler.close()
    assert ended.wait(5)


@given(st.lists(st.lists(st.integers(0, 3), max_size=40), min_size=1, max_size=4))
def test_what_threads_post_arrives_in_each_threads_order(sent):
    """Each thread sends its numbers to the queues they name."""

    async def collect():
        post, queues = Post(), [asyncio.Queue() for _ in range(4)]
        post.loop = asyncio.get_running_loop()

        def send(thread):
            for step, queue in enumerate(sent[thread]):
                post.send(queues[queue], (thread, step))

        threads = [threading.Thread(target=send, args=(each,)) for each in range(len(sent))]
        for each in threads:
            each.start()
        wanted = [sum(numbers.count(queue) for numbers in sent) for queue in range(4)]
        async with asyncio.timeout(10):
            got = [[await queue.get() for _ in range(count)] for queue, count in zip(queues, wanted, strict=True)]
        for each in threads:
            each.join()
        assert all(queue.empty() for queue in queues)
        return got

    for queue, got in enumerate(asyncio.run(collect())):
        for thread, numbers in enumerate(sent):
            assert [step for who, step in got if who == thread] == [i for i, to in enumerate(numbers) if to == queue]


def test_the_loop_is_woken_once_for_all_that_is_posted_before_it_runs():
    async def count():
        post, queue, loop = Post(), asyncio.Queue(), asyncio.get_running_loop()
        woken = []
        post.loop = SimpleNamespace(call_soon_threadsafe=lambda act: (woken.append(act), loop.call_soon(act)))
        for number in range(5):
            post.send(queue, number)
        assert [await queue.get() for _ in range(5)] == list(range(5))
        post.send(queue, 5)
        assert await queue.get() == 5
        return len(woken)

    assert asyncio.run(count()) == 2
