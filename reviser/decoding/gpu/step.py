"""The step of a batch on a GPU: `Transformer.step` again, in a few Triton kernels a layer.

A step of decoding does so little that its time is the number of kernels. `GpuStep` needs five a layer, where the
plain step needs some thirty. It reads drafts into the same `Cache`, each shape of them as a CUDA graph once it has
come a few times. Nothing here asks the device for a value, so an engine can capture the step as a graph too.

    norm + qkv | turn, cache, attend | out | norm + up + activation | down      (of many rows, out and down by cuBLAS)

Importing this needs Triton.
Shape letters: B rows, H heads, D head width, d width, K inputs and N outputs of a product.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from reviser.decoding.drafts import DraftInputs
from reviser.decoding.gpu.graph import Graph
from reviser.decoding.gpu.products import ACTIVATIONS, activate, add_and_norm, product
from reviser.model.cache import Cache
from reviser.model.conditioning import CanvasInput
from reviser.model.layers import rotation
from reviser.model.pointer import Pointer
from reviser.model.transformer import Block, Transformer
from reviser.model.triton_kernels import LOG2E, NEVER, PLACES, packed_attention

GRAPHED_PLACES, GRAPHED_SHAPES = 1 << 15, 8
"""The largest drafts that are read as a graph, whose memory stays taken, and how many shapes of them are kept."""

FEW_ROWS = 4
"""Rows up to which products are a row at a time, with the norm in them; beyond, cuBLAS's are quicker."""


