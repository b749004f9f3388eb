"""Packed rows as tensors, and the loss of a batch: what one process computes in one part of a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from reviser.data.packing import Packed
from reviser.model.attention import Layout
from reviser.model.conditioning import CanvasInput
from reviser.model.loss import loss, nats
from reviser.model.transformer import Transformer

MAX_CHUNK = 8192
"""Positions whose logits exist at once."""


class Part(Protocol):
    """What one process computes with in one part of a step."""

    @property
    def num_labels(self) -> int:
        """Places that the head scores."""
        ...

    @property
    def count(self) -> float:
        """What the sum of the loss over all parts is divided by."""
        ...

    def to(self, device: torch.device) -> Part: ...


@dataclass(frozen=True)
class Inputs:
    """A batch as tensors. `chosen` are the flat places that carry labels, filled up with place 0 to a multiple of
    the chunk, and `labels` and `valid` belong to them alone: the head skips all other places."""

    actions: Tensor
    canvas: CanvasInput
    layout: Layout
    chosen: Tensor
    labels: Tensor
    valid: Tensor | None
    num_labels: int

    @property
    def count(self) -> float:
        return float(self.num_labels)

    def to(self, device: torch.device) -> Inputs:
        """On a device, as the model wants them; copies out of pinned memory do not wait for it."""

        def send(tensor: Tensor) -> Tensor:
            return tensor.to(device, non_blocking=True).long()

        def send_some(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else send(tensor)

        layout = Layout(
            send(self.layout.positions),
            self.layout.segments.to(device, non_blocking=True),
            self.layout.starts.to(device, non_blocking=True),
            self.layout.longest,
        )
        canvas = CanvasInput(send_some(self.canvas.windows), send_some(self.canvas.rows))
        return Inputs(
            send(self.actions), canvas, layout, send(self.chosen), send(self.labels), send_some(self.valid),
            self.num_labels,
        )  # fmt: skip


def host_inputs(rows: Packed, context: int, masked: bool = True, pinned: bool = False) -> Inputs:
    """Rows as tensors on the host, as small as they come; `pinned` for a GPU to fetch."""
    chosen = np.flatnonzero(rows.labels.reshape(-1) >= 0)
    missing = -len(chosen) % chunk_of(rows.labels.size)

    def wrap(array: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        return tensor.pin_memory() if pinned else tensor

    def pick(array: np.ndarray) -> Tensor:
        return wrap(np.concatenate([array.reshape(-1)[chosen], np.full(missing, -1, array.dtype)]))

    layout = Layout(wrap(rows.positions), wrap(rows.segments), wrap(example_starts(rows, context)), context)
    canvas = CanvasInput(*(None if each is None else wrap(each) for each in (rows.windows, rows.canvases)))
    places = wrap(np.concatenate([chosen, np.zeros(missing, np.int64)]))
    valid = pick(rows.valid) if masked else None
    return Inputs(wrap(rows.actions), canvas, layout, places, pick(rows.labels), valid, len(chosen))


def to_inputs(rows: Packed, context: int, device: torch.device, masked: bool = True) -> Inputs:
    """Rows as tensors on a device."""
    return host_inputs(rows, context, masked, pinned=device.type == "cuda").to(device)


def chunk_of(num_places: int) -> int:
    """How many positions the head takes at once: an eighth of a batch, no more than fits well."""
    return max(min(MAX_CHUNK, num_places // 8), 1)


def example_starts(rows: Packed, context: int) -> np.ndarray:
    """Where each example begins in the flattened rows; padding counts as examples of at most `context`."""
    num_rows, size = rows.segments.shape
    is_first = np.ones((num_rows, size), bool)
    is_first[:, 1:] = rows.segments[:, 1:] != rows.segments[:, :-1]
    is_first |= rows.positions % context == 0
    places = np.flatnonzero(is_first)
    # A fixed length, so that a compiled kernel sees one shape; beyond it the shape grows in few steps.
    room = num_rows * 16
    room *= -(-(len(places) + 1) // room)
    starts = np.full(room, num_rows * size, np.int32)
    starts[: len(places)] = places
    return starts


class Learner(nn.Module):
    """A model with its loss as one module, so that DDP and FSDP see all that the loss uses."""

    model: Transformer

    def __init__(self, model: Transformer, fuse: bool) -> None:
        super().__init__()
        self.model = model
        self.fuse = fuse
        self.trunk: Callable[..., Tensor] = model.hidden


class Objective(Learner):
    """The loss of actions."""

    def forward(self, inputs: Inputs) -> Tensor:
        """The summed nats of all labels."""
        hidden = self.trunk(inputs.actions, inputs.canvas, inputs.layout)
        # Not by indexing: the gradient of that sorts.
        picked = hidden.flatten(0, 1).index_select(0, inputs.chosen)
        alphabet, chunk = self.model.config.alphabet, chunk_of(inputs.actions.numel())
        total, _ = loss(
            picked[None], self.model.head_weight, inputs.labels[None],
            None if inputs.valid is None else inputs.valid[None], alphabet, chunk=chunk, fuse=self.fuse,
        )  # fmt: skip
        return total


@torch.no_grad()
def label_nats(model: Transformer, inputs: Inputs) -> Tensor:
    """[B, T] nats of each label, 0 where there is none."""
    hidden = model.hidden(inputs.actions, inputs.canvas, inputs.layout)
    picked = hidden.flatten(0, 1).index_select(0, inputs.chosen)
    valid = None if inputs.valid is None else inputs.valid[None]
    chunk = chunk_of(inputs.actions.numel())
    values = nats(picked[None], model.head_weight, inputs.labels[None], valid, model.config.alphabet, chunk=chunk)[0]
    out = torch.zeros(inputs.actions.numel(), device=values.device)
    # Filled-up places carry 0 nats, so adding them to place 0 changes nothing.
    return out.index_add_(0, inputs.chosen, values).view_as(inputs.actions)
