"""Results are data: rows of numbers under stable keys, and how they came about.

    {"format": "reviser result", "version": 2, "kind": "evalppl",
     "rows": [{"system": "ours", "perplexity": {"value": 36.0, "error": 1.4, "n": 600}, ...}],
     "config": {...}, "command": "reviser eval evalppl made.jsonl", "reviser": "0.2.0", "commit": ...,
     "hardware": ..., "date": ...}

A number with an error is an object with `value`, `error` and `n` (a share also has `low` and `high`). Headings,
rounding and wording belong to reports/, so a stored result never changes with them.
"""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from reviser import __version__, files
from reviser.errors import ConfigError, DataError
from reviser.files import hash_file
from reviser.plugins import plugin_words

FORMAT, VERSION = "reviser result", 2
RESULTS = "results are what `reviser eval` and `reviser bench` write with --out"
Document = Mapping[str, Any]


def format_command(words: Sequence[str]) -> str:
    """
    >>> format_command(["eval", "mauve", "my texts.jsonl"])
    "reviser eval mauve 'my texts.jsonl'"
    """
    return shlex.join(["reviser", *plugin_words(), *words])


def make_result(
    kind: str, rows: Sequence[Mapping[str, Any]], config: Mapping[str, Any], words: Sequence[str] = (), **about: Any
) -> dict[str, Any]:
    """The JSON document of a result; `words` are those of the command that measures it."""
    from reviser.training.runs import commit, hardware

    return {
        "format": FORMAT,
        "version": VERSION,
        "kind": kind,
        "rows": [dict(row) for row in rows],
        "config": dict(config),
        **about,
        "command": format_command(words) if words else None,
        "reviser": __version__,
        "commit": commit(),
        "hardware": hardware(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def read_result(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A result's document, checked as far as every kind shares it."""
    try:
        document = json.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); {RESULTS}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON ({error}); {RESULTS}") from None
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise DataError(f"{path}: not a result: it has no field `kind`; {RESULTS}")
    _check_version(path, document)
    if not files.is_intact(document):
        raise DataError(
            f"{path}: its checksum is not that of its numbers, so it is damaged or was changed; copy it again, or "
            "measure again"
        )
    rows = document.get("rows")
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise DataError(
            f"{path}: the rows of this {document['kind']} result are not a list of objects; measure again"
        )
    return document


def _check_version(path: str | os.PathLike[str], document: Document) -> None:
    form, version = document.get("format"), document.get("version")
    if form is None and (version is None or isinstance(version, str)):  # which was the program's
        raise DataError(
            f"{path}: a result of version 1, but this program reads version {VERSION}; measure again or, from a "
            "checkout of the source, convert it with: python tools/convert_results.py FILE"
        )
    if form != FORMAT:
        raise DataError(f"{path}: not a result, for its field `format` is {form!r} and not {FORMAT!r}; {RESULTS}")
    if version != VERSION:
        raise DataError(
            f"{path}: a result of version {version!r}, but this program reads version {VERSION}; measure again, or "
            "read it with the reviser that wrote it"
        )


def hash_files(paths: Iterable[str | os.PathLike[str]]) -> dict[str, str]:
    """Files by name, each with its sha256: which generations a result is about."""
    return {str(path): hash_file(path) for path in paths}


DEPTH = 3
"""Levels that are written over several lines: the document, its rows, and the fields of a row."""


def format_result(value: Any) -> str:
    """JSON with a line for each field of each row; what lies deeper stays on one line.

    >>> print(format_result({"kind": "mauve", "rows": [{"system": "ours", "mauve": {"value": 0.8, "n": 3}}]}), end="")
    {
     "kind": "mauve",
     "rows": [
      {
       "system": "ours",
       "mauve": {"value": 0.8, "n": 3}
      }
     ]
    }
    """
    return _format(value, 0) + "\n"


def _format(value: Any, level: int) -> str:
    if level >= DEPTH or not isinstance(value, dict | list) or not value:
        return json.dumps(value, ensure_ascii=False)
    inner, outer = " " * (level + 1), " " * level
    if isinstance(value, dict):
        parts = [
            f"{json.dumps(str(key), ensure_ascii=False)}: {_format(part, level + 1)}" for key, part in value.items()
        ]
        return "{\n" + ",\n".join(inner + part for part in parts) + f"\n{outer}}}"
    return "[\n" + ",\n".join(inner + _format(part, level + 1) for part in value) + f"\n{outer}]"


def _find_unwritable(value: Any, place: str = "") -> str | None:
    """The keys that lead to the first number that is infinite or none at all."""
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{place} ({value})"
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, list | tuple):
        parts = enumerate(value)
    found = (_find_unwritable(part, f"{place}.{key}" if place else str(key)) for key, part in parts)
    return next(filter(None, found), None)


def write_result(result: Document, path: str | os.PathLike[str]) -> None:
    """Write a result, whole or not at all; a number that JSON has no word for is an error."""
    if place := _find_unwritable(result):
        raise DataError(
            f"{path}: not written, for {place} of this {result.get('kind')} result is not finite, and JSON has only "
            "finite numbers; make it null, or leave it out"
        )
    try:
        files.write_text(path, format_result(files.stamp(result)), errors="backslashreplace")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); give another file") from None
