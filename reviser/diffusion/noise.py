"""Masking, as MDLM and SEDD both have it: how many places of a canvas are masked, which, and what each then counts.

At the noise level t in (0, 1] each of L places is masked with probability t (the log-linear schedule: what stays is
alpha = 1 - t), and both methods bound -log p of the text by

    integral over t of  (1 / t)  E  sum over masked places of their nats

Drawing t and then the places gives this sum a variance without end, for t near 0 masks next to nothing and divides by
t. Drawing the number first is the same in expectation and has none of it:

    k uniform from 1..L,  u_i uniform for each place,  t the k-th smallest u,  masked are the k places with u_i <= t

Then (L / k) times the sum has the integral as its mean: t given k is Beta(k, L - k + 1), and the integral of
C(L, k) t^k (1 - t)^(L - k) / t over t is 1 / k. Numbers k are spread evenly over what is drawn together, which is the
low-discrepancy sampling of time of Sahoo et al. (2024).

>>> noise = draw_noise(np.array([4, 2]), np.array([0.5, 0.1]), np.array([0.3, 0.5, 0.2, 0.7, 0.6, 0.4]))
>>> noise.is_masked.astype(int).tolist(), noise.levels.tolist(), noise.weights.round(2).tolist()
([1, 1, 1, 0, 0, 1], [0.5, 0.4], [1.33, 2.0])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reviser.orders.kernels import jit

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]

GOLDEN = (5**0.5 - 1) / 2
"""Its multiples fill [0, 1) evenly, however many there are."""


@dataclass(frozen=True, slots=True)
class Noise:
    """What is masked of some canvases, whose places stand end to end."""

    is_masked: npt.NDArray[np.bool_]
    levels: Floats
    """t of each canvas."""
    weights: Floats
    """L / k of each canvas: what a nat of a masked place counts."""


def draw_noise(lengths: npt.NDArray[np.int64], phases: Floats, uniforms: Floats) -> Noise:
    """Mask k = 1 + floor(phase L) places of each canvas; one uniform number a place, a phase in [0, 1) a canvas."""
    counts = 1 + np.minimum((phases * lengths).astype(np.int64), lengths - 1)
    levels = np.empty(len(lengths))
    _find_levels(np.cumsum(lengths) - lengths, lengths, counts, uniforms, levels)
    return Noise(uniforms <= np.repeat(levels, lengths), levels, lengths / counts)


def spread(count: int, shift: float) -> Floats:
    """As many phases, evenly over [0, 1), all moved by the same amount."""
    return (shift + np.arange(count) / count) % 1.0


def spread_samples(numbers: npt.NDArray[np.int64], samples: int, shift: float) -> Floats:
    """Phases [N, samples] of texts by their numbers: even over a text's samples, and nearly so over texts.

    A text's phases depend on its own number alone.
    """
    places = (numbers[:, None] * GOLDEN % 1.0 + np.arange(samples)) / samples
    return (shift + places) % 1.0


@jit
def _find_levels(starts: Array, lengths: Array, counts: Array, uniforms: Array, levels: Array) -> None:
    for i in range(len(starts)):
        part = uniforms[starts[i] : starts[i] + lengths[i]]
        levels[i] = np.partition(part, counts[i] - 1)[counts[i] - 1]
