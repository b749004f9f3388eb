"""Keys and values of the steps so far, in tensors that never move: decoding reads them, not the history.

    lengths   3 1 2          row 0 has three steps, row 1 one, row 2 two
    slots     k k k . . .    each row fills its own slots from the left
              k . . . . .    a new step is written at lengths[row] and sees the slots up to itself
              k k . . . .

Everything is written in place, so that a CUDA graph over `Transformer.step` stays right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from reviser.config import ModelConfig
from reviser.model.layers import Rotation, turned


def make_zeros(shape: tuple[int, ...], device: torch.device | str, dtype: torch.dtype) -> Tensor:
    """A tensor of zeros. On a CPU numpy makes it, whose pages come when they are first written: slots that no step
    reaches take neither memory nor time."""
    if torch.device(device).type == "cpu" and dtype == torch.float32:
        return torch.from_numpy(np.zeros(shape, np.float32))
    return torch.zeros(shape, device=device, dtype=dtype)


@dataclass(frozen=True, eq=False)
class Cache:
    """Slots for `context` steps of every row, and one more that takes what is not real."""

    keys: tuple[Tensor, ...]
    """For each layer [B, H, context + 1, D], rotated; apart, since a compiler copies a tensor it writes a part of."""
    values: tuple[Tensor, ...]
    lengths: Tensor
    """[B] int64: steps of each row."""
    pointers: Tensor | None = None
    """[B, context + 1, P]: what a JUMP's pointer compares with, where the model has one, as the last step sees it."""

    @classmethod
    def empty(
        cls,
        config: ModelConfig,
        num_rows: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        context: int | None = None,
    ) -> Cache:
        """No steps yet; a smaller `context` than the model's saves memory."""
        places = (context or config.context) + 1
        shape, layers = (num_rows, config.num_heads, places, config.head_width), range(config.num_layers)
        keys, values = (tuple(make_zeros(shape, device, dtype) for _ in layers) for _ in range(2))
        lengths = torch.zeros(num_rows, device=device, dtype=torch.int64)
        if not config.has_jumps:
            return cls(keys, values, lengths)
        return cls(keys, values, lengths, make_zeros((num_rows, places, config.pointer_width), device, dtype))

    @property
    def context(self) -> int:
        return self.keys[0].shape[2] - 1

    def reset(self) -> None:
        """Forget all rows; what the slots hold is overwritten before it is seen."""
        self.lengths.zero_()

    def places(self, num_steps: int, counts: Tensor | None) -> tuple[Tensor, Tensor]:
        """Positions [B, S] of the next steps, and the slots they are written to."""
        offsets = torch.arange(num_steps, device=self.lengths.device)
        positions = self.lengths[:, None] + offsets
        slots = positions.clamp(max=self.context)
        if counts is not None:
            slots = slots.where(offsets < counts[:, None], self.context)
        return positions, slots

    def point(self, parts: Tensor, slots: Tensor) -> None:
        """Begin the pointer's keys of new steps, and add to those of the steps before, by parts [B, S, A + 1, P]."""
        if self.pointers is None:
            return
        rows, parts = torch.arange(len(parts), device=parts.device)[:, None], parts.to(self.pointers.dtype)
        self.pointers[rows, slots] = parts[:, :, 0]
        for j in range(1, parts.shape[2]):
            # What has no step to go to goes where nobody reads.
            is_there = (slots >= j) & (slots < self.context)
            earlier = (slots - j).where(is_there, self.context)
            self.pointers[rows, earlier] = self.pointers[rows, earlier] + parts[:, :, j]

    def bias(self, positions: Tensor, span: int) -> Tensor:
        """[B, 1, S, span]: 0 where a step sees a slot, -inf elsewhere."""
        is_later = torch.arange(span, device=positions.device) > positions[:, None, :, None]
        return torch.zeros_like(is_later, dtype=self.keys[0].dtype).masked_fill(is_later, -torch.inf)

    def attend(self, qkv: Tensor, turn: Rotation | None, layer: int, slots: Tensor, bias: Tensor) -> Tensor:
        """Write keys and values of [B, S, 3, H, D] to their slots, then attend to as many as the bias covers."""
        q, k, v = turned(qkv, turn)
        keys, values, span = self.keys[layer], self.values[layer], bias.shape[-1]
        rows = torch.arange(len(q), device=q.device)[:, None]
        keys[rows, :, slots] = k.to(keys.dtype)
        values[rows, :, slots] = v.to(values.dtype)
        query = q.transpose(1, 2).to(keys.dtype)
        out = F.scaled_dot_product_attention(query, keys[:, :, :span], values[:, :, :span], attn_mask=bias)
        return out.transpose(1, 2).to(q.dtype)
