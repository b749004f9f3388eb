"""The page in a real browser: it replays what canvas.py replays, by script, by keys and by touch."""

import functools
import json
import math
import tempfile
from pathlib import Path

import pytest
import scramble  # noqa: F401 - registers an order that uses every operator
from chromium import BROWSER
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from laws import pick_valid
from test_tokenizer import unigram, wordpiece

from reviser.actions import JUMP, OPERATORS
from reviser.canvas import CLOSED, FIXED, Canvas, Rules, apply, is_valid, protect
from reviser.orders.record import Draft, Trajectory
from reviser.orders.registry import parse_order
from reviser.orders.rng import Random
from reviser.orders.statistics import Counts
from reviser.tokenizer import load
from reviser.viewer.replay_page import Example, write_page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium; on Debian: apt-get install -y chromium"),
]


@pytest.fixture(autouse=True)
def _quiet(browser):
    """Whatever a test does, the page neither complains nor asks for anything."""
    browser.resize(1280, 800)
    yield
    assert browser.complaints() == []


@functools.cache
def byte_tokenizer():
    return load("bytes")


TEXTS = st.text(alphabet="ab \n\té漢🙂\u0301\u200d\ufe0f🇫🇷👩🚀ع\u202e\u2066\ufeff\x00\x85<&\r", max_size=8).map(
    str.encode
)
"""Bytes of all that is hard to show: accents, flags and families of emoji, marks of direction, controls."""


@st.composite
def trajectories(draw):
    """Any trajectory over bytes with every operator, so that most characters stand in halves on the way."""
    given_text, pool = draw(TEXTS), draw(TEXTS) + b"\xe2\x82\xac" + draw(st.binary(max_size=4))
    size = len(given_text)
    fixed = draw(st.lists(st.sampled_from([0, 0, 0, FIXED, FIXED | CLOSED]), min_size=size, max_size=size))
    marks = (draw(st.sampled_from([0, CLOSED])), *fixed)
    places = Canvas(tuple(given_text), marks=marks).open_boundaries()
    rules = Rules(byte_tokenizer().alphabet, frozenset(OPERATORS), max_length=size + 24)
    draft = Draft(tuple(given_text), draw(st.sampled_from(places)), rules, marks) if places else Draft((), 0, rules)
    canvas, actions = draft.canvas, []
    for number, text in draw(st.lists(st.tuples(st.integers(0, 40), st.sampled_from(list(pool))), max_size=70)):
        # Half of the choices are inserts, or little would ever stand there to edit.
        action = text if number > 20 and is_valid(canvas, text, rules) else pick_valid(canvas, rules, number, text)
        if action != rules.alphabet.stop:
            actions.append(action)
            canvas = apply(canvas, action, rules)
    actions += [65] * canvas.is_replacing + [rules.alphabet.stop]
    return Trajectory(draft, tuple(actions), (True,) * len(actions))


def show(browser, folder, trajectories, tokenizer, **more):
    examples = [Example(each, **more) for each in trajectories]
    write_page(folder / "page.html", examples, tokenizer, "A page")
    browser.open((folder / "page.html").as_uri())


def expect(trajectory, tokenizer):
    """All states as the page reports them."""
    return [
        {
            "tokens": list(state.tokens),
            "cursor": state.cursor,
            "clipboard": list(state.clipboard),
            "isReplacing": state.is_replacing,
            "isStopped": state.is_stopped,
            "text": tokenizer.decode(state.tokens),
        }
        for state in trajectory.states()
    ]


def check_states(browser, index, trajectory, tokenizer):
    """Replayed by script; then shown forwards, backwards and in leaps, read from the page itself."""
    wanted, n = expect(trajectory, tokenizer), len(trajectory.actions)
    assert browser.run(f"Array.from({{length: {n + 1}}}, (_, at) => reviser.state({index}, at))") == wanted
    ways = [*range(n + 1), *range(n, -1, -1), *(37 * step % (n + 1) for step in range(n + 1))]
    read = "{reviser.go(at); return document.querySelector('#canvas').textContent}"
    shown = browser.run(f"reviser.open({index}), {json.dumps(ways)}.map((at) => {read})")
    assert shown == [wanted[at]["text"] for at in ways]


@given(st.lists(trajectories(), min_size=6, max_size=6))
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
def test_every_state_is_the_executors(browser, drawn):
    with tempfile.TemporaryDirectory() as folder:
        show(browser, Path(folder), drawn, byte_tokenizer())
        for index, trajectory in enumerate(drawn):
            check_states(browser, index, trajectory, byte_tokenizer())
            counts = Counts()
            counts.add(trajectory)
            assert bool(browser.run(f"reviser.revisions({index})")) == bool(counts.revised)
    assert browser.complaints() == []


