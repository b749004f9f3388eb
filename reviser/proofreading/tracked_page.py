"""Edits as a page of tracked changes that needs nothing else: what goes is struck through, what comes underlined."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from reviser.errors import DataError
from reviser.files import write_text
from reviser.proofreading.edits import Edit
from reviser.proofreading.proofread import Edited

TEMPLATE = Path(__file__).parent / "static" / "tracked.html"
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""What a page may not hold, not even escaped."""
Part = tuple[str, Edit | None]


def make_page(texts: Sequence[tuple[str, Edited]]) -> str:
    """A page of some texts, each with its name."""
    found = [{"name": name, "parts": _parts(edited), "edited": edited} for name, edited in texts]
    count = sum(len(edited.edits) for _, edited in texts)
    title = texts[0][0] if len(texts) == 1 else f"{len(texts)} texts"
    return _template().from_string(TEMPLATE.read_text("utf-8")).render(title=title, count=count, texts=found)


def write_tracked_page(path: str, texts: Sequence[tuple[str, Edited]]) -> None:
    try:
        write_text(path, make_page(texts))
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}; give another file") from None


def _parts(edited: Edited) -> list[Part]:
    """The text in pieces: those that stay, and edits."""
    parts, end = list[Part](), 0
    for edit in edited.edits:
        parts += [(_clean(edited.original[end : edit.start]), None), ("", edit)]
        end = edit.end
    return [*parts, (_clean(edited.original[end:]), None)]


def _clean(text: str) -> str:
    return UNPRINTABLE.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


@cache
def _template() -> Environment:
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    environment.filters["clean"] = _clean
    return environment
