"""How probable the true middle of a gap is to a system: what no filling can flatter.

| system | what it is given | the number |
|---|---|---|
| left to right, `transformers` | the prefix alone | exact |
| left to right on gaps (fill in the middle) | both sides | exact |
| any other order | both sides | a bound with K trajectories |
| MDLM, SEDD | both sides, and a room | the bound of their papers, with the middle's end |

What is scored is that the middle is written; a second number is that the system also ends there. A model that does
not see the suffix cannot know where a gap ends and has no second number; a denoiser, which fills a whole room, has
nothing else. A gap that is longer than the canvases a model was trained on is left out for that model, and counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from reviser.config import ModelConfig, parse_jobs
from reviser.errors import ConfigError
from reviser.evaluation.generations import Prompt
from reviser.evaluation.metrics.likelihood import TextLikelihoods
from reviser.orders.policies import LeftToRight
from reviser.orders.registry import parse_order


@dataclass(frozen=True, slots=True)
class Middles:
    """What the middles of some prompts are worth to a system."""

    bits: Mapping[str, tuple[float, float]]
    """Bits and bytes of each prompt's middle."""
    ended: Mapping[str, tuple[float, float]]
    """The same with the middle's end; nothing for a system that cannot know where it is."""
    is_exact: bool
    samples: int
    """Trajectories, or levels of noise, drawn for each gap."""
    sees_suffix: bool
    has_end: bool = False
    """Whether `bits` hold the end too, for a system that cannot tell them apart."""
    left_out: int = 0
    """Prompts that are longer than the model was trained for."""
    longest: int | None = None
    """Tokens of the longest canvas that it takes, where some were left out."""

    @classmethod
    def of(
        cls, prompts: Sequence[Prompt], found: TextLikelihoods, sees_suffix: bool = True, left_out: int = 0,
        longest: int | None = None,
    ) -> Middles:  # fmt: skip
        """From nats; where those of the middle alone are not known, or bound it less, they are those of the whole."""
        is_open = bool(found.log_reached) and sum(found.log_reached) >= sum(found.log_p)
        bits = _bits(prompts, found.log_reached if is_open else found.log_p)
        ended = _bits(prompts, found.log_p) if sees_suffix else {}
        has_end = sees_suffix and not is_open
        return cls(bits, ended, found.is_exact, found.samples, sees_suffix, has_end, left_out, longest)

    @property
    def about(self) -> dict[str, Any]:
        """How it was measured, for a result."""
        return {key: value for key, value in asdict(self).items() if key not in ("bits", "ended")}


def _bits(prompts: Sequence[Prompt], log_p: Sequence[float]) -> dict[str, tuple[float, float]]:
    """Bits and bytes of each reference."""
    pairs = zip(prompts, log_p, strict=True)
    return {prompt.id: (-each / math.log(2), float(len(prompt.reference.encode()))) for prompt, each in pairs}


def has_learned_gaps(order: str | None, jobs: str) -> bool:
    """Whether a model can be shown what stands behind a gap: a left-to-right one that never filled any cannot.

    A model that does not say what it was trained with is taken at its user's word.

    >>> has_learned_gaps("left-to-right", "infill=0.0"), has_learned_gaps("left-to-right", "infill=0.5")
    (False, True)
    """
    if order is None:
        return True
    try:
        is_left_to_right = isinstance(parse_order(order), LeftToRight)
    except ConfigError:
        return True  # an order of somebody's own
    return not is_left_to_right or parse_jobs(jobs).get("infill", (0.0,))[0] > 0


@dataclass(frozen=True, slots=True)
class CanvasLimits:
    """How long the canvases were that a denoiser was trained on."""

    canvas: int
    room: int
    """Places to write in, between a prefix and a suffix."""

    @classmethod
    def of(cls, config: ModelConfig, jobs: str) -> CanvasLimits:
        """From a model's jobs; a model without any was trained on canvases as long as it reads.

        >>> from reviser.config import ModelConfig
        >>> config = ModelConfig(num_text=9, pad=0, num_layers=1, width=8, num_heads=1, ff_width=8, context=384)
        >>> CanvasLimits.of(config, "prefix=0,64 gap=1,63 suffix=1,63 infill=0.25")
        CanvasLimits(canvas=254, room=127)
        """
        known = parse_jobs(jobs)
        if not {"prefix", "gap", "suffix"} <= set(known):
            return cls(config.context, config.context)
        room = 2 * int(known["gap"][-1]) + 1
        canvas = int(known["prefix"][-1]) + room + int(known["suffix"][-1])
        return cls(min(canvas, config.context), min(room, config.context))
