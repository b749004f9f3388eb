"""Edits as they are shown and told: a line for each, a unified diff, JSON, and a line of text with its changes."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any

from reviser.proofreading.edits import Edit
from reviser.proofreading.proofread import Edited

NO_NEWLINE = "\\ No newline at end of file"
"""What diff and patch say."""


def list_edits(edited: Edited, name: str) -> Iterator[str]:
    """`file:line:column: before -> after (probability)`, a line for each edit."""
    for edit, (line, column) in zip(edited.edits, edited.places, strict=True):
        yield f"{name}:{line}:{column}: {describe_edit(edit)}"


def describe_edit(edit: Edit) -> str:
    """
    >>> describe_edit(Edit(0, 3, "teh", "the", 0.9))
    '"teh" -> "the" (0.90)'
    """
    return f"{quote(edit.before)} -> {quote(edit.after)} ({edit.probability:.2f})"


def quote(text: str) -> str:
    """In double quotes, on one line."""
    return json.dumps(text, ensure_ascii=False)


def make_diff(edited: Edited, name: str) -> str:
    """A unified diff that `patch` applies."""
    old, new = (_split_lines(text) for text in (edited.original, edited.text))
    lines = difflib.unified_diff(old, new, name, name, lineterm="\n")
    return "".join(line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}\n" for line in lines)


def _split_lines(text: str) -> list[str]:
    """Lines with their ends, at newlines alone, as patch sees them."""
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + [lines[-1]] * bool(lines[-1])


def to_records(edited: Edited) -> list[dict[str, Any]]:
    """The edits for JSON."""
    records = []
    for edit, (line, column) in zip(edited.edits, edited.places, strict=True):
        records.append(
            {
                "start": edit.start,
                "end": edit.end,
                "line": line,
                "column": column,
                "before": edit.before,
                "after": edit.after,
                "probability": edit.probability,
            }
        )
    return records
