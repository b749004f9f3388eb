"""`stop` cuts a text and ends its writing early, and never changes what stands before it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from served import make_writer, serving

from reviser.serving.protocols.stops import Stops, StopSeeker
from reviser.serving.running_engine import Told
from reviser.serving.scheduler import Scheduler, Task
from reviser.serving.served_writer import ServedWriter

GROWER, EDITOR = make_writer("move"), make_writer("jump", "delete", "replace")
BYTES = st.lists(st.sampled_from([*b"ab", *"é".encode(), *"😀".encode()]), max_size=14).map(bytes)
STOPS = st.lists(st.text("abé😀\ufffd", min_size=1, max_size=4), max_size=3).map(lambda each: Stops(tuple(each)))


def decode(data):
    return bytes(data).decode("utf-8", "replace")


@given(BYTES, STOPS)
def test_what_is_settled_stays_and_what_is_decided_is_cut_there(data, stops):
    final = stops.cut(decode(data))[0]
    for size in range(len(data) + 1):
        now = decode(data[:size])
        assert final.startswith(stops.settled(now))
        if stops.are_decided(now):
            assert stops.cut(now.rstrip("\ufffd"))[0] == final


@given(BYTES, STOPS, st.data())
def test_a_seeker_ends_a_text_as_soon_as_it_is_decided(data, stops, draw):
    if any("\ufffd" in stop for stop in stops.texts):
        return
    seeker = StopSeeker(stops, decode, 256)
    place = 0
    while place < len(data):
        size = draw.draw(st.integers(1, 3))
        part = tuple(data[place : place + size])
        is_over = seeker(3, Told(0, place, (*part, 300), (0.0,) * len(part), ()))
        place += len(part)
        assert is_over == stops.are_decided(decode(data[:place]))
        if is_over:
            return  # nobody asks again


def find_stop(text):
    """A stretch of a text that is not at its beginning, so that something is left of it."""
    return text[3:5]


@pytest.mark.parametrize("suffix", [None, "yz"])
@pytest.mark.parametrize("is_stream", [False, True])
def test_writing_ends_at_a_stop_with_the_same_text(suffix, is_stream):
    asked = {"prompt": "ab", "suffix": suffix, "seed": 4, "moves": False, "max_tokens": 40, "min_tokens": 40}
    with serving(GROWER) as served:
        [whole] = served.post("/v1/completions", **asked).json()["choices"]
        stop, before = find_stop(whole["text"]), served.service.scheduler.num_actions
        if is_stream:
            parts = [data for _, data in served.events("/v1/completions", **asked, stop=stop, stream=True)][:-1]
            choices = [part["choices"][0] for part in parts]
        else:
            choices = served.post("/v1/completions", **asked, stop=stop).json()["choices"]
        assert "".join(choice["text"] for choice in choices) == whole["text"][: whole["text"].index(stop)]
        assert choices[-1]["finish_reason"] == "stop"
        assert 0 < served.service.scheduler.num_actions - before < before
        assert (served.service.scheduler.num_decoding, served.service.num_admitted) == (0, 0)


@pytest.mark.parametrize("more", [{"best_of": 2}, {"moves": True}, {"n": 2, "suffix": "z"}])
@pytest.mark.parametrize("writer", [GROWER, EDITOR], ids=["grower", "editor"])
def test_texts_that_may_change_or_are_compared_are_written_to_their_end(writer, more):
    asked = {"prompt": ["ab"], "seed": 4, "moves": False, "max_tokens": 20} | more
    with serving(writer) as served:
        whole = served.post("/v1/completions", **asked).json()
        stop = find_stop(whole["choices"][0]["text"]) or "Q"
        short = served.post("/v1/completions", **asked, stop=[stop, "never"]).json()
        assert [each["text"] for each in short["choices"]] == [
            each["text"].partition(stop)[0] for each in whole["choices"]
        ]
        assert short["usage"] == whole["usage"]


def test_each_of_several_texts_ends_at_its_own_stop():
    asked = {"prompt": ["ab", "c", ""], "n": 2, "seed": 1, "moves": False, "max_tokens": 30}
    with serving(GROWER, rows=2) as served:
        whole = served.post("/v1/completions", **asked).json()
        stops = [find_stop(each["text"]) or "Q" for each in whole["choices"][:2]]
        short = served.post("/v1/completions", **asked, stop=stops).json()
        cut = [Stops(tuple(stops)).cut(each["text"])[0] for each in whole["choices"]]
        assert [each["text"] for each in short["choices"]] == cut
        assert short["usage"]["completion_tokens"] < whole["usage"]["completion_tokens"]


def test_a_mistake_of_who_watches_fails_him_alone():
    def fail(number, told):
        raise RuntimeError("no")

    scheduler = Scheduler(GROWER, num_rows=2)
    scheduler.start()
    try:
        writer = ServedWriter(GROWER, scheduler, Task())
        with pytest.raises(RuntimeError, match="no"):
            writer.watched(fail).generate("ab", max_actions=5)
        assert writer.generate("ab", max_actions=5)[0].text == GROWER.generate("ab", max_actions=5)[0].text
        ended = writer.watched(lambda number, told: told.first == 2).generate(["ab", "c"], max_actions=20)
        assert {text.num_actions for text in ended} <= {1, 2, 3}
    finally:
        scheduler.close()
