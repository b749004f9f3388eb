"""A text in, the text a model makes of it out, with every edit and its probability.

The text is cut into windows (windows.py), a model proposes actions for each, and those are read as edits (edits.py).
Then the model reads the window as it was and as it would be, which says more of each edit (rereading.py).
Words that are in no list are read with those that may have been meant (spelling.py).
A window that changed is proposed again, until nothing changes, it comes back to a text that it has had, or its passes
are spent. An edit is left out that

- is less probable than `min_probability`,
- changes nothing but the style of quotation marks (quotes.py), which all edits take over from the text,
- changes protected text (spans/formats.py), or joins letters to it,
- adds or drops a line end or a character of the format's markup,
- changes how a line begins, so that it could become a list or code,
- leaves half of a character.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

from reviser.canvas import Rules
from reviser.config import ModelConfig
from reviser.errors import ConfigError, DataError
from reviser.orders.record import Draft
from reviser.proofreading.choices import MARKUP, Proofreading
from reviser.proofreading.edits import Attempt, Edit, apply_edits, compose, find_edits, is_word, polish, shift
from reviser.proofreading.quotes import Quotes
from reviser.proofreading.rereading import Read, weigh
from reviser.proofreading.spans.formats import find_protected, merge
from reviser.proofreading.spelling import WordList, find_words, spell
from reviser.proofreading.windows import Room, TextWindow, cut_windows, find_meeting, make_draft
from reviser.tokenizer import Tokenizer

Span = tuple[int, int]
Propose = Callable[[Sequence[Draft]], Sequence[Attempt]]
"""What a model does with drafts: the actions that it would take, with their log-probabilities."""
TellProgress = Callable[[int, int], None]
"""Called with how many windows have been read, and of how many."""
CHANGES = ("delete", "replace")
"""Operators of which a model needs one to proofread."""
OPENING = '"“‘(«¿¡'
"""Signs that prose begins with."""
NUMBER = re.compile(r"\w{1,3}[.)]\s")
BATCH = 64
"""Windows that are proposed at once, and between which progress is told."""


@dataclass(frozen=True, slots=True)
class Edited:
    """A text and the edits of it, disjoint and in order."""

    original: str
    edits: tuple[Edit, ...]
    num_actions: int = 0
    """That the model took, also for edits that were left out."""

    @property
    def text(self) -> str:
        """After all edits."""
        return apply_edits(self.original, self.edits)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Edited({self.text!r}, {len(self.edits)} edits)"

    @property
    def places(self) -> list[tuple[int, int]]:
        """Line and column of each edit in the original, both from 1."""
        starts = [0, *(match.end() for match in re.finditer(r"\r\n?|\n", self.original))]
        lines = [bisect_right(starts, edit.start) for edit in self.edits]
        return [(line, edit.start - starts[line - 1] + 1) for line, edit in zip(lines, self.edits, strict=True)]


def proofread(
    text: str,
    propose: Propose,
    tokenizer: Tokenizer,
    config: ModelConfig,
    how: Proofreading = Proofreading(),  # noqa: B008, it is frozen
    progress: TellProgress | None = None,
    room: Room | None = None,
    read: Read | None = None,
) -> Edited:
    """What a model makes of a text; `room` is how long windows are, by default as long as fits. Without
    `read`, or with `how.reread` off, an edit is as probable as its actions."""
    [edited] = proofread_all([text], propose, tokenizer, config, how, progress, room, read)
    return edited


def proofread_all(
    texts: Sequence[str],
    propose: Propose,
    tokenizer: Tokenizer,
    config: ModelConfig,
    how: Proofreading = Proofreading(),  # noqa: B008, it is frozen
    progress: TellProgress | None = None,
    room: Room | None = None,
    read: Read | None = None,
    closed: Sequence[Sequence[Span]] = (),
) -> list[Edited]:
    """What a model makes of each text, with the windows of all in the same batches; `closed` are spans of each that
    stay as they are, beside what its format protects."""
    check_can_edit(config)
    pages = [
        _Page.of(text, spans, how, tokenizer, room or Room.of(config))
        for text, spans in zip(texts, closed or [()] * len(texts), strict=True)
    ]
    _edit_tasks([task for page in pages for task in page.tasks], propose, tokenizer, config, how, progress, read)
    return [page.finish(how) for page in pages]


def _edit_tasks(
    tasks: Sequence[_Task],
    propose: Propose,
    tokenizer: Tokenizer,
    config: ModelConfig,
    how: Proofreading,
    progress: TellProgress | None,
    read: Read | None,
) -> None:
    """Pass after pass over all windows that are not done."""
    rules = Rules(config.alphabet, frozenset(config.operators), max_length=config.max_length)
    words = find_words(tokenizer) if how.spelling and how.reread and read is not None else None
    for number in range(how.passes):
        drafted = [(task, task.draft(tokenizer, rules, config)) for task in tasks if not task.is_done]
        asked = [(task, draft) for task, draft in drafted if draft is not None]
        for start in range(0, len(asked), BATCH):
            batch = asked[start : start + BATCH]
            attempts = propose([draft for _, draft in batch])
            for (task, _), attempt in zip(batch, attempts, strict=True):
                task.num_actions += len(attempt.actions)
            found = [
                task.sift(find_edits(draft, attempt, tokenizer, how.weighing.rewrites), how)
                for (task, draft), attempt in zip(batch, attempts, strict=True)
            ]
            if read is not None and how.reread:
                shown = [(*task.shown, edits) for (task, _), edits in zip(batch, found, strict=True)]
                found = weigh(shown, tokenizer, read, how.weighing)
            if words is not None and read is not None:
                found = _add_spellings([task for task, _ in batch], found, words, tokenizer, read, how)
            for (task, _), edits in zip(batch, found, strict=True):
                task.take([edit for edit in edits if edit.probability >= how.min_probability])
            if progress is not None and number == 0:
                progress(min(start + BATCH, len(asked)), len(asked))
        if not asked:
            break


def _add_spellings(
    tasks: Sequence[_Task],
    found: Sequence[Sequence[Edit]],
    words: WordList,
    tokenizer: Tokenizer,
    read: Read,
    how: Proofreading,
) -> list[list[Edit]]:
    """The model's own edits, and words that are misspelled where it makes none."""
    made = [[edit for edit in edits if edit.probability >= how.min_probability] for edits in found]

    def is_free(task: _Task, edits: Sequence[Edit], new: Edit) -> bool:
        is_apart = all(edit.end < new.start or edit.start > new.end for edit in edits)
        return is_apart and task.is_allowed(new, how)

    may_change = [partial(is_free, task, edits) for task, edits in zip(tasks, made, strict=True)]
    spelled = spell([task.shown for task in tasks], words, tokenizer, read, may_change)
    return [sorted([*old, *new], key=lambda edit: edit.start) for old, new in zip(made, spelled, strict=True)]


