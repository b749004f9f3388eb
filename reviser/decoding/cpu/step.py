"""The step of a small batch on a CPU: `Transformer.step` and `logits` by the kernels of kernel_model.py.

`CpuStep` writes to the same `Cache`, so the model's steps and these mix freely. Results are equal to rounding:

>>> config = ModelConfig(num_text=257, pad=256, num_layers=2, width=64, num_heads=2, ff_width=256, context=99)
>>> model, caches = Transformer(config), [Cache.empty(config, num_rows=1) for _ in range(2)]
>>> first, second = (each.step(torch.tensor([[104]]), CanvasInput(), cache)
...                  for each, cache in zip((model, CpuStep(model)), caches))
>>> torch.allclose(first, second, atol=1e-5)
True

With `weights="int8"` every matrix is rounded to a byte a weight, with a scale for each of its rows (quantize.py), and
so is what it is multiplied with, a scale for each vector; tables that are looked up, norms and biases stay. That is
no longer the same; `CpuStep.hidden` shows what it does to a whole text. A model from an int8 folder was rounded so
before, and gives the same bytes.

Shape letters: B rows, T steps, d width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from reviser.config import ModelConfig
from reviser.decoding.cpu.kernel_model import (
    KINDS,
    TABLES,
    Held,
    KernelCache,
    KernelModel,
    KernelWeights,
    head_of,
    integers,
)
from reviser.decoding.cpu.step_kernels import Array
from reviser.decoding.drafts import DraftArrays, DraftInputs
from reviser.errors import ConfigError
from reviser.model.cache import Cache
from reviser.model.checkpoint import ACTION_TABLES, from_tensors
from reviser.model.conditioning import CanvasInput
from reviser.model.folder import SCALE
from reviser.model.quantize import matrices, rounded
from reviser.model.transformer import BLIND, Transformer, make_meta

__all__ = ["CpuStep", "Steps", "steps_of", "has_cpu_kernels", "transformer_of", "ModelConfig"]

MOST_ROWS = 8
"""Busy rows up to which the float32 kernels take the step. Torch's time over theirs, step and logits of `paper_100m`
on two Neoverse-N1 cores: 2.6 at 1 row, 3.8 at 2, 3.2 at 4, 1.5 at 8, 1.0 at 16; where torch has better products of
small matrices than there, they meet earlier. In int8 the kernels stay ahead: 2.0 at 32."""


class Steps(Protocol):
    """What the engine needs of a model: `Transformer` and `CpuStep` both have it."""

    def step(self, actions: Tensor, canvas: CanvasInput, cache: Cache, counts: Tensor | None = None) -> Tensor: ...

    def logits(self, hidden: Tensor) -> Tensor: ...


def steps_of(model: Transformer) -> Steps:
    """The fastest exact steps for a model on a CPU: kernels where they know it and the rows are few."""
    return CpuStep(model, most_rows=MOST_ROWS) if has_cpu_kernels(model) else model


def has_cpu_kernels(model: Transformer) -> bool:
    """Whether the kernels know this model: on a CPU, in float32, with its canvas in a window or not at all."""
    weight = model.embedding.weight
    return weight.device.type == "cpu" and weight.dtype == torch.float32 and model.config.canvas.kind in KINDS


class CpuStep:
    """The steps of a model by numba kernels; beyond `most_rows` rows at once the model takes them itself.

    Float32 weights are the model's own, read where they are; int8 ones are rounded here, once, or those of its file.
    """

    def __init__(
        self,
        model: Transformer,
        weights: Literal["float32", "int8"] = "float32",
        most_rows: int | None = None,
        kernels: KernelModel | None = None,
    ) -> None:
        """`kernels` are those of the same weights, where somebody has made them already."""
        if not has_cpu_kernels(model):
            raise ConfigError(
                f"no CPU kernels for {model.embedding.weight.dtype} on {model.embedding.weight.device} with canvas "
                f"{model.config.canvas.kind}; they need float32 on a CPU and canvas {' or '.join(KINDS)}"
            )
        self.model, self.weights, self.most_rows = model, weights, most_rows
        self.kernels = kernels or KernelModel(model.config, weights_of(model, weights))
        self._caches: WeakKeyDictionary[Cache, KernelCache] = WeakKeyDictionary()

    def step(self, actions: Tensor, canvas: CanvasInput, cache: Cache, counts: Tensor | None = None) -> Tensor:
        """As `Transformer.step`; what comes out of rows without an action is 0."""
        B, S = actions.shape
        rows = np.arange(B) if counts is None else counts.numpy().nonzero()[0]
        if S != 1 or (self.most_rows is not None and len(rows) > self.most_rows):
            return self.model.step(actions, canvas, cache, counts)
        windows = None if canvas.windows is None else canvas.windows.numpy()
        hidden = self.kernels.step(actions[:, 0].numpy(), windows, self._held(cache), rows)
        return torch.from_numpy(hidden)[:, None]

    def read(self, drafts: DraftInputs, rows: Tensor, cache: Cache) -> Tensor:
        """Put drafts [n, S] into rows [n] of the cache, whatever those held; [n, d] behind the last entry of each."""
        return torch.from_numpy(self.kernels.read(_arrays(drafts), integers(rows.numpy()), self._held(cache)))

    def read_all(self, drafts: DraftInputs, rows: Tensor, cache: Cache) -> Sequence[Tensor]:
        """The same; for each draft what stands behind all of its entries, [count, d]."""
        hidden = self.kernels.read_all(_arrays(drafts), integers(rows.numpy()), self._held(cache))
        return [torch.from_numpy(each) for each in hidden]

    def logits(self, hidden: Tensor) -> Tensor:
        """As `Transformer.logits`."""
        rows = hidden.detach().reshape(-1, hidden.shape[-1]).numpy()
        if self.most_rows is not None and len(rows) > self.most_rows:
            return self.model.logits(hidden)
        return torch.from_numpy(self.kernels.logits(rows)).view(*hidden.shape[:-1], -1)

    def hidden(self, actions: Tensor, canvas: CanvasInput = BLIND) -> Tensor:
        """As `Transformer.hidden`, one step after the other: what decoding makes of a history [B, T]."""
        B, T = actions.shape
        cache = Cache.empty(self.model.config, B, context=T)
        windows = canvas.windows
        shown = [CanvasInput() if windows is None else CanvasInput(windows[:, t : t + 1]) for t in range(T)]
        return torch.cat([self.step(actions[:, t : t + 1], shown[t], cache) for t in range(T)], dim=1)

    def _held(self, cache: Cache) -> KernelCache:
        """The cache's tensors as arrays."""
        held = self._caches.get(cache)
        if held is None:
            keys, values = ([each.numpy() for each in some] for some in (cache.keys, cache.values))
            pointers = None if cache.pointers is None else cache.pointers.numpy()
            held = self._caches[cache] = KernelCache(keys, values, cache.lengths.numpy(), pointers)
        return held


