"""The chooser for a CPU: array_chooser.py behind the methods of `Chooser`.

>>> alphabet = Alphabet(num_text=4, pad=3)
>>> valid = torch.tensor([1 << 34])  # INSERT alone
>>> CpuChooser(GREEDY, alphabet).choose(torch.arange(38.0)[None], valid, torch.zeros(1))[0]
tensor([2])
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from reviser.actions import Alphabet
from reviser.decoding.cpu.array_chooser import ArrayChooser
from reviser.decoding.sampling import GREEDY, Chooser, Sampling

__all__ = ["CpuChooser", "Alphabet", "GREEDY"]


class CpuChooser(Chooser):
    """A chooser in the CPU's memory."""

    def __init__(self, sampling: Sampling, alphabet: Alphabet, device: torch.device | str = "cpu") -> None:
        super().__init__(sampling, alphabet, device)
        self._arrays = ArrayChooser(sampling, alphabet)

    def log_probabilities(self, logits: Tensor, valid: Tensor) -> Tensor:
        # One layout and one type, or numba would compile the kernel again.
        scores = np.ascontiguousarray(logits.float().numpy())
        return torch.from_numpy(self._arrays.log_probabilities(scores, valid.numpy()))

    def draw(
        self,
        log_p: Tensor,
        valid: Tensor,
        uniforms: Tensor,
        last: Tensor | None = None,
        grown: Tensor | None = None,
        banned: Tensor | None = None,
    ) -> Tensor:
        known = (None if each is None else each.numpy() for each in (last, grown, banned))
        return torch.from_numpy(self._arrays.draw(log_p.numpy(), valid.numpy(), uniforms.double().numpy(), *known))

    def land(
        self, actions: Tensor, queries: Tensor, keys: Tensor, births: Tensor, uniforms: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As `Chooser`'s, and only for rows that jump."""
        if keys.dtype != torch.float32:
            return super().land(actions, queries, keys, births, uniforms)
        given = np.ascontiguousarray(queries.detach().float().numpy()), keys.numpy(), births.contiguous().numpy()
        landed, scores = self._arrays.land(actions.numpy(), *given, uniforms.double().numpy())
        return torch.from_numpy(landed), torch.from_numpy(scores)
