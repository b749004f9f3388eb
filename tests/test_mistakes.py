"""Mistakes: the kernel makes those of the plain code, and what comes out is encoded as its text would be."""

from __future__ import annotations

import functools
import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reviser.errors import ConfigError, DataError, MissingPackageError, TokenizerError
from reviser.mistakes import english, word_sources
from reviser.mistakes.make import make_mistakes
from reviser.mistakes.mistake_kinds import Kind, MistakeConfig
from reviser.mistakes.mistake_maker import MistakeMaker
from reviser.mistakes.mistake_table import MistakeTable, find_units
from reviser.mistakes.table_file import load_table, save_table
from reviser.mistakes.word_bpe import Merges
from reviser.mistakes.word_sources import Inflected, count_words, read_inflections, read_misspellings, turn_round
from reviser.mistakes.word_table import WordFacts, choose_words, find_facts, make_table
from reviser.orders.rng import Random
from reviser.tokenizer import Tokenizer, load

PROSE = """The old lighthouse didn't shine. The boats lay still, and the gulls were asleep. I think that he went to
London with a well-known friend, because they've received something better. She can go without it. Its owner isn’t
here; he's John's brother. (The child's boat) "was quick" in July: kubectl.apply, foo_bar, 3D, naïve words, a@b.org
and 12 men. We discuss the plan. It will rain today. Where are you? There were many houses in the town, and everyone
said so. It was known as some kind of thing."""
MISSPELLINGS = {"received": ["recieved", "recived"], "because": ["becuase"], "friend": ["freind"]}
INFLECTIONS = {
    "boats": Inflected(frozenset({"NNS"}), {"boat": frozenset({"NN"})}),
    "boat": Inflected(frozenset({"NN"}), {"boats": frozenset({"NNS"})}),
    "went": Inflected(frozenset({"VBD"}), {"go": frozenset({"VB", "VBP"})}),
    "go": Inflected(frozenset({"VB", "VBP"}), {"went": frozenset({"VBD"})}),
    "better": Inflected(frozenset({"JJR"}), {}),
    "discuss": Inflected(frozenset({"VB"}), {}),
    "houses": Inflected(frozenset({"NNS"}), {"boat": frozenset({"NN"})}),
}


@functools.cache
def tokenizer(name: str) -> Tokenizer:
    return load(name)


@functools.cache
def merges(name: str) -> Merges:
    return Merges.of(tokenizer(name))


@functools.cache
def prose_facts() -> dict[str, WordFacts]:
    words = choose_words(count_words([PROSE] * 3), MISSPELLINGS, 200)
    return find_facts(words, MISSPELLINGS, INFLECTIONS)


@functools.cache
def prose_table(name: str = "default") -> MistakeTable:
    return make_table(tokenizer(name), prose_facts())


def make_many(
    table: MistakeTable, config: MistakeConfig, texts: list[list[int]], states: list[int]
) -> tuple[list[tuple[list[int], list[tuple[int, ...]]]], list[int]]:
    lasts = np.cumsum([len(text) for text in texts], dtype=np.int64)
    firsts = lasts - np.array([len(text) for text in texts], np.int64)
    flat, moved = np.array([id for text in texts for id in text], np.int32), np.array(states, np.uint64)
    made = MistakeMaker(table, config).make(flat, firsts, lasts, moved)
    found = [(made.text(i).tolist(), [tuple(each) for each in made.mistakes(i)]) for i in range(len(made))]
    return found, moved.tolist()


def rates(chance: random.Random) -> MistakeConfig:
    """Any rates, most of them high, so that short texts have all kinds of mistakes side by side."""
    return MistakeConfig(
        clean=chance.choice([0.0, 0.0, 0.3]),
        spread=chance.random(),
        **{kind.label: chance.choice([0.0, 0.05, 0.3, 1.0]) for kind in Kind},
    )


