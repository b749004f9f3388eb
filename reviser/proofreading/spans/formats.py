"""Which characters of a text may not change: markup, code, links, quotations and the user's own words.

    text    lines, indentation, web and e-mail addresses, lines that quote with >
    others  that, and what the format's own module finds: markdown_spans, rst_spans, html_spans, latex_spans

Spans are (start, end) in characters, sorted, and neither overlap nor touch. Line ends are "\\n" here.

>>> find_protected("See https://x.org/a, or `ls` it.", "markdown")
[(4, 20), (24, 28)]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from reviser.proofreading.choices import check_format
from reviser.proofreading.spans.html_spans import find_html
from reviser.proofreading.spans.latex_spans import find_latex
from reviser.proofreading.spans.markdown_spans import find_markdown
from reviser.proofreading.spans.rst_spans import find_rst

Span = tuple[int, int]

LAYOUT = re.compile(r"[^\S\n]*\n[^\S\n]*|\A[^\S\n]+|[^\S\n]+\Z")
"""Line ends, with the white space on either side."""
QUOTED = re.compile(r"^>.*$", re.M)
ADDRESS = re.compile(
    r"\b(?:[a-z][a-z0-9+.-]*://|www\.|mailto:)[^\s<>\"`{}|\\^]+"
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    re.I,
)
_FINDERS: dict[str, Callable[[str], Iterable[Span]]] = {
    "markdown": find_markdown,
    "rst": find_rst,
    "html": find_html,
    "latex": find_latex,
}


def find_protected(text: str, format: str = "text", words: Sequence[str] = ()) -> list[Span]:
    """All spans that may not change."""
    check_format(format)
    found = [match.span() for pattern in (LAYOUT, ADDRESS) for match in pattern.finditer(text)]
    if format == "text":
        found += [match.span() for match in QUOTED.finditer(text)]
    else:
        found += _FINDERS[format](text)
    return merge([*found, *_find_words(text, words)])


def merge(spans: Iterable[Span]) -> list[Span]:
    """The same characters as spans that neither overlap nor touch, in order."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if start == end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _find_words(text: str, words: Sequence[str]) -> Iterator[Span]:
    """Every place of the user's words; one in small letters stands for its capitals too."""
    exact = [word for word in words if word != word.lower()]
    for chosen, flags in ((exact, 0), ([word for word in words if word == word.lower()], re.I)):
        if chosen:
            either = "|".join(map(re.escape, sorted(chosen, key=len, reverse=True)))
            yield from (match.span() for match in re.finditer(rf"(?<!\w)(?:{either})(?!\w)", text, flags))
