"""Order policies: frozen values that draw a trajectory from a draft to a target and know its log q.

    RandomWalk   the paper's: delete left of the cursor with probability 0.8, else any valid move
    Runs         delete a run of tokens leftwards, jump with probability p after each
    LeftToRight  append only; with it the model is an ordinary autoregressive one
    Sentences    take whole sentences away, jump with probability p after each (sentences.py)
    Outline      the first sentence of each group first, then the others (sentences.py)
    Ending       the last sentence first, then what leads up to it (sentences.py)
    Diff         the shortest edit script between two texts (align.py)
    Mixture      one of several, drawn anew for each trajectory

`draw` takes the target apart (restore.py) and returns the way back. log q is that of the distribution
trajectories really come from: a mixture's is a sum over all components that could have drawn it, and
orders with noise or a step budget have none. `registry.register_order` adds an order of your own.

>>> from reviser.actions import Alphabet; from reviser.canvas import Rules
>>> draft = Draft.continuation([7], Rules(Alphabet(num_text=257, pad=256)))
>>> LeftToRight().draw(draft, [7, 8, 9], Random.of(0)).actions
(8, 9, 260)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, TypeGuard, runtime_checkable

from reviser.actions import MAX_MOVE
from reviser.errors import ConfigError
from reviser.orders.align import First, align
from reviser.orders.record import Draft, Trajectory
from reviser.orders.restore import (
    By,
    Obfuscation,
    check_blank,
    check_by,
    check_choice,
    is_jumping,
    jump_needs,
    read_jump,
)
from reviser.orders.rng import Random, check_probability, threshold
from reviser.orders.sentences import Ending, Outline, Sentences

NoiseSource = Literal["vocabulary", "document"]
MAX_REDRAWS = 1000


@runtime_checkable
class Order(Protocol):
    """What every order offers."""

    @property
    def has_likelihood(self) -> bool:
        """Whether trajectories come with a log q."""

    @property
    def needs(self) -> frozenset[str]:
        """The operators its trajectories use."""

    def draw(self, draft: Draft, target: Sequence[int], rng: Random) -> Trajectory:
        """A trajectory from the draft to the target."""

    def log_q(self, trajectory: Trajectory) -> float:
        """The log-probability of drawing this trajectory; -inf where it cannot be drawn."""


class Choice(Order, Protocol):
    """An order that leaves each trajectory to another one; its log q is a sum over all that could have drawn it."""

    @property
    def components(self) -> tuple[Order, ...]:
        """Every order that `pick` may return."""

    def pick(self, rng: Random) -> Order:
        """The order that draws the next trajectory."""


def is_choice(order: Order) -> TypeGuard[Choice]:
    # Asked for every example: isinstance with a protocol takes longer than a kernel does to draw one.
    return hasattr(order, "pick")


def pick(order: Order, rng: Random) -> Order:
    """The order that draws the next trajectory: the order itself, or the one that it picks."""
    while is_choice(order):
        order = order.pick(rng)
    return order


def components(order: Order) -> tuple[Order, ...]:
    """Every order that `pick` may return."""
    if not is_choice(order):
        return (order,)
    return tuple(part for each in order.components for part in components(each))


@dataclass(frozen=True, slots=True)
class RandomWalk:
    """The paper's algorithm 2. `budget` steps at most, redrawing what takes longer."""

    delete: float = 0.8
    start: Literal["uniform", "front"] = "uniform"
    max_move: int = MAX_MOVE
    budget: int | None = None
    noise: float = 0.0
    noise_from: NoiseSource = "vocabulary"

    def __post_init__(self) -> None:
        check_probability("delete", self.delete, low=0.01)
        check_choice("start", self.start, ("uniform", "front"))
        _check_noise(self.noise, self.noise_from)
        if self.max_move < 1 or self.max_move & (self.max_move - 1) or self.max_move > MAX_MOVE:
            raise ConfigError(f"max_move={self.max_move} is not a power of two from 1 to {MAX_MOVE}")
        if self.budget is not None and self.budget < 1:
            raise ConfigError(f"budget={self.budget} is not a number of steps; it must be at least 1")

    @property
    def has_likelihood(self) -> bool:
        return self.noise == 0 and self.budget is None

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"move", "delete"} if self.noise else {"move"})

    def draw(self, draft: Draft, target: Sequence[int], rng: Random) -> Trajectory:
        length = len(check_blank(self, draft, target))
        if self.budget is not None and self.budget < length:
            raise ConfigError(f"a budget of {self.budget} steps cannot remove {length} tokens; raise it")
        for _ in range(MAX_REDRAWS):
            work = Obfuscation(draft, target)
            log_q = self._walk(work, rng)
            if self.budget is None or work.num_steps <= self.budget:
                return work.restoration(log_q if self.has_likelihood else None)
        raise ConfigError(
            f"none of {MAX_REDRAWS} draws of {length} tokens took at most {self.budget} steps; raise the budget"
        )

    def _walk(self, work: Obfuscation, rng: Random) -> float:
        target, log_q = [cell.token for cell in work.cells], 0.0
        if self.start == "uniform":
            work.cursor = rng.below(len(target) + 1)
            log_q = -math.log(len(target) + 1)
        deletes = threshold(self.delete)
        while work.cells:
            if self.budget is not None and work.num_steps > self.budget:
                break
            if _adds_noise(self.noise, work, target, self.noise_from, rng):
                continue
            back, forth = self._num_moves(work.cursor, len(work.cells))
            if work.cursor and rng.chance(deletes):
                work.delete()
                log_q += math.log(self.delete)
                continue
            if work.cursor:
                log_q += math.log1p(-self.delete)
            k = rng.below(back + forth)
            log_q -= math.log(back + forth)
            work.jump(work.cursor - (1 << k) if k < back else work.cursor + (1 << (k - back)))
        return log_q

    def _num_moves(self, cursor: int, length: int) -> tuple[int, int]:
        """How many moves lead backwards and forwards without leaving the canvas."""
        most = self.max_move.bit_length()
        return min(cursor.bit_length(), most), min((length - cursor).bit_length(), most)

    def log_q(self, trajectory: Trajectory) -> float:
        alphabet, cursor, length, total = trajectory.draft.rules.alphabet, 0, 0, 0.0
        for action in trajectory.actions[:-1]:
            distance = alphabet.distance(action)
            if not distance and not alphabet.is_insert(action):
                return -math.inf
            cursor, length = cursor + (distance or 1), length + (not distance)
            if not distance:
                total += math.log(self.delete)
                continue
            if abs(distance) > self.max_move:
                return -math.inf
            if cursor:
                total += _log(1 - self.delete)
            total -= math.log(sum(self._num_moves(cursor, length)))
        if self.start == "uniform":
            return total - math.log(length + 1)
        return total if cursor == 0 else -math.inf


