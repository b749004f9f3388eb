"""What a server says is kept and printed without the key and without control over the terminal."""

from __future__ import annotations

import json
import re

import pytest
from chat_server import KEY, fail, serve
from hypothesis import given
from hypothesis import strategies as st

from reviser.errors import ConfigError, make_visible
from reviser.evaluation.judges.endpoint import Endpoint, UnansweredError
from reviser.evaluation.judges.exchange import LONGEST_ERROR
from reviser.evaluation.judges.redaction import LONGEST_QUOTE, drop_started_key, hide_key, quote

pytest.importorskip("httpx")

keys = st.text(alphabet='0123456789-"\\/', min_size=2, max_size=40)
"""Of characters that nothing around them has, so that a single one of them in a quote is a leak."""
texts = st.text(alphabet="ABC \n\t,.", max_size=300)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@given(texts, keys, texts, st.data())
def test_a_quote_shows_nothing_of_the_key_wherever_the_text_was_cut(
    before: str, key: str, after: str, data: st.DataObject
) -> None:
    for form in (key, json.dumps(key)[1:-1]):
        whole = before + form + after
        cut = data.draw(st.integers(0, len(whole)))
        for said in (quote(whole, key), quote(whole[:cut], key, is_cut=True)):
            assert not re.search(r'[0-9"\\/-]', said)
            assert len(said) <= LONGEST_QUOTE


@given(st.text(), st.text())
def test_a_quote_is_one_printable_line_and_plain_text_stays(text: str, key: str) -> None:
    assert quote(text, key).isprintable()
    plain = " ".join(text.split())
    if plain.isprintable() and len(plain) <= LONGEST_QUOTE:
        assert quote(text, "") == plain


def test_control_characters_are_shown() -> None:
    assert make_visible("a\x1b]0;title\x07\x9b2J\u202eb\ud800") == "a\\x1b]0;title\\x07\\x9b2J\\u202eb\\ud800"
    assert make_visible("naïve 漢字 😀") == "naïve 漢字 😀"


def test_only_a_beginning_of_the_key_is_dropped() -> None:
    assert drop_started_key("x sk-12sk-1", "sk-123") == "x sk-12"
    assert drop_started_key("nothing of it", "sk-123") == "nothing of it"
    assert drop_started_key("anything", "") == "anything"
    assert hide_key("anything", "") == "anything"


@pytest.mark.parametrize("seen", [0, 1, 15, 28, 29])
def test_an_error_body_cut_inside_the_key_shows_none_of_it(seen: int) -> None:
    """The body is read up to a limit; `seen` characters of the key lie before it."""
    body = " " * (LONGEST_ERROR - seen - 5) + "bad: " + KEY + " " * 99
    with (
        serve(lambda number, asked: (500, {}, body.encode())) as server,
        pytest.raises(UnansweredError, match="500 bad:, after 1 of 1 tries"),
    ):
        Endpoint(server.url, "m", KEY, retries=0).ask([])


def test_a_server_has_no_say_over_the_terminal() -> None:
    answers = [fail(500, "\x1b[2J\x1b]0;me\x07 gone\u202e"), (401, {}, b"<p>\x1b[31m\xc2\x9b\r\n\0</p>")]
    with serve(lambda number, asked: answers[number]) as server:
        endpoint = Endpoint(server.url, "m", KEY, retries=0)
        with pytest.raises(UnansweredError, match=re.escape(r"500 \x1b[2J\x1b]0;me\x07 gone\u202e, after")):
            endpoint.ask([])
        with pytest.raises(ConfigError, match=re.escape(r"401 <p>\x1b[31m\x9b \x00</p>; correct the variable")):
            endpoint.ask([])
