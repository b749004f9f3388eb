"""What is no prose in LaTeX: the preamble, commands and some of their arguments, math, verbatim text, comments.

>>> text = "As \\\\cite{knuth} says, \\\\emph{all} of $x$.% so"
>>> [text[start:end] for start, end in find_latex(text)]
['\\\\cite{knuth}', '\\\\emph{', '}', '$x$', '% so']
"""

from __future__ import annotations

import re
from collections.abc import Iterator

Span = tuple[int, int]

ENVIRONMENTS = (
    "verbatim", "Verbatim", "alltt", "lstlisting", "minted", "comment", "filecontents", "equation", "align",
    "alignat", "flalign", "gather", "multline", "eqnarray", "math", "displaymath", "tikzpicture", "tabular",
    "tabularx", "longtable", "array", "algorithm", "algorithmic", "thebibliography", "quote", "quotation", "verse",
)  # fmt: skip
"""Whole environments, starred or not, whose content is left alone."""
ARGUMENTS = frozenset({
    "begin", "end", "label", "ref", "eqref", "pageref", "autoref", "nameref", "cref", "Cref", "vref", "cite",
    "citep", "citet", "citeauthor", "citeyear", "nocite", "parencite", "textcite", "footcite", "autocite",
    "bibitem", "bibliography", "bibliographystyle", "addbibresource", "url", "path", "nolinkurl", "includegraphics",
    "input", "include", "includeonly", "lstinputlisting", "usepackage", "documentclass", "newcommand",
    "renewcommand", "providecommand", "newenvironment", "DeclareMathOperator", "def", "let", "hspace", "vspace",
    "setlength", "addtolength", "setcounter", "addtocounter", "color", "definecolor", "texttt", "code", "lstinline",
    "mintinline", "SI", "si", "num", "qty", "unit", "gls", "Gls", "acrshort", "pagestyle", "thispagestyle",
    "hypersetup", "ensuremath", "rule", "fontsize", "selectlanguage", "foreignlanguage",
})  # fmt: skip
"""Commands whose arguments are no prose either."""
FIRST_ARGUMENT = ("href", "textcolor", "colorbox", "parbox", "raisebox", "resizebox", "scalebox", "multicolumn")
"""Commands of which only the first argument is no prose."""

_TOKEN = re.compile(
    r"(?P<comment>%[^\n]*)"
    rf"|(?P<block>\\begin\{{(?P<name>(?:{'|'.join(ENVIRONMENTS)})\*?)\}}.*?(?:\\end\{{(?P=name)\}}|\Z))"
    r"|(?P<verb>\\(?:verb\*?|lstinline)(?P<bar>[^\sA-Za-z{\[*]).*?(?P=bar))"
    r"|(?P<math>\$\$.*?(?<!\\)\$\$|\$(?:[^$\\]|\\.)*\$|\\\(.*?\\\)|\\\[.*?\\\])"
    r"|(?P<command>\\(?P<word>[A-Za-z@]+)\*?)"
    r"|(?P<sign>\\.|[{}&~^_#]|``|'')",
    re.S,
)
_BRACE = re.compile(r"\\.|[{}]", re.S)
_OPTION = re.compile(r"\s*\[[^\]]*\]")


def find_latex(text: str) -> Iterator[Span]:
    begin, end = re.search(r"\\begin\{document\}", text), text.find("\\end{document}")
    place = begin.end() if begin else 0
    if begin:
        yield 0, place
    if end >= 0:
        yield end, len(text)
    while token := _TOKEN.search(text, place):
        start, place = token.span()
        if token["command"]:
            place = _skip_arguments(text, place, token["word"])
        yield start, place


def _skip_arguments(text: str, place: int, word: str) -> int:
    """Where the prose goes on behind a command: behind its options, and behind arguments that are none."""
    place = _skip_options(text, place)
    left = len(text) if word in ARGUMENTS else int(word in FIRST_ARGUMENT)
    while left and text.startswith("{", place):
        place = _skip_options(text, _skip_group(text, place))
        left -= 1
    return place + 1 if text.startswith("{", place) else place


def _skip_options(text: str, place: int) -> int:
    while option := _OPTION.match(text, place):
        place = option.end()
    return place


def _skip_group(text: str, place: int) -> int:
    """Behind the brace that closes the one at `place`, or behind the line where none does."""
    depth = 0
    for match in _BRACE.finditer(text, place):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return match.end()
    line = text.find("\n", place)
    return line if line >= 0 else len(text)
