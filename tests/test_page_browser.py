"""The page at / in a real browser, against a real server: type, accept, fill, watch, reload; by mouse and keys."""

import json
import subprocess
import tempfile
from pathlib import Path

import pytest
from chromium import BROWSER
from page import DRAFT, FIXED, Opened, Proofreader
from served import ScriptedService, make_writer, serving

from reviser.decoding.writer import Writer
from reviser.orders.record import from_record
from reviser.proofreading.proofread import CHANGES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium; on Debian: apt-get install -y chromium"),
]


@pytest.fixture(scope="module")
def proofreader():
    with serving(Proofreader(), ScriptedService) as running:
        yield running


@pytest.fixture(scope="module")
def shipped():
    with serving(Writer.from_pretrained()) as running:
        yield running


@pytest.fixture(scope="module")
def wild():
    """A model that edits at random, for real."""
    with serving(make_writer("jump", "delete", "replace", context=200)) as running:
        yield running


def test_what_is_typed_is_corrected_above_its_words_and_survives_a_reload(browser, proofreader):
    page = Opened(browser, proofreader)
    assert page.shows("#samples")
    page.type(DRAFT)
    page.settle(3)
    assert not page.shows("#samples")
    assert page.all("#suggestions del") == ["recieve", "teh", "very"]
    assert page.all("#suggestions ins") == page.all("#mirror .above") == ["receive", "the"]
    page.click("#suggestions li:nth-child(2) .yes")
    assert page.value == DRAFT.replace("teh", "the")
    page.settle(2)
    page.reload()
    assert page.value == DRAFT.replace("teh", "the")
    page.settle(2)
    page.check_quiet()


def test_undo_takes_back_what_was_accepted_rejected_and_kept(browser, proofreader):
    page = Opened(browser, proofreader)
    page.type(DRAFT)
    page.settle(3)
    page.click("#accept-all")
    assert page.value == FIXED
    page.wait_without("#suggestions")
    page.undo()
    assert page.value == DRAFT
    page.settle(3)
    page.click("#suggestions li .no")
    page.settle(2)
    browser.run("document.querySelector('#text').focus()")
    page.undo()
    page.settle(3)
    assert page.value == DRAFT
    page.click("#suggestions li .show")
    page.click("#card .row button:last-child")
    page.settle(2)
    assert page.all("#words li") == ["recieve"]
    page.reload()
    page.settle(2)
    page.click("#words li button")
    page.settle(3)
    page.check_quiet()


def test_only_the_sentence_that_changed_is_asked_for_again(browser, proofreader):
    page = Opened(browser, proofreader)
    asked = proofreader.service.writer.asked
    page.type("All is well here. I recieve all of teh books.\nAnother line is here.")
    page.settle(2)
    browser.wait("!document.body.classList.contains('is-busy')")
    asked.clear()
    page.type(" And dont go.")
    page.settle(3)
    tokenizer = proofreader.service.writer.tokenizer
    open_texts = [
        "".join(
            piece for place, piece in enumerate(tokenizer.pieces(draft.tokens)) if not draft.canvas.is_fixed(place)
        )
        for draft in asked
    ]
    assert open_texts
    assert all("dont go" in text or "don't go" in text for text in open_texts)
    assert not any("recieve" in text or "Another" in text for text in open_texts)


def test_a_card_shows_how_sure_the_model_is_and_what_else_it_considered(browser, proofreader):
    page = Opened(browser, proofreader)
    page.type(DRAFT)
    page.settle(3)
    box = browser.run("document.querySelector('#mirror mark').getBoundingClientRect().toJSON()")
    browser.move(box["x"] + 5, box["y"] + box["height"] / 2)
    page.wait_for("#card .ways button")
    assert "% sure" in page.all("#card .why")[0]
    assert page.all("#card .ways button") == ["another20%"]
    page.click("#card .ways button")
    assert page.value == DRAFT.replace("recieve", "another")
    page.check_quiet()


def test_everything_can_be_done_by_keys(browser, proofreader):
    page = Opened(browser, proofreader)
    page.type(DRAFT)
    page.settle(3)
    browser.press("ArrowDown", 40, "Alt")
    page.wait_for("#card")
    browser.press("Enter", 13, "Alt")
    page.settle(2)
    browser.press("ArrowDown", 40, "Alt")
    page.wait_for("#card")
    browser.press("Backspace", 8, "Alt")
    page.settle(1)
    browser.press("Tab", 9)
    seen = []
    for _ in range(30):
        seen.append(page.focused)
        if "yes" in seen[-1]:
            break
        browser.press("Tab", 9)
    assert "yes" in seen[-1]
    browser.press("Enter", 13)
    page.wait_without("#suggestions")
    assert page.focused == "text"
    page.check_quiet()


