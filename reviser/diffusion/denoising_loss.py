"""Rows of canvases as noised tensors, and the loss of a batch: what one process computes in one part of a step.

Noise is drawn on the host, so that the head is asked about masked places alone and their number needs no waiting for
the device. MDLM gets a noise level for each canvas; SEDD reads the level through every norm, so the canvases of a row
share one there: k of all the row's places are masked, which leaves every canvas's loss what it is in expectation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from reviser.data.packing import Packed
from reviser.diffusion.denoiser import Denoiser
from reviser.diffusion.noise import draw_noise, spread
from reviser.model.attention import Layout
from reviser.model.loss import loss
from reviser.model.transformer import BLIND
from reviser.training.objective import Learner, chunk_of, example_starts


@dataclass(frozen=True)
class NoisyInputs:
    """A batch as tensors. `chosen` are the flat masked places, filled up with place 0 to a multiple of the chunk;
    `labels` and `weights` belong to them alone."""

    tokens: Tensor
    levels: Tensor
    """[B] the noise level of each row; 0 where each canvas has its own."""
    layout: Layout
    chosen: Tensor
    labels: Tensor
    weights: Tensor
    num_labels: int
    """Masked places."""
    count: float
    """Places that could have been masked: what the loss is divided by."""

    def to(self, device: torch.device) -> NoisyInputs:
        """On a device, as the model wants them; copies out of pinned memory do not wait for it."""

        def send(tensor: Tensor) -> Tensor:
            return tensor.to(device, non_blocking=True)

        old = self.layout
        layout = Layout(send(old.positions).long(), send(old.segments), send(old.starts), old.longest)
        return NoisyInputs(
            send(self.tokens).long(), send(self.levels), layout, send(self.chosen), send(self.labels).long(),
            send(self.weights), self.num_labels, self.count,
        )  # fmt: skip


def noisy_inputs(
    rows: Packed, mask: int, context: int, stream: int, is_timed: bool, pinned: bool = False
) -> NoisyInputs:
    """Rows of canvases as tensors on the host, with noise that `stream` decides."""
    labels = rows.labels.reshape(-1)
    free = np.flatnonzero(labels >= 0)
    lengths = _group_sizes(rows, free, is_timed)
    rng = np.random.default_rng(stream)
    noise = draw_noise(lengths, spread(len(lengths), rng.random()), rng.random(len(free)))
    masked = free[noise.is_masked]
    tokens = rows.actions.reshape(-1).copy()
    tokens[masked] = mask
    missing = -len(masked) % chunk_of(labels.size)

    def wrap(array: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        return tensor.pin_memory() if pinned else tensor

    def fill(array: np.ndarray, value: int) -> Tensor:
        return wrap(np.concatenate([array, np.full(missing, value, array.dtype)]))

    weights = np.repeat(noise.weights, lengths)[noise.is_masked].astype(np.float32)
    layout = Layout(wrap(rows.positions), wrap(rows.segments), wrap(example_starts(rows, context)), context)
    levels = noise.levels if is_timed else np.zeros(len(rows.actions))
    return NoisyInputs(
        wrap(tokens.reshape(rows.actions.shape)), wrap(levels.astype(np.float32)), layout, fill(masked, 0),
        fill(labels[masked], -1), fill(weights, 0), len(masked), float(len(free)),
    )  # fmt: skip


def _group_sizes(rows: Packed, free: npt.NDArray[np.int64], is_timed: bool) -> npt.NDArray[np.int64]:
    """How many free places there are with one noise level each: of every row, or of every canvas."""
    num_rows, size = rows.labels.shape
    if is_timed:
        return np.bincount(free // size, minlength=num_rows).astype(np.int64)
    names = free // size * (size + 1) + rows.segments.reshape(-1)[free]
    ends = np.flatnonzero(np.diff(names, append=-1)) + 1
    return np.diff(ends, prepend=0)


class DenoisingObjective(Learner):
    """The loss of masked places."""

    model: Denoiser

    def __init__(self, model: Denoiser, fuse: bool) -> None:
        super().__init__(model, fuse)
        self.score = model.score
        if fuse and model.score is not None:
            self.score = torch.compile(model.score, dynamic=False)

    def forward(self, inputs: NoisyInputs) -> Tensor:
        """The bound's nats, summed over all canvases."""
        levels = inputs.levels if self.model.is_timed else None
        hidden = self.trunk(inputs.tokens, BLIND, inputs.layout, levels)
        # Not by indexing: the gradient of that sorts.
        picked = hidden.flatten(0, 1).index_select(0, inputs.chosen)
        # Text tokens alone are scored; padding is one of them, for it says where a text ends.
        total, _ = loss(
            picked[None], self.model.head_weight, inputs.labels[None], None, self.model.config.num_text,
            inputs.weights[None], chunk_of(inputs.tokens.numel()), self.fuse, self.score,
        )  # fmt: skip
        return total
