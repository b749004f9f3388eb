"""Denoisers that write: gaps in, tokens out, in any number of steps.

    t = 1      The [M] [M] [M] [M] slept.        every place of the room is masked, what is given never is
    t = 0.5    The [M] gull [M] [M] slept.       from t to s < t, a masked place is shown with probability (t - s) / t
    t = 0      The old gull slept. slept.        and then stays as it is

For MDLM this is ancestral sampling. For SEDD it is the analytic (Tweedie) step: a place shows y with probability
m(y) (t - s) / t, and is shown at all with the sum of that over y, at most 1; at the last step always. Under this
schedule the Euler step has the same numbers, since sigma' / (e^sigma - 1) = 1 / t.

Temperature, top-k, top-p and min-p shape the distribution of the token that a place shows, m over its sum, never when
a place is shown. Where no place of a canvas is to be shown, and the model is blind to time, it is not asked: the
answer could not change (the caching of Sahoo et al. 2024). What is written into a gap depends on its own seed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from reviser.actions import NUM_SPECIAL
from reviser.data.examples import Gap
from reviser.decoding.sampling import PAPER, Chooser, Sampling, seed_tensor, uniforms
from reviser.diffusion.bound import CanvasBatch
from reviser.diffusion.denoiser import CanvasScorer
from reviser.errors import ConfigError
from reviser.model.attention import Layout

PLACES = 1 << 20
"""More than any canvas has: random numbers are indexed by step and place."""


@dataclass(frozen=True, slots=True)
class RoomRequest:
    """Where to write: how many places, between what, and the number that decides all random choices."""

    room: int
    seed: int
    prefix: Sequence[int] = ()
    suffix: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class FilledRoom:
    """What stands in the room at the end."""

    tokens: tuple[int, ...]
    """All of it, padding and what is behind it too."""
    text: tuple[int, ...]
    """Up to the first padding."""
    num_passes: int
    """How often the model was asked about this canvas."""

    @property
    def has_stopped(self) -> bool:
        return len(self.text) < len(self.tokens)


def fill(
    model: CanvasScorer,
    requests: Sequence[RoomRequest],
    steps: int,
    sampling: Sampling = PAPER,
    device: torch.device | str = "cpu",
    num_rows: int = 16,
) -> list[FilledRoom]:
    """What the model writes into each gap, `num_rows` of them at once."""
    if steps < 1:
        raise ConfigError(f"{steps} steps; a diffusion model takes at least 1")
    if sampling.has_guards:
        raise ConfigError(
            "a diffusion model takes temperature, top_k, top_p and min_p alone; drop the other settings"
        )
    for request in requests:
        if request.room < 1:
            raise ConfigError(f"a room of {request.room} places; at least 1 is needed")
    parts = [requests[start : start + num_rows] for start in range(0, len(requests), num_rows)]
    return [filled for part in parts for filled in _Writing(model, part, sampling, device).run(steps)]


class _Writing:
    """Some canvases while they are written."""

    def __init__(
        self, model: CanvasScorer, requests: Sequence[RoomRequest], sampling: Sampling, device: torch.device | str
    ) -> None:
        self.model, self.requests = model, requests
        gaps = [Gap((), request.prefix, request.suffix) for request in requests]
        board = CanvasBatch.of(gaps, [request.room for request in requests], model.alphabet.pad, device)
        self.is_free, self.layout = board.is_free, board.layout
        self.tokens = torch.where(board.is_free, model.alphabet.none, board.tokens)
        self.seeds = seed_tensor([request.seed for request in requests], device)
        self.places = torch.arange(self.tokens.shape[1], device=device)
        self.chooser = Chooser(sampling, model.alphabet, device=self.tokens.device)
        self.num_passes = torch.zeros(len(requests), dtype=torch.int64)

    def run(self, steps: int) -> list[FilledRoom]:
        for step in range(steps):
            # With t = 1 - step / steps, (t - s) / t is 1 over the steps left.
            self._advance(step, 1 - step / steps, 1 / (steps - step))
        return [self._read(row) for row in range(len(self.requests))]

    def _advance(self, step: int, level: float, rate: float) -> None:
        is_masked = self.tokens == self.model.alphabet.none
        is_shown = is_masked & (self._draw(2 * step) < rate)
        asked = is_masked if self.model.is_timed else is_shown
        rows = asked.any(dim=1).nonzero().flatten()
        if not len(rows):
            return
        self.num_passes[rows.cpu()] += 1
        log_m = self._ask(rows, asked, level)
        totals = log_m.logsumexp(dim=-1, keepdim=True)
        if self.model.is_timed:
            chance = totals[:, 0].double().exp() * rate
            is_shown = asked.clone()
            # At the last step there is no time left to stay masked.
            is_shown[asked] = (self._draw(2 * step)[asked] < chance) | (rate == 1)
            kept = is_shown[asked]
            log_m, totals = log_m[kept], totals[kept]
        if len(log_m):
            log_p = F.pad(log_m - totals, (0, NUM_SPECIAL), value=-torch.inf)
            valid = torch.zeros(len(log_p), dtype=torch.int64, device=log_p.device)
            self.tokens[is_shown] = self.chooser.draw(log_p, valid, self._draw(2 * step + 1)[is_shown])

    def _draw(self, number: int) -> Tensor:
        """[B, T] random numbers in [0, 1), each a function of its canvas's seed, the number and the place."""
        return uniforms(self.seeds[:, None], number * PLACES + self.places)

    def _ask(self, rows: Tensor, asked: Tensor, level: float) -> Tensor:
        """log m [N, V] at the places asked for; canvases without any are left out."""
        layout = Layout.of(self.layout.segments[rows])
        levels = torch.full((len(rows),), level, device=rows.device)
        chosen = asked[rows].flatten().nonzero().flatten()
        return self.model.log_scores(self.tokens[rows], levels, layout, chosen)

    def _read(self, row: int) -> FilledRoom:
        tokens = tuple(self.tokens[row][self.is_free[row]].tolist())
        pad = self.model.alphabet.pad
        text = tokens[: tokens.index(pad)] if pad in tokens else tokens
        return FilledRoom(tokens, text, int(self.num_passes[row]))
