"""The page at / for everyone: contrast, names, sizes, and marks that stand where the words are."""

from pathlib import Path

import pytest
from chromium import BROWSER
from page import DRAFT, Opened, Proofreader
from served import ScriptedService, serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium; on Debian: apt-get install -y chromium"),
]
CHECKS = (Path(__file__).parent / "page_checks.js").read_text("utf-8")


@pytest.fixture(scope="module")
def proofreader():
    with serving(Proofreader(), ScriptedService) as running:
        yield running


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 860), (390, 844), (320, 640)])
def test_it_can_be_read_named_and_touched_everywhere(browser, proofreader, scheme, size):
    page = Opened(browser, proofreader)
    browser.resize(*size, is_phone=size[0] < 700, scheme=scheme)

    def look():
        assert browser.run(CHECKS) == {"pale": [], "unnamed": [], "small": [], "width": size[0]}

    look()
    page.type(DRAFT)
    page.settle(3)
    look()
    browser.press("ArrowDown", 40, "Alt")
    page.wait_for("#card .ways button")
    look()
    browser.press("Escape", 27)
    page.click("#help")
    page.wait_for("#about")
    look()


def test_the_page_has_one_heading_one_main_and_a_language(browser, proofreader):
    page = Opened(browser, proofreader)
    assert [len(page.all(name)) for name in ("h1", "main", "header", "aside")] == [1, 1, 1, 1]
    assert browser.run("document.documentElement.lang") == "en"
    ids = page.all("[id]", "each.id")
    assert len(ids) == len(set(ids))


def test_the_marks_stand_where_the_words_are(browser, proofreader):
    """The mirror and the text area lay out the same text in the same lines."""
    page = Opened(browser, proofreader)
    page.type("")
    text = ("A line that wraps  somewhere, teh end. " * 12 + "\n\n\ttabbed ") * 2
    browser.send("Input.insertText", text=text)
    browser.wait("document.querySelectorAll('#mirror mark').length > 10")
    for width in (1280, 700, 390):
        browser.resize(width, 800)
        field, mirror = page.all("#text, #mirror", "each.scrollHeight")
        assert field <= mirror
        for name in ("font", "padding", "width", "letterSpacing", "whiteSpace", "overflowWrap", "tabSize"):
            one, other = page.all("#text, #mirror", f"getComputedStyle(each).{name}")
            assert one == other, name