def weights_of(model: Transformer, weights: Literal["float32", "int8"]) -> KernelWeights:
    """A model's weights as kernels read them, without rows that mean nothing: its own, or rounded."""
    size, looked_up = model.config.alphabet.size, matrices(model) & {*TABLES}

    def cut(name: str, array: Array) -> Array:
        return array[:size] if name in ACTION_TABLES else array

    def hold(name: str, weight: Tensor) -> Held:
        if weights == "float32":
            return Held(cut(name, _array(weight)))
        whole, scales = rounded(weight)
        return Held(cut(name, _array(whole)), cut(name, _array(scales)))

    found = dict(model.named_parameters())
    multiplied = (matrices(model) - looked_up) | {head_of(model.config)}
    floats = {name: cut(name, _array(weight)) for name, weight in found.items() if name not in multiplied - looked_up}
    return KernelWeights({name: hold(name, found[name]) for name in multiplied}, floats)


def transformer_of(kernels: KernelModel) -> Transformer:
    """The model of the same weights for torch."""
    weights = kernels.weights
    tensors = {name: torch.from_numpy(array) for name, array in weights.floats.items()}
    for name, held in weights.matrices.items():
        tensors[name] = torch.from_numpy(held.values)
        if held.scales is not None:
            tensors[name + SCALE] = torch.from_numpy(held.scales)
    return from_tensors(make_meta(kernels.config), tensors, "the model in memory")


def _array(tensor: Tensor) -> Array:
    return tensor.detach().contiguous().numpy()


def _arrays(drafts: DraftInputs) -> DraftArrays:
    windows = drafts.canvas.windows
    return DraftArrays(
        drafts.actions.numpy(), integers(drafts.counts.numpy()), None if windows is None else windows.numpy()
    )