@triton.jit
def _head(base, weight, cos, sin, place, NORMED: tl.constexpr, TURNED: tl.constexpr, D: tl.constexpr):
    """A query or key [D] after its norm and turn, rounded as the model rounds it."""
    d = tl.arange(0, D)
    # Dims j and j + D/2 turn as a pair.
    other = d ^ (D // 2)
    raw = tl.load(base + d)
    value = raw.to(tl.float32)
    partner = tl.load(base + other).to(tl.float32)
    if NORMED:
        scale = tl.rsqrt(tl.sum(value * value, 0) / D + 1e-6)
        value = (value * scale * tl.load(weight + d).to(tl.float32)).to(raw.dtype).to(tl.float32)
        partner = (partner * scale * tl.load(weight + other).to(tl.float32)).to(raw.dtype).to(tl.float32)
    if TURNED:
        at = place * (D // 2) + (d % (D // 2))
        sine = tl.where(d < D // 2, -1.0, 1.0) * tl.load(sin + at)
        value = value * tl.load(cos + at) + partner * sine
    return value.to(raw.dtype)


@triton.jit
def _attend_cached(
    qkv, keys, values, lengths, counts, cos, sin, q_weight, k_weight, out, places, context, scale,
    NORMED: tl.constexpr, TURNED: tl.constexpr, H: tl.constexpr, D: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """One row's head: write its key and value to their slot, attend to the slots before and to itself."""
    row, head = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, D)
    base = qkv + row * (3 * H * D) + head * D
    length = tl.load(lengths + row)
    place = tl.minimum(length, context - 1)
    query = _head(base, q_weight, cos, sin, place, NORMED, TURNED, D).to(tl.float32) * (scale * LOG2E)
    key = _head(base + H * D, k_weight, cos, sin, place, NORMED, TURNED, D)
    value = tl.load(base + 2 * H * D + d)
    begin = (row * H + head).to(tl.int64) * places * D
    # Rows that stand still write to the last slot, which nobody reads.
    slot = tl.where(tl.load(counts + row) > 0, tl.minimum(length, places - 1), places - 1)
    tl.store(keys + begin + slot * D + d, key)
    tl.store(values + begin + slot * D + d, value)
    top = tl.sum(query * key.to(tl.float32), 0)
    total = 1.0
    mixed = value.to(tl.float32)
    for n in range(0, tl.minimum(length, places - 1), BN):
        slots = n + tl.arange(0, BN)
        is_in = slots < length
        at = begin + slots[:, None] * D + d[None, :]
        some = tl.load(keys + at, mask=is_in[:, None], other=0.0).to(tl.float32)
        scores = tl.where(is_in, tl.sum(some * query[None, :], 1), NEVER)
        higher = tl.maximum(top, tl.max(scores, 0))
        shares = tl.exp2(scores - higher)
        fade = tl.exp2(top - higher)
        total = total * fade + tl.sum(shares, 0)
        more = tl.load(values + at, mask=is_in[:, None], other=0.0).to(tl.float32)
        mixed = mixed * fade + tl.sum(more * shares[:, None], 0)
        top = higher
    tl.store(out + row * (H * D) + head * D + d, (mixed / total).to(out.dtype.element_ty))


@triton.jit
def _keep(turned, qkv, rows, keys, values, S, places, H: tl.constexpr, D: tl.constexpr, BH: tl.constexpr):
    """One place of a prompt: its keys and values to their slot, all heads at once."""
    place = tl.program_id(0).to(tl.int64)
    row, slot = tl.load(rows + place // S), place % S
    head, d = tl.arange(0, BH), tl.arange(0, D)
    is_in = (head[:, None] < H) & (d[None, :] < D)
    at = head[:, None] * D + d[None, :]
    key = tl.load(turned + place * (2 * H * D) + H * D + at, mask=is_in)
    value = tl.load(qkv + place * (3 * H * D) + 2 * H * D + at, mask=is_in)
    slots = ((row * H + head[:, None]) * places + slot) * D + d[None, :]
    tl.store(keys + slots, key, mask=is_in)
    tl.store(values + slots, value, mask=is_in)


@triton.jit
def _keep_pointer(fresh, ahead, pointers, lengths, counts, places, P, A: tl.constexpr, BP: tl.constexpr):
    """`Cache.point` for one row's step: its own key, and what it adds to those of the A steps before."""
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, BP)
    length = tl.load(lengths + row)
    is_real = (tl.load(counts + row) > 0) & (length < places - 1)
    slot = tl.where(is_real, length, places - 1)
    key = tl.load(fresh + row * P + cols, mask=cols < P)
    tl.store(pointers + (row * places + slot) * P + cols, key, mask=cols < P)
    for j in tl.static_range(1, A + 1):
        if is_real & (length >= j):
            earlier = pointers + (row * places + slot - j) * P + cols
            more = tl.load(ahead + (row * A + j - 1) * P + cols, mask=cols < P).to(tl.float32)
            total = tl.load(earlier, mask=cols < P).to(tl.float32) + more
            tl.store(earlier, total.to(pointers.dtype.element_ty), mask=cols < P)


class Reading:
    """The reading of drafts of one shape into one cache, on tensors that stay where they are."""

    def __init__(self, steps: GpuStep, shape: tuple[int, int], cache: Cache, pool: Any) -> None:
        (n, S), config, device = shape, steps.model.config, cache.lengths.device
        numbers = partial(torch.zeros, dtype=torch.int64, device=device)
        windows = numbers(n, S, 2 * config.canvas.window) if config.canvas.has_windows else None
        self.cache, self.rows = cache, numbers(n)
        self.drafts = DraftInputs(numbers(n, S), numbers(n), CanvasInput(windows))
        self.hidden = torch.zeros(n, config.width, dtype=cache.keys[0].dtype, device=device)
        self.run = Graph(lambda: self._read(steps), pool)

    def _read(self, steps: GpuStep) -> None:
        self.hidden.copy_(steps.read_plainly(self.drafts, self.rows, self.cache))

    def __call__(self, drafts: DraftInputs, rows: Tensor) -> Tensor:
        S = drafts.actions.shape[1]
        self.rows.copy_(rows)
        self.drafts.counts.copy_(drafts.counts)
        # What an earlier call left behind the end is read and never looked at.
        self.drafts.actions[:, :S].copy_(drafts.actions)
        if self.drafts.canvas.windows is not None and drafts.canvas.windows is not None:
            self.drafts.canvas.windows[:, :S].copy_(drafts.canvas.windows)
        self.run()
        return self.hidden


class GpuStep:
    """The steps of a model on a GPU, for a canvas in a window or none; other kinds take the model's own."""

    def __init__(self, model: Transformer, few_rows: int = FEW_ROWS) -> None:
        self.model, self.few_rows = model, few_rows
        places = torch.arange(model.config.context, device=model.embedding.weight.device)
        self._turn = tuple(each[:, 0].contiguous() for each in rotation(places, model.config))
        self._readings: dict[tuple[int, int, int], Reading] = {}
        self._pool: Any = torch.cuda.graph_pool_handle() if places.is_cuda else None

    @staticmethod
    def knows(model: Transformer) -> bool:
        D = model.config.head_width
        return model.config.canvas.kind in ("none", "window") and D >= 16 and D & (D - 1) == 0

    def logits(self, hidden: Tensor) -> Tensor:
        return self.model.logits(hidden)

    @torch.no_grad()
    def step(self, actions: Tensor, canvas: CanvasInput, cache: Cache, counts: Tensor | None = None) -> Tensor:
        """As `Transformer.step` for one action a row; `counts` [B] is 0 for rows that stand still."""
        if actions.shape[1] != 1:
            return self.model.step(actions, canvas, cache, counts)
        model = self.model
        counts = torch.ones_like(cache.lengths) if counts is None else counts
        x = model.embedding(model.rows_of(actions[:, 0]))
        if model.positions is not None:
            x = x + model.positions(cache.lengths.clamp(max=model.config.context - 1))
        if model.canvas is not None:
            x = x + model.canvas(canvas, model.embedding.weight).vectors[:, 0]
        branch: Tensor | None = None
        run = self._few if len(x) <= self.few_rows else self._many
        for layer, block in enumerate(model.blocks):
            x, branch = run(cast(Block, block), x, branch, cache, layer, counts)
        _, hidden = add_and_norm(model.norm, x, branch)
        if model.pointer is not None and cache.pointers is not None:
            self._point(model.pointer, hidden, cache.pointers, cache.lengths, counts)
        cache.lengths.add_(counts)
        return hidden[:, None]

    @torch.no_grad()
    def read(self, drafts: DraftInputs, rows: Tensor, cache: Cache) -> Tensor:
        """Put drafts [n, S] into rows [n] of the cache, whatever those held; [n, d] behind each draft's last entry.

        The result is good until the next call.
        """
        n, S = drafts.actions.shape
        S = min(-(-S // 16) * 16, cache.context)
        if not rows.is_cuda or n * S > GRAPHED_PLACES:
            return self.read_plainly(drafts, rows, cache)
        key = id(cache), n, S
        reading = self._readings.pop(key, None) or Reading(self, (n, S), cache, self._pool)
        self._readings[key] = reading
        if len(self._readings) > GRAPHED_SHAPES:
            del self._readings[next(iter(self._readings))]
        return reading(drafts, rows)

    @torch.no_grad()
    def read_plainly(self, drafts: DraftInputs, rows: Tensor, cache: Cache) -> Tensor:
        """`read` without a graph."""
        model, (n, S) = self.model, drafts.actions.shape
        x = model.embedding(model.rows_of(drafts.actions))
        positions = torch.arange(S, device=x.device).expand(n, S)
        if model.positions is not None:
            x = x + model.positions(positions)
        if model.canvas is not None:
            x = x + model.canvas(drafts.canvas, model.embedding.weight).vectors
        # The attention kernel wants whole tiles; what fills them up is an example of its own.
        N = -(-n * S // PLACES) * PLACES
        x = F.pad(x.flatten(0, 1), (0, 0, 0, N - n * S))
        firsts = F.pad((torch.arange(n * S, device=x.device) // S * S).int(), (0, N - n * S), value=n * S)
        turn = [F.pad(each[positions.flatten()], (0, 0, 0, N - n * S)) for each in self._turn]
        branch: Tensor | None = None
        for layer, block in enumerate(model.blocks):
            x, branch = self._read_layer(cast(Block, block), x, branch, turn, firsts, rows, (n, S), cache, layer)
        last = torch.arange(n, device=x.device) * S + drafts.counts - 1
        assert branch is not None
        if model.pointer is None or cache.pointers is None:
            _, hidden = add_and_norm(model.norm, x[last], branch[last])
        else:
            # A pointer's keys need what stands behind every position.
            _, every = add_and_norm(model.norm, x, branch)
            keys = model.pointer.keys(every[: n * S].unflatten(0, (n, S)), drafts.counts)
            cache.pointers[:, :S].index_copy_(0, rows, keys)
            hidden = every[last]
        cache.lengths.index_copy_(0, rows, drafts.counts)
        return hidden

    def _read_layer(
        self, block: Block, x: Tensor, branch: Tensor | None, turn: list[Tensor], firsts: Tensor, rows: Tensor,
        shape: tuple[int, int], cache: Cache, layer: int,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        config, (n, S), attention, mlp = self.model.config, shape, block.attention, block.mlp
        H, D = config.num_heads, config.head_width
        x, normed = add_and_norm(block.attention_norm, x, branch)
        qkv = attention.heads(normed)
        cos, sin = turn if self.model.positions is None else (turn[0][:0],) * 2
        mixed, _, turned = packed_attention(qkv, cos, sin, firsts, firsts, 0.0, firsts[:1])
        turned = turned if len(turned) else qkv[:, :2].contiguous()
        _keep[(n * S,)](
            turned, qkv, rows, cache.keys[layer], cache.values[layer], S, cache.context + 1,
            H=H, D=D, BH=triton.next_power_of_2(H), num_warps=4,
        )  # fmt: skip
        x, normed = add_and_norm(block.mlp_norm, x, attention.out(mixed.flatten(1)))
        units = activate(mlp.up.bias, F.linear(normed, mlp.up.weight), ACTIVATIONS[mlp.activation])
        return x, mlp.down(units)

    def _few(
        self, block: Block, x: Tensor, branch: Tensor | None, cache: Cache, layer: int, counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        activation, mlp = ACTIVATIONS[block.mlp.activation], block.mlp
        x, qkv = product(block.attention.qkv, x, branch, block.attention_norm)
        _, branch = product(block.attention.out, self._attend(block, qkv, cache, layer, counts))
        x, units = product(mlp.up, x, branch, block.mlp_norm, activation)
        if mlp.activation == "swiglu":
            units = activate(mlp.up.bias, units, activation)
        return x, product(mlp.down, units)[1]

    def _many(
        self, block: Block, x: Tensor, branch: Tensor | None, cache: Cache, layer: int, counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        activation, mlp = ACTIVATIONS[block.mlp.activation], block.mlp
        x, normed = add_and_norm(block.attention_norm, x, branch)
        branch = block.attention.out(self._attend(block, block.attention.qkv(normed), cache, layer, counts))
        x, normed = add_and_norm(block.mlp_norm, x, branch)
        return x, mlp.down(activate(mlp.up.bias, F.linear(normed, mlp.up.weight), activation))

    def _point(self, pointer: Pointer, hidden: Tensor, pointers: Tensor, lengths: Tensor, counts: Tensor) -> None:
        """Keep what a step gives to the pointer's keys."""
        is_few, (_, places, P) = len(hidden) <= self.few_rows, pointers.shape
        matrices = [pointer.key_matrix, *([] if pointer.ahead_matrix is None else [pointer.ahead_matrix])]
        parts = [product(matrix, hidden)[1] if is_few else matrix(hidden) for matrix in matrices]
        # Without states ahead the second address is of something that is never read.
        _keep_pointer[(len(hidden),)](
            parts[0], parts[-1], pointers, lengths, counts, places, P,
            A=self.model.config.pointer_ahead, BP=triton.next_power_of_2(P), num_warps=1,
        )  # fmt: skip

    def _attend(self, block: Block, qkv: Tensor, cache: Cache, layer: int, counts: Tensor) -> Tensor:
        config, attention, (cos, sin) = self.model.config, block.attention, self._turn
        B, H, D = len(qkv), config.num_heads, config.head_width
        norms: Any = (attention.q_norm, attention.k_norm)
        weights = [cos if norm is None else norm.weight for norm in norms]
        out = qkv.new_empty(B, H * D)
        # Few programs take many slots at once, many programs share the processors.
        slots, warps = (256, 4) if B * H <= 64 else (128, 4) if B * H <= 1024 else (64, 1)
        _attend_cached[(B, H)](
            qkv, cache.keys[layer], cache.values[layer], cache.lengths, counts, cos, sin, *weights, out,
            cache.context + 1, config.context, D**-0.5,
            NORMED=norms[0] is not None, TURNED=self.model.positions is None, H=H, D=D, BN=slots, num_warps=warps,
        )  # fmt: skip
        return out