def random_table(name: str, chance: random.Random) -> MistakeTable:
    """A table whose words may do anything, sensible or not."""
    facts = {}
    for word in prose_facts():
        each = WordFacts(chance.getrandbits(13), chance.getrandbits(int(Kind.COMMA_DROPPED)))
        for kind in chance.sample(list(Kind)[: Kind.COMMA_DROPPED], 6):
            each.offer(kind, ["".join(chance.choices("abet' ", k=chance.randint(1, 5))) for _ in range(3)])
        facts[word] = each
    return make_table(tokenizer(name), facts)


@settings(max_examples=30)
@given(st.integers(0, 1 << 40), st.sampled_from(["default", "bytes"]))
def test_the_kernel_makes_the_mistakes_of_the_plain_code(seed: int, name: str) -> None:
    chance = random.Random(seed)
    table = random_table(name, chance) if chance.random() < 0.5 else prose_table(name)
    config, texts = rates(chance), []
    for _ in range(4):
        words = chance.choices(PROSE.split(" "), k=chance.randint(0, 30))
        texts.append(
            tokenizer(name).encode("".join(chance.choice(["", " ", " ", " ", "  ", "\n"]) + w for w in words))
        )
    texts.append([chance.randrange(table.num_tokens) for _ in range(chance.randint(0, 60))])
    states = [chance.getrandbits(64) for _ in texts]
    streams = [Random(state) for state in states]
    plain = [make_mistakes(text, table, config, stream) for text, stream in zip(texts, streams, strict=True)]
    found, moved = make_many(table, config, texts, states)
    assert found == [(text, [tuple(each) for each in mistakes]) for text, mistakes in plain]
    assert moved == [stream.state for stream in streams]


@settings(max_examples=40)
@given(st.integers(0, 1 << 40))
def test_results_are_encoded_as_their_text_would_be_and_mistakes_say_what_changed(seed: int) -> None:
    chance = random.Random(seed)
    words = PROSE.split(" ")
    start = chance.randrange(len(words))
    clean = tokenizer("default").encode(" ".join(words[start : start + 40]))
    made, mistakes = make_mistakes(clean, prose_table(), rates(chance), Random(seed))
    assert tokenizer("default").encode(tokenizer("default").decode(made)) == made
    rebuilt, at = [], 0
    for each in mistakes:
        rebuilt += clean[at : each.start]
        assert len(rebuilt) == each.new_start
        rebuilt += made[each.new_start : each.new_end]
        assert clean[each.start : each.end] != made[each.new_start : each.new_end]
        at = each.end
    assert rebuilt + clean[at:] == made


@given(st.text(alphabet="abcdeilnorstvmxyz',.- AELOT", max_size=24), st.sampled_from(["default", "bytes"]))
def test_words_are_encoded_as_the_tokenizer_does(text: str, name: str) -> None:
    # White space at the end or doubled is split otherwise, and no mistake makes any.
    text = " ".join(text.split())
    assert merges(name).encode(text.encode()) == tokenizer(name).encode(text)


def kinds_made(kind: Kind, text: str, count: int = 60) -> set[str]:
    """What a text becomes where nothing but this mistake is made."""
    config = MistakeConfig(**{"clean": 0.0, "spread": 0.0} | {each.label: float(each == kind) for each in Kind})
    ids, found = tokenizer("default").encode(text), set()
    for seed in range(count):
        found.add(tokenizer("default").decode(make_mistakes(ids, prose_table(), config, Random(seed))[0]))
    return found


