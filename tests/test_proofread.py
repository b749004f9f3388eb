"""A text of any length and what a model makes of it: windows, passes, what is left out, and the same again."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import FIXES, OPERATORS, ScriptedWriter, fix
from test_formats import HTML, LATEX, MARKDOWN, RST
from test_tokenizer import wordpiece
from tiny import WORDS, random_model

from reviser.canvas import FIXED, Rules
from reviser.cli import main
from reviser.config import ModelConfig
from reviser.decoding.presets import GREEDY, Sampling
from reviser.decoding.requests import edit_budget
from reviser.decoding.writer import Writer
from reviser.errors import ConfigError, DataError, TokenizerError
from reviser.evaluation.correction.correctors import ModelCorrector
from reviser.proofreading.choices import Proofreading
from reviser.proofreading.proofread import compare_cuts
from reviser.proofreading.spans.formats import find_protected
from reviser.proofreading.windows import Room, cut_windows, make_draft
from reviser.tokenizer import load

SCRIPTED = ScriptedWriter()
BYTES, WORDY = load("bytes"), load("default")


def random_prose(chance: random.Random, num_sentences: int) -> str:
    """Sentences with a misspelling in every second one."""
    parts = []
    for number in range(num_sentences):
        words = chance.choices(WORDS, k=chance.randint(3, 14))
        if number % 2:
            words[chance.randrange(len(words))] = chance.choice(list(FIXES))
        parts.append(" ".join(words).capitalize() + chance.choice([". ", ".\n\n", "! ", ". "]))
    return "".join(parts)


def big_markdown(num_bytes: int = 100_000) -> tuple[str, list[str]]:
    """Markdown with misspellings in prose and in code, and all of its code."""
    chance, parts, codes = random.Random(1), list[str](), list[str]()
    while sum(map(len, parts)) < num_bytes:
        code = f"```python\nteh = '{chance.random()}'  # recieve\n\nalot(teh)\n```"
        inline = f"`teh_{len(parts)} recieve`"
        link = f"(https://teh.org/recieve/{len(parts)})"
        codes += [inline, link, code]
        parts.append(f"## Teh part\n\n{random_prose(chance, 6)}See {inline} and [teh page]{link}.\n\n{code}\n\n")
    return "".join(parts), codes


def test_a_big_file_keeps_its_code_and_a_second_run_changes_nothing() -> None:
    text, codes = big_markdown()
    edited = SCRIPTED.edit(text, format="markdown")
    assert len(text) >= 100_000
    rest = edited.text
    for code in codes:
        assert code in rest
        rest = rest.replace(code, "", 1)
    assert not re.search(rf"\b(?:{'|'.join(FIXES)})\b", rest)
    assert len(edited.edits) > 500
    again = SCRIPTED.edit(edited.text, format="markdown")
    assert again.edits == ()
    assert again.text == edited.text


@settings(max_examples=4)
@given(st.sampled_from([MARKDOWN, RST, LATEX, HTML]), st.integers(0, 9), st.booleans())
def test_protected_text_stays_whatever_a_model_does(text: str, seed: int, has_windows_lines: bool) -> None:
    format = {MARKDOWN: "markdown", RST: "rst", LATEX: "latex", HTML: "html"}[text]
    if has_windows_lines:
        text = text.replace("\n", "\r\n")
    edited = random_writer().edit(text, format=format, seed=seed, sampling=LIVELY, min_probability=0.0, passes=2)
    assert edited.original == text
    assert all(text[edit.start : edit.end] == edit.before != edit.after for edit in edited.edits)
    assert all(left.end <= right.start for left, right in pairwise(edited.edits))
    assert edited.text.count("\r\n") == text.count("\r\n")
    old, new = (each.replace("\r\n", "\n") for each in (text, edited.text))
    assert find_markup(new, format) == find_markup(old, format)


def find_markup(text: str, format: str) -> str:
    """All that is protected, without white space, as a parser finds it."""
    return "".join("".join(text[start:end].split()) for start, end in find_protected(text, format))


LIVELY = Sampling(1.2, 0, stop_bias=-3.0, jump_bias=10.0)
_MODELS: dict[str, Writer] = {}


def random_writer() -> Writer:
    """A model that makes any edits at all."""
    if not _MODELS:
        config = ModelConfig(
            num_text=WORDY.num_text, pad=WORDY.pad, num_layers=1, width=16, num_heads=1, ff_width=16, context=160,
            max_length=120, operators=OPERATORS,
        )  # fmt: skip
        _MODELS["random"] = Writer(random_model(config, seed=3), WORDY)
    return _MODELS["random"]


def test_a_random_model_does_make_edits() -> None:
    edited = random_writer().edit(
        "The cat sat on the mat. It slept there.", sampling=LIVELY, min_probability=0.0, passes=1
    )
    assert edited.edits
    assert edited.text != edited.original
    assert repr(edited).endswith(f"{len(edited.edits)} edits)")


def test_windows_are_no_longer_than_the_drafts_that_a_model_learned() -> None:
    config = replace(SCRIPTED.model.config, context=1024, max_length=1024)
    free = Room.of(config)
    assert (free.most, free.context, free.core) == (613, 102, 409)
    short = Room.of(config, "prefix=0,128 edit=0.65 draft=1,180 around=0,48")
    assert (short.most, short.context, short.core) == (276, 48, 180)
    assert Room.of(config, "edit=1.0 draft=1,9000 around=0,9000") == free
    assert Room.of(config, "edit=0.0 pairs=0.0 draft=8,160 around=0,48") == free
    writer = Writer(random_model(config), SCRIPTED.tokenizer, jobs="edit=0.65 draft=1,180 around=0,48")
    assert writer.room == short


def edit_by_command(writer: Writer, text: str, path: Path) -> None:
    path.write_text(text)
    assert main(["edit", "--model", "shipped", str(path)]) == 0


def correct(writer: Writer, text: str, _: Path) -> None:
    ModelCorrector("ours", writer, GREEDY).correct(text)


def revise(writer: Writer, text: str, _: Path) -> None:
    writer.editor(Proofreading(by="scan"))([text], closed=[[]])


@pytest.mark.parametrize("way", [edit_by_command, correct, revise, lambda writer, text, _: writer.edit(text)])
def test_whoever_proofreads_takes_windows_of_the_learned_size(
    way: Callable[[Writer, str, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = ScriptedWriter(context=400)
    writer.room = Room.of(writer.config, "edit=1.0 draft=1,20 around=0,6")
    monkeypatch.setattr(Writer, "from_pretrained", lambda *_, **__: writer)
    way(writer, "They walked along teh quiet river in the morning. " * 12, tmp_path / "text.txt")
    assert len(writer.asked) >= 6
    assert max(len(draft.tokens) for draft in writer.asked) <= 32


@settings(max_examples=30)
@given(st.integers(0, 1 << 20), st.integers(20, 200))
def test_windows_cover_the_prose_in_order_and_fit(seed: int, most: int) -> None:
    chance = random.Random(seed)
    text = "".join(chance.choice([random_prose(chance, 4), MARKDOWN, "é€" * 40, " ", "word " * 60]) for _ in range(3))
    protected = find_protected(text, "markdown")
    tokenizer = SCRIPTED.tokenizer
    room = Room(most, most // 6, most - 2 * (most // 6))
    windows = cut_windows(text, protected, tokenizer, room)
    assert all(left.end <= right.start for left, right in pairwise(windows))
    inside = {place for window in windows for place in range(window.start, window.end)}
    fixed = {place for start, end in protected for place in range(start, end)}
    assert all(text[place].isspace() or not text[place].isalnum() for place in range(len(text))
               if place not in inside and place not in fixed)  # fmt: skip
    for window in windows:
        core, left, right = (text[slice(*ends)] for ends in (
            (window.start, window.end), (window.left, window.start), (window.end, window.right)))  # fmt: skip
        assert len(tokenizer.encode(core)) <= max(room.core, 4)
        assert max(len(tokenizer.encode(left)), len(tokenizer.encode(right))) <= room.context
        spans = [(max(start, window.start) - window.start, min(end, window.end) - window.start)
                 for start, end in protected if start < window.end and end > window.start]  # fmt: skip
        draft = make_draft(left, core, right, spans, tokenizer, Rules(tokenizer.alphabet, frozenset(OPERATORS)))
        assert draft is not None
        assert tokenizer.decode(draft.tokens) == left + core + right
        assert not draft.marks or any(not mark & FIXED for mark in draft.marks[1:])
        assert draft.canvas.is_open(draft.cursor)


def test_context_is_whole_sentences_and_closed_at_its_far_ends() -> None:
    tokenizer = SCRIPTED.tokenizer
    draft = make_draft("One.", " Two.", " Three.", [], tokenizer, Rules(tokenizer.alphabet, frozenset(OPERATORS)))
    assert draft is not None
    assert tokenizer.decode(draft.tokens[: draft.prefix]) == "One."
    assert tokenizer.decode(draft.tokens[len(draft.tokens) - draft.suffix :]) == " Three."
    text = random_prose(random.Random(2), 40)
    writer = ScriptedWriter()
    writer.edit(text)
    assert any(draft.prefix for draft in writer.asked)
    assert any(draft.suffix for draft in writer.asked)


def test_where_windows_are_cut_matters_little_and_is_measured() -> None:
    text = random_prose(random.Random(3), 60)
    arguments = SCRIPTED.propose, SCRIPTED.tokenizer, SCRIPTED.model.config, Proofreading()
    assert compare_cuts(text, *arguments) == 1.0
    assert compare_cuts("clean.", *arguments) == 1.0
    fickle = ScriptedWriter(lambda text: text.replace("the", "THE", 1))
    share = compare_cuts(text, fickle.propose, fickle.tokenizer, fickle.model.config, Proofreading(passes=1))
    assert 0 < share < 1


def test_passes_go_on_until_nothing_changes() -> None:
    steps = {"one": "two", "two": "three", "three": "four", "four": "five"}
    writer = ScriptedWriter(lambda text: re.sub(r"\b(one|two|three|four)\b", lambda m: steps[m[0]], text))
    text = "Say one. Then " + "nothing " * 80 + "more. Say two."
    for passes, words in (
        (1, ["two", "three"]),
        (2, ["three", "four"]),
        (3, ["four", "five"]),
        (9, ["five", "five"]),
    ):
        edited = writer.edit(text, passes=passes)
        assert [edit.after for edit in edited.edits] == words
        assert [edit.before for edit in edited.edits] == ["one", "two"]
    counts = []
    for passes in (1, 2, 9):
        writer.asked.clear()
        writer.edit(text, passes=passes)
        counts.append(len(writer.asked))
    assert counts[0] < counts[1] < 2 * counts[0]  # only windows that changed are read again
    once = writer.edit(text, passes=1)
    assert edited.edits[0].probability == min(edit.probability for edit in once.edits)


@pytest.mark.parametrize("passes", [2, 3, 4])
def test_a_model_that_goes_round_in_circles_leaves_the_text_alone(passes: int) -> None:
    swap = {"on": "off", "off": "on", "start": "on"}
    writer = ScriptedWriter(lambda text: re.sub(r"\b(on|off|start)\b", lambda found: swap[found[0]], text))
    for text in ("Switch it on now.", "Switch it off now."):
        assert writer.edit(text, passes=passes).edits == ()
    if passes > 2:
        edited = writer.edit("Switch it start now.", passes=passes)
        assert edited.text == "Switch it on now."
        assert writer.edit(edited.text, passes=passes).edits == ()


def test_improbable_edits_are_left_out() -> None:
    alphabet = SCRIPTED.tokenizer.alphabet
    writer = ScriptedWriter(score=lambda action: math.log(0.5 if alphabet.is_insert(action) else 1.0))
    found = {edit.before: edit.probability for edit in writer.edit("I recieve teh very very alot. Naïve teh.").edits}
    assert found["teh"] == pytest.approx(0.5)
    for least in (0.0, 0.3, 0.6):
        edits = writer.edit("I recieve teh very very alot. Naïve teh.", min_probability=least).edits
        assert [edit.before for edit in edits] == [name for name in _names(edits) if found[name] >= least]
        assert all(edit.probability >= least for edit in edits)
    assert writer.edit("Teh teh", min_probability=0.6).edits == ()


def _names(edits: tuple) -> list[str]:
    return [edit.before for edit in edits]


@pytest.mark.parametrize(
    ("text", "rewrite", "format", "words"),
    [
        ("Two words.", lambda text: text.replace(" ", "\n"), "text", ()),  # lines stay
        ("A word.", lambda text: text.replace("word", "`word`"), "markdown", ()),  # markup stays
        ("Use `ls` now.", lambda text: text.replace(" now", "now").replace("Use ", "Use"), "text", ["`ls`"]),
        ("The Foo is.", lambda text: text.replace(" is", "s is"), "text", ["Foo"]),  # nothing grows on a user's word
        ("The Foo is.", lambda text: text.replace("The", "Th"), "text", ["the"]),
        ("One.\n\nTwo.", lambda text: text.replace("Two", "- Two"), "markdown", ()),  # no list comes from nowhere
        ("One.\n\nTwo.", lambda text: text.replace("Two", " Two"), "markdown", ()),
        ("One is.", lambda text: text.replace("One", "1. One"), "markdown", ()),
    ],
)
def test_an_edit_that_may_not_be_is_left_out(text: str, rewrite: object, format: str, words: list[str]) -> None:
    writer = ScriptedWriter(rewrite, BYTES)  # type: ignore[arg-type]
    edited = writer.edit(text, format=format, words=words)
    assert edited.text == text


@pytest.mark.parametrize(
    ("text", "rewrite", "wanted"),
    [
        ("Todays news.", ("days", "day’s"), "Today's news."),
        ("Todays news isn’t.", ("days", "day's"), "Today’s news isn’t."),
        ("It isn’t. He don’t.", ("’", "'"), "It isn’t. He don’t."),  # style alone is left alone
        ("It isn't, it isn't. He don’t.", ("don’t", "doesn't"), "It isn't, it isn't. He doesn’t."),
        ("He said no.", ("no", "“no”"), 'He said "no".'),
        ("“Yes,” he said no.", ("no", "“no”"), "“Yes,” he said “no”."),
        ("Call it rock n roll’s end.", (" n ", " 'n' "), "Call it rock 'n’ roll’s end."),
    ],
)
def test_quotation_marks_are_those_of_the_text(text: str, rewrite: tuple[str, str], wanted: str) -> None:
    assert ScriptedWriter(lambda old: old.replace(*rewrite), BYTES).edit(text, passes=1).text == wanted


def test_edits_count_characters_of_the_original_with_its_own_line_ends() -> None:
    text = "Ünïcode ☃ teh.\r\nThe naïve cat recieve.\rLast teh\n"
    edited = SCRIPTED.edit(text)
    assert [(edit.start, edit.before, edit.after) for edit in edited.edits] == [
        (10, "teh", "the"), (20, "naïve", "naive"), (30, "recieve", "receive"), (44, "teh", "the"),
    ]  # fmt: skip
    assert edited.text == fix(text)
    assert edited.places == [(1, 11), (2, 5), (2, 15), (3, 6)]


def test_a_window_whose_context_is_spent_keeps_what_is_finished() -> None:
    writer = ScriptedWriter(lambda text: re.sub(r"\bteh\b", "a longer text", text), context=60)
    edited = writer.edit("teh cat " * 40, passes=9)
    assert 0 < edited.text.count("a longer text") <= 40
    assert all(edit.after == "a longer text" for edit in edited.edits)


def test_a_model_that_only_writes_on_is_stopped_long_before_its_context_ends() -> None:
    writer = random_writer()
    rules = Rules(writer.config.alphabet, frozenset(OPERATORS), max_length=writer.config.max_length)
    draft = make_draft("", "Teh cat.", "", (), writer.tokenizer, rules)
    assert draft is not None
    [made] = writer.propose([draft], sampling=replace(LIVELY, stop_bias=-50.0))
    assert len(made.actions) == edit_budget(draft) < writer.config.context - len(draft.actions)
    [longer] = writer.propose([draft], sampling=replace(LIVELY, stop_bias=-50.0), max_actions=80)
    assert len(longer.actions) == 80


def test_what_cannot_be_edited_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^text is b'abc', of type bytes; give a text \(str\)"):
        SCRIPTED.edit(b"abc")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^min_probability=2 must be a number between 0 and 1"):
        SCRIPTED.edit("abc", min_probability=2)
    with pytest.raises(ConfigError, match=r"^passes=0 must be a whole number of at least 1"):
        SCRIPTED.edit("abc", passes=0)
    with pytest.raises(ConfigError, match=r"^words='abc' must be a list of words"):
        SCRIPTED.edit("abc", words="abc")
    with pytest.raises(ConfigError, match=r"^sampling='greedy' must be a reviser.Sampling"):
        SCRIPTED.edit("abc", sampling="greedy")  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"^the text holds a zero byte"):
        SCRIPTED.edit("a\0b")
    with pytest.raises(TokenizerError, match=r"^this model's tokenizer does not give texts back as they are"):
        ScriptedWriter(tokenizer=wordpiece()).edit("Some  Text")
    config = ModelConfig(num_text=257, pad=256, num_layers=1, width=16, num_heads=1, ff_width=16, context=64)
    with pytest.raises(ConfigError, match=r"^this model cannot edit: it has the operators move, and editing needs"):
        Writer(random_model(config), BYTES).edit("abc")
    assert SCRIPTED.edit("").edits == SCRIPTED.edit(" \n").edits == ()
