"""The step of a small batch on a CPU: `Transformer.step` and `logits` without torch's operators.

A step of few rows does so little that calling torch's operators, thousands a step, takes longer than what they
compute. `CpuStep` hands the whole step to two numba kernels (step_kernels.py) and drafts to a third
(prompt_kernels.py). It writes to the same `Cache`, so the model's steps and these mix freely. Results are equal to
rounding:

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
from typing import Literal, Protocol, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reviser.config import ModelConfig
from reviser.decoding.cpu import prompt_kernels, prompt_tiles
from reviser.decoding.cpu import step_kernels as kernels
from reviser.decoding.cpu.prompt_kernels import Panels, Prompts
from reviser.decoding.cpu.step_kernels import Array, Buffers, KernelShape
from reviser.decoding.cpu.threads import threads_of
from reviser.decoding.drafts import DraftInputs
from reviser.errors import ConfigError
from reviser.model.cache import Cache
from reviser.model.conditioning import CanvasInput, Window
from reviser.model.layers import rotation
from reviser.model.quantize import rounded
from reviser.model.transformer import BLIND, Block, Transformer

MOST_ROWS = 8
"""Busy rows up to which the float32 kernels take the step. Torch's time over theirs, step and logits of `paper_100m`
on two Neoverse-N1 cores: 2.6 at 1 row, 3.8 at 2, 3.2 at 4, 1.5 at 8, 1.0 at 16; where torch has better products of
small matrices than there, they meet earlier. In int8 the kernels stay ahead: 2.0 at 32."""

_ACTIVATIONS = {"gelu": kernels.GELU, "relu2": kernels.RELU2, "swiglu": kernels.SWIGLU}


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
    return weight.device.type == "cpu" and weight.dtype == torch.float32 and model.config.canvas.kind in _KINDS


_KINDS = ("none", "window")
_NO_WINDOWS = np.empty((0, 0, 0), np.int64)


class CpuStep:
    """The steps of a model by numba kernels; beyond `most_rows` rows at once the model takes them itself.

    Float32 weights are the model's own, read where they are; int8 ones are rounded here, once, or those of its file.
    """

    def __init__(
        self, model: Transformer, weights: Literal["float32", "int8"] = "float32", most_rows: int | None = None
    ) -> None:
        if not has_cpu_kernels(model):
            raise ConfigError(
                f"no CPU kernels for {model.embedding.weight.dtype} on {model.embedding.weight.device} with canvas "
                f"{model.config.canvas.kind}; they need float32 on a CPU and canvas {' or '.join(_KINDS)}"
            )
        self.model, self.weights, self.most_rows = model, weights, most_rows
        self._kept: list[Tensor] = []
        self._shape = _shape(model)
        self._trunk = self._trunk_addresses()
        self._layers = np.array([self._layer_addresses(cast(Block, block)) for block in model.blocks], np.int64)
        self._turns = _turns(model.config)
        self._widths, self._num_actions = _widths(self._shape), model.config.alphabet.size
        self._memories: WeakKeyDictionary[Cache, Array] = WeakKeyDictionary()
        self._point = np.zeros(4, np.int64)
        if model.pointer is not None:
            self._point[:2] = self._matrix(model.pointer.key_matrix.weight)
            if model.pointer.ahead_matrix is not None:
                self._point[2:] = self._matrix(model.pointer.ahead_matrix.weight)

    def step(self, actions: Tensor, canvas: CanvasInput, cache: Cache, counts: Tensor | None = None) -> Tensor:
        """As `Transformer.step`; what comes out of rows without an action is 0."""
        B, S = actions.shape
        rows = np.arange(B) if counts is None else counts.numpy().nonzero()[0]
        if S != 1 or (self.most_rows is not None and len(rows) > self.most_rows):
            return self.model.step(actions, canvas, cache, counts)
        hidden = np.zeros((B, 1, self._shape.width), np.float32)
        buffers = Buffers(*[np.empty((len(rows), width), np.float32) for width in self._widths])
        model = self._shape, self._layers, self._trunk, self._turns
        held = self._memory(cache), cache.context, cache.lengths.numpy()
        given = rows, self._embedded(actions), self._windows(canvas)
        self._run(kernels.advance, *model, *held, *given, buffers, hidden)
        self._keep_pointers(cache, rows, hidden)
        return torch.from_numpy(hidden)

    def _keep_pointers(self, cache: Cache, rows: Array, hidden: Array) -> None:
        """`Cache.point` for steps that were just taken."""
        if cache.pointers is None:
            return
        slots, pointers = np.minimum(cache.lengths.numpy()[rows] - 1, cache.context), cache.pointers.numpy()
        P, A = pointers.shape[2], self.model.config.pointer_ahead
        keys, states = np.empty((len(rows), P), np.float32), hidden[rows, 0]
        # One member alone: to wake the others would take longer.
        kernels.score(0, 1, np.zeros(1, np.int64), self._point, states, keys)
        pointers[rows, slots] = keys
        if A:
            more = np.empty((len(rows), A * P), np.float32)
            kernels.score(0, 1, np.zeros(1, np.int64), self._point[2:], states, more)
            earlier = slots[:, None] - np.arange(1, A + 1)
            n, j = np.nonzero((earlier >= 0) & (slots < cache.context)[:, None])
            pointers[rows[n], earlier[n, j]] += more.reshape(-1, A, P)[n, j]

    def read(self, drafts: DraftInputs, rows: Tensor, cache: Cache) -> Tensor:
        """Put drafts [n, S] into rows [n] of the cache, whatever those held; [n, d] behind the last entry of each."""
        prompts = self._prompts(drafts, _integers(drafts.counts), _integers(rows))
        # A pointer's keys need what stands behind every position.
        is_whole = cache.pointers is not None
        hidden = self._read_prompts(prompts, drafts.counts, rows, cache, len(prompts.rows if is_whole else rows))
        return torch.from_numpy(hidden[prompts.lasts] if is_whole else hidden)

    def read_all(self, drafts: DraftInputs, rows: Tensor, cache: Cache) -> Sequence[Tensor]:
        """The same; for each draft what stands behind all of its entries, [count, d]."""
        prompts = self._prompts(drafts, _integers(drafts.counts), _integers(rows))
        hidden = self._read_prompts(prompts, drafts.counts, rows, cache, len(prompts.rows))
        return torch.split(torch.from_numpy(hidden), drafts.counts.tolist())

    def _read_prompts(self, prompts: Prompts, counts: Tensor, rows: Tensor, cache: Cache, num_hidden: int) -> Array:
        hidden = np.empty((num_hidden, self._shape.width), np.float32)
        model = self._shape, self._layers, self._trunk, self._turns
        held, panels = (self._memory(cache), cache.context), self._panels(len(prompts.rows))
        self._run(prompt_kernels.read, *model, *held, prompts, panels, self._point, hidden)
        cache.lengths.index_copy_(0, rows, counts)
        if cache.pointers is not None:
            cache.pointers.numpy()[prompts.rows, prompts.places] = self._keys(prompts, panels)
        return hidden

    def _keys(self, prompts: Prompts, panels: Panels) -> Array:
        """The pointer's keys of all positions, each as the last one of its prompt sees it."""
        N, P, A = len(prompts.rows), panels.points.shape[1], self.model.config.pointer_ahead
        keys, more = (_rows_of(part)[:N] for part in (panels.points, panels.ahead))
        for j in range(1, min(A + 1, N)):
            is_same = prompts.rows[j:] == prompts.rows[:-j]
            keys[:-j][is_same] += more[j:, (j - 1) * P : j * P][is_same]
        return keys

    def logits(self, hidden: Tensor) -> Tensor:
        """As `Transformer.logits`."""
        rows = hidden.detach().reshape(-1, hidden.shape[-1]).numpy()
        if self.most_rows is not None and len(rows) > self.most_rows:
            return self.model.logits(hidden)
        scores = np.empty((len(rows), self._num_actions), np.float32)
        self._run(kernels.score, self._trunk[kernels.HEAD :], rows, scores)
        return torch.from_numpy(scores).view(*hidden.shape[:-1], -1)

    def hidden(self, actions: Tensor, canvas: CanvasInput = BLIND) -> Tensor:
        """As `Transformer.hidden`, one step after the other: what decoding makes of a history [B, T]."""
        B, T = actions.shape
        cache = Cache.empty(self.model.config, B, context=T)
        windows = canvas.windows
        shown = [CanvasInput() if windows is None else CanvasInput(windows[:, t : t + 1]) for t in range(T)]
        return torch.cat([self.step(actions[:, t : t + 1], shown[t], cache) for t in range(T)], dim=1)

    def _prompts(self, drafts: DraftInputs, counts: Array, rows: Array) -> Prompts:
        """What is real of drafts [n, S]."""
        is_real = np.arange(drafts.actions.shape[1]) < counts[:, None]
        owners, places = is_real.nonzero()
        windows = self._windows(drafts.canvas)
        shown = windows[is_real] if len(windows) else np.empty((0, 0), np.int64)
        is_last = places == counts[owners] - 1
        return Prompts(
            self._embedded(drafts.actions)[is_real], shown, rows[owners], places, is_last, is_last.nonzero()[0]
        )

    def _panels(self, num_positions: int) -> Panels:
        shape, (count, width) = self._shape, prompt_tiles.panels_for(num_positions)
        d, _, _, num_units, _ = self._widths
        slots = shape.slots * shape.slot_width
        config = self.model.config
        P = config.pointer_width if config.has_jumps else 0
        sizes = d, max(d, slots), 3 * d, d, num_units, P, config.pointer_ahead * P
        # Lanes without a position must hold numbers.
        x, normed, qkv, heads, units, points, ahead = (np.zeros((count, size, width), np.float32) for size in sizes)
        longest = max(d, shape.ff_width, slots) if self.weights == "int8" else 0
        padded = -(-longest // prompt_tiles.BYTES) * prompt_tiles.BYTES
        whole, scales = np.zeros((count * width, padded), np.int8), np.zeros(count * width, np.float32)
        return Panels(x, normed, qkv, heads, units, units.reshape(count, -1), points, ahead, whole, scales)

    def _embedded(self, actions: Tensor) -> Array:
        """The rows of actions in the embedding."""
        return _integers(self.model.rows_of(actions))

    def _windows(self, canvas: CanvasInput) -> Array:
        if not self._shape.slots:
            return _NO_WINDOWS
        if canvas.windows is None:
            raise ValueError("this model's canvas conditioning needs CanvasInput.windows")
        return _integers(canvas.windows)

    def _run(self, kernel: object, *arguments: object) -> None:
        # A head is never divided among members.
        size = max(1, min(torch.get_num_threads(), self._shape.num_heads))
        threads_of(size).run(kernel, *arguments)  # type: ignore[arg-type]

    def _memory(self, cache: Cache) -> Array:
        """[L, 2]: the addresses of each layer's keys and values."""
        addresses = self._memories.get(cache)
        if addresses is None:
            pairs = zip(cache.keys, cache.values, strict=True)
            addresses = np.array([[tensor.data_ptr() for tensor in pair] for pair in pairs], np.int64)
            self._memories[cache] = addresses
        return addresses

    def _layer_addresses(self, block: Block) -> list[int]:
        attention, mlp = block.attention, block.mlp
        return [
            *self._norm(block.attention_norm), *self._matrix(attention.qkv.weight),
            *(0 if norm is None else self._address(norm.weight) for norm in (attention.q_norm, attention.k_norm)),
            *self._matrix(attention.out.weight),
            *self._norm(block.mlp_norm),
            *self._matrix(mlp.up.weight), self._address(mlp.up.bias),
            *self._matrix(mlp.down.weight), self._address(mlp.down.bias),
        ]  # fmt: skip

    def _trunk_addresses(self) -> Array:
        model, reader = self.model, self.model.canvas
        positions = None if model.positions is None else model.positions.weight
        window = [0, 0, 0]
        if isinstance(reader, Window):
            window = [self._address(reader.table.weight), *self._matrix(reader.projection.weight)]
        addresses = [self._address(model.embedding.weight), self._address(positions), *window]
        return np.array([*addresses, *self._norm(model.norm), *self._matrix(model.head_weight)], np.int64)

    def _norm(self, norm: nn.LayerNorm | nn.RMSNorm) -> tuple[int, int]:
        return self._address(norm.weight), self._address(norm.bias if isinstance(norm, nn.LayerNorm) else None)

    def _matrix(self, weight: Tensor) -> tuple[int, int]:
        """The address of a matrix, and that of its scales where it is rounded."""
        if self.weights == "float32":
            return self._address(weight), 0
        whole, scales = rounded(weight)
        # Read in chunks, of which the last row's may reach beyond it.
        held = F.pad(whole.flatten(), (0, prompt_tiles.BYTES))
        return self._address(held), self._address(scales)

    def _address(self, tensor: Tensor | None) -> int:
        if tensor is None:
            return 0
        # Kept, or a model that moves elsewhere would leave the kernels with addresses of nothing.
        self._kept.append(tensor.detach().contiguous())
        return self._kept[-1].data_ptr()


def _rows_of(panels: Array) -> Array:
    """Panels [G, features, W] as a row for each position."""
    G, size, W = panels.shape
    return panels.transpose(0, 2, 1).reshape(G * W, size)


def _integers(tensor: Tensor) -> Array:
    # One layout and one type, or numba would compile the kernels again.
    return np.ascontiguousarray(tensor.numpy(), np.int64)


def _shape(model: Transformer) -> KernelShape:
    config, canvas = model.config, model.config.canvas
    has_window = canvas.kind == "window"
    return KernelShape(
        config.width, config.num_heads, config.ff_width, _ACTIVATIONS[config.activation],
        2 * canvas.window if has_window else 0, canvas.slot_width if has_window else 0, config.num_text + 1,
        int(config.norm == "layer"),
    )  # fmt: skip


def _widths(shape: KernelShape) -> tuple[int, ...]:
    """Of the buffers."""
    units = shape.ff_width * (2 if shape.activation == kernels.SWIGLU else 1)
    return shape.width, 3 * shape.width, shape.width, units, shape.width


def _turns(config: ModelConfig) -> Array:
    """[context, 2, D/2]: cos and sin of every position's angles; nothing to turn without rotary positions."""
    if config.positions != "rope":
        return np.empty((config.context, 2, 0), np.float32)
    cos, sin = rotation(torch.arange(config.context), config)
    return torch.cat([cos, sin], dim=1).numpy()
