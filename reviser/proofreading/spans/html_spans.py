"""What is no prose in HTML: all but the text between tags, and that too in code, scripts and quotations.

>>> text = '<p title="x">Some <code>ls -l</code> text.</p>'
>>> [text[start:end] for start, end in find_html(text)]
['<p title="x">', '<code>ls -l</code>', '</p>']
"""

from __future__ import annotations

from html.parser import HTMLParser
from itertools import accumulate

Span = tuple[int, int]

OPAQUE = frozenset({
    "script", "style", "pre", "code", "kbd", "samp", "var", "tt", "math", "svg", "textarea", "template",
    "blockquote", "q", "cite", "address", "head",
})  # fmt: skip


def find_html(text: str) -> list[Span]:
    prose = _Prose(text)
    prose.feed(text)
    prose.close()
    ends = [0, *(place for span in prose.found for place in span), len(text)]
    pairs = zip(ends[::2], ends[1::2], strict=True)
    return [(start, end) for start, end in pairs if start < end]


class _Prose(HTMLParser):
    """Where the text between tags stands that may change."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self._text, self._inside = text, list[str]()
        self._starts = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
        self.found: list[Span] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        is_kept = ("translate", "no") in attrs
        if tag in OPAQUE or is_kept or (self._inside and tag == self._inside[-1]):
            self._inside.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Opens nothing."""

    def handle_endtag(self, tag: str) -> None:
        if tag in self._inside:
            while self._inside.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        line, column = self.getpos()
        start = self._starts[line - 1] + column
        # Where the parser gives other text than it read, nothing is prose.
        if not self._inside and data and self._text.startswith(data, start):
            if self.found and self.found[-1][1] == start:
                start = self.found.pop()[0]
            self.found.append((start, self._starts[line - 1] + column + len(data)))
