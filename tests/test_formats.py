"""What is protected in each format, and that nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reviser.errors import ConfigError, DataError
from reviser.proofreading.choices import FORMATS, format_of, read_words
from reviser.proofreading.spans.formats import find_protected

MARKDOWN = """---
title: teh front
---
# A teh title

Some teh text, `teh code` and ``a ` teh``, [teh link](http://teh.org/(teh) "teh") and ![teh alt][teh ref].
Lazy <b class="teh">teh</b> <https://teh.org> teh@teh.org &teh; $teh^2$ costs $5 teh and $6 {{ teh }}[^teh].
www.teh.org/teh.

- item teh

  ```python
  teh = 1

  teh
  ```

> quoted teh
lazy teh

    indented teh

<div>
html teh
</div>

$$
teh
$$

| teh a | `teh` |
|---|---|
| teh | b |

<!-- teh
 -->
[teh ref]: teh.html "teh"
"""
MARKDOWN_PROSE = ["A teh title", "Some teh text", "[teh link", "![teh alt", "Lazy ", "teh</b>",
                  " costs $5 teh and $6 ", "item teh", "teh a ", "teh | b"]  # fmt: skip

RST = """A teh title
===========

Some teh text with ``teh code``, :ref:`teh <x>`, `teh link <http://teh.org>`_, |teh| and teh_ [teh]_.

.. code-block:: python

    teh = 1

    teh

.. note:: teh head

   Note teh body.

   - inner teh

.. comment teh
   more teh

.. _teh: http://teh.org

Literal::

    teh literal

    teh more

- item teh

  goes on teh

Para.

    quoted teh

:field: teh value

>>> teh()

===  ===
teh  teh
===  ===

.. [1] foot teh

Last teh line.
"""
RST_PROSE = ["Some teh text", "`teh link", "Note teh body", "inner teh", "item teh", "goes on teh", " teh value",
             "foot teh", "Last teh line"]  # fmt: skip

HTML = """<!DOCTYPE html><head><title>teh</title></head>
<p title="teh">Some teh text &teh; <code>teh <b>teh</b></code> and <pre>teh</pre> more teh.</p>
<!-- teh --><script>teh < 3</script><style>teh</style><blockquote>teh <p>teh</p></blockquote>
<p translate="no">teh</p><br/>last teh < 3 &amp; 4"""
HTML_PROSE = ["Some teh text", " more teh.", "last teh < 3 "]

LATEX = r"""\documentclass{teh}
\newcommand{\teh}{teh}
\begin{document}
\section{A teh title}\label{teh}
Some teh text \cite[teh]{teh} with \emph{some teh} and $teh$, \(teh\), \verb|teh|, 50\% teh. % teh
\begin{equation}teh\end{equation}
\begin{lstlisting}[teh]
teh
\end{lstlisting}
\begin{itemize}\item One teh \href{http://teh}{a teh link} \url{teh} \begin{quote}teh\end{quote}\end{itemize}
\[ teh \] \texttt{teh {teh}} \includegraphics[width=teh]{teh} last teh.
\end{document}
teh
"""
LATEX_PROSE = ["A teh title", "Some teh text ", "some teh", " teh. ", "One teh ", "a teh link", " last teh."]

TEXT = "Some teh text http://teh.org/teh, and teh@teh.org.\n> quoted teh\nLast teh\n"
TEXT_PROSE = ["Some teh text ", "Last teh"]


@pytest.mark.parametrize(
    ("format", "text", "prose"),
    [
        ("markdown", MARKDOWN, MARKDOWN_PROSE),
        ("rst", RST, RST_PROSE),
        ("html", HTML, HTML_PROSE),
        ("latex", LATEX, LATEX_PROSE),
        ("text", TEXT, TEXT_PROSE),
    ],
)
def test_prose_is_open_and_all_else_is_protected(format: str, text: str, prose: list[str]) -> None:
    protected = {place for start, end in find_protected(text, format) for place in range(start, end)}
    wanted = set()
    for each in prose:
        assert text.count(each) == 1, each
        start = text.index(each)
        wanted |= {start + place for place in range(len(each)) if each.startswith("teh", place)}
    found = {place for place in range(len(text)) if text.startswith("teh", place) and place not in protected}
    assert {text[place - 9 : place + 9] for place in found ^ wanted} == set()


def test_markers_and_line_ends_are_protected() -> None:
    text = "1. One\n   - [x] two  \n## Three\n"
    spans = find_protected(text, "markdown")
    assert [text[start:end] for start, end in spans] == ["1. ", "\n   - [x] ", "  \n## ", "\n"]


@settings(max_examples=60)
@given(
    st.sampled_from(FORMATS),
    st.text(st.sampled_from("ab \n`$*_<>[](){}\\%|.:-=>#&!~\t/@'\"é"), max_size=80)
    | st.lists(st.sampled_from(MARKDOWN.split("\n") + RST.split("\n") + LATEX.split("\n"))).map("\n".join),
)
def test_spans_are_sorted_apart_and_inside_of_any_text(format: str, text: str) -> None:
    spans = find_protected(text, format)
    assert all(start < end for start, end in spans)
    places = [place for span in spans for place in span]
    assert places == sorted(set(places))
    assert all(0 <= place <= len(text) for place in places)
    assert all(text[place] != "\n" or any(a <= place < b for a, b in spans) for place in range(len(text)))


def test_long_texts_are_searched_in_time_that_grows_with_them() -> None:
    for format in FORMATS:
        for piece in ("a `b $c <d [e](f\n", "``a b", "\\begin{x}{", "[" * 9, "$", "- a\n", "  x::\n\n    y\n"):
            spans = find_protected(piece * 500, format)
            assert all(0 <= start < end <= 500 * len(piece) for start, end in spans)


def test_the_users_words_are_protected_as_whole_words(tmp_path: Path) -> None:
    listed = tmp_path / "words.txt"
    listed.write_text("# mine\nteh  # a name\n\nFoo Bar\nx++\n")
    words = read_words(listed)
    assert words == ("teh", "Foo Bar", "x++")
    text = "Teh teh tehs, Foo Bar, foo bar, x++."
    assert [text[a:b] for a, b in find_protected(text, "text", words)] == ["Teh", "teh", "Foo Bar", "x++"]
    with pytest.raises(DataError, match=r"^cannot read nowhere: No such file or directory; give a file with one"):
        read_words("nowhere")
    listed.write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"words.txt is not UTF-8 text; a file of words has one word a line"):
        read_words(listed)


def test_a_format_is_known_by_the_files_name_or_refused() -> None:
    names = ["a.md", "b/README", "c.TXT", "d.rst", "e.htm", "f.tex"]
    assert [format_of(name) for name in names] == ["markdown", "text", "text", "rst", "html", "latex"]
    with pytest.raises(DataError, match=r"^x.py: no format is known for .py; give one with --format: text, markdown"):
        format_of("x.py")
    with pytest.raises(ConfigError, match="no format 'word'; formats are text, markdown, rst, html, latex"):
        find_protected("", "word")
