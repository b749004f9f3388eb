"""What a server said, made safe to print and to keep: without the key, on one short line, without terminal escapes.

>>> quote("Bad key: sk-0123\\x1b[2J\\n", "sk-0123")
'Bad key: [key]\\\\x1b[2J'
>>> quote("Bad key: sk-01", "sk-0123", is_cut=True)
'Bad key:'
"""

from __future__ import annotations

import json

from reviser.errors import make_visible

HIDDEN = "[key]"
LONGEST_QUOTE = 200
"""Characters."""


def hide_key(text: str, key: str) -> str:
    """The text with the key taken out, also where JSON has escaped it."""
    for form in _forms(key):
        text = text.replace(form, HIDDEN)
    return text


def drop_started_key(text: str, key: str) -> str:
    """Text that was cut off, without the beginning of the key at its end.

    >>> drop_started_key("key sk-01", "sk-0123")
    'key '
    """
    longest = max(
        (size for form in _forms(key) for size in range(1, len(form)) if text.endswith(form[:size])), default=0
    )
    return text[: len(text) - longest]


def quote(text: str, key: str, is_cut: bool = False) -> str:
    """One short line to print; `is_cut` says that more would follow the text."""
    text = hide_key(text, key)
    if is_cut:
        text = drop_started_key(text, key)
    # Joining lines can put a key together again.
    text = hide_key(make_visible(" ".join(text.split())), key)
    if len(text) > LONGEST_QUOTE:
        return drop_started_key(text[:LONGEST_QUOTE], key)
    return text


def _forms(key: str) -> list[str]:
    """The key as JSON escapes it and as it is; the longer one first, for it may contain the other."""
    return [json.dumps(key)[1:-1], key] if key else []