def check_can_edit(config: ModelConfig, name: str = "this model") -> None:
    """Refuse a model that can neither delete nor replace, or that holds no text."""
    if not set(CHANGES) & set(config.operators):
        raise ConfigError(
            f"{name} cannot edit: it has the operators {', '.join(sorted(config.operators)) or 'none'}, and editing "
            "needs delete or replace; use a model that was trained on edits"
        )
    if Room.of(config).most < 1:
        raise ConfigError(
            f"a model with a context of {config.context} and a canvas of {config.max_length} has no room for text"
        )


@dataclass(frozen=True, slots=True)
class _Page:
    """A text on its way."""

    text: str
    plain: str
    dropped: list[int]
    tasks: list[_Task]

    @classmethod
    def of(cls, text: str, closed: Sequence[Span], how: Proofreading, tokenizer: Tokenizer, room: Room) -> _Page:
        plain, dropped = _plain(text)
        if how.within is not None:
            first, last = (min(place, len(text)) for place in how.within)
            closed = [*closed, *(span for span in ((0, first), (last, len(text))) if span[0] < span[1])]
        # Each line end of two characters has become one.
        stay = [(start - text.count("\r\n", 0, start), end - text.count("\r\n", 0, end)) for start, end in closed]
        protected = merge([*find_protected(plain, how.format, how.words), *stay])
        windows, quotes = cut_windows(plain, protected, tokenizer, room), Quotes.of(plain)
        return cls(text, plain, dropped, [_Task.of(plain, window, protected, quotes) for window in windows])

    def finish(self, how: Proofreading) -> Edited:
        """What all windows have come to."""
        edits = _drop_meeting([edit for task in self.tasks for edit in shift(task.edits, task.window.start)])
        kept = [edit for edit in polish(self.plain, edits) if edit.probability >= how.min_probability]
        found = tuple(_in_original(self.text, edit, self.dropped) for edit in kept)
        return Edited(self.text, found, sum(task.num_actions for task in self.tasks))


