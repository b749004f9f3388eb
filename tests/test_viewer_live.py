"""A canvas drawn while it is edited: what is new, what fits, what is left on the screen."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator

import pytest
import scramble  # noqa: F401 - registers an order that uses every operator
from hypothesis import given
from hypothesis import strategies as st
from laws import ALPHABET, TEXT, pick_valid, states
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from screen import COLOUR, Screen

from reviser.actions import OPERATORS
from reviser.canvas import Canvas, Rules, apply, protect
from reviser.decoding.requests import Event
from reviser.orders.record import Draft, Trajectory
from reviser.orders.registry import parse_order
from reviser.orders.rng import Random
from reviser.tokenizer import load
from reviser.viewer import live
from reviser.viewer.live import FADE, Frames, Timed, draw, draw_final, follow, printable, watch, wrap
from reviser.viewer.terminal import PLAIN_BAR

BYTES = load("bytes")
HOSTILE = "a\x1b[2J\rb\x9b31m\u202ec\td\n\n日本 é \x07 end"
WORDS = st.text("ab \n日\x1b\t\r", max_size=20)
TEXTS = st.text(max_size=200) | st.lists(WORDS, min_size=8, max_size=30).map("\n".join)


def make_console(width: int = 80, height: int = 24, has_colour: bool = True) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, width=width, height=height, highlight=False,
        color_system="standard" if has_colour else None, no_color=not has_colour,
    )  # fmt: skip


def make_trajectory(text: str, number: int, order: str = "scramble") -> Trajectory:
    """Some way to write a text in bytes, every operator allowed."""
    rules = Rules(BYTES.alphabet, frozenset(OPERATORS), max_length=4096)
    target = BYTES.encode(text)
    return parse_order(order).draw(Draft.continuation(target[:2], rules), target, Random.of(number))


def make_events(trajectory: Trajectory) -> Iterator[Event]:
    canvas = trajectory.draft.canvas
    for step, action in enumerate(trajectory.actions):
        canvas = apply(canvas, action, trajectory.draft.rules)
        yield Event(step, action, -0.5, (), canvas)


def show(trajectory: Trajectory, console: Console, pace: float = 0.0) -> tuple[str, list[Event]]:
    """What is written to the terminal, and what is passed on."""
    passed = list(watch(Timed(make_events(trajectory)), trajectory.draft, BYTES, console, pace))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue(), passed


@pytest.fixture
def every_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "FRAMES_PER_S", 1e9)


@given(states(), st.integers(0, 99), TEXT)
def test_births_follow_their_tokens(state: tuple[Canvas, Rules], number: int, text: int) -> None:
    before, rules = state
    births, step = tuple(range(len(before.tokens))), 1000
    action = pick_valid(before, rules, number, text)
    after = apply(before, action, rules)
    now = follow(births, before, after, step)
    assert len(now) == len(after.tokens)
    kept = [birth for birth in now if birth != step]
    assert kept == sorted(kept)
    assert all(before.tokens[birth] == token for birth, token in zip(now, after.tokens, strict=True) if birth < step)
    new = [place for place, birth in enumerate(now) if birth == step]
    assert new == list(range(after.cursor - len(new), after.cursor))
    grown = len(after.tokens) - len(before.tokens)
    if ALPHABET.is_insert(action) and not before.is_replacing:
        assert len(new) == 1
    elif grown:
        assert len(new) == max(grown, 0)
    else:
        assert len(new) <= 2


@given(TEXTS, st.data())
def test_a_frame_fits_the_screen_and_has_the_cursor_in_view(text: str, data: st.DataObject) -> None:
    tokens = tuple(BYTES.encode(text))
    cursor = data.draw(st.integers(0, len(tokens)))
    width, height = data.draw(st.integers(20, 90)), data.draw(st.integers(4, 12))
    console = make_console(width, height, has_colour=False)
    frames = Frames(Draft(tokens, cursor, Rules(BYTES.alphabet, max_length=4096)), BYTES, console)
    frames.top = data.draw(st.integers(0, 30))
    lines = frames.frame().plain.split("\n")
    assert len(lines) < height
    assert all(cell_len(line) <= width for line in lines)
    assert sum(line.count(PLAIN_BAR) for line in lines[:-1]) >= 1
    # It is scrolled no further than it must be.
    assert frames.top == 0 or len(lines) == height - 1


@given(TEXTS, st.data())
def test_wrapping_loses_nothing_but_spaces_and_knows_the_line_of_the_cursor(text: str, data: st.DataObject) -> None:
    tokens = tuple(BYTES.encode(text))
    canvas = Canvas(tokens, data.draw(st.integers(0, len(tokens))))
    pieces = BYTES.pieces(tokens)
    shown = draw(canvas, pieces, [None] * len(tokens), is_plain=False)
    before = printable("".join(pieces[: canvas.cursor]))
    lines, line = wrap(make_console(), shown, data.draw(st.integers(20, 60)))
    assert "".join(each.plain for each in lines).replace(" ", "") == shown.plain.replace("\n", "").replace(" ", "")
    until = "".join(each.plain for each in lines[: line + 1]).replace(" ", "")
    assert until.startswith(before.replace("\n", "").replace(" ", "") + "▏")


@given(TEXTS, st.lists(st.integers(0, 9), max_size=4))
def test_the_final_text_is_the_text_without_what_speaks_to_the_terminal(text: str, fixed: list[int]) -> None:
    tokens = tuple(BYTES.encode(text))
    marks = protect(len(tokens), [(place, place + 1) for place in fixed if place < len(tokens)])
    final = draw_final(Canvas(tokens, marks=marks), BYTES).plain
    assert final == printable(text)
    assert not {"\x1b", "\r", "\t", "\x9b", "\x07", "\u202e"} & set(final)
    assert final.count("\n") == text.count("\n")


def styles_of(shown: Text) -> dict[str, str]:
    return {shown.plain[span.start : span.end]: str(span.style) for span in shown.spans}


def test_new_text_lights_up_and_fades_and_protected_text_is_dim() -> None:
    tokens, ages = (*b"pabcds",), [None, 0, 1, len(FADE) - 1, len(FADE), None]
    canvas = Canvas(tokens, 2, marks=protect(6, [(0, 1), (5, 6)], ends=[0, 6]))
    shown = draw(canvas, BYTES.pieces(tokens), ages, is_plain=False)
    styles = styles_of(shown)
    assert shown.plain == "pa▏bcds"
    assert styles == {"p": "dim", "a": FADE[0], "▏": styles["▏"], "b": FADE[1], "c": FADE[-1], "s": "dim"}
    assert "yellow" in styles["▏"]
    assert draw(canvas, BYTES.pieces(tokens), ages, is_plain=True).plain == "{p}[a]|bcd{s}"


def test_several_spans_are_protected_and_one_that_goes_on_is_one() -> None:
    tokens = (*b"abcdefg",)
    canvas = Canvas(tokens, 3, marks=protect(7, [(0, 1), (1, 3), (5, 7)], ends=[7]))
    assert draw(canvas, BYTES.pieces(tokens), [None] * 7, is_plain=True).plain == "{a}{bc}|de{fg}"
    final = draw_final(canvas, BYTES)
    assert (final.plain, styles_of(final)) == ("abcdefg", {"abc": "dim", "fg": "dim"})


@pytest.mark.usefixtures("every_frame")
def test_a_jump_shows_where_it_came_from_for_one_step_and_says_where_it_goes() -> None:
    alphabet, rules = BYTES.alphabet, Rules(BYTES.alphabet, frozenset(OPERATORS), max_length=64)
    start = Draft.edit(b"one two", rules, protect(7, [(1, 3)]))
    actions = (alphabet.jump(4), 45, alphabet.jump(0), alphabet.jump(8), alphabet.stop)
    trajectory = Trajectory(start, actions, (True,) * len(actions))
    out = show(trajectory, make_console(has_colour=False))[0]
    for line in ("o{ne} |two¦", "o{ne} [-]|two", "|o{ne} -¦two", "¦o{ne} -two|", "o{ne} -two|"):
        assert f"{line}\n" in out
    for name in ('JUMP 4 after " "', "JUMP 0 to the front", "JUMP 8 to the end"):
        assert name in out
    assert "8 tokens, 3 moves, " in out
    shown = draw(Canvas((*b"abc",), 1), ["a", "b", "c"], [None] * 3, is_plain=False, old_cursor=3)
    assert (shown.plain, styles_of(shown)["a"], styles_of(shown)["¦"]) == ("a▏bc¦", "underline", "yellow")


@pytest.mark.usefixtures("every_frame")
@pytest.mark.parametrize(("width", "height"), [(20, 5), (40, 10), (80, 24)])
def test_watching_passes_everything_on_and_leaves_nothing_behind(width: int, height: int) -> None:
    trajectory = make_trajectory(HOSTILE * 6, number=1)
    out, passed = show(trajectory, make_console(width, height))
    assert passed == list(make_events(trajectory))
    screen = Screen(width, height).feed("before\r\n").feed(out.replace("\n", "\r\n"))
    assert (screen.text, screen.has_cursor) == ("before", True)
    assert screen.widest <= width
    assert COLOUR.search(out)


@pytest.mark.usefixtures("every_frame")
def test_without_colours_there_are_none_and_new_text_stands_in_brackets() -> None:
    out, _ = show(make_trajectory("one two", 3), make_console(has_colour=False))
    assert not COLOUR.search(out)
    assert "[w]" in out


@pytest.mark.usefixtures("every_frame")
def test_the_status_tells_the_action_and_the_counts() -> None:
    trajectory = make_trajectory("some words here", 2)
    wide, narrow = (show(trajectory, make_console(width, has_colour=False))[0] for width in (100, 40))
    num_moves = sum(map(BYTES.alphabet.is_move, trajectory.actions))
    last = f"{len(trajectory.actions):>4}  STOP                    p 0.61"
    assert f"{last}   13 tokens, {num_moves} moves, " in wide
    assert f"{last}\n13 tokens, {num_moves} moves, " in narrow


class Clock:
    """Time that passes only in a model and in sleep."""

    def __init__(self, seconds_an_action: float) -> None:
        self.now, self.slept, self.cost = 100.0, 0.0, seconds_an_action

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds

    def work(self, events: Iterator[Event]) -> Iterator[Event]:
        for event in events:
            self.now += self.cost
            yield event


@pytest.mark.parametrize(
    ("pace", "cost", "seconds"), [(25.0, 0.0, 1 / 25), (25.0, 0.01, 1 / 25), (25.0, 0.2, 0.2), (0.0, 0.01, 0.01)]
)
def test_the_pace_is_kept_and_a_slow_model_is_not_slowed_further(
    pace: float, cost: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, trajectory = Clock(cost), make_trajectory("a few words", 5)
    monkeypatch.setattr(live, "time", clock)
    timed = Timed(clock.work(make_events(trajectory)))
    count = len(list(watch(timed, trajectory.draft, BYTES, make_console(), pace)))
    assert clock.now - 100 == pytest.approx(count * seconds)
    assert timed.seconds == pytest.approx(count * cost)
    assert timed.rate == pytest.approx(1 / cost if cost else 0.0)
    if pace == 0:
        assert clock.slept == 0


def test_no_more_frames_are_drawn_than_an_eye_can_see(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, trajectory = Clock(0.001), make_trajectory("word " * 60, 5, "runs")
    monkeypatch.setattr(live, "time", clock)
    console = make_console()
    list(watch(Timed(clock.work(make_events(trajectory))), trajectory.draft, BYTES, console, 0.0))
    assert isinstance(console.file, io.StringIO)
    num_drawn, num_seconds = console.file.getvalue().count("actions/s"), len(trajectory.actions) * 0.001
    assert 10 < num_drawn <= num_seconds * live.FRAMES_PER_S + 2


@pytest.mark.usefixtures("every_frame")
def test_whoever_leaves_early_finds_a_clean_screen_and_loses_no_action() -> None:
    trajectory, console = make_trajectory("leave me here", 4), make_console(40, 10)
    shown = watch(Timed(make_events(trajectory)), trajectory.draft, BYTES, console, 0.0)
    taken = list(itertools.islice(shown, 5))
    shown.close()
    assert isinstance(console.file, io.StringIO)
    screen = Screen(40, 10).feed(console.file.getvalue().replace("\n", "\r\n"))
    assert (screen.text, screen.has_cursor) == ("", True)
    assert taken == list(make_events(trajectory))[:5]


def test_only_a_terminal_is_drawn_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert live.live_console() is None
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    console = live.live_console()
    assert console is not None
    assert not console.no_color
    monkeypatch.setenv("NO_COLOR", "1")
    plain = live.live_console()
    assert plain is not None
    assert plain.color_system is None
    monkeypatch.setenv("TERM", "dumb")
    assert live.live_console() is None
