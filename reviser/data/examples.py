"""Documents to examples: which stretch of which document is prompt, which is to be written.

An example is a stretch of one document, cut into prefix, target and (to infill or edit) suffix; to edit, a draft
stands where the target is to be, and some of the target may be given, between several gaps (slots.py):

    document   ... The boats lay still, and the gulls were asleep. A child came down the steps. ...
    continue   [The boats lay still,][ and the gulls were asleep.]         prefix, target
    infill     [The boats][ lay still, and][ the gulls were asleep.]       prefix, target, suffix
    gaps       [The boats][ lay still,] and the[ gulls][ were asleep.]     what is given between gaps is in the target
    edit       [The boats lay still,][ and the gulls were asleep.][ A]     its draft: [ and the gull were a sleep.]

A document gives as many examples an epoch as its length allows, each with its own random stream
(seed, epoch, slot), so an example never depends on its neighbours or on who draws it. Stretches begin
where a sentence begins, and continuations end where a sentence or the document ends, when one is near.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from reviser.canvas import Rules
from reviser.errors import ConfigError
from reviser.orders.kernels import _below, jit, stream_states
from reviser.orders.policies import Order, needs_ends
from reviser.orders.record import Draft
from reviser.orders.rng import Random
from reviser.token_marks import BEGINS, ends_sentence, sentence_ends, text_marks
from reviser.tokenizer import Tokenizer

Array = npt.NDArray[Any]
MAX_WORDS = 6
"""How many words are given at most where little else is."""
EDIT, GAPS, WORDS = 1, 2, 3
"""Kinds of examples beside those that `cut_documents` cuts for good: to edit, with gaps, with a few words given."""
ANYWHERE, FINISHED, CUT = 0, 1, 2
"""Whether a model learns to stop behind a target: always; as its document ends there; not, as the text goes on."""
NEAR = 16
"""How far, in tokens, a sentence's end may be to be called near."""


class Documents(Protocol):
    """What examples are cut from: `Shards`, or anything like it."""

    @property
    def lengths(self) -> npt.NDArray[np.int64]: ...

    def gather(
        self, documents: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int32]:
        """The tokens start..start+size of each document, end to end."""


class Readable(Documents, Protocol):
    """Documents that know how their tokens are read."""

    @property
    def tokenizer(self) -> Tokenizer: ...


