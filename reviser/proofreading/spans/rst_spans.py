"""What is no prose in reStructuredText: directives, literal and quoted blocks, titles, tables, roles, references.

Titles are left alone because a longer one needs a longer line under it, and so are tables.

>>> text = "Run ``ls``::\\n\\n    code\\n\\nand :ref:`this <x>`.\\n"
>>> [text[start:end] for start, end in find_rst(text)]
['    code\\n', '``ls``', ':ref:`this <x>`']
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

Span = tuple[int, int]

PROSE = frozenset({
    "note", "warning", "tip", "important", "hint", "caution", "danger", "error", "attention", "admonition",
    "seealso", "topic", "sidebar", "versionadded", "versionchanged", "versionremoved", "deprecated", "figure",
    "container", "compound", "rubric", "todo",
})  # fmt: skip
"""Directives with text of ours inside."""
DIRECTIVE = re.compile(r"\.\.[^\S\n]+(?:\|[^|\n]+\|[^\S\n]+)?([\w:.+-]+)::")
EXPLICIT = re.compile(r"\.\.(?:[^\S\n]|$)")
FOOTNOTE = re.compile(r"\.\.[^\S\n]+\[[^\]\n]+\][^\S\n]+")
FIELD = re.compile(r"[^\S\n]*:(?![^\S\n])[^:\n]+:(?=[^\S\n]|$)")
MARKER = re.compile(r"[^\S\n]*(?:[-*+•]|(?:\d+|[A-Za-z#])[.)]|\(\w+\))[^\S\n]+")
LINE = re.compile(r"[^\S\n]*([!-/:-@[-`{-~])\1+[^\S\n]*")
TABLE = re.compile(r"[^\S\n]*(?:\+[-=+]+\+|=+(?:[^\S\n]+=+)+)[^\S\n]*")
INLINE = re.compile(
    r"``(?:(?!\n\s*\n).)+?``"
    r"|:[\w:.+-]+:`[^`]*`|`[^`<>]*`:[\w:.+-]+:"
    r"|<[^<>`\n]*>`_{0,2}|`_{1,2}"
    r"|(?<!\w)\|[^|\s][^|\n]*\|_{0,2}"
    r"|\[[^\[\]\s]+\]_|(?<!\w)_`[^`]*`|\b[\w.+-]*[A-Za-z0-9]__?(?!\w)",
    re.S,
)


@dataclass(frozen=True, slots=True)
class _Line:
    start: int
    text: str

    @property
    def indent(self) -> int:
        return len(self.text) - len(self.text.lstrip())

    @property
    def is_blank(self) -> bool:
        return not self.text.strip()

    @property
    def span(self) -> Span:
        return self.start, self.start + len(self.text) + 1


def find_rst(text: str) -> Iterator[Span]:
    lines, start = list[_Line](), 0
    for line in text.split("\n"):
        lines.append(_Line(start, line))
        start += len(line) + 1
    size = len(text)
    for start, end in (*_find_blocks(lines), *_find_tables(lines)):
        yield start, min(end, size)
    yield from (match.span() for match in INLINE.finditer(text))


def _find_blocks(lines: list[_Line]) -> Iterator[Span]:
    number, base = 0, 0
    is_literal = False
    while number < len(lines):
        line = lines[number]
        if line.is_blank:
            number += 1
            continue
        follows_blank = number > 0 and lines[number - 1].is_blank
        if line.indent > base and (is_literal or (follows_blank and not EXPLICIT.match(line.text.lstrip()))):
            end = _end_of_block(lines, number, base)
            yield line.start, lines[end - 1].span[1]
            number, is_literal = end, False
            continue
        if EXPLICIT.match(line.text.lstrip()):
            found, number, base = _read_explicit(lines, number)
            yield from found
            continue
        yield from _find_in_line(lines, number)
        marker = MARKER.match(line.text)
        base = marker.end() if marker else line.indent
        is_literal = line.text.rstrip().endswith("::")
        number += 1


def _end_of_block(lines: list[_Line], number: int, base: int) -> int:
    """Behind the last line from `number` on that is indented beyond `base`."""
    end = number
    for place in range(number, len(lines)):
        if not lines[place].is_blank:
            if lines[place].indent <= base:
                break
            end = place + 1
    return end


def _read_explicit(lines: list[_Line], number: int) -> tuple[list[Span], int, int]:
    """What is protected of a directive, comment, target or footnote; where to go on, and the indentation there."""
    line = lines[number]
    content, end = line.text.lstrip(), _end_of_block(lines, number + 1, line.indent)
    directive, note = DIRECTIVE.match(content), FOOTNOTE.match(content)
    if note:
        return [(line.start, line.start + line.indent + note.end())], number + 1, line.indent + 3
    if directive is None or directive[1] not in PROSE:
        return [(line.start, lines[max(end, number + 1) - 1].span[1])], max(end, number + 1), line.indent
    found, number = [line.span], number + 1
    while number < end and FIELD.match(lines[number].text):
        found.append(lines[number].span)
        number += 1
    inside = next((each for each in lines[number:end] if not each.is_blank), line)
    return found, number, inside.indent


def _find_in_line(lines: list[_Line], number: int) -> Iterator[Span]:
    """Of a line of text: its marker, or all of it where it belongs to a title or a table."""
    line = lines[number]
    below = lines[number + 1].text if number + 1 < len(lines) else ""
    if LINE.fullmatch(line.text) or LINE.fullmatch(below) or line.text.lstrip().startswith((">>>", "...", "| ")):
        yield line.span
    for pattern in (MARKER, FIELD):
        if match := pattern.match(line.text):
            yield line.start, line.start + match.end()


def _find_tables(lines: list[_Line]) -> Iterator[Span]:
    """Lines without a blank one between them of which one is drawn as the edge of a table."""
    for is_blank, group in groupby(lines, key=lambda line: line.is_blank):
        block = list(group)
        if not is_blank and any(TABLE.fullmatch(line.text) for line in block):
            yield block[0].start, block[-1].span[1]
