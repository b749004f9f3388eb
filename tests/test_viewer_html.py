"""The page as text: it needs nothing else, no text can end it early, and it grows with the actions."""

import dataclasses
import json
import math
import os
import re
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tokenizer import small, unigram, wordpiece

from reviser.actions import OPERATORS
from reviser.canvas import Rules
from reviser.cli import main
from reviser.errors import ConfigError, DataError, TokenizerError
from reviser.orders.record import Draft, Trajectory
from reviser.orders.registry import parse_order
from reviser.orders.rng import Random
from reviser.tokenizer import load
from reviser.viewer.replay_page import STATIC, Example, page, write_page

BYTES = load("bytes")
HOSTILE = "</script><script>alert(1)</script><!-- <script> {{data}} \u202e\u2066\u2028\x00\ufeff\x85 &amp; \"'"
BEYOND = ("http:", "https:", "//www", "url(", "@import", "import(", "fetch(", "XMLHttpRequest", "WebSocket",
          "sendBeacon", "eval(", "localStorage")  # fmt: skip


def draw(text, tokenizer=BYTES, order="runs:jump=0.2", prefix=0, number=0):
    chosen, target = parse_order(order), tokenizer.encode(text)
    rules = Rules(tokenizer.alphabet, frozenset(OPERATORS), max_length=4096)
    return chosen.draw(Draft.continuation(target[:prefix], rules), target, Random.of(number))