@dataclass(frozen=True, slots=True)
class Runs:
    """Deletes runs of tokens leftwards and jumps with probability `jump` after each delete."""

    jump: float = 0.1
    start: Literal["uniform", "end"] = "uniform"
    noise: float = 0.0
    noise_from: NoiseSource = "vocabulary"
    by: By = "moves"
    """How a jump is written: spelled in MOVEs, or as one JUMP. log q is the same."""

    def __post_init__(self) -> None:
        check_probability("jump", self.jump, high=0.99)
        check_choice("start", self.start, ("uniform", "end"))
        _check_noise(self.noise, self.noise_from)
        check_by(self.by)

    @property
    def has_likelihood(self) -> bool:
        return self.noise == 0

    @property
    def needs(self) -> frozenset[str]:
        return jump_needs(self.by) | ({"delete"} if self.noise else set())

    def draw(self, draft: Draft, target: Sequence[int], rng: Random) -> Trajectory:
        check_blank(self, draft, target)
        work = Obfuscation(draft, target, self.by)
        log_q = self._run(work, rng)
        return work.restoration(log_q if self.has_likelihood else None)

    def _run(self, work: Obfuscation, rng: Random) -> float:
        target = [cell.token for cell in work.cells]
        log_q = place_cursor(work, self.start, rng)
        jumps, has_jumped = threshold(self.jump), False
        while work.cells:
            if not has_jumped and _adds_noise(self.noise, work, target, self.noise_from, rng):
                continue
            count = num_places(work)
            if not has_jumped and work.cursor == 0:
                log_q -= math.log(count)
                has_jumped = jump_anywhere(work, rng)
            elif not has_jumped and count and rng.chance(jumps):
                log_q += math.log(self.jump) - math.log(count)
                has_jumped = jump_anywhere(work, rng)
            else:
                log_q += math.log1p(-self.jump) if count and not has_jumped else 0.0
                work.delete()
                has_jumped = False
        return log_q

    def log_q(self, trajectory: Trajectory) -> float:
        alphabet, offset = trajectory.draft.rules.alphabet, trajectory.draft.prefix
        cursor, length, total, index = 0, 0, 0.0, 0
        actions = trajectory.actions[:-1]
        while index < len(actions):
            if is_jumping(actions, index, alphabet):
                read = read_jump(actions, index, offset + cursor, alphabet, self.by)
                if read is None or cursor == 0:
                    return -math.inf
                cursor, index = read[0] - offset, read[1]
                total += -math.log(length) if cursor == 0 else _log(self.jump) - math.log(length - 1)
                continue
            if not alphabet.is_insert(actions[index]):
                return -math.inf
            cursor, length, index = cursor + 1, length + 1, index + 1
            follows_jump = is_jumping(actions, index, alphabet)
            total += math.log1p(-self.jump) if length > 1 and not follows_jump else 0.0
        if self.start == "uniform":
            return total - math.log(length + 1)
        return total if cursor == length else -math.inf


