"""A model's steps on arrays: numba kernels over weights that lie in memory, without torch.

A step of few rows does so little that calling torch's operators, thousands a step, takes longer than what they
compute, and importing torch takes longer than a first sentence. `KernelModel` hands the whole step to two kernels
(step_kernels.py) and drafts to a third (prompt_kernels.py). Its weights are those of a torch model (step.py) or of a
model folder in int8 (file_weights.py):

    matrices   what is multiplied with: float32, or int8 with a scale for each row
    floats     what is looked up or added: embeddings, the window's table, norms, biases

In int8 every vector that a matrix is multiplied with is rounded too, with one scale.

Shape letters: B rows, S entries of a draft, d width, P pointer width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from reviser.config import ModelConfig
from reviser.decoding.cpu import prompt_kernels, prompt_tiles
from reviser.decoding.cpu import step_kernels as kernels
from reviser.decoding.cpu.prompt_kernels import Panels, Prompts
from reviser.decoding.cpu.step_kernels import Array, Buffers, KernelShape
from reviser.decoding.cpu.threads import num_threads, threads_of
from reviser.decoding.drafts import DraftArrays

KINDS = ("none", "window")
"""The canvases that the kernels know."""
_ACTIVATIONS = {"gelu": kernels.GELU, "relu2": kernels.RELU2, "swiglu": kernels.SWIGLU}
_NO_WINDOWS = np.empty((0, 0, 0), np.int64)
EMBEDDING, HEAD, QUERY = "embedding.weight", "head.weight", "pointer.query_matrix.weight"
TABLES = (EMBEDDING, "positions.weight", "canvas.table.weight")
"""Matrices that are looked up."""


class Held(NamedTuple):
    """A matrix [rows, columns] as float32, or as int8 with the scale of each row."""

    values: Array
    scales: Array | None = None

    @property
    def floats(self) -> Array:
        return self.values if self.scales is None else self.values * self.scales[:, None]


@dataclass(frozen=True, eq=False)
class KernelWeights:
    """All weights by the names that files have for them."""

    matrices: Mapping[str, Held]
    floats: Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class KernelCache:
    """Keys and values of the steps so far, as `Cache` holds them."""

    keys: Sequence[Array]
    """For each layer [B, H, context + 1, D]."""
    values: Sequence[Array]
    lengths: Array
    """[B] steps of each row."""
    pointers: Array | None = None
    """[B, context + 1, P], where the model has a pointer."""

    @classmethod
    def empty(cls, config: ModelConfig, num_rows: int, context: int | None = None) -> KernelCache:
        places = (context or config.context) + 1
        shape, layers = (num_rows, config.num_heads, places, config.head_width), range(config.num_layers)
        # Pages come when they are first written: slots that no step reaches take neither memory nor time.
        keys, values = ([np.zeros(shape, np.float32) for _ in layers] for _ in range(2))
        lengths = np.zeros(num_rows, np.int64)
        size = num_rows, places, config.pointer_width
        return cls(keys, values, lengths, np.zeros(size, np.float32) if config.has_jumps else None)

    @property
    def context(self) -> int:
        return int(self.keys[0].shape[2]) - 1

    @cached_property
    def addresses(self) -> Array:
        """[L, 2] of each layer's keys and values."""
        pairs = zip(self.keys, self.values, strict=True)
        return np.array([[each.ctypes.data for each in pair] for pair in pairs], np.int64)