class Reader(HTMLParser):
    """Tags, their attributes, and the text of each tag by its name or id."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.here = [], {}, ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.here = dict(attrs).get("id", tag)

    def handle_endtag(self, tag):
        self.here = ""

    def handle_data(self, data):
        self.texts[self.here] = self.texts.get(self.here, "") + data


def data_of(text):
    return json.loads(Reader(text).texts["data"])


def read_back(data, tokens):
    """The text of tokens as the page spells them."""
    spelled = [data["pieces"][str(token)] for token in tokens]
    chosen = [each if isinstance(each, str) else each[place == 0] for place, each in enumerate(spelled)]
    return "".join(chosen).encode("latin-1").decode("utf-8", "replace")


def test_the_page_needs_nothing_but_itself():
    text = page([Example(draw("Nothing from outside."))], BYTES, "A title")
    tags = Reader(text).tags
    assert not [attributes for _, attributes in tags if {"src", "href", "srcset", "data", "action"} & set(attributes)]
    assert {tag for tag, _ in tags}.isdisjoint({"link", "iframe", "img", "object", "embed", "base", "form"})
    assert not [word for word in BEYOND if word in text]
    policy = next(each["content"] for _, each in tags if each.get("http-equiv") == "Content-Security-Policy")
    assert policy.split("; ") == ["default-src 'none'", "style-src 'unsafe-inline'", "script-src 'unsafe-inline'"]


@given(st.text(max_size=40) | st.just(HOSTILE), st.text(max_size=20) | st.just(HOSTILE))
@settings(max_examples=40)
def test_no_text_and_no_title_can_leave_its_place(text, title):
    plain = Reader(page([Example(draw("plain"))], BYTES, "plain"))
    html = page([Example(draw(text), title)], BYTES, title)
    assert [tag for tag, _ in Reader(html).tags] == [tag for tag, _ in plain.tags]
    data = data_of(html)
    assert Reader(html).texts["data"].isascii()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", html)
    assert read_back(data, draw(text).final.tokens) == text


@given(
    st.sampled_from([BYTES, small(), wordpiece(), unigram()]).flatmap(
        lambda tokenizer: st.tuples(
            st.just(tokenizer),
            st.lists(st.sampled_from([id for id in range(tokenizer.num_text) if id != tokenizer.pad]), max_size=12),
        )
    )
)
def test_what_the_page_spells_is_what_the_tokenizer_decodes(drawn):
    tokenizer, tokens = drawn
    draft = Draft.edit(tokens, Rules(tokenizer.alphabet))
    data = data_of(page([Example(Trajectory(draft, (tokenizer.alphabet.stop,), (True,)))], tokenizer, ""))
    assert read_back(data, tokens) == tokenizer.decode(tokens)


def test_the_page_holds_seed_actions_scores_and_noise_as_they_are():
    drawn = draw("abcdef ghij", order="runs:noise=0.4", prefix=3, number=2)
    assert not all(drawn.has_loss)
    n = len(drawn.actions)
    scores = (*(-0.12345 * step for step in range(n - 2)), -math.inf)
    ranked = tuple(((97, -0.5), (BYTES.alphabet.stop, -math.inf)) for _ in range(n - 1))
    [got] = data_of(page([Example(drawn, "x < y", scores, ranked)], BYTES, "t"))["examples"]
    assert (got["draft"], got["cursor"], got["marks"]) == ([97, 98, 99], 3, [2, 3, 3, 1])
    assert tuple(got["actions"]) == drawn.actions
    assert [index not in got["noise"] for index in range(n)] == list(drawn.has_loss)
    assert got["title"] == "x < y"
    assert got["scores"] == [round(-0.12345 * step, 4) for step in range(n - 2)] + [None]
    assert got["alternatives"][0] == [97, -0.5, BYTES.alphabet.stop, None]


def test_the_page_knows_every_action_behind_the_text():
    alphabet = BYTES.alphabet
    special = data_of(page([Example(draw("a"))], BYTES, ""))["special"]
    assert len(special) == alphabet.size - alphabet.num_text
    for action, (name, operator, operand) in enumerate(special, alphabet.num_text):
        assert name == alphabet.name(action)
        assert operator == (alphabet.operator(action) or name.lower())
        assert operand == (alphabet.distance(action) or alphabet.span(action))


def scored(num_actions):
    """An example of long ids, with five alternatives an action and hardly any token twice."""
    tokenizer = load("default")
    tokens = [1 + (7919 * step) % (tokenizer.num_text - 1) for step in range(6 * num_actions)]
    draft = Draft.continuation([], Rules(tokenizer.alphabet, max_length=4096))
    actions = (*tokens[: num_actions - 1], tokenizer.alphabet.stop)
    scores = tuple(-1.23456 - step for step in range(num_actions))
    ranked = tuple(tuple((token, -2.34567) for token in tokens[step::num_actions][:5]) for step in range(num_actions))
    return Example(Trajectory(draft, actions, (True,) * num_actions), "", scores, ranked), tokenizer


def test_size_grows_with_the_actions_alone():
    sizes = {n: len(page([scored(n)[0]], scored(n)[1], "").encode()) for n in (1, 250, 500, 1000)}
    static = sum(path.stat().st_size for path in STATIC.iterdir())
    assert sizes[250] - static < 200_000
    assert sizes[1000] - sizes[500] < 2.2 * (sizes[500] - sizes[250])
    assert static < 60_000


def test_static_files_travel_with_the_package():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf8"))
    globs = project["tool"]["setuptools"]["package-data"]["reviser"]
    shipped = {path for glob in globs for path in STATIC.parents[1].glob(glob)}
    assert set(STATIC.iterdir()) <= shipped


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"log_probabilities": (0.0,) * 99}, ConfigError, "example 0 has 99 log_probabilities for 4 actions"),
        ({"alternatives": ((),) * 99}, ConfigError, "example 0 has 99 alternatives for 4 actions"),
    ],
)
def test_what_does_not_belong_together_is_named(change, error, text):
    example = Example(draw("abc", order="left-to-right"))
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        page([dataclasses.replace(example, **change)], BYTES, "")


def test_a_page_needs_an_example_and_its_tokenizer():
    with pytest.raises(ConfigError, match=r"^a page needs at least one example$"):
        page([], BYTES, "")
    with pytest.raises(
        TokenizerError, match=r"^example 0 has 257 text tokens and end of text 256, the tokenizer \d+ "
    ):
        page([Example(draw("abc"))], load("default"), "")


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    target, example = tmp_path / "new" / "page.html", Example(draw("abc"))
    write_page(target, [example], BYTES, "t")
    assert target.read_text("utf-8") == page([example], BYTES, "t")
    with pytest.raises(DataError, match=r"^cannot write .*/new: Is a directory; give another file$"):
        write_page(target.parent, [example], BYTES, "t")
    with pytest.raises(DataError, match=r"^cannot write .*/page.html/x.html: File exists; give another file$"):
        write_page(target / "x.html", [example], BYTES, "t")
    before = target.read_text("utf-8")

    def fail(self, other):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(DataError, match=r"No space left on device; give another file$"):
        write_page(target, [example], BYTES, "another")
    assert [path.name for path in target.parent.iterdir()] == ["page.html"]
    assert target.read_text("utf-8") == before


def test_show_writes_a_page_and_prints_nothing(capsys, tmp_path):
    made, out = tmp_path / "made.jsonl", tmp_path / "made.html"
    main(["trajectory", "make", "Hello there, world.", "--count", "3", "--tokenizer", "bytes"])
    made.write_text(capsys.readouterr().out, "utf8")
    assert main(["trajectory", "show", str(made), "--html", str(out)]) == 0
    assert capsys.readouterr() == ("", f"wrote {out}\n")
    text = out.read_text("utf8")
    assert len(data_of(text)["examples"]) == 3
    assert Reader(text).texts["title"] == "made.jsonl: runs"
    assert main(["trajectory", "show", str(made), "--index", "1", "--html", str(out)]) == 0
    [one] = data_of(out.read_text("utf8"))["examples"]
    assert one["actions"] == json.loads(made.read_text("utf8").splitlines()[1])["actions"]


def test_show_refuses_two_tokenizers_in_one_page(capsys, tmp_path):
    made, out = tmp_path / "made.jsonl", tmp_path / "made.html"
    for name in ("bytes", "default"):
        main(["trajectory", "make", "Hello.", "--tokenizer", name])
    made.write_text(capsys.readouterr().out, "utf8")
    capsys.readouterr()
    assert main(["trajectory", "show", str(made), "--html", str(out)]) == 2
    err = capsys.readouterr().err
    assert err == (
        f"error: {made}, line 2 was made with another tokenizer than line 1, and a page has one; "
        "choose a trajectory with --index\n"
    )
    assert not out.exists()