@dataclass(slots=True)
class _Task:
    """A window on its way: its text as it is by now, what is protected of that, and what it took to get there."""

    window: TextWindow
    original: str
    left: str
    right: str
    text: str
    quotes: Quotes
    protected: list[Span]
    """In `text`, and beyond its ends where a window is cut inside of one."""
    edits: list[Edit] = field(default_factory=list)
    """Of `original`."""
    is_done: bool = False
    num_actions: int = 0
    seen: dict[str, list[Edit]] = field(default_factory=dict)
    around: tuple[str, str] = ("", "")
    """The context in the last draft, before the text and behind it."""

    @classmethod
    def of(cls, text: str, window: TextWindow, protected: Sequence[Span], quotes: Quotes) -> _Task:
        core = text[window.start : window.end]
        found = find_meeting(protected, window.start, window.end)
        inside = [(start - window.start, end - window.start) for start, end in found]
        left, right = text[window.left : window.start], text[window.end : window.right]
        return cls(window, core, left, right, core, quotes, inside, seen={core: []})

    def draft(self, tokenizer: Tokenizer, rules: Rules, config: ModelConfig) -> Draft | None:
        """The window as it is, without context where that would leave no room; then, or where nothing may change, the
        window is done."""
        for left, right in ((self.left, self.right), ("", "")):
            draft = make_draft(left, self.text, right, self.protected, tokenizer, rules)
            is_small = draft is not None and len(draft.actions) + 2 < config.context
            if draft is not None and is_small and len(draft.tokens) <= config.max_length:
                self.around = left, right
                return draft
        self.is_done = True
        return None

    @property
    def shown(self) -> tuple[str, str, str]:
        """The last draft: context, text, context."""
        return self.around[0], self.text, self.around[1]

    def sift(self, edits: Sequence[Edit], how: Proofreading) -> list[Edit]:
        """The edits of the last draft that may be made, as edits of the text."""
        followed = map(self._follow_quotes, shift(edits, -len(self.around[0])))
        return [edit for edit in followed if self.is_allowed(edit, how)]

    def take(self, accepted: Sequence[Edit]) -> None:
        """Go on to the text after these edits."""
        text = apply_edits(self.text, accepted)
        if text in self.seen:
            # Also where nothing was accepted. A model that goes round in circles ends where the circle begins, so
            # that another run on the result leaves it there.
            self.edits, self.is_done = self.seen[text], True
            return
        self.edits = compose(self.original, self.edits, accepted)
        self.protected = [_follow(span, accepted) for span in self.protected]
        self.text = text
        self.seen[text] = self.edits

    def _follow_quotes(self, edit: Edit) -> Edit:
        return replace(edit, after=self.quotes.follow(edit.before, edit.after, self._beside(edit)[0]))

    def is_allowed(self, edit: Edit, how: Proofreading) -> bool:
        """Whether an edit leaves markup and protected text as they are."""
        markup = set(MARKUP[how.format]) | set("\n\r\ufffd\0")
        before, after = (Counter(c for c in side if c in markup) for side in (edit.before, edit.after))
        return (
            edit.before != edit.after
            and before == after
            and 0 <= edit.start <= edit.end <= len(self.text)
            and not any(self._meets(edit, span) for span in self.protected)
            and not (self._begins_line(edit) and self._changes_marker(edit))
        )

    def _begins_line(self, edit: Edit) -> bool:
        """Whether nothing but protected text stands between an edit and the beginning of its line."""
        if edit.start == 0 and self.window.around[0] == "\n":
            return True
        spans = (span for span in self.protected if span[1] == edit.start)
        return any("\n" in self.text[max(start, 0) : end] for start, end in spans)

    def _changes_marker(self, edit: Edit) -> bool:
        """Whether a line would begin with another sign or space than it does, or with a number as in a list."""
        rest = self.text[edit.end :]
        old, new = edit.before + rest[:1], edit.after + rest
        is_other = old[:1] != new[:1] and not is_word(new[:1]) and new[:1] not in OPENING
        return is_other or (bool(NUMBER.match(new)) and not NUMBER.match(edit.before + rest))

    def _meets(self, edit: Edit, span: Span) -> bool:
        """Whether an edit reaches into a protected span, or joins letters to one."""
        start, end = span
        if edit.start < end and edit.end > start:
            return True
        left, right = self._beside(edit)
        if edit.end == start and _joins((edit.before or left)[-1:], (edit.after or left)[-1:], right):
            return True
        return edit.start == end and _joins((edit.before or right)[:1], (edit.after or right)[:1], left)

    def _beside(self, edit: Edit) -> tuple[str, str]:
        """The characters on either side of an edit."""
        left, right = self.window.around
        return (left + self.text)[edit.start : edit.start + 1], (self.text + right)[edit.end : edit.end + 1]


