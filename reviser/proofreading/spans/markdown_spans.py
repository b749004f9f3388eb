"""What is no prose in Markdown: front matter, code, HTML, quotations, definitions of links, targets, math, markers.

markdown-it parses the blocks, so fences in lists, lazy quotations and the like are found as GitHub finds them. It
gives no places inside of a paragraph; patterns find code, targets and tags there.

>>> text = "# A title\\n\\nRead `code` [here](x.html).\\n"
>>> [text[start:end] for start, end in find_markdown(text)]
['# ', '`code`', '](x.html)']
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate

from markdown_it import MarkdownIt
from markdown_it.token import Token

Span = tuple[int, int]

FRONT = re.compile(r"\A(---|\+\+\+)[^\S\n]*\n.*?^(?:\1|\.\.\.)[^\S\n]*$", re.M | re.S)
DISPLAY = re.compile(r"^[^\S\n]*(?:\$\$.+?\$\$|\\\[.+?\\\])", re.M | re.S)
COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.S)
MARKER = re.compile(r"^[^\S\n]*(?:(?:[-*+]|\d+[.)]|\#{1,6}|>)[^\S\n]+)+(?:\[[ xX]\][^\S\n]+)?", re.M)
RULE = re.compile(r"^[^\S\n]*(?:[=:|\-*_][^\S\n]*){2,}$", re.M)
NOTE = re.compile(r"\[\^[^\]\s]+\]:?")
CODE = re.compile(r"(?<![`\\])(`+)(?!`).+?(?<!`)\1(?!`)", re.S)
INLINE = (
    # The target of a link, with brackets in it and a title behind it, and the label of another.
    re.compile(
        r"\]\([^\S\n]*(?:<[^<>\n]*>|[^\s()]*(?:\([^\s()]*\)[^\s()]*)*)"
        r"(?:\s+(?:\"[^\"]*\"|'[^']*'|\([^()]*\)))?\s*\)"
    ),
    re.compile(r"\]\[[^\[\]]*\]"),
    re.compile(r"<(?:[a-z][a-z0-9+.-]*:[^<>\s]*|[^<>\s@]+@[^<>\s]+)>", re.I),
    re.compile(r"</?[a-z](?:[^<>\"']|\"[^\"]*\"|'[^']*')*>", re.I),
    re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{[:#.][^{}\n]*\}"),
    re.compile(r"&#?\w+;"),
    re.compile(r"(?<![\\$\w])\$\$?(?=[^\s$])[^$]*?(?<=[^\s\\])\$\$?(?![\w$])|\\\(.+?\\\)", re.S),
    NOTE,
)
OPAQUE = frozenset({"fence", "code_block", "html_block", "blockquote_open"})


def find_markdown(text: str) -> Iterator[Span]:
    front = FRONT.match(text)
    skipped = front.end() if front else 0
    if front:
        yield front.span()
    blank = re.sub(r"[^\n]", " ", text[:skipped]) + text[skipped:]
    for pattern in (DISPLAY, COMMENT, MARKER, RULE):
        yield from (match.span() for match in pattern.finditer(blank))
    starts = [0, *accumulate(len(line) + 1 for line in blank.split("\n"))]
    environment: dict[str, dict[str, dict[str, list[int]]]] = {}
    parser = MarkdownIt("commonmark").enable("table")
    for token in parser.parse(blank, environment):
        yield from _find_in_block(blank, token, starts)
    references = environment.get("references", {})
    for reference in references.values():
        yield _lines(reference["map"], starts, len(text))
    for line in (match.span() for match in re.finditer(r"^ {0,3}\[[^\]\n]+\]:[^\n]*", blank, re.M)):
        if not NOTE.match(blank[slice(*line)].lstrip()):
            yield line


def _find_in_block(text: str, token: Token, starts: list[int]) -> Iterator[Span]:
    if token.map is None:
        return
    start, end = _lines(token.map, starts, len(text))
    if token.type in OPAQUE:
        yield start, end
    elif token.type == "inline":
        codes = [match.span() for match in CODE.finditer(text, start, end)]
        yield from codes
        # What stands in code is no markup: nothing begins or ends there.
        rest = list(text[start:end])
        for first, last in codes:
            rest[first - start : last - start] = "\0" * (last - first)
        for pattern in INLINE:
            found = pattern.finditer("".join(rest))
            yield from ((start + match.start(), start + match.end()) for match in found)


def _lines(numbers: list[int], starts: list[int], size: int) -> Span:
    return starts[numbers[0]], min(starts[min(numbers[1], len(starts) - 1)], size)