@pytest.mark.parametrize(
    ("kind", "clean", "wrong"),
    [
        (Kind.MISSPELLING, "Received here", "Recieved here"),
        (Kind.PHONETIC, "the lighthouse", "the lighthuse"),
        (Kind.KEYBOARD, "the boats", "teh baots"),
        (Kind.INFLECTION, "two boats", "two boat"),
        (Kind.CONFUSION, "Its owner", "It's owner"),
        (Kind.SPLIT, "said something", "said some thing"),
        (Kind.MERGED, "there were many", "therewere many"),
        (Kind.ARTICLE, "The boats lay", "Boats lay"),
        (Kind.ARTICLE, "in the town", "in town"),
        (Kind.PREPOSITION, "went to London", "went for London"),
        (Kind.AUXILIARY, "boats were asleep", "boats was asleep"),
        (Kind.PRONOUN, "so I think", "so me think"),
        (Kind.EXTRA, "we discuss the plan", "we discuss about the plan"),
        (Kind.DOUBLED, "The boats", "The the boats boats"),
        (Kind.MISSING, "still and asleep", "still asleep"),
        (Kind.EXCHANGED, "they were still", "they still were"),
        (Kind.APOSTROPHE, "he isn’t here", "he isnt here"),
        (Kind.APOSTROPHE, "John's brother", "Johns brother"),
        (Kind.APOSTROPHE, "two boats lay", "two boat's lay"),
        (Kind.LOWERED, "in July", "in july"),
        (Kind.RAISED, "two boats lay", "two Boats lay"),
        (Kind.COMMA_ADDED, "I think that", "I think, that"),
        (Kind.COMMA_DROPPED, "still, and", "still and"),
        (Kind.FULL_STOP, "lay still. The boats", "lay still, the boats"),
        (Kind.SPACING, "lay still, and", "lay still,and"),
        (Kind.HYPHEN, "a well-known friend", "a well known friend"),
    ],
)  # fmt: skip
def test_each_kind_makes_its_mistake(kind: Kind, clean: str, wrong: str) -> None:
    assert wrong in kinds_made(kind, clean)


@pytest.mark.parametrize("text", ["see kubectl.apply", "foo_bar(x)", "a@b.org", "naïve 3D", "'the end", "JOHN"])
def test_code_addresses_and_foreign_words_are_left_alone(text: str) -> None:
    for kind in (Kind.KEYBOARD, Kind.MISSPELLING, Kind.LOWERED, Kind.ARTICLE):
        for made in kinds_made(kind, text, 20):
            assert text.split(" ")[-1].split("'")[-1] in made


def test_units_lie_end_to_end_and_know_their_sentence() -> None:
    ids = tokenizer("default").encode(PROSE)
    units = find_units(ids, prose_table())
    assert [unit.start for unit in units[1:]] == [unit.end for unit in units[:-1]]
    assert (units[0].start, units[-1].end) == (0, len(ids))
    assert [unit.text for unit in units if unit.is_first and unit.text][:3] == [b"The", b"The", b"I"]


def test_rates_vary_from_text_to_text_and_some_texts_stay_clean() -> None:
    ids = tokenizer("default").encode(PROSE)
    found, _ = make_many(
        prose_table(), MistakeConfig(clean=0.5), [ids] * 400, [Random.of(i).state for i in range(400)]
    )
    counts = [len(mistakes) for _, mistakes in found]
    assert 0.45 < sum(count == 0 for count in counts) / 400 < 0.65
    assert max(counts) > 3 * np.mean(counts)


def test_a_text_that_grows_much_finds_room() -> None:
    ids = tokenizer("default").encode(" the boats" * 300)
    config = MistakeConfig(clean=0.0, spread=0.0, doubled=1.0)
    [(made, mistakes)], _ = make_many(prose_table(), config, [ids], [1])
    assert len(mistakes) > 300
    assert len(made) > 1.4 * len(ids)


def test_tokens_that_the_table_does_not_know_are_refused() -> None:
    with pytest.raises(DataError, match="token 99999 is not one of the error table's 0 to 8191"):
        make_many(prose_table(), MistakeConfig(), [[5, 99999]], [1])
    maker = MistakeMaker(prose_table())
    with pytest.raises(DataError, match="texts must lie within the 2 tokens"):
        maker.make(np.array([1, 2]), np.array([0]), np.array([3]), np.array([1], np.uint64))


def test_rates_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"article=1.5 is not a probability between 0 and 1"):
        MistakeConfig(article=1.5)


def test_a_table_comes_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "errors.npz"
    save_table(prose_table(), path)
    table = load_table(path, tokenizer("default"))
    ids = tokenizer("default").encode(PROSE)
    assert make_mistakes(ids, table, MistakeConfig(), Random(3)) == make_mistakes(
        ids, prose_table(), MistakeConfig(), Random(3)
    )
    first = path.read_bytes()
    save_table(table, path)
    assert path.read_bytes() == first


