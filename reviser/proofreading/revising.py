"""A model's own drafts in, what it makes of them as their editor out.

An editor goes over the draft's text with the prompt closed: one that reads it and fills anew what is weak
(rewriting.py), or one that scans it as a proofreader does (proofread.py). What it changes is then done on the canvas
where the draft was written, so that one trajectory holds both:

    prompt     {The old lighthouse}|
    draft      INSERT " was", INSERT " a", INSERT " boat"            {The old lighthouse} was a boat|
    revision   JUMP 6, REPLACE, INSERT " tower", STOP                {The old lighthouse} was a tower|

An edit that would not fit on that canvas, or that would touch its protected tokens, is left out.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, compress
from typing import Protocol

from reviser.canvas import Canvas, Rules, replay
from reviser.config import ModelConfig
from reviser.errors import ConfigError, UnreachableError
from reviser.orders.align import align
from reviser.proofreading.choices import Proofreading
from reviser.proofreading.edits import Edit, apply_edits, shift
from reviser.proofreading.proofread import Edited, Propose, Span, proofread_all
from reviser.proofreading.rereading import Read
from reviser.proofreading.rewriting import Refill, rewrite_all
from reviser.proofreading.windows import Room
from reviser.tokenizer import Tokenizer


class EditAll(Protocol):
    """Goes over texts, with spans of each that stay as they are."""

    def __call__(self, texts: Sequence[str], *, closed: Sequence[Sequence[Span]] = ()) -> list[Edited]: ...


@dataclass(frozen=True, slots=True)
class Revision:
    """What became of a draft."""

    original: str
    """The draft's whole text."""
    edits: tuple[Edit, ...]
    """Of that text, disjoint and in order, each with its probability."""
    actions: tuple[int, ...]
    """What turns the draft's canvas into the revised one, without STOP: the shortest script for each edit."""
    log_probabilities: tuple[float, ...]
    """An edit's is that of its first action; the others have 0."""
    canvas: Canvas
    num_actions: int
    """Actions that the model took in all passes, those of edits that were left out too."""

    @property
    def text(self) -> str:
        return apply_edits(self.original, self.edits)


def make_editor(
    how: Proofreading,
    propose: Propose,
    refill: Refill,
    tokenizer: Tokenizer,
    config: ModelConfig,
    read: Read,
    room: Room | None = None,
) -> EditAll:
    """An editor that reads or scans, as `how` says."""
    if how.by == "reading":
        return partial(rewrite_all, refill=refill, tokenizer=tokenizer, read=read, how=how)
    return partial(proofread_all, propose=propose, tokenizer=tokenizer, config=config, how=how, room=room, read=read)


def revise_canvases(
    canvases: Sequence[Canvas],
    rules: Sequence[Rules],
    edit: EditAll,
    tokenizer: Tokenizer,
) -> list[Revision]:
    """What a model makes of its drafts, each a canvas with its rules; fixed tokens stay as they are."""
    texts = [tokenizer.decode(canvas.tokens) for canvas in canvases]
    closed = [_find_fixed(canvas, tokenizer) for canvas in canvases]
    # A model may write a zero byte, of which no text is made; such a draft is left as it is.
    is_text = ["\0" not in text for text in texts]
    asked, spans = list(compress(texts, is_text)), list(compress(closed, is_text))
    found = iter(edit(asked, closed=spans))
    edited = [next(found) if is_one else Edited(text, ()) for text, is_one in zip(texts, is_text, strict=True)]
    return [_do_edits(*each, tokenizer) for each in zip(canvases, rules, edited, closed, strict=True)]


def _find_fixed(canvas: Canvas, tokenizer: Tokenizer) -> list[Span]:
    """The characters of fixed tokens."""
    ends = list(accumulate(map(len, tokenizer.pieces(canvas.tokens)), initial=0))
    return [(ends[place], ends[place + 1]) for place in range(len(canvas.tokens)) if canvas.is_fixed(place)]


def _do_edits(canvas: Canvas, rules: Rules, edited: Edited, closed: Sequence[Span], tokenizer: Tokenizer) -> Revision:
    """The edits done on a canvas, from left to right; those that cannot be are left out."""
    begun = canvas = replace(canvas, is_stopped=False)
    done, actions, scores = list[Edit](), list[int](), list[float]()
    for widened in () if canvas.is_replacing else edited.edits:
        edit = _keep_outside(widened, closed)
        [moved] = shift([edit], sum(each.growth for each in done))
        target = _edit_tokens(canvas.tokens, moved, tokenizer)
        if tokenizer.decode(target) != apply_edits(tokenizer.decode(canvas.tokens), [moved]):
            continue  # half of a character stands there
        try:
            script = align(canvas, target, rules, first="left")[:-1]
        except (ConfigError, UnreachableError):
            continue  # it does not fit, or a protected token would have to change with its neighbour
        canvas = replay(canvas, script, rules)
        done.append(edit)
        actions += script
        scores += [math.log(max(edit.probability, 1e-9)), *[0.0] * (len(script) - 1)][: len(script)]
    if not done:
        canvas = begun
    return Revision(edited.original, tuple(done), tuple(actions), tuple(scores), canvas, edited.num_actions)


def _keep_outside(edit: Edit, closed: Sequence[Span]) -> Edit:
    """An edit without what it shares with protected text: a prompt may end inside of a word that is edited."""
    while edit.before[:1] == edit.after[:1] and any(start <= edit.start < end for start, end in closed):
        edit = replace(edit, start=edit.start + 1, before=edit.before[1:], after=edit.after[1:])
    while edit.before[-1:] == edit.after[-1:] and any(start < edit.end <= end for start, end in closed):
        edit = replace(edit, end=edit.end - 1, before=edit.before[:-1], after=edit.after[:-1])
    return edit


def _edit_tokens(tokens: Sequence[int], edit: Edit, tokenizer: Tokenizer) -> list[int]:
    """Tokens after an edit of their text: those that hold a character of it are encoded anew, with its neighbours."""
    pieces = tokenizer.pieces(tokens)
    starts = list(accumulate(map(len, pieces), initial=0))
    first = bisect_right(starts, edit.start) - 1 if edit.start < starts[-1] else len(pieces)
    # A token of part of a character reads as nothing, and belongs to the token behind it that has the rest.
    while first and not pieces[first - 1]:
        first -= 1
    last = max(bisect_left(starts, edit.end), first)
    text = "".join(pieces)
    anew = text[starts[first] : edit.start] + edit.after + text[edit.end : starts[last]]
    return [*tokens[:first], *tokenizer.encode(anew), *tokens[last:]]