def _joins(old: str, new: str, edge: str) -> bool:
    """Whether a letter comes to stand where none stood, beside a protected span; one may beside white space."""
    return is_word(new) and not is_word(old) and not edge.isspace()


def _follow(span: Span, edits: Sequence[Edit]) -> Span:
    """Where a span lies after edits that do not meet it."""
    growth = sum(edit.growth for edit in edits if edit.end <= span[0])
    return span[0] + growth, span[1] + growth


def _drop_meeting(edits: Sequence[Edit]) -> list[Edit]:
    """Two windows may both insert where they meet: the more probable edit stays."""
    weaker = {
        min(pair, key=lambda edit: edit.probability) for pair in pairwise(edits) if pair[1].start <= pair[0].end
    }
    return [edit for edit in edits if edit not in weaker]


def _plain(text: str) -> tuple[str, list[int]]:
    """The text with "\\n" at line ends, and where in that a character was dropped."""
    if not isinstance(text, str):
        raise ConfigError(f"text is {text!r}, of type {type(text).__name__}; give a text (str)")
    if "\0" in text:
        raise DataError("the text holds a zero byte, so it is no text; leave it out")
    dropped = [match.start() - number for number, match in enumerate(re.finditer(r"\r(?=\n)", text))]
    return text.replace("\r\n", "\n").replace("\r", "\n"), dropped


def _in_original(text: str, edit: Edit, dropped: Sequence[int]) -> Edit:
    """The edit in a text whose line ends are its own."""
    if "\r" not in text:
        return edit
    start, end = (place + bisect_left(dropped, place) for place in (edit.start, edit.end))
    before = text[start:end]
    line_ends = iter(re.findall(r"\r\n|\r|\n", before))
    after = re.sub("\n", lambda _: next(line_ends), edit.after)
    return replace(edit, start=start, end=end, before=before, after=after)


def compare_cuts(
    text: str,
    propose: Propose,
    tokenizer: Tokenizer,
    config: ModelConfig,
    how: Proofreading,
    share: float = 0.5,
    read: Read | None = None,
) -> float:
    """How little it matters where windows are cut: of all edits that are made with windows of the full size or with
    windows of a `share` of it, the part that is made with both; 1 where there are none."""
    full = Room.of(config)
    small = Room(max(int(full.most * share), 1), int(full.context * share), max(int(full.core * share), 1))
    results = [proofread(text, propose, tokenizer, config, how, room=room, read=read) for room in (full, small)]
    one, other = ({(edit.start, edit.end, edit.after) for edit in edited.edits} for edited in results)
    return len(one & other) / len(one | other) if one | other else 1.0