@dataclass(frozen=True)
class JobConfig:
    """What is asked of the model: lengths in tokens, drawn uniformly from their ranges.

    Gaps and what follows them are drawn so that 1 token is as usual as 2 or 3 and as 4 to 7: people leave out a word
    more often than a paragraph.
    """

    prefix: tuple[int, int] = (0, 64)
    length: tuple[int, int] = (16, 160)
    """Of a continuation, before it is moved to a sentence's end."""
    gap: tuple[int, int] = (1, 63)
    """Of what fills a gap."""
    suffix: tuple[int, int] = (1, 63)
    infill: float = 0.0
    """Share of examples that fill a gap, or several; the others continue."""
    from_start: float = 0.3
    """Share of stretches that begin where their document begins."""
    edit: float = 0.0
    """Share of documents' examples that correct mistakes; of the others, `infill` fill a gap."""
    pairs: float = 0.0
    """Share of examples that are pairs of texts, before and after an edit."""
    corrected: float = 0.0
    """Share of the pairs' examples whose draft is the text after the edit already, so that nothing is to be done."""
    draft: tuple[int, int] = (8, 160)
    """Of a text to be edited, half of them drawn as gaps are; longer pairs are left out."""
    around: tuple[int, int] = (0, 48)
    """Of what is protected before and behind a text to be edited, in half of the cases."""
    rewrites: bool = False
    """Whether drafts are corrected by writing them again, behind a separator, instead of by edits."""
    gaps: tuple[int, int] = (1, 1)
    """How many gaps an example to infill has."""
    sparse: float = 0.0
    """Share of examples to infill of which only one to six words are given."""
    cut_stops: bool = True
    """Whether STOP is learned behind every continuation; else it is where documents end, so texts get as long."""
    learn_given: float = 0.0
    """Share of examples of which what is given is learned too, where the finished text has it: not the mistakes."""
    told: float = 0.0
    """Share of continuations of a prompt that are told to be written out of order, by told_order."""
    told_order: str = "ending"

    def __post_init__(self) -> None:
        for name in ("prefix", "length", "gap", "suffix", "draft", "around"):
            low, high = getattr(self, name)
            if not (1 if name in ("length", "gap", "draft") else 0) <= low <= high:
                raise ConfigError(f"jobs.{name}={low},{high} is not a range of lengths; write it as low,high")
        if not 1 <= self.gaps[0] <= self.gaps[1] or 2 * self.gaps[1] > self.length[1] + 1:
            low, high = self.gaps
            raise ConfigError(
                f"jobs.gaps={low},{high} is not a range of 1 to {(self.length[1] + 1) // 2} gaps (half of "
                "jobs.length); write it as low,high"
            )
        for name in ("infill", "from_start", "edit", "pairs", "corrected", "sparse", "learn_given", "told"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"jobs.{name}={getattr(self, name)} is not a share between 0 and 1")
        if self.learn_given and self.rewrites:
            raise ConfigError("jobs.learn_given with jobs.rewrites learns to make mistakes; set learn_given to 0")

    @property
    def longest(self) -> int:
        """The most tokens a canvas can hold."""
        gaps = max(self.gap[1], self.length[1]) if self.num_inner else self.gap[1]
        infill = gaps + max(self.suffix[1], NEAR) if self.infill else 0
        return max(self.prefix[1] + max(self.length[1] + NEAR, infill), self.longest_edit)

    @property
    def num_inner(self) -> int:
        """The most gaps that an example has behind its first."""
        return max(self.gaps[1] - 1, MAX_WORDS if self.sparse else 0) if self.infill else 0

    @property
    def longest_edit(self) -> int:
        """The most tokens on the canvas of a text to be edited or written again; mistakes may make it longer."""
        if not (self.edit or self.pairs):
            return 0
        draft = (self.draft[1] + NEAR) * 5 // 4
        return 2 * draft + 1 if self.rewrites else 2 * self.around[1] + draft

    @property
    def has_edits(self) -> bool:
        """Whether drafts are edited."""
        return (self.edit > 0 or self.pairs > 0) and not self.rewrites


