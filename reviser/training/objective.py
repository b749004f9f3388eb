"""Packed rows as tensors, and the loss of a batch: what one process computes in one part of a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reviser.data.packing import Packed
from reviser.model.attention import Layout
from reviser.model.conditioning import CanvasInput
from reviser.model.loss import loss, nats
from reviser.model.pointer import Pointer, landed_nats, landing_log_p
from reviser.model.transformer import Transformer

MAX_CHUNK = 8192
"""Positions whose logits exist at once."""


JUMPS_AT_ONCE = 16
"""The number of jumps of a row is rounded up to a multiple of this."""


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
    jumps: Tensor | None = None
    """[B, J, 4]: every label that is a JUMP, by rows, as `pointer.landing_log_p` reads them; None: there are none."""
    deaths: Tensor | None = None
    """[B, T]: how long the token of each step stands on the canvas, in steps of its example."""
    mistakes: Tensor | None = None
    """[B, T]: 1 where a draft is edited behind a step's token, 0 where it is not, -1 elsewhere."""

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
        shown = self.canvas.windows, self.canvas.rows, self.canvas.cursors
        canvas = CanvasInput(*map(send_some, shown))
        return Inputs(
            send(self.actions), canvas, layout, send(self.chosen), send(self.labels), send_some(self.valid),
            self.num_labels, send_some(self.jumps), send_some(self.deaths), send_some(self.mistakes),
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
    shown = rows.windows, rows.canvases, rows.cursors
    canvas = CanvasInput(*(None if each is None else wrap(each) for each in shown))
    places = wrap(np.concatenate([chosen, np.zeros(missing, np.int64)]))
    valid = pick(rows.valid) if masked else None
    jumps = find_jumps(rows)
    deaths = None if jumps is None or rows.lives is None else wrap(rows.lives[..., 0])
    return Inputs(
        wrap(rows.actions), canvas, layout, places, pick(rows.labels), valid, len(chosen),
        None if jumps is None else wrap(jumps), deaths, None if rows.mistakes is None else wrap(rows.mistakes),
    )  # fmt: skip


def find_jumps(rows: Packed) -> np.ndarray | None:
    """[B, J, 4] the columns that are before a JUMP to be learned, with their steps: its own, where it goes, where it
    is. Rows that have fewer are filled up with -1 as where they go."""
    if rows.lives is None:
        return None
    row, column = np.nonzero((rows.labels >= 0) & (rows.lives[..., 1] >= 0))
    counts = np.bincount(row, minlength=len(rows.labels))
    if not len(row):
        return None
    # Few different sizes, so that memory is used again.
    jumps = np.full((len(counts), -(-int(counts.max()) // JUMPS_AT_ONCE) * JUMPS_AT_ONCE, 4), -1, np.int32)
    jumps[..., 0] = jumps[..., 1] = 0
    number = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    jumps[row, number] = np.stack([column, rows.positions[row, column], *rows.lives[row, column, 1:].T], axis=1)
    return jumps


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
    """The loss of actions; `find_mistakes` weighs that of saying where drafts are edited."""

    def __init__(self, model: Transformer, fuse: bool, find_mistakes: float = 0.0) -> None:
        super().__init__(model, fuse)
        self.find_mistakes = find_mistakes

    def forward(self, inputs: Inputs) -> Tensor:
        """The summed nats of all labels."""
        hidden = self.trunk(inputs.actions, inputs.canvas, inputs.layout)
        # Not by indexing: the gradient of that sorts.
        picked = hidden.flatten(0, 1).index_select(0, inputs.chosen)
        alphabet, chunk = self.model.config.alphabet, chunk_of(inputs.actions.numel())
        total, _ = loss(
            picked[None], self.model.head_weight, self.model.rows_of(inputs.labels)[None],
            None if inputs.valid is None else inputs.valid[None], alphabet, chunk=chunk, fuse=self.fuse,
        )  # fmt: skip
        if self.model.pointer is None:
            return total
        if self.find_mistakes and inputs.mistakes is not None:
            total = total + self.find_mistakes * finding_nats(self.model.pointer, hidden, inputs.mistakes)
        landings = jump_nats(self.model, hidden, inputs)
        if landings is None:
            # DDP waits for the gradient of every parameter.
            return total + 0.0 * sum(each.sum() for each in self.model.pointer.parameters())
        return total + landings.sum()


def finding_nats(pointer: Pointer, hidden: Tensor, mistakes: Tensor) -> Tensor:
    """The summed nats of saying of each place of drafts whether it is edited; `mistakes` as in `Inputs`."""
    logits, is_place = pointer.suspicions(hidden).float(), mistakes >= 0
    wanted = mistakes.clamp(min=0).to(logits.dtype)
    return F.binary_cross_entropy_with_logits(logits, wanted, weight=is_place.to(logits.dtype), reduction="sum")


def jump_nats(model: Transformer, hidden: Tensor, inputs: Inputs) -> Tensor | None:
    """[B, J] nats of where the jumps of a batch go; None where there are none."""
    log_p = jump_log_p(model, hidden, inputs)
    return None if log_p is None or inputs.jumps is None else landed_nats(log_p, inputs.jumps)


def jump_log_p(model: Transformer, hidden: Tensor, inputs: Inputs) -> Tensor | None:
    """[B, J, T] log-probabilities of all columns that the jumps of a batch may go to; None where there are none."""
    if model.pointer is None or inputs.jumps is None or inputs.deaths is None:
        return None
    rows = torch.arange(len(hidden), device=hidden.device)[:, None]
    before = hidden.flatten(0, 1).index_select(0, (rows * hidden.shape[1] + inputs.jumps[..., 0]).flatten())
    queries = model.pointer.query(before).view(*inputs.jumps.shape[:2], -1)
    return landing_log_p(queries, model.pointer.parts(hidden), inputs.jumps, inputs.deaths)


@torch.no_grad()
def label_nats(model: Transformer, inputs: Inputs) -> Tensor:
    """[B, T] nats of each label, 0 where there is none."""
    hidden = model.hidden(inputs.actions, inputs.canvas, inputs.layout)
    picked = hidden.flatten(0, 1).index_select(0, inputs.chosen)
    valid = None if inputs.valid is None else inputs.valid[None]
    chunk = chunk_of(inputs.actions.numel())
    labels = model.rows_of(inputs.labels)[None]
    values = nats(picked[None], model.head_weight, labels, valid, model.config.alphabet, chunk=chunk)[0]
    out = torch.zeros(inputs.actions.numel(), device=values.device)
    # Filled-up places carry 0 nats, so adding them to place 0 changes nothing.
    out = out.index_add_(0, inputs.chosen, values).view_as(inputs.actions)
    landings = jump_nats(model, hidden, inputs)
    return out if landings is None or inputs.jumps is None else out.scatter_add_(1, inputs.jumps[..., 0], landings)
