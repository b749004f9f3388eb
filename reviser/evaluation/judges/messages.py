"""What a judge that can read is shown, and how its reply is understood.

It gets one message: the request and both texts between marks. It replies [[A]] for the first text, [[B]] for the
second or, where ties are allowed, [[C]]. The last such mark counts, so a judge may reason before it decides.

>>> read_verdict("A is dull, so [[A]] will not do: [[B]]")
'second'
>>> read_verdict("Both are fine.") is None
True
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from reviser.errors import ConfigError, DataError
from reviser.evaluation.judges.pairs import Pair

MARKS = {"A": "first", "B": "second", "C": "tie"}
_HEAD = (
    "You are an impartial judge. Below stand a request and what two assistants, A and B, wrote for it. Decide which "
    "of the two does better what the request asks for: which fits the given text, holds together, stays on its "
    "subject, is correct and well written, and says more. The order in which they stand, their lengths and the "
    "assistants' names must not sway you.\n"
)
_TAIL = (
    "\n\n[User Question]\n{request}\n\n"
    "[The Start of Assistant A's Answer]\n{first}\n[The End of Assistant A's Answer]\n\n"
    "[The Start of Assistant B's Answer]\n{second}\n[The End of Assistant B's Answer]\n"
)
CHAT_TEMPLATE = (
    _HEAD + 'End your reply with your verdict: "[[A]]" if A is better, "[[B]]" if B is better, "[[C]]" if neither is.'
) + _TAIL
# The parts, their order, their marks and the bare verdict are those that Skywork-Critic was trained with, the words
# are not (https://huggingface.co/Skywork/Skywork-Critic-Llama-3.1-8B, section "Demo Code"). It knows no tie.
CRITIC_TEMPLATE = (_HEAD + 'Reply with your verdict alone: "[[A]]" if A is better, "[[B]]" if B is better.') + _TAIL
REMINDER = "Your reply names no winner. Reply with one of [[A]], [[B]] and [[C]] and nothing else."


def read_template(path: str | Path) -> str:
    """Read a judge's message, which must contain {request}, {first} and {second} once each."""
    try:
        text = Path(path).read_text("utf-8")
    except UnicodeDecodeError:
        raise DataError(f"{path}: not a text file in UTF-8; give a text file with the judge's message") from None
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); give a text file with the judge's message"
        ) from None
    for name in ("{request}", "{first}", "{second}"):
        if text.count(name) != 1:
            raise ConfigError(f"{path} contains {name} {text.count(name)} times; it must contain it exactly once")
    return text


def make_request(pair: Pair) -> str:
    """The prompt as a request to an assistant."""
    prefix, suffix = pair.first.prefix, pair.first.suffix
    if suffix:
        return f"Write what belongs at [GAP] in this text, so that it reads as one:\n\n{prefix}[GAP]{suffix}"
    return f"Continue this text:\n\n{prefix}"


def make_message(template: str, pair: Pair) -> str:
    """Fill in a template in one pass, so that a text may itself contain a placeholder's name."""
    parts = {"{request}": make_request(pair), "{first}": pair.first.text, "{second}": pair.second.text}
    return re.sub(r"\{(?:request|first|second)\}", lambda found: parts[found[0]], template)


def read_verdict(reply: str, marks: str = "ABC") -> str | None:
    """What the last mark means; None if the reply has no mark."""
    found = re.findall(rf"\[\[([{marks}])\]\]", reply)
    return MARKS[found[-1]] if found else None


def short_hash(text: str) -> str:
    """Eight hexadecimal digits that tell one message from another in a judge's name."""
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:8]
