"""Other ways to correct one place: what the model considered while it made an edit.

    He go home.      JUMP 2, REPLACE, INSERT " went" 0.6 | " goes" 0.2 | " came" 0.1      ->  goes, came

Each INSERT of the edit gives way to those that were considered there, one at a time, and the rest stays as it was.
How the text reads then (rereading.py) says how probable each way is, as if it were the only edit; so they do not sum
to 1. Words that may have been meant by a misspelled one (spelling.py) are among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from reviser.actions import Alphabet
from reviser.canvas import Rules
from reviser.config import ModelConfig
from reviser.errors import ConfigError
from reviser.orders.record import Draft
from reviser.proofreading.edits import Attempt, Edit, find_edits, polish, shift
from reviser.proofreading.proofread import check_can_edit
from reviser.proofreading.rereading import Read, weigh
from reviser.proofreading.spans.formats import find_protected, merge
from reviser.proofreading.spelling import find_spellings, find_words
from reviser.proofreading.windows import Room, cut_windows, make_draft
from reviser.tokenizer import Tokenizer

LEAST = 0.02
"""Ways that are less probable are left out: pieces of words, mostly."""
MOST_READ = 12
"""Ways that are read, those of the most probable actions."""


class RankedAttempt(Attempt, Protocol):
    """An attempt whose steps know what else was considered."""

    @property
    def alternatives(self) -> Sequence[Sequence[tuple[int, float]]]: ...


Ask = Callable[[Draft], RankedAttempt]


@dataclass(frozen=True, slots=True)
class _Variant:
    """An attempt with one other action."""

    actions: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    ended_by: str


def find_ways(
    text: str,
    span: tuple[int, int],
    ask: Ask,
    tokenizer: Tokenizer,
    config: ModelConfig,
    read: Read | None = None,
    room: Room | None = None,
) -> list[Edit]:
    """Edits of a stretch of a text, each instead of the others, the most probable first; none where the model would
    not edit just that."""
    check_can_edit(config)
    start, end = span
    if not 0 <= start <= end <= len(text):
        raise ConfigError(f"characters {start} to {end} are not in a text of {len(text)}")
    protected = find_protected(text)
    around = [(0, max(start - 1, 0)), (min(end + 1, len(text)), len(text))]
    # With all else protected, the windows are the sentences of the stretch, and their context.
    windows = cut_windows(text, merge([*protected, *around]), tokenizer, room or Room.of(config))
    window = next(iter(windows), None)
    if window is None:
        return []
    left, core, right = (
        text[window.left : window.start],
        text[window.start : window.end],
        text[window.end : window.right],
    )
    inside = [(first - window.start, last - window.start) for first, last in protected]
    meeting = [each for each in inside if each[1] > 0 and each[0] < len(core)]
    rules = Rules(config.alphabet, frozenset(config.operators), max_length=config.max_length)
    draft = make_draft(left, core, right, meeting, tokenizer, rules)
    if draft is None:
        return []
    wanted = start - window.start, end - window.start
    found: dict[str, Edit] = {}
    for variant in _vary(ask(draft), rules.alphabet):
        edits = polish(core, shift(find_edits(draft, variant, tokenizer), -len(left)))
        edit = next((each for each in edits if (each.start, each.end) == wanted), None)
        if edit is not None and not set(edit.after) & set("\n\r\ufffd\0"):
            found[edit.after] = max(edit, found.get(edit.after, edit), key=lambda each: each.probability)
    ways = sorted(found.values(), key=lambda edit: -edit.probability)[:MOST_READ]
    if read is not None:
        ways = [edit for [edit] in weigh([(left, core, right, [way]) for way in ways], tokenizer, read)]
        words = find_words(tokenizer)
        ways += find_spellings(text, span, words, tokenizer, read) if words is not None else []
    best = {way.after: way for way in sorted(ways, key=lambda edit: edit.probability)}
    ranked = sorted((way for way in best.values() if way.probability >= LEAST), key=lambda edit: -edit.probability)
    return [replace(way, start=start, end=end) for way in ranked]


def _vary(attempt: RankedAttempt, alphabet: Alphabet) -> Iterator[_Variant]:
    """The attempt itself, and with each of its INSERTs replaced by each that was considered there."""
    scores = attempt.log_probabilities
    yield _Variant(attempt.actions, scores, attempt.ended_by)
    for step, (action, ranked) in enumerate(zip(attempt.actions, attempt.alternatives, strict=False)):
        for other, score in ranked if alphabet.is_insert(action) else ():
            if other != action and alphabet.is_insert(other):
                actions = (*attempt.actions[:step], other, *attempt.actions[step + 1 :])
                yield _Variant(actions, (*scores[:step], score, *scores[step + 1 :]), attempt.ended_by)