@dataclass(frozen=True, slots=True)
class LeftToRight:
    """Appends only: the autoregressive baseline as an order."""

    has_likelihood: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset()

    def draw(self, draft: Draft, target: Sequence[int], rng: Random) -> Trajectory:
        actions = (*check_blank(self, draft, target), draft.rules.alphabet.stop)
        return Trajectory(draft, actions, (True,) * len(actions), 0.0)

    def log_q(self, trajectory: Trajectory) -> float:
        alphabet = trajectory.draft.rules.alphabet
        return 0.0 if all(alphabet.is_insert(action) for action in trajectory.actions[:-1]) else -math.inf


@dataclass(frozen=True, slots=True)
class Diff:
    """The shortest edit script (align.py): one trajectory for each pair of texts, so q = 1."""

    by: By = "moves"
    first: First = "nearest"

    has_likelihood: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_by(self.by)
        check_choice("first", self.first, ("nearest", "left"))

    @property
    def needs(self) -> frozenset[str]:
        return jump_needs(self.by)

    def draw(self, draft: Draft, target: Sequence[int], rng: Random) -> Trajectory:
        actions = align(draft.canvas, target, draft.rules, self.by, self.first)
        return Trajectory(draft, actions, (True,) * len(actions), 0.0)

    def log_q(self, trajectory: Trajectory) -> float:
        draft = trajectory.draft
        again = align(draft.canvas, trajectory.final.tokens, draft.rules, self.by, self.first)
        return 0.0 if again == trajectory.actions else -math.inf


@dataclass(frozen=True, slots=True)
class Mixture:
    """One of several orders, drawn with its weight for each trajectory."""

    parts: tuple[tuple[float, Order], ...]

    def __post_init__(self) -> None:
        if not self.parts or not all(0 < weight < math.inf for weight, _ in self.parts):
            raise ConfigError("a mixture needs at least one order, each with a finite weight above 0")

    @property
    def has_likelihood(self) -> bool:
        return all(order.has_likelihood for _, order in self.parts)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset().union(*(order.needs for _, order in self.parts))

    @property
    def components(self) -> tuple[Order, ...]:
        return tuple(order for _, order in self.parts)

    def pick(self, rng: Random) -> Order:
        total, place, limit = sum(weight for weight, _ in self.parts), rng.bits32(), 0.0
        for weight, order in self.parts[:-1]:
            limit += weight / total
            if place < threshold(limit):
                return order
        return self.parts[-1][1]

    def draw(self, draft: Draft, target: Sequence[int], rng: Random) -> Trajectory:
        drawn = self.pick(rng).draw(draft, target, rng)
        log_q = self.log_q(drawn) if self.has_likelihood else None
        return Trajectory(draft, drawn.actions, drawn.has_loss, log_q)

    def log_q(self, trajectory: Trajectory) -> float:
        total = sum(weight for weight, _ in self.parts)
        terms = [math.log(weight / total) + order.log_q(trajectory) for weight, order in self.parts]
        most = max(terms)
        return most + math.log(sum(math.exp(term - most) for term in terms)) if most > -math.inf else most


WITH_KERNEL = (RandomWalk, Runs, LeftToRight, Sentences, Outline, Ending)


def has_kernel(order: Order) -> bool:
    """Whether kernels draw the order, or all orders that it picks from; others are drawn by their own `draw`."""
    return all(type(each) in WITH_KERNEL for each in components(order))


def needs_ends(order: Order) -> bool:
    """Whether the order, or one that it picks from, cuts texts at the ends of sentences: rules must name those."""
    return any(getattr(each, "needs_ends", False) for each in components(order))


def _check_noise(noise: float, source: str) -> None:
    check_probability("noise", noise, high=0.4)
    check_choice("noise_from", source, ("vocabulary", "document"))


def _log(probability: float) -> float:
    return math.log(probability) if probability > 0 else -math.inf


def draw_noise(work: Obfuscation, target: Sequence[int], source: NoiseSource, rng: Random) -> int:
    """A token that has nothing to do where it is put."""
    if source == "document":
        return target[rng.below(len(target))]
    token = rng.below(work.alphabet.num_text - 1)
    return token + (token >= work.alphabet.pad)


def _adds_noise(noise: float, work: Obfuscation, target: Sequence[int], source: NoiseSource, rng: Random) -> bool:
    if not noise or len(work.cells) >= work.room or not rng.chance(threshold(noise)):
        return False
    work.insert_noise(draw_noise(work, target, source, rng))
    return True


def place_cursor(work: Obfuscation, start: str, rng: Random) -> float:
    length = len(work.cells)
    work.cursor = rng.below(length + 1) if start == "uniform" else length
    return -math.log(length + 1) if start == "uniform" else 0.0


def num_places(work: Obfuscation) -> int:
    """Boundaries 1..l without the present one."""
    return len(work.cells) - (work.cursor > 0)


def jump_anywhere(work: Obfuscation, rng: Random) -> bool:
    place = 1 + rng.below(num_places(work))
    work.jump(place + (work.cursor > 0 and place >= work.cursor))
    return True
