"""Trajectories as one page that needs nothing else: canvas, playback, the cursor's path, what a model considered.

In go examples, out comes HTML that replays them: the page holds the bytes of each token it needs, and of each example
the draft and the actions, so it grows with the actions and not with actions times text. The replay itself is in
static/replay.js, which executes actions as canvas.py does.

>>> from reviser.actions import Alphabet
>>> from reviser.canvas import Rules
>>> from reviser.tokenizer import load
>>> from reviser.orders.record import Draft
>>> draft = Draft.continuation([72], Rules(Alphabet(num_text=257, pad=256)))
>>> html = page([Example(Trajectory(draft, (105, 260), (True, True)))], load("bytes"), "Hi")
>>> '"draft":[72],"cursor":1,"marks":[2,1],"actions":[105,260]' in html
True
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reviser.actions import NUM_SPECIAL, Alphabet
from reviser.errors import ConfigError, DataError, TokenizerError
from reviser.files import write_text
from reviser.orders.record import Trajectory
from reviser.tokenizer import UNKNOWN, Tokenizer
from reviser.viewer.terminal import visible

STATIC = Path(__file__).parent / "static"
SCRIPTS = ("replay.js", "canvas.js", "plot.js", "page.js")
MAX_TITLE = 200
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class Example:
    """A trajectory and, where a model chose its actions, how probable they were.

    `alternatives` are the best actions and their log-probabilities at each step, best first. Both may end before the
    actions do: nobody chose the STOP that ends a trajectory whose budget is spent.
    """

    trajectory: Trajectory
    title: str = ""
    log_probabilities: tuple[float, ...] | None = None
    alternatives: tuple[tuple[tuple[int, float], ...], ...] | None = None


def page(examples: Sequence[Example], tokenizer: Tokenizer, title: str) -> str:
    """The whole page."""
    if not examples:
        raise ConfigError("a page needs at least one example")
    for number, example in enumerate(examples):
        check_example(example, tokenizer, number)
    data = {
        "num_text": tokenizer.num_text,
        "special": _special_actions(tokenizer.alphabet),
        "pieces": _token_bytes(_find_tokens(examples, tokenizer), tokenizer),
        "examples": [_to_data(example) for example in examples],
    }
    return _fill_template({"title": html.escape(visible(title)[:MAX_TITLE]), "data": _dump(data)})


def _fill_template(parts: dict[str, str]) -> str:
    parts = {"style": _read("style.css"), "script": "\n".join(map(_read, SCRIPTS)), **parts}
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _read("page.html"))


def policy_hashes() -> dict[str, str]:
    """What a Content-Security-Policy must name so that such a page may run: of its script and of its style."""
    text = _fill_template({"title": "", "data": ""})
    inner = {"script": r"<script>(.*?)</script>", "style": r"<style>(.*?)</style>"}
    return {name: _hash(re.findall(pattern, text, re.S)[-1]) for name, pattern in inner.items()}


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def write_page(path: str | os.PathLike[str], examples: Sequence[Example], tokenizer: Tokenizer, title: str) -> None:
    """Write the page, whole or not at all."""
    text = page(examples, tokenizer, title)
    try:
        write_text(path, text)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}; give another file") from None


def check_example(example: Example, tokenizer: Tokenizer, number: int) -> None:
    alphabet, num_actions = example.trajectory.draft.rules.alphabet, len(example.trajectory.actions)
    if alphabet != tokenizer.alphabet:
        raise TokenizerError(
            f"example {number} has {alphabet.num_text} text tokens and end of text {alphabet.pad}, the tokenizer "
            f"{tokenizer.num_text} and {tokenizer.pad}; give the one it was made with"
        )
    for name, values in (("log_probabilities", example.log_probabilities), ("alternatives", example.alternatives)):
        if values is not None and len(values) > num_actions:
            raise ConfigError(f"example {number} has {len(values)} {name} for {num_actions} actions")


def _special_actions(alphabet: Alphabet) -> list[tuple[str, str, int]]:
    """Name, operator and operand of each action behind the text tokens; the ids behind these are the JUMPs."""
    actions = range(alphabet.num_text, alphabet.num_text + NUM_SPECIAL)
    return [
        (alphabet.name(a), alphabet.operator(a) or alphabet.name(a).lower(), alphabet.distance(a) or alphabet.span(a))
        for a in actions
    ]


def _find_tokens(examples: Iterable[Example], tokenizer: Tokenizer) -> list[int]:
    """All text tokens that a page can have to show."""
    found: set[int] = set()
    for example in examples:
        found.update(example.trajectory.draft.tokens, example.trajectory.actions)
        found.update(action for ranked in example.alternatives or () for action, _ in ranked)
    return sorted(token for token in found if token < tokenizer.num_text)


def _token_bytes(tokens: Sequence[int], tokenizer: Tokenizer) -> dict[int, str | tuple[str, str]]:
    """The bytes of each token, a character for each; two spellings where the first of a text is written otherwise."""
    if tokenizer.is_byte_level:
        return {token: _bytes_of(token, tokenizer).decode("latin-1") for token in tokens}
    texts = {token: tokenizer.decode([token]) for token in tokens}
    behind = next((token for token, text in texts.items() if text and "\ufffd" not in text), None)
    spelled: dict[int, str | tuple[str, str]] = {}
    for token, text in texts.items():
        byte = _BYTE_TOKEN.fullmatch(tokenizer.piece(token))
        if byte is not None and text == "\ufffd":
            spelled[token] = chr(int(byte[1], 16))
            continue
        inner = text if behind is None else tokenizer.decode([behind, token])[len(texts[behind]) :]
        first, later = (each.encode().decode("latin-1") for each in (text, inner))
        spelled[token] = later if first == later else (later, first)
    return spelled


def _bytes_of(token: int, tokenizer: Tokenizer) -> bytes:
    try:
        return tokenizer.bytes_of(token)
    except TokenizerError:  # a hole in the vocabulary
        return UNKNOWN


def _to_data(example: Example) -> dict[str, Any]:
    trajectory = example.trajectory
    data: dict[str, Any] = {
        "title": visible(example.title)[:MAX_TITLE],
        "draft": trajectory.draft.tokens,
        "cursor": trajectory.draft.cursor,
        "marks": trajectory.draft.marks,
        "actions": trajectory.actions,
    }
    if trajectory.log_q is not None and math.isfinite(trajectory.log_q):
        data["log_q"] = trajectory.log_q
    if not all(trajectory.has_loss):
        data["noise"] = [index for index, loss in enumerate(trajectory.has_loss) if not loss]
    if example.log_probabilities is not None:
        data["scores"] = [_round(score) for score in example.log_probabilities]
    if example.alternatives is not None:
        data["alternatives"] = [
            [each for action, score in ranked for each in (action, _round(score))] for ranked in example.alternatives
        ]
    return data


def _round(score: float) -> float | None:
    """JSON has no infinity: what cannot happen has no score."""
    return round(score, 4) if math.isfinite(score) else None


def _dump(data: dict[str, Any]) -> str:
    """JSON that no text can end: < would begin a tag."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _read(name: str) -> str:
    return (STATIC / name).read_text("utf-8")
