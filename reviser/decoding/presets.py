"""How actions are drawn, as settings and rules that can be read without torch.

>>> PAPER.temperature, GREEDY.temperature, Sampling(top_p=0.9).top_k
(0.9, 0, 50)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from reviser.actions import EVERYTHING, JUMP, MAX_MOVE_EXPONENT, MOVES, REPLACE
from reviser.decoding.arguments import check_number, check_size, check_switch
from reviser.errors import ConfigError

WHOLE, SWITCHES = ("top_k", "min_tokens", "no_repeat"), ("keep_moves", "calm", "moves")
"""The settings of `Sampling` that are no plain numbers."""
STILL: int = EVERYTHING & ~sum(1 << offset for offset in (*range(MOVES, REPLACE), JUMP))
"""The mask of all actions that leave the cursor to insertions and removals."""
TIES = 14
"""How many scores equal to the k-th may stay beside the k best."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How actions are drawn from the model's distribution; all from `keep_moves` on do nothing by default."""

    temperature: float = 0.9
    """Divides log-probabilities; 0 always takes the most probable action."""
    top_k: int = 50
    """Only the k most probable actions; 0 is all."""
    top_p: float = 1.0
    """Of those, only the most probable that together reach this probability."""
    min_p: float = 0.0
    """Only those at least this fraction as probable as the most probable."""
    keep_moves: bool = False
    """Keep the model's own probability of moving; temperature and truncation act among moves and among the rest."""
    move_temperature: float | None = None
    """Temperature of MOVEs and JUMPs and of where a JUMP goes; below that of other actions, moves are rarer and more
    certain; the same by default."""
    jump_bias: float = 0.0
    """Added to the log-probability of a MOVE or JUMP that follows no other: above 0 for more revision, below for
    less."""
    stop_bias: float = 0.0
    """Added to STOP's log-probability: above 0 for shorter text, below for longer."""
    min_tokens: int = 0
    """No STOP until the canvas has grown by this many tokens, unless nothing else is valid."""
    no_repeat: int = 0
    """No INSERT that would repeat n tokens in a row, unless nothing else is valid; 0 is off."""
    calm: bool = False
    """Consecutive MOVEs add up to one distance, largest first, and never turn back or take more than needed; a JUMP
    stands alone."""
    moves: bool = True
    """Leave MOVE and JUMP to the model; without, both are forbidden and the cursor goes only with what it writes."""
    scan: float = 0.0
    """For editing from left to right with JUMPs: pass over every change that is less probable than this, given that
    there is none before it; 0 is off."""

    def __post_init__(self) -> None:
        self._check_types()
        self._check("temperature", "finite and 0 or more", self.temperature >= 0)
        self._check("top_p", "above 0 and at most 1", 0 < self.top_p <= 1)
        self._check("min_p", "between 0 and 1", 0 <= self.min_p <= 1)
        for name in ("stop_bias", "jump_bias"):
            self._check(name, "finite", True)
        if self.move_temperature is not None:
            self._check("move_temperature", "finite and above 0", self.move_temperature > 0)
        self._check("scan", "between 0 and 1", 0 <= self.scan <= 1)
        if self.scan and (self.temperature or self.has_guards):
            raise ConfigError(
                f"scan={self.scan} needs temperature=0 and no guards or biases; drop them, or set scan=0"
            )
        for name in ("move_temperature", "keep_moves"):
            if getattr(self, name) and self.temperature == 0:
                raise ConfigError(f"{name}={getattr(self, name)} means nothing at temperature=0; drop one")

    def _check_types(self) -> None:
        for each in fields(self):
            name, value = each.name, getattr(self, each.name)
            if name in WHOLE:
                object.__setattr__(self, name, check_size(name, value))
            elif name in SWITCHES:
                check_switch(name, value)
            elif name != "move_temperature" or value is not None:
                check_number(name, value)

    def _check(self, name: str, allowed: str, is_allowed: bool) -> None:
        value = getattr(self, name)
        if not is_allowed or not math.isfinite(value):
            raise ConfigError(f"{name}={value} must be {allowed}")

    @property
    def has_guards(self) -> bool:
        """Whether anything changes the scores before temperature."""
        is_shaped = self.move_temperature is not None or self.stop_bias != 0 or self.jump_bias != 0
        return is_shaped or self.has_forbidden or self.no_repeat > 0

    @property
    def has_forbidden(self) -> bool:
        """Whether some actions that are valid may be forbidden."""
        return self.calm or not self.moves or self.min_tokens > 0


DEFAULT = Sampling(temperature=1.0, top_k=50, min_p=0.06, calm=True, no_repeat=6)
"""The lowest perplexity to a separate model at equal diversity, for version 0.1's model, and no going in circles
(docs/decoding.md)."""
PAPER = Sampling(temperature=0.9, top_k=50)
GREEDY = Sampling(temperature=0)
SCAN = Sampling(temperature=0, scan=0.4)
"""For proofreading, where the least probability that can matter takes the place of this one."""
NAMED = {"default": DEFAULT, "paper": PAPER, "greedy": GREEDY, "scan": SCAN}
"""The presets by name."""
BEST_OF = 4
"""Fillings of which the best is kept, unless another number is given."""
LONGEST_GAP = 128
"""Tokens that fill a gap at most, unless another limit is given; the shipped model learned gaps of up to 127."""


def calm_bits(last: int) -> int:
    """What may follow a special action V + last under `calm`, as bits of a validity mask."""
    if not MOVES <= last < REPLACE:
        return STILL if last == JUMP else EVERYTHING
    exponent, is_back = divmod(last - MOVES, 2)
    smaller = range(exponent if exponent < MAX_MOVE_EXPONENT else exponent + 1)
    return STILL | sum(1 << (MOVES + 2 * i + is_back) for i in smaller)


def check_sampling(sampling: Any) -> None:
    if not isinstance(sampling, Sampling):
        raise ConfigError(
            f"sampling={sampling!r} must be a reviser.Sampling, such as Sampling(temperature=0.9, top_k=50)"
        )