def test_copies_hold_the_changes(browser, proofreader):
    page = Opened(browser, proofreader)
    browser.run("navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }")
    page.type("One line.\nI recieve all of teh books.\nLast line.")
    page.settle(2)
    page.click("#suggestions li .yes")
    page.settle(1)

    def copy(kind):
        page.click("#copy")
        page.click(f"[data-copy={kind}]")
        browser.wait("window.copied")
        return browser.run("(() => { const text = window.copied; window.copied = ''; return text; })()")

    assert copy("text") == "One line.\nI receive all of teh books.\nLast line."
    assert copy("changes") == "One line.\nI {--recieve--}{++receive++} all of {--teh--}{++the++} books.\nLast line."
    patch = copy("patch")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "text.txt").write_text("One line.\nI recieve all of teh books.\nLast line.")
        subprocess.run(["git", "apply", "-"], input=patch, text=True, cwd=folder, check=True)
        assert Path(folder, "text.txt").read_text() == "One line.\nI receive all of the books.\nLast line."


LINES = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm\n"
TEXTS = [
    "",
    "a",
    "a\n",
    "\n\n",
    "b\nc",
    LINES,
    LINES.replace("e", "E"),
    LINES.replace("c\n", "").replace("l", "L"),
    LINES[:-1],
]


def test_patches_are_what_git_applies_and_changes_lead_to_the_other_text(browser, proofreader, tmp_path):
    Opened(browser, proofreader)
    pairs = [(old, new) for old in TEXTS for new in TEXTS]
    script = (
        "import('/static/exports.js').then((it) => {pairs}.map(([a, b]) => "
        "[it.toPatch(a, b), it.applyChanges(a, it.findChanges(a, b))]))"
    )
    for (old, new), (patch, changed) in zip(
        pairs, browser.run(script.replace("{pairs}", json.dumps(pairs))), strict=True
    ):
        assert changed == new
        assert bool(patch) == (old != new)
        if patch and old and new:
            (tmp_path / "text.txt").write_text(old)
            subprocess.run(["git", "apply", "-"], input=patch, text=True, cwd=tmp_path, check=True)
            assert (tmp_path / "text.txt").read_text() == new


def test_gaps_are_filled_from_several_ways(browser, shipped):
    page = Opened(browser, shipped)
    page.type("The old lighthouse ___ until morning, and the ___ slept.")
    assert page.all("#mirror .blank") == ["___", "___"]
    page.click("#fill")
    page.wait_for("#fillings li button")
    assert 1 < len(page.all("#fillings li")) <= 5
    assert len(page.all("#fillings li:first-child ins")) == 2
    assert page.focused == "filling"
    browser.press("Enter", 13)
    browser.wait("!document.querySelector('#text').value.includes('___')")
    filled = page.value
    assert filled.startswith("The old lighthouse")
    assert filled.endswith(" slept.")
    assert " until morning, and the" in filled
    page.wait_for("#runs li a")
    page.undo()
    assert page.value == "The old lighthouse ___ until morning, and the ___ slept."
    browser.run("document.querySelector('#text').setSelectionRange(4, 7)")
    page.click("#fill")
    browser.wait("document.querySelectorAll('#fillings li:first-child ins').length === 1")
    page.click("#close-fillings")
    assert not page.shows("#fillings")
    page.check_quiet()


def test_a_continuation_is_watched_kept_and_replayed(browser, shipped):
    page = Opened(browser, shipped)
    start = "The museum was opened in 1924 and "
    browser.run("window.blobs = []; window.link = URL.createObjectURL")
    browser.run("URL.createObjectURL = (it) => (blobs.push(it), link(it))")
    page.type(start)
    page.click("#continue")
    browser.wait("document.querySelector('#live .caret')")
    assert page.shows("#live")
    page.wait_for("#keep")
    assert page.value == start
    assert page.all("#live ins")[0].strip()
    browser.press("Enter", 13)
    written = page.value
    assert written.startswith(start.rstrip())
    assert len(written) > len(start) + 5
    assert not page.shows("#live")
    page.wait_for("#runs li a")
    record = json.loads(browser.run("blobs.at(-1).text()"))
    assert shipped.service.writer.tokenizer.decode(from_record(record).final.tokens) == written
    page.undo()
    assert page.value == start
    page.check_quiet()
    # The replay is under the page's own policy and still runs.
    href = browser.run("document.querySelector('#runs a').href")
    browser.open(href)
    browser.wait("document.querySelector('#canvas')?.textContent")
    assert browser.run("document.querySelector('#canvas').textContent") == written
    assert browser.complaints(shipped.url) == []


