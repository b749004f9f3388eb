"""How probable texts are to a denoiser: canvases in, an upper bound of -log p in nats out.

A text stands on a canvas of a given room, between what is given; behind its end the room is filled with padding,
which the model must write too:

    prefix      room                          suffix        "boats lay still." as the model sees it:
    The         boats lay still. [pad] [pad]  |             what is given is never masked and never scored

So the bound is that of the text *and its end* among all texts that fit the room, as a Reviser pays for STOP. Rooms
are the same for all texts that are measured together, the longest and one more: a room cut to each text's own length
would give the length away.

The bound is the papers' integral over noise levels (noise.py), each text's estimated from `samples` of them, spread
evenly; its mean over all draws is exact. A place costs sum m - 1 - log m(label): the nats of the label for MDLM,
whose m sums to 1, and the score entropy for SEDD.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from reviser.data.examples import Gap
from reviser.diffusion.denoiser import CanvasScorer
from reviser.diffusion.noise import draw_noise, spread_samples
from reviser.errors import ConfigError
from reviser.model.attention import Layout
from reviser.orders.rng import Random

Nats = npt.NDArray[np.float64]
AT_ONCE = 32
"""Canvases that are scored together."""


@dataclass(frozen=True, eq=False)
class CanvasBatch:
    """Canvases side by side [B, T], those shorter than the longest followed by padding that none of them sees."""

    tokens: Tensor
    is_free: Tensor
    """[B, T] bool: which places are the room's."""
    layout: Layout

    @classmethod
    def of(
        cls, gaps: Sequence[Gap], rooms: Sequence[int], pad: int, device: torch.device | str = "cpu"
    ) -> CanvasBatch:
        """Each gap on a canvas, with the number of places its room has."""
        spans = [
            [*gap.prefix, *gap.target, *[pad] * (room - len(gap.target)), *gap.suffix]
            for gap, room in zip(gaps, rooms, strict=True)
        ]
        T = max(map(len, spans))
        tokens = torch.tensor([[*span, *[pad] * (T - len(span))] for span in spans], device=device)
        places = torch.arange(T, device=device)
        first, room, size = (
            torch.tensor(numbers, device=device)[:, None]
            for numbers in ([len(gap.prefix) for gap in gaps], list(rooms), [len(span) for span in spans])
        )
        is_free = (places >= first) & (places < first + room)
        return cls(tokens, is_free, Layout.of((places >= size).int()))


def common_room(gaps: Sequence[Gap]) -> int:
    """The longest text and its end."""
    return max(len(gap.target) for gap in gaps) + 1


def bound_nats(
    model: CanvasScorer,
    gaps: Sequence[Gap],
    room: int,
    samples: int = 1,
    seed: int = 0,
    device: torch.device | str = "cpu",
    numbers: Sequence[int] | None = None,
    advance: Callable[[int], None] | None = None,
) -> Nats:
    """An upper bound of -log p of each text and its end, in expectation; what is drawn depends on seed and number."""
    if samples < 1:
        raise ConfigError(f"{samples} samples a text; at least 1 is needed")
    longest = max((len(gap.target) for gap in gaps), default=0)
    if longest > room:
        raise ConfigError(f"a text of {longest} tokens does not fit a room of {room}")
    chosen = np.arange(len(gaps)) if numbers is None else np.array(numbers, np.int64)
    shift = np.random.default_rng(Random.of(seed).state).random()
    phases = spread_samples(chosen, samples, shift).reshape(-1)
    nats = np.empty(len(phases))
    for start in range(0, len(phases), AT_ONCE):
        part = range(start, min(start + AT_ONCE, len(phases)))
        streams = [Random.of(seed, int(chosen[i // samples]), i % samples).state for i in part]
        here = slice(part.start, part.stop)
        nats[here] = _once(model, [gaps[i // samples] for i in part], room, phases[here], streams, device)
        if advance is not None:
            advance(len(part))
    averaged: Nats = nats.reshape(-1, samples).mean(axis=1)
    return averaged


def _once(
    model: CanvasScorer,
    gaps: Sequence[Gap],
    room: int,
    phases: Nats,
    streams: Sequence[int],
    device: torch.device | str,
) -> Nats:
    """One draw for each gap."""
    board = CanvasBatch.of(gaps, [room] * len(gaps), model.alphabet.pad, device)
    uniforms = np.concatenate([np.random.default_rng(stream).random(room) for stream in streams])
    noise = draw_noise(np.full(len(gaps), room, np.int64), phases, uniforms)
    is_masked = torch.zeros_like(board.is_free)
    is_masked[board.is_free] = torch.from_numpy(noise.is_masked).to(device)
    levels = torch.from_numpy(noise.levels).float().to(device)
    masked = torch.where(is_masked, model.alphabet.none, board.tokens)
    chosen = is_masked.flatten().nonzero().flatten()
    costs = place_nats(model, masked, levels, board.layout, chosen, board.tokens.flatten()[chosen])
    sums = torch.zeros(len(gaps), dtype=torch.float64, device=device)
    sums.index_add_(0, chosen // board.tokens.shape[1], costs.double())
    nats: Nats = noise.weights * sums.cpu().numpy()
    return nats


def place_nats(
    model: CanvasScorer, tokens: Tensor, levels: Tensor, layout: Layout, chosen: Tensor, labels: Tensor
) -> Tensor:
    """[N] what each chosen place costs: sum m - 1 - log m(label)."""
    log_m = model.log_scores(tokens, levels, layout, chosen)
    picked = log_m.gather(1, labels[:, None])[:, 0]
    return log_m.logsumexp(dim=-1).expm1() - picked