class KernelModel:
    """A model that takes its steps by numba kernels."""

    def __init__(self, config: ModelConfig, weights: KernelWeights) -> None:
        self.config, self.weights = config, weights
        self._kept: list[Array] = []
        self._shape, self._turns = _shape(config), _turns(config)
        self._trunk = self._trunk_addresses()
        layers = [self._layer_addresses(f"blocks.{layer}.") for layer in range(config.num_layers)]
        self._layers = np.array(layers, np.int64)
        self._widths, self._num_actions = _widths(self._shape), config.alphabet.size
        self._point = np.array(
            [*self._matrix("pointer.key_matrix.weight"), *self._matrix("pointer.ahead_matrix.weight")], np.int64
        )

    @property
    def is_rounded(self) -> bool:
        """Whether it computes in int8."""
        return any(held.scales is not None for held in self.weights.matrices.values())

    def step(self, actions: Array, windows: Array | None, cache: KernelCache, rows: Array) -> Array:
        """Append an action [B] to each of `rows`, shown windows [B, 1, 2 W] of the canvases after it; [B, d] behind
        them, and 0 elsewhere."""
        hidden = np.zeros((len(actions), 1, self._shape.width), np.float32)
        buffers = Buffers(*[np.empty((len(rows), width), np.float32) for width in self._widths])
        model = self._shape, self._layers, self._trunk, self._turns
        held = cache.addresses, cache.context, cache.lengths
        given = rows, self._rows_of(actions)[:, None], self._windows(windows)
        self._run(kernels.advance, *model, *held, *given, buffers, hidden)
        self._keep_pointers(cache, rows, hidden)
        return hidden[:, 0]

    def _keep_pointers(self, cache: KernelCache, rows: Array, hidden: Array) -> None:
        """`Cache.point` for steps that were just taken."""
        if cache.pointers is None:
            return
        P, A, nobody = cache.pointers.shape[2], self.config.pointer_ahead, np.zeros(1, np.int64)
        keys, more = (np.empty((len(rows), size), np.float32) for size in (P, A * P))
        # One member alone: to wake the others would take longer.
        states = hidden[rows, 0]
        kernels.score(0, 1, nobody, self._point, states, keys)
        if A:
            kernels.score(0, 1, nobody, self._point[2:], states, more)
        kernels.keep_keys(rows, cache.lengths, cache.context, keys, more, cache.pointers)

    def read(self, drafts: DraftArrays, rows: Array, cache: KernelCache) -> Array:
        """Put drafts [n, S] into rows [n] of the cache, whatever those held; [n, d] behind the last entry of each."""
        prompts = self._prompts(drafts, rows)
        # A pointer's keys need what stands behind every position.
        is_whole = cache.pointers is not None
        hidden = self._read_prompts(prompts, drafts.counts, rows, cache, len(prompts.rows if is_whole else rows))
        return hidden[prompts.lasts] if is_whole else hidden

    def read_all(self, drafts: DraftArrays, rows: Array, cache: KernelCache) -> list[Array]:
        """The same; for each draft what stands behind all of its entries, [count, d]."""
        prompts = self._prompts(drafts, rows)
        hidden = self._read_prompts(prompts, drafts.counts, rows, cache, len(prompts.rows))
        return np.split(hidden, np.cumsum(drafts.counts)[:-1])

    def _read_prompts(
        self, prompts: Prompts, counts: Array, rows: Array, cache: KernelCache, num_hidden: int
    ) -> Array:
        hidden = np.empty((num_hidden, self._shape.width), np.float32)
        model = self._shape, self._layers, self._trunk, self._turns
        held, panels = (cache.addresses, cache.context), self._panels(len(prompts.rows))
        self._run(prompt_kernels.read, *model, *held, prompts, panels, self._point, hidden)
        cache.lengths[rows] = counts
        if cache.pointers is not None:
            cache.pointers[prompts.rows, prompts.places] = self._keys(prompts, panels)
        return hidden

    def _keys(self, prompts: Prompts, panels: Panels) -> Array:
        """The pointer's keys of all positions, each as the last one of its prompt sees it."""
        N, P, A = len(prompts.rows), panels.points.shape[1], self.config.pointer_ahead
        keys, more = (_rows_of(part)[:N] for part in (panels.points, panels.ahead))
        for j in range(1, min(A + 1, N)):
            is_same = prompts.rows[j:] == prompts.rows[:-j]
            keys[:-j][is_same] += more[j:, (j - 1) * P : j * P][is_same]
        return keys

    def logits(self, hidden: Array) -> Array:
        """[n, d] to the scores [n, A] of all actions."""
        scores = np.empty((len(hidden), self._num_actions), np.float32)
        self._run(kernels.score, self._trunk[kernels.HEAD :], hidden, scores)
        return scores

    def float_logits(self, hidden: Array) -> Array:
        """The same, with what stands in `hidden` as it is; for many rows at once."""
        scores: Array = hidden @ self._head_floats.T
        return scores

    @cached_property
    def _head_floats(self) -> Array:
        whole = self.weights.floats[EMBEDDING] if self.config.tied else self.weights.matrices[HEAD].floats
        return whole[: self.config.alphabet.size]

    def queries(self, hidden: Array) -> Array:
        """[n, d] to the pointer's queries [n, P], scaled."""
        # Row by row: a product of matrices may add in another order when there are more rows.
        return np.stack([self._query_floats @ row for row in hidden])

    @cached_property
    def _query_floats(self) -> Array:
        scale = np.float32(self.config.pointer_width**-0.5)
        return np.ascontiguousarray(self.weights.matrices[QUERY].floats * scale, np.float32)

    def _prompts(self, drafts: DraftArrays, rows: Array) -> Prompts:
        """What is real of drafts [n, S]."""
        is_real = np.arange(drafts.actions.shape[1]) < drafts.counts[:, None]
        # One position alone is contiguous, many are columns of a table: two types, and a kernel for each.
        owners, places = map(np.ascontiguousarray, is_real.nonzero())
        windows = self._windows(drafts.windows)
        shown = windows[is_real] if len(windows) else np.empty((0, 0), np.int64)
        is_last = places == drafts.counts[owners] - 1
        return Prompts(
            self._rows_of(drafts.actions)[is_real], shown, rows[owners], places, is_last, is_last.nonzero()[0]
        )

    def _panels(self, num_positions: int) -> Panels:
        shape, (count, width) = self._shape, prompt_tiles.panels_for(num_positions)
        d, _, _, num_units, _ = self._widths
        slots, config = shape.slots * shape.slot_width, self.config
        P = config.pointer_width if config.has_jumps else 0
        sizes = d, max(d, slots), 3 * d, d, num_units, P, config.pointer_ahead * P
        # Lanes without a position must hold numbers.
        x, normed, qkv, heads, units, points, ahead = (np.zeros((count, size, width), np.float32) for size in sizes)
        longest = max(d, shape.ff_width, slots) if self.is_rounded else 0
        padded = -(-longest // prompt_tiles.BYTES) * prompt_tiles.BYTES
        whole, scales = np.zeros((count * width, padded), np.int8), np.zeros(count * width, np.float32)
        return Panels(x, normed, qkv, heads, units, units.reshape(count, -1), points, ahead, whole, scales)

    def _rows_of(self, actions: Array) -> Array:
        """The rows of actions in the embedding; all JUMPs share one."""
        most = self._num_actions - 1
        return integers(np.minimum(actions, most) if self.config.has_jumps else actions)

    def _windows(self, windows: Array | None) -> Array:
        if not self._shape.slots:
            return _NO_WINDOWS
        if windows is None:
            raise ValueError("this model's canvas conditioning needs CanvasInput.windows")
        return integers(windows)

    def _run(self, kernel: object, *arguments: object) -> None:
        # A head is never divided among members.
        size = max(1, min(num_threads(), self._shape.num_heads))
        threads_of(size).run(kernel, *arguments)  # type: ignore[arg-type]

    def _layer_addresses(self, at: str) -> list[int]:
        return [
            *self._norm(f"{at}attention_norm"), *self._matrix(f"{at}attention.qkv.weight"),
            self._address(f"{at}attention.q_norm.weight"), self._address(f"{at}attention.k_norm.weight"),
            *self._matrix(f"{at}attention.out.weight"),
            *self._norm(f"{at}mlp_norm"),
            *self._matrix(f"{at}mlp.up.weight"), self._address(f"{at}mlp.up.bias"),
            *self._matrix(f"{at}mlp.down.weight"), self._address(f"{at}mlp.down.bias"),
        ]  # fmt: skip

    def _trunk_addresses(self) -> Array:
        tables = [self._address(name) for name in TABLES]
        window = self._matrix("canvas.projection.weight")
        return np.array([*tables, *window, *self._norm("norm"), *self._matrix(head_of(self.config))], np.int64)

    def _norm(self, name: str) -> tuple[int, int]:
        return self._address(f"{name}.weight"), self._address(f"{name}.bias")

    def _matrix(self, name: str) -> tuple[int, int]:
        """The addresses of a matrix and of its scales; 0 for what is not there."""
        values, scales = self.weights.matrices.get(name, (None, None))
        if values is not None and scales is not None:
            # Read in chunks, of which the last row's may reach beyond it.
            padded = np.zeros(values.size + prompt_tiles.BYTES, np.int8)
            padded[: values.size] = values.reshape(-1)
            values = padded
        return self._keep(values), self._keep(scales)

    def _address(self, name: str) -> int:
        return self._keep(self.weights.floats.get(name))

    def _keep(self, array: Array | None) -> int:
        if array is None:
            return 0
        # Kept, or a model that moves elsewhere would leave the kernels with addresses of nothing.
        self._kept.append(np.ascontiguousarray(array))
        return self._kept[-1].ctypes.data


def head_of(config: ModelConfig) -> str:
    """The name of the matrix that scores actions."""
    return EMBEDDING if config.tied else HEAD


def integers(array: Array) -> Array:
    """In one layout and one type, or numba would compile the kernels again."""
    return np.ascontiguousarray(array, np.int64)


def _rows_of(panels: Array) -> Array:
    """Panels [G, features, W] as a row for each position."""
    G, size, W = panels.shape
    return panels.transpose(0, 2, 1).reshape(G * W, size)


def _shape(config: ModelConfig) -> KernelShape:
    canvas = config.canvas
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
    D = config.head_width
    exponents = np.arange(0, D, 2, dtype=np.float32) / np.float32(D)
    speeds = np.float32(1) / np.float32(config.rope_theta) ** exponents
    angles = np.arange(config.context, dtype=np.float32)[:, None] * speeds
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)