def test_a_run_can_be_stopped_and_what_there_is_can_be_kept(browser, shipped):
    page = Opened(browser, shipped)
    page.type("The museum")
    page.click("#continue")
    browser.wait("document.querySelectorAll('#live .written').length")
    browser.press("Escape", 27)
    page.wait_for("#result")
    assert "you stopped it" in page.all("#result .note")[0] or page.shows("#keep")
    page.wait_for("#runs li a")
    browser.press("Escape", 27)
    assert page.value == "The museum"
    assert not page.shows("#live")


def test_a_draft_is_revised_live_and_each_change_can_be_left_out(browser, wild):
    page = Opened(browser, wild)
    still = {"name": "prefers-reduced-motion", "value": "reduce"}
    browser.send("Emulation.setEmulatedMedia", features=[still])
    text = "He go home."
    page.type(text)
    page.click("#revise")
    page.wait_for("#result")
    if page.shows("#keep"):
        script = "const copy = document.querySelector('#live').cloneNode(true); "
        script += "copy.querySelectorAll('del').forEach((each) => each.remove()); return copy.textContent"
        result = browser.run(f"(() => {{ {script} }})()")
        count = len(page.all(".flip"))
        page.click(".flip")
        assert browser.run("document.querySelectorAll('.flip[aria-pressed=false]').length") == 1
        page.click(".flip")
        assert len(page.all(".flip")) == count
        page.click("#keep")
        assert page.value == result
    page.wait_for("#runs li a")


def test_the_shipped_model_proofreads_where_it_can_and_says_so_where_not(browser, shipped):
    page = Opened(browser, shipped)
    can = bool(set(CHANGES) & set(shipped.service.writer.config.operators))
    page.type("We is sorry for the trouble, and nobody had recieved the the agenda.")
    if can:
        browser.wait("document.querySelectorAll('#suggestions li').length >= 2")
        page.click("#accept-all")
        assert "recieved" not in page.value
    else:
        assert browser.run("document.querySelector('#proofread').getAttribute('aria-disabled')") == "true"
        assert "not with this model" in page.all("#cannot")[0]
        page.click("#proofread")
        page.wait_for("#toast")
        assert "cannot delete or replace" in page.all("#toast p")[0]
    page.check_quiet()


def test_a_token_is_asked_for_and_errors_are_one_line(browser):
    with serving(make_writer("move"), token="secret", max_characters=60) as served:
        browser.open(served.url)
        browser.run("localStorage.clear(); sessionStorage.clear()")
        browser.open(served.url)
        browser.wait("document.querySelector('#token').checkVisibility()")
        assert browser.run("document.activeElement.id") == "token-field"
        browser.resize(320, 640, is_phone=True)
        assert browser.run("document.documentElement.scrollWidth") == 320
        browser.resize(1280, 860)
        browser.type("wrong")
        browser.press("Enter", 13)
        browser.wait("document.querySelector('#notice p').textContent.includes('does not know this token')")
        browser.type("secret")
        browser.press("Enter", 13)
        browser.wait("!document.querySelector('#notice').checkVisibility() && document.title !== 'reviser'")
        browser.run("document.querySelector('#text').focus()")
        browser.type("word " * 20)
        browser.run("document.querySelector('#continue').click()")
        browser.wait("document.querySelector('#notice p').textContent.includes('more than the server takes')")
        assert browser.run("document.querySelector('#text').value") == "word " * 20
        served.service.num_admitted = 10**6
        browser.run("document.querySelector('#text').select(); document.execCommand('insertText', false, 'Once')")
        browser.run("document.querySelector('#continue').click()")
        browser.wait("document.querySelector('#notice p').textContent.includes('is busy')")
        served.service.num_admitted = 0
        browser.wait("document.querySelector('#result').checkVisibility()")
        assert not browser.run("document.querySelector('#notice').checkVisibility()")
        browser.press("Escape", 27)
        served.service.is_draining = True
        browser.run("document.querySelector('#continue').click()")
        browser.wait("document.querySelector('#notice p').textContent.includes('is shutting down')")
        served.service.is_draining = False
        browser.run("document.querySelector('#notice-act').click()")
        browser.wait("document.querySelector('#result').checkVisibility()")
