"""HTML and SVG written by hand: text is escaped unless it is markup already.

>>> element("p", "a < b ", element("b", "&"), class_="note")
'<p class="note">a &lt; b <b>&amp;</b></p>'
"""

from __future__ import annotations

import html
import re

UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""What an HTML page may not hold, not even escaped."""


class Markup(str):
    """Text that is HTML."""

    __slots__ = ()


def escape(text: object) -> Markup:
    return text if isinstance(text, Markup) else Markup(html.escape(UNPRINTABLE.sub("\ufffd", str(text))))


def element(name: str, *children: object, **attributes: object) -> Markup:
    """An element; `class_` is class, and other underscores are hyphens. Numbers are cut to two decimals."""
    given = "".join(f' {_attribute(key)}="{_value(value)}"' for key, value in attributes.items() if value is not None)
    return Markup(f"<{name}{given}>{''.join(map(escape, children))}</{name}>")


def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _value(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else escape(value)