def test_damaged_and_foreign_tables_give_one_clear_line(tmp_path: Path) -> None:
    path, other = tmp_path / "errors.npz", tmp_path / "other.npz"
    save_table(prose_table(), path)
    with pytest.raises(DataError, match="built for the tokenizer 01d767822e8b, but this one is"):
        load_table(path, tokenizer("bytes"))
    with pytest.raises(DataError, match=r"cannot read the error table .*: No such file"):
        load_table(tmp_path / "none.npz")
    other.write_text("no table")
    with pytest.raises(DataError, match="not an error table; build one with"):
        load_table(other)
    np.savez(other, about=np.array("{}"))
    with pytest.raises(DataError, match="not an error table, or a damaged one"):
        load_table(other)
    whole = path.read_bytes()
    other.write_bytes(whole[: len(whole) // 2] + bytes(100) + whole[len(whole) // 2 + 100 :])
    with pytest.raises(DataError, match="damaged"):
        load_table(other)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("word_kinds", np.zeros(3, np.uint32), "word_kinds holds 3 values, not"),
        ("pairs", np.full((1, 3), 1 << 20, np.int32), "pairs holds a number that is not from 0 to 8191"),
        ("word_classes", np.zeros(3, np.int8), "word_classes has another type or shape"),
        ("about", np.array(json.dumps({"format": "reviser error table", "version": 7})), "of version 7"),
        ("about", np.array('{"format": "?"}'), "not an error table"),
    ],
)
def test_a_changed_table_is_refused(tmp_path: Path, name: str, value: np.ndarray, problem: str) -> None:
    path = tmp_path / "errors.npz"
    save_table(prose_table(), path)
    parts = dict(np.load(path)) | {name: value}
    np.savez(path, **parts)
    with pytest.raises(DataError, match=problem):
        load_table(path)


def test_words_are_counted_and_the_dictionary_is_turned_round() -> None:
    counts = count_words(["The boats lay in Hull. Boats don’t fly to Hull."])
    assert counts["boats"].num == 2
    assert (counts["hull"].num, counts["hull"].num_capital) == (2, 2)
    assert counts["don't"].num == 1
    assert turn_round(["teh->the", "cant->can't, cannot,", "foo"]) == {
        "the": ["teh"],
        "can't": ["cant"],
        "cannot": ["cant"],
    }


def test_words_of_confusion_sets_are_spelled_alike_in_all_sets() -> None:
    confused = english.read_confused()
    assert len(confused) > 250
    assert all(word in confused[other] for word, others in confused.items() for other in others)


def test_a_corpus_without_words_is_refused() -> None:
    with pytest.raises(DataError, match="no word occurs 3 times"):
        choose_words(count_words(["Once only."]), {}, 10)


def test_a_tokenizer_of_another_kind_is_refused() -> None:
    parts = json.loads(tokenizer("default").serialised)
    parts["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    with pytest.raises(TokenizerError, match="mistakes need a byte-level BPE that splits words as GPT-2 does"):
        make_table(Tokenizer(json.dumps(parts)), prose_facts())


@pytest.mark.parametrize(("module", "package"), [("codespell_lib", "codespell"), ("lemminflect", "lemminflect")])
def test_missing_packages_are_named(module: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(word_sources.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(word_sources.importlib, "import_module", refuse)
    with pytest.raises(MissingPackageError, match=rf"needs the package {package}, .*pip install 'reviser\[errors\]'"):
        read_misspellings() if module == "codespell_lib" else read_inflections(["go"])


def test_a_table_is_built_out_of_the_installed_packages() -> None:
    for module in ("codespell_lib", "lemminflect"):
        pytest.importorskip(module, reason=f"{module} is not installed; pip install 'reviser[errors]'")
    misspellings = read_misspellings()
    assert "recieve" in misspellings["receive"]
    inflections = read_inflections(["boats", "went"])
    assert "boat" in inflections["boats"].others
    assert inflections["went"].tags == {"VBD"}
    words = choose_words(count_words([PROSE] * 3), misspellings, 100)
    table = make_table(tokenizer("default"), find_facts(words, misspellings, read_inflections(words)))
    assert b"freind" in table.alternatives_of(table.number_of[b"friend"], Kind.MISSPELLING)
