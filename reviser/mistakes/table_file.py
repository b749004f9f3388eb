"""A table of mistakes as one file, which needs none of the packages that it was built from.

The file is NumPy's .npz: an array for each field of `MistakeTable`, and a JSON text `about` with the format, its
version, the tokenizer's sha256 and the rules.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from reviser.errors import DataError
from reviser.files import BAD_ARRAYS, AnyPath, replacing
from reviser.mistakes.mistake_kinds import NUM_KINDS, Kind
from reviser.mistakes.mistake_table import LONGEST, MistakeTable, Rule
from reviser.mistakes.word_bpe import Merges
from reviser.mistakes.word_table import LONGEST_ALTERNATIVE
from reviser.tokenizer import Tokenizer

FORMAT, VERSION = "reviser error table", 1
DTYPES = {
    "token_bytes": np.uint8,
    "token_lengths": np.uint16,
    "byte_tokens": np.int32,
    "pairs": np.int32,
    "word_bytes": np.uint8,
    "word_lengths": np.uint8,
    "word_classes": np.uint32,
    "word_kinds": np.uint32,
    "num_alternatives": np.uint16,
    "alternative_bytes": np.uint8,
    "alternative_lengths": np.uint8,
    "alternative_kinds": np.uint8,
}
KINDS = [kind.label for kind in Kind]
Arrays = dict[str, npt.NDArray[Any]]


def save_table(table: MistakeTable, path: AnyPath) -> None:
    """Write the table, whole or not at all; the same table gives the same bytes."""
    about = {
        "format": FORMAT,
        "version": VERSION,
        "tokenizer_sha256": table.tokenizer_sha256,
        "kinds": KINDS,
        "rules": [asdict(rule) for rule in table.rules],
    }
    merges = {"byte_tokens": table.merges.byte_tokens, "pairs": table.merges.pairs}
    arrays: Any = {name: merges[name] if name in merges else getattr(table, name) for name in DTYPES}
    with replacing(path) as file:
        np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)


def load_table(path: AnyPath, tokenizer: Tokenizer | None = None) -> MistakeTable:
    """Read a table; refused where it is damaged or was built for another tokenizer than the one given."""
    about, arrays = _read(path)
    if about.get("format") != FORMAT:
        raise DataError(f"{path}: not an error table; build one with: reviser data error-table CORPUS --out FILE")
    if about.get("version") != VERSION or about.get("kinds") != KINDS:
        raise DataError(
            f"{path}: an error table of version {about.get('version')}, or of other kinds of mistakes than version "
            f"{VERSION} has here; build it again with: reviser data error-table CORPUS --out FILE"
        )
    problem = _find_problem(arrays)
    if problem:
        raise DataError(f"{path}: this error table is damaged: {problem}; build it again or fetch it anew")
    found = str(about.get("tokenizer_sha256"))
    if tokenizer is not None and found != tokenizer.sha256:
        raise DataError(
            f"{path}: built for the tokenizer {found[:12]}, but this one is {tokenizer.sha256[:12]}; "
            "build a table with: reviser data error-table CORPUS --out FILE --tokenizer ..."
        )
    try:
        rules = tuple(Rule(int(each["before"]), int(each["now"]), tuple(each["words"])) for each in about["rules"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: this error table is damaged: its rules cannot be read; build it again") from error
    merges = Merges(arrays.pop("byte_tokens"), arrays.pop("pairs"))
    return MistakeTable(tokenizer_sha256=found, merges=merges, rules=rules, **arrays)


def _read(path: AnyPath) -> tuple[dict[str, Any], Arrays]:
    try:
        with open(path, "rb") as file:
            is_archive = zipfile.is_zipfile(file)
        if not is_archive:
            raise DataError(f"{path}: not an error table; build one with: reviser data error-table CORPUS --out FILE")
        with np.load(path, allow_pickle=False) as parts:
            about = json.loads(str(parts["about"]))
            arrays = {name: parts[name] for name in DTYPES}
    except OSError as error:
        raise DataError(f"cannot read the error table {path}: {error.strerror or error}") from error
    except BAD_ARRAYS as error:
        said = str(error).split("\n")[0]
        raise DataError(f"{path}: not an error table, or a damaged one ({said}); build it again") from error
    return (about if isinstance(about, dict) else {}), arrays


def _find_problem(arrays: Arrays) -> str | None:
    """What is wrong with the arrays, which a kernel reads without looking twice."""
    for name, kind in DTYPES.items():
        if arrays[name].dtype != kind or arrays[name].ndim != (2 if name == "pairs" else 1):
            return f"{name} has another type or shape"
    num_words, num_tokens = len(arrays["word_lengths"]), len(arrays["token_lengths"])
    num_alternatives = int(arrays["num_alternatives"].sum(dtype=np.int64))
    sizes = {
        "token_bytes": int(arrays["token_lengths"].sum(dtype=np.int64)),
        "byte_tokens": 256,
        "word_bytes": int(arrays["word_lengths"].sum(dtype=np.int64)),
        "word_classes": num_words,
        "word_kinds": num_words,
        "num_alternatives": num_words,
        "alternative_bytes": int(arrays["alternative_lengths"].sum(dtype=np.int64)),
        "alternative_lengths": num_alternatives,
        "alternative_kinds": num_alternatives,
    }
    for name, size in sizes.items():
        if len(arrays[name]) != size:
            return f"{name} holds {len(arrays[name])} values, not {size}"
    return _find_wrong_value(arrays, num_tokens)


def _find_wrong_value(arrays: Arrays, num_tokens: int) -> str | None:
    pairs = arrays["pairs"]
    if pairs.shape[1] != 3:
        return "pairs has another shape"
    highest = {
        "byte_tokens": num_tokens - 1,
        "pairs": num_tokens - 1,
        "word_lengths": LONGEST,
        "word_kinds": (1 << Kind.COMMA_DROPPED) - 1,
        "alternative_lengths": LONGEST_ALTERNATIVE,
        "alternative_kinds": NUM_KINDS - 1,
    }
    for name, most in highest.items():
        values = arrays[name]
        if values.size and not 0 <= int(values.min()) <= int(values.max()) <= most:
            return f"{name} holds a number that is not from 0 to {most}"
    return None