@dataclass(frozen=True, slots=True)
class Examples:
    """Some examples: example i is tokens[first[i]:] cut into prefix[i], length[i] and suffix[i] tokens."""

    tokens: npt.NDArray[np.int32]
    first: npt.NDArray[np.int64]
    prefix: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    suffix: npt.NDArray[np.int64]
    states: npt.NDArray[np.uint64]
    """The random stream of each, with which its trajectory is drawn."""
    document: npt.NDArray[np.int64]
    drafts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """Where the draft of each example to edit begins in `tokens`."""
    drafted: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """How many tokens that draft has; 0 for all that is written afresh."""
    inner: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0, 2), np.int64))
    """[examples, gaps, 2] of targets with several gaps: the size of each gap but the last, which is what is left, and
    of what is given behind it, which is 0 where there is no such gap."""
    ending: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """ANYWHERE, FINISHED or CUT."""
    told: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """1 where the history tells to write out of order."""

    def __post_init__(self) -> None:
        if not len(self.inner):
            object.__setattr__(self, "inner", np.zeros((len(self.first), 0, 2), np.int64))
        for name in ("drafts", "drafted", "ending", "told"):
            if not len(getattr(self, name)):
                object.__setattr__(self, name, np.zeros(len(self.first), np.int64))

    def __len__(self) -> int:
        return len(self.first)

    def select(self, chosen: Array) -> Examples:
        """Some of the examples, over the same tokens."""
        parts: dict[str, Any] = {each.name: getattr(self, each.name)[chosen] for each in fields(self)[1:]}
        return replace(self, **parts)

    @property
    def has_gaps(self) -> npt.NDArray[np.bool_]:
        """Which examples have several gaps."""
        return np.asarray(self.inner[:, :, 1].sum(axis=1) > 0)

    def split(self, i: int) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        """What is given of an example with gaps, n + 1 parts, and what fills the n gaps."""
        text, sizes = self.text(i), [size for pair in self.inner[i].tolist() if pair[1] for size in pair]
        last = int(self.length[i]) - sum(sizes)
        ends = np.cumsum([int(self.prefix[i]), *sizes, last, int(self.suffix[i])]).tolist()
        parts = [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        return parts[::2], parts[1::2]

    def target(self, i: int) -> npt.NDArray[np.int32]:
        start = self.first[i] + self.prefix[i]
        return self.tokens[start : start + self.length[i]]

    def text(self, i: int) -> tuple[int, ...]:
        """Prefix, target and suffix of an example."""
        start = int(self.first[i])
        return tuple(self.tokens[start : start + int(self.prefix[i] + self.length[i] + self.suffix[i])].tolist())

    def draft(self, i: int, rules: Rules) -> Draft:
        """What is on the canvas of an example before its target is written."""
        text, prefix = self.text(i), int(self.prefix[i])
        before, after = text[:prefix], text[prefix + int(self.length[i]) :]
        if self.inner[i].any():
            return Draft.gaps(self.split(i)[0], rules)
        if not self.drafted[i]:
            return Draft.infill(before, after, rules) if not self.told[i] else Draft.told(before, rules)
        start, count = int(self.drafts[i]), int(self.drafted[i])
        return Draft.revision(before, self.tokens[start : start + count].tolist(), after, rules)


@dataclass(frozen=True, slots=True)
class Gap:
    """A text as token ids, between what is given."""

    target: Sequence[int]
    prefix: Sequence[int] = ()
    suffix: Sequence[int] = ()


def join_examples(parts: Sequence[Examples]) -> Examples:
    """Examples over several stretches of tokens as one, in this order."""
    offsets = np.cumsum([0, *(len(part.tokens) for part in parts)])
    names = ("tokens", "prefix", "length", "suffix", "states", "document", "drafted", "ending", "told")
    joined: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    for name in ("first", "drafts"):
        places = [getattr(part, name) + offset for part, offset in zip(parts, offsets, strict=False)]
        joined[name] = np.concatenate(places)
    most = max(part.inner.shape[1] for part in parts)
    inner = [np.pad(part.inner, ((0, 0), (0, most - part.inner.shape[1]), (0, 0))) for part in parts]
    return Examples(**joined, inner=np.concatenate(inner))


def with_ends(rules: Rules, order: Order, tokenizer: Tokenizer | None) -> Rules:
    """The rules with the tokens that end a sentence, where an order cuts there and the tokenizer is known."""
    if tokenizer is None or not needs_ends(order):
        return rules
    return replace(rules, ends=frozenset(np.flatnonzero(sentence_ends(tokenizer)).tolist()))


def heldout_examples(
    shards: Readable, count: int, prefix: int, length: int, infill: bool = False, cut_stops: bool = True
) -> Examples:
    """The same examples every time: the beginnings of documents long enough, for measuring likelihood.

    With `infill` the stretch has a suffix as long as the prefix. Without `cut_stops` what STOP costs is not counted.
    """
    suffix = prefix if infill else 0
    need = prefix + length + suffix + NEAR
    is_whole = np.asarray(getattr(shards, "cuts", 0)) == 0
    chosen = np.flatnonzero((shards.lengths >= need) & is_whole)[:count]
    if not len(chosen):
        raise ConfigError(f"no held-out document has {need} tokens; hold more out or measure shorter ones")
    whole = length, length
    jobs = JobConfig((prefix, prefix), whole, whole, (suffix, suffix), float(infill), 1.0, cut_stops=cut_stops)
    states = streams(Random.of(0), chosen.astype(np.int64))
    return cut_documents(shards, jobs, text_marks(shards.tokenizer), chosen, states)[0]


def shorten(examples: Examples, share: float = 0.75) -> Examples:
    """The same stretches with shorter targets, for trajectories that came out too long.

    A draft can't be shortened with its target: its place is taken by the target itself, which needs no edit. Of
    several gaps the last ones go.
    """
    length = np.maximum((examples.length * share).astype(np.int64), 1)
    is_edit = examples.drafted > 0
    drafts = np.where(is_edit, examples.first + examples.prefix, examples.drafts)
    is_left = np.cumsum(examples.inner.sum(axis=2), axis=1) < length[:, None]
    inner = np.where(is_left[:, :, None], examples.inner, 0)
    ending = np.where(examples.ending == FINISHED, CUT, examples.ending)
    drafted = np.where(is_edit, length, 0)
    return replace(examples, length=length, drafts=drafts, drafted=drafted, inner=inner, ending=ending)


def streams(base: Random, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    states = np.empty(len(numbers), np.uint64)
    _fill_streams(np.uint64(base.state), numbers, states)
    return states


@jit
def _fill_streams(base: Any, numbers: Array, states: Array) -> None:
    for i in range(len(numbers)):
        stream_states(base, numbers[i], states[i : i + 1])


def draw_chances(share: float, states: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Whether something of that probability happens, drawn from each stream; the streams go on."""
    chosen = np.empty(len(states), np.bool_)
    _fill_chances(round(share * 2**32), states, chosen)
    return chosen


@jit
def _fill_chances(limit: int, states: Array, chosen: Array) -> None:
    for i in range(len(states)):
        chosen[i] = _below(states[i : i + 1], 2**32) < limit


def cut_documents(
    shards: Documents, jobs: JobConfig, marks: Array, documents: Array, states: Array
) -> tuple[Examples, npt.NDArray[np.int64]]:
    """Choose a stretch of each document, gather its tokens, and cut it at sentence ends; also their kinds.

    The places of gaps are as drawn, and may still lie outside of a target that came out shorter.
    """
    count = len(documents)
    inner, gaps = np.zeros((count, jobs.num_inner, 2), np.int64), np.array([*jobs.gaps, jobs.length[1]], np.int64)
    stretch, cuts = np.empty((count, 2), np.int64), np.empty((count, 5), np.int64)
    ranges = np.array([*jobs.prefix, *jobs.length, *jobs.gap, *jobs.suffix, *jobs.draft, *jobs.around], np.int64)
    limits = [round(each * 2**32) for each in (jobs.infill, jobs.from_start, jobs.edit, jobs.sparse)]
    shares = np.array(limits, np.int64)
    _choose_stretches(shards.lengths[documents], ranges, shares, gaps, states, stretch, cuts, inner)
    tokens = shards.gather(documents, stretch[:, 0], stretch[:, 1])
    offsets = np.concatenate(([0], np.cumsum(stretch[:, 1])))
    _snap(tokens, offsets, stretch, shards.lengths[documents], marks, cuts)
    sizes, kinds = (cuts[:, 1], cuts[:, 2], cuts[:, 3]), cuts[:, 4]
    ending = np.full(count, ANYWHERE)
    if not jobs.cut_stops:
        is_finished = stretch[:, 0] + cuts[:, :4].sum(axis=1) >= shards.lengths[documents]
        ending[(kinds == 0) & (cuts[:, 3] == 0)] = CUT
        ending[(ending == CUT) & is_finished] = FINISHED
    first, told = offsets[:-1] + cuts[:, 0], np.zeros(count, np.int64)
    if jobs.told:
        able = np.flatnonzero((kinds == 0) & (cuts[:, 1] > 0) & (cuts[:, 3] == 0))
        streams = states[able]
        told[able], states[able] = draw_chances(jobs.told, streams), streams
        # Where the ending comes first, the text is done when it is reached.
        ending[told == 1] = ANYWHERE
    return Examples(tokens, first, *sizes, states, documents, inner=inner, ending=ending, told=told), kinds


@jit
def _choose_stretches(lengths: Array, ranges: Array, shares: Array, gaps: Array, states: Array, stretch: Array,
                      cuts: Array, inner: Array) -> None:  # fmt: skip
    """stretch[i]: where the stretch begins and how many tokens it has, NEAR more than needed at either end;
    cuts[i]: 0 or NEAR to skip at most at the front, then prefix, target, suffix as drawn, and the example's kind."""
    rng = np.empty(1, np.uint64)
    for i in range(len(lengths)):
        rng[0] = states[i]
        is_edit = shares[2] > 0 and _below(rng, 1 << 32) < shares[2]
        is_infill = _below(rng, 1 << 32) < shares[0]
        is_first = _below(rng, 1 << 32) < shares[1]
        prefix = ranges[0] + _below(rng, ranges[1] - ranges[0] + 1)
        is_sparse = is_infill and not is_edit and shares[3] > 0 and _below(rng, 1 << 32) < shares[3]
        kind = EDIT if is_edit else WORDS if is_sparse else GAPS if is_infill and gaps[1] > 1 else 0
        if is_edit:
            if _below(rng, 2):
                target = ranges[8] + _below(rng, ranges[9] - ranges[8] + 1)
            else:
                target = _by_magnitude(rng, ranges[8], ranges[9])
            around = ranges[10:12] if _below(rng, 2) else np.zeros(2, np.int64)
            prefix = around[0] + _below(rng, around[1] - around[0] + 1)
            suffix = around[0] + _below(rng, around[1] - around[0] + 1)
        elif is_sparse:
            prefix, target, suffix = 0, _by_magnitude(rng, ranges[2], ranges[3]), 0
        elif kind == GAPS:
            target, suffix = _choose_gaps(rng, ranges, gaps, inner[i]), _by_magnitude(rng, ranges[6], ranges[7])
        elif is_infill:
            target, suffix = _by_magnitude(rng, ranges[4], ranges[5]), _by_magnitude(rng, ranges[6], ranges[7])
        else:
            target, suffix = ranges[2] + _below(rng, ranges[3] - ranges[2] + 1), 0
        total = lengths[i]
        need = prefix + target + suffix
        place = _below(rng, max(total - need, 0) + 1)
        start = 0 if is_first else place
        stretch[i, 0] = start
        stretch[i, 1] = min(need + 2 * NEAR, total - start)
        cuts[i, 0], cuts[i, 1], cuts[i, 2], cuts[i, 3] = (0 if start == 0 else NEAR), prefix, target, suffix
        cuts[i, 4] = kind
        states[i] = rng[0]


@jit
def _choose_gaps(rng: Array, ranges: Array, gaps: Array, inner: Array) -> Any:
    """The sizes of some gaps and of what is given between them; returns how long all of it is, gaps[2] at most: as
    long as it is longer, everything is halved."""
    count = gaps[0] + _below(rng, gaps[1] - gaps[0] + 1)
    last = _by_magnitude(rng, ranges[4], ranges[5])
    total = last
    for k in range(count - 1):
        inner[k, 0] = _by_magnitude(rng, ranges[4], ranges[5])
        inner[k, 1] = max(_by_magnitude(rng, ranges[6], ranges[7]), 1)
        total += inner[k, 0] + inner[k, 1]
    while total > gaps[2]:
        last = max(last // 2, 1)
        total = last + halve(inner, count - 1)
    return total


@jit
def halve(inner: Array, count: int) -> Any:
    """Halve the sizes of some gaps and of what is given behind them, to 1 at the least; returns their sum."""
    total = 0
    for k in range(count):
        for side in range(2):
            inner[k, side] = max(inner[k, side] // 2, 1)
            total += inner[k, side]
    return total


@jit
def _by_magnitude(rng: Array, low: Any, high: Any) -> Any:
    """A number of low..high: first how many binary digits it has, then which of those."""
    least, most = _num_digits(low), _num_digits(high)
    digits = least + _below(rng, most - least + 1)
    first = max(low, (1 << digits) >> 1)
    return first + _below(rng, min(high, (1 << digits) - 1) - first + 1)


@jit
def _num_digits(number: Any) -> Any:
    digits = 0
    while number >> digits:
        digits += 1
    return digits


@jit
def _snap(tokens: Array, offsets: Array, stretch: Array, lengths: Array, marks: Array, cuts: Array) -> None:
    """Move beginnings to sentence starts and the ends of continuations and of what is edited to sentence ends, where
    one is near; what is edited begins and ends with a word at least.

    cuts[i] becomes: tokens skipped at the front, prefix, target, suffix; what does not fit is shortened,
    the prefix first.
    """
    for i in range(len(cuts)):
        first, size = offsets[i], stretch[i, 1]
        skip = 0
        # No more than leaves room for all that was drawn.
        most = min(cuts[i, 0], size - cuts[i, 1] - cuts[i, 2] - cuts[i, 3])
        for k in range(most):
            if ends_sentence(tokens, first + k, marks):
                skip = k + 1
                break
        if cuts[i, 4] == EDIT and not skip:
            while skip < min(cuts[i, 0], size - 1) and not marks[tokens[first + skip]] & BEGINS:
                skip += 1
        room = size - skip
        prefix, target, suffix = cuts[i, 1], cuts[i, 2], cuts[i, 3]
        if prefix + target + suffix > room:
            over = prefix + target + suffix - room
            less = min(over, max(prefix - room // 4, 0))
            prefix -= less
            less = min(over - less, max(suffix - room // 4, 0)) if suffix else 0
            suffix -= less
            target = max(room - prefix - suffix, 1)
        is_last = stretch[i, 0] + size == lengths[i]
        if cuts[i, 4] == EDIT:
            # Whole sentences, and as many tokens around them as are left.
            if prefix:
                most = prefix + NEAR
                prefix = min(_snap_end(tokens, first + skip, prefix, room - 1, False, marks, NEAR), most)
                prefix = _snap_word(tokens, first + skip, prefix, room - 1, marks)
            target = min(target, room - prefix)
        if suffix == 0 or cuts[i, 4] == EDIT:
            near = min(NEAR, target) if cuts[i, 4] == EDIT else NEAR
            target = _snap_end(tokens, first + skip + prefix, target, room - prefix, is_last, marks, near)
            if cuts[i, 4] == EDIT:
                target = _snap_word(tokens, first + skip + prefix, target, room - prefix, marks)
            suffix = min(suffix, room - prefix - target)
        cuts[i, 0], cuts[i, 1], cuts[i, 2], cuts[i, 3] = skip, prefix, target, suffix


@jit
def _snap_word(tokens: Array, start: int, target: int, room: int, marks: Array) -> Any:
    """`target`, or less, so that no word is cut; more where nothing would be left."""
    length = target
    while 0 < length < room and not marks[tokens[start + length]] & BEGINS:
        length -= 1
    if length == 0:
        length = target
        while length < room and not marks[tokens[start + length]] & BEGINS:
            length += 1
    return length


@jit
def _snap_end(tokens: Array, start: int, target: int, room: int, is_last: bool, marks: Array, near: int) -> Any:
    """The length nearest to `target` that ends a sentence or the document, or `target` where none is near."""
    for k in range(near + 1):
        for sign in range(2):
            length = target + (k if sign else -k)
            if length < 1 or length > room:
                continue
            if (is_last and length == room) or ends_sentence(tokens, start + length - 1, marks):
                return length
    return target
