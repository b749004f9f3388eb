"""Docstrings for the site: examples at a prompt become blocks of code, which Markdown would take for quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^>>> .*\n(?:^(?!\s*$).*(?:\n|\Z))*)+", re.M)


class PromptExamples(griffe.Extension):
    """Puts `>>>` examples into fences."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            text = obj.docstring.value + "\n"
            obj.docstring.value = EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