PROSE = "It was a quiet morning; the naïve gulls — all 12 of them — lay still.\n\n“漢字”, said 👩‍🚀. </script>"


def drawn_by(order, tokenizer, text=PROSE, prefix=0, number=1):
    rules = Rules(tokenizer.alphabet, frozenset(OPERATORS), max_length=2048)
    target = tokenizer.encode(text)
    return parse_order(order).draw(Draft.continuation(target[:prefix], rules), target, Random.of(number))


@pytest.mark.parametrize("name", ["default", "wordpiece", "unigram"])
def test_orders_in_other_vocabularies_replay_too(browser, tmp_path, name):
    tokenizer = {"wordpiece": wordpiece, "unigram": unigram}.get(name, functools.partial(load, "default"))()
    text = PROSE if name == "default" else "the boats, lay the boat"
    drawn = [drawn_by(order, tokenizer, text, 2) for order in ("scramble:edit=0.3", "random-walk", "left-to-right")]
    show(browser, tmp_path, drawn, tokenizer)
    for index, trajectory in enumerate(drawn):
        check_states(browser, index, trajectory, tokenizer)


def operators_of(trajectory):
    alphabet = trajectory.draft.rules.alphabet
    return {alphabet.operator(action) for action in trajectory.actions} - {None}


@pytest.fixture
def edited(browser, tmp_path):
    """A page of one trajectory that uses every operator but JUMP."""
    tokenizer = load("default")
    drawn = (drawn_by("scramble:edit=0.3", tokenizer, prefix=3, number=number) for number in range(1, 500))
    trajectory = next(each for each in drawn if operators_of(each) == set(OPERATORS) - {"jump"})
    show(browser, tmp_path, [trajectory], tokenizer)
    return trajectory


def test_playing_to_the_end_gives_the_final_text(browser, edited):
    browser.run("document.querySelector('#speed').value = '100'; reviser.go(0)")
    browser.press(" ", 32)
    assert browser.run("reviser.shown().isPlaying")
    while browser.run("reviser.shown().isPlaying"):
        browser.run("new Promise((done) => setTimeout(done, 50))")
    assert browser.run("reviser.shown().action") == len(edited.actions)
    assert browser.run("document.querySelector('#canvas').textContent") == PROSE
    browser.press(" ", 32)  # from the end it begins anew
    assert browser.run("reviser.shown()")["action"] < len(edited.actions)
    browser.press(" ", 32)
    assert not browser.run("reviser.shown().isPlaying")


def at(browser):
    return browser.run("reviser.shown().action")


def test_keys_step_and_jump(browser, edited):
    n, revisions = len(edited.actions), browser.run("reviser.revisions(0)")
    assert (at(browser), bool(revisions)) == (n, True)
    browser.press("Home", 36)
    assert at(browser) == 0
    for wanted in (1, 2, 3):
        browser.press("ArrowRight", 39)
        assert at(browser) == wanted
    browser.press("ArrowLeft", 37)
    assert at(browser) == 2
    browser.run("reviser.go(0)")
    for wanted in [*revisions, revisions[0]]:
        browser.press("n", 78)
        assert at(browser) == wanted
    browser.press("End", 35)
    assert at(browser) == n
    browser.press("ArrowRight", 39)
    assert at(browser) == n


def centre(browser, selector):
    box = browser.run(f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().toJSON()")
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, box["width"], box["height"]


@pytest.mark.parametrize("is_phone", [False, True])
def test_buttons_scrubber_and_plot_go_where_they_say(browser, edited, is_phone):
    n, revisions = len(edited.actions), browser.run("reviser.revisions(0)")
    if is_phone:
        browser.resize(360, 740, is_phone=True)
    for button, wanted in (
        ("first", 0),
        ("forward", 1),
        ("forward", 2),
        ("back", 1),
        ("last", n),
        ("revision", revisions[0]),
    ):
        x, y, width, height = centre(browser, f"#{button}")
        assert min(width, height) >= 40
        browser.tap(x, y)
        assert at(browser) == wanted, button
    x, y, width, _ = centre(browser, "#scrubber")
    browser.tap(x, y)
    assert abs(at(browser) - n / 2) <= 1
    browser.run("document.querySelector('#path').scrollIntoView({block: 'center'})")
    x, y, width, _ = centre(browser, "#path")
    browser.tap(x - width / 2 + 11 + (width - 22) * 0.25, y)
    assert abs(at(browser) - n * 0.25) <= 0.5
    born = browser.run("document.querySelector('.token:not(.given)').dataset.born")
    browser.run("document.querySelector('.token:not(.given)').click()")
    assert at(browser) == int(born)


@pytest.mark.parametrize("size", [(360, 740), (390, 844), (800, 600), (1280, 800), (1920, 1080)])
def test_nothing_is_wider_than_the_screen(browser, tmp_path, size):
    browser.resize(*size, is_phone=size[0] < 700)
    long = drawn_by("runs", byte_tokenizer(), "x" * 300 + " \u202e" + "long " * 40)
    show(browser, tmp_path, [long, long, long], byte_tokenizer(), title="A title " * 20)
    assert browser.run("[document.documentElement.scrollWidth, innerWidth]") == [size[0], size[0]]


def test_marks_of_direction_and_markup_stay_text(browser, tmp_path):
    text = "<img src=x onerror='window.hit = 1'></script>\u202etfel\u202c \u2067x\u2069 \x00\x1b[31m"
    show(browser, tmp_path, [drawn_by("runs", byte_tokenizer(), text)], byte_tokenizer(), title=f"{text}\n<b>")
    assert browser.run("window.hit ?? null") is None
    assert browser.run("document.querySelectorAll('#layout img, #layout b').length") == 0
    assert browser.run("document.querySelector('#canvas').textContent") == text
    # What turns the direction of writing takes no part in the layout.
    assert "\u202e" not in browser.run("document.querySelector('#canvas').innerText")


def test_what_was_marked_is_marked(browser, tmp_path):
    tokenizer = byte_tokenizer()
    rules = Rules(tokenizer.alphabet, frozenset(OPERATORS), max_length=64)
    alphabet, draft = tokenizer.alphabet, Draft.infill(b"ab", b"yz", rules)
    actions = (99, 100, alphabet.move(-1), 101, alphabet.replace, 102, alphabet.stop)
    show(browser, tmp_path, [Trajectory(draft, actions, (True,) * len(actions))], tokenizer)
    read = "Array.from(document.querySelectorAll('#canvas .{}'), (each) => each.textContent).join('')"
    fresh = [browser.run(f"reviser.go({step}), " + read.format("fresh")) for step in range(len(actions) + 1)]
    assert fresh == ["", "c", "d", "", "e", "", "f", ""]
    assert browser.run("reviser.go(5), " + read.format("pending")) == "e"
    assert browser.run("reviser.go(7), " + read.format("protected")) == "abyz"
    before = "document.querySelector('.cursor').compareDocumentPosition(each) & Node.DOCUMENT_POSITION_PRECEDING"
    tokens = "Array.from(document.querySelectorAll('#canvas .token'))"
    assert browser.run(f"{tokens}.filter((each) => {before}).map((each) => each.textContent).join('')") == "abcf"


def test_a_jump_draws_an_arc_and_names_where_it_lands(browser, tmp_path):
    tokenizer, alphabet = byte_tokenizer(), byte_tokenizer().alphabet
    rules = Rules(alphabet, frozenset(OPERATORS), max_length=64)
    draft = Draft.edit(b"abcdefgh", rules, protect(8, [(0, 2), (4, 6)], ends=[0]))
    actions = (alphabet.jump(3), 120, alphabet.jump(9), alphabet.move(-1), alphabet.jump(2), alphabet.stop)
    ranked = (((alphabet.jump(8), -0.5), (alphabet.jump(6), -1.0), (alphabet.num_text + JUMP, -2.0)),)
    trajectory = Trajectory(draft, actions, (True,) * len(actions))
    show(browser, tmp_path, [trajectory], tokenizer, log_probabilities=(-0.25,), alternatives=ranked)
    text = "Array.from(document.querySelectorAll('{}'), (each) => each.textContent)"
    names = [browser.run(f"reviser.go({step}), " + text.format("#step .action .label"))[0] for step in range(1, 7)]
    assert names == ["JUMP 3 after c", "INSERT x", "JUMP 9 to the end", "MOVE -1", "JUMP 2 after b", "STOP"]
    considered = browser.run("reviser.go(1), " + text.format("#step li .label"))
    assert considered == ["JUMP 8 to the end", "JUMP 6 after f", "JUMP somewhere", "JUMP 3 after c"]
    landings = [browser.run(f"reviser.go({step}), " + text.format("#canvas .landing")) for step in range(7)]
    assert landings == [[], ["c"], [], ["h"], [], ["b"], []]
    arc = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done("
    arc += "[!document.querySelector('#arc').hasAttribute('hidden'), !!document.querySelector('.origin')]))))"
    arcs = [browser.run(f"reviser.go({step}), {arc}") for step in range(7)]
    assert arcs == [[step in (1, 3, 5)] * 2 for step in range(7)]
    spans = [browser.run(text.format(f"#canvas .protected{part}")) for part in ("", ".begins", ".ends")]
    assert spans == [["a", "b", "e", "f"], ["a", "e"], ["b", "f"]]
    assert browser.run("reviser.revisions(0)") == [2]
    assert "100% of insertions not at the end" in browser.run("document.querySelector('#about p').textContent")


def test_a_way_back_is_one_revision_and_an_insert_at_the_end_is_none(browser, tmp_path):
    tokenizer = byte_tokenizer()
    back, forth, stop = tokenizer.alphabet.move(-1), tokenizer.alphabet.move(1), tokenizer.alphabet.stop
    draft = Draft.infill(b"ab", b"yz", Rules(tokenizer.alphabet, max_length=64))
    actions = (99, 100, back, 101, 102, back, forth, forth, 103, back, 104, forth, 105, stop)
    show(browser, tmp_path, [Trajectory(draft, actions, (True,) * len(actions))], tokenizer)
    assert browser.run("reviser.revisions(0)") == [4, 11]


def test_a_step_shows_its_probability_and_what_else_was_considered(browser, tmp_path):
    tokenizer = byte_tokenizer()
    draft = Draft.continuation([], Rules(tokenizer.alphabet))
    stop = tokenizer.alphabet.stop
    actions, ranked = (97, 98, stop), (((97, math.log(0.5)), (stop, math.log(0.25))), ((99, math.log(0.6)),))
    trajectory = Trajectory(draft, actions, (True,) * 3)
    show(browser, tmp_path, [trajectory], tokenizer, log_probabilities=(math.log(0.5), -9.0), alternatives=ranked)
    said = "[row.innerText.replace(/\\s+/g, ' '), row.className]"
    rows = f"Array.from(document.querySelectorAll('#step li'), (row) => {said})"
    assert browser.run(f"reviser.go(1), {rows}") == [["INSERT a 50.0%", "chosen"], ["STOP 25.0%", ""]]
    assert browser.run(f"reviser.go(2), {rows}") == [["INSERT c 60.0%", ""], ["INSERT b <0.1%", "chosen apart"]]
    assert browser.run(f"reviser.go(3), {rows}") == []  # nobody chose this STOP
    assert "-9.69" in browser.run("document.querySelector('#step dl').innerText")


def test_the_list_opens_examples_and_the_button_turns_the_light(browser, tmp_path):
    drawn = [drawn_by("runs", byte_tokenizer(), text) for text in ("one", "two", "")]
    show(browser, tmp_path, drawn, byte_tokenizer())
    titles = "Array.from(document.querySelectorAll('#examples .title'), (each) => each.textContent)"
    assert browser.run(titles) == ["one", "two", "(empty)"]
    x, y, _, _ = centre(browser, "#examples li:nth-child(2) button")
    browser.tap(x, y)
    assert browser.run("document.querySelector('#canvas').textContent") == "two"
    colour = "getComputedStyle(document.body).backgroundColor"
    browser.resize(1280, 800, scheme="dark")
    dark = browser.run(colour)
    browser.tap(*centre(browser, "#theme")[:2])
    light = browser.run(colour)
    browser.resize(1280, 800, scheme="light")
    assert light == browser.run(colour) != dark


def test_a_thousand_actions_in_a_full_canvas_are_stepped_through(browser, tmp_path):
    trajectory = drawn_by("random-walk", byte_tokenizer(), "All work and no play, né? " * 31)
    assert len(trajectory.actions) > 1000
    show(browser, tmp_path, [trajectory], byte_tokenizer())
    check_states(browser, 0, trajectory, byte_tokenizer())


def test_every_control_has_a_name(browser, edited):
    controls = "Array.from(document.querySelectorAll('button, input, select, svg[role=img]'))"
    named = "each.getAttribute('aria-label') || each.textContent.trim()"
    assert browser.run(f"{controls}.filter((each) => !({named})).length") == 0
    assert browser.run("document.querySelectorAll('[onclick], div[role=button]').length") == 0
