"""How fast decoding is: the engine, a bare left-to-right step of the same trunk, and `transformers` beside them.

All of it in one run, on random weights, so only ratios mean something: prompts of 35 tokens, 128 actions or tokens,
temperature 0.9 and top-k 50. The bare loop has the same trunk, cache and kind of step and no canvas, window or mask.
A model that JUMPs is measured beside the same one with MOVEs instead, which has no pointer.
On a CPU every kind of step is measured: torch's, the numba kernels' in float32, and theirs in int8, for which the
engine is the one without torch; on a GPU that of the Triton kernels, as a CUDA graph in both loops.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from reviser.canvas import Rules
from reviser.config import CanvasConfig, ModelConfig
from reviser.decoding.backends import Reads, steps_for
from reviser.decoding.cpu.array_engine import ArrayEngine
from reviser.decoding.cpu.kernel_model import KernelCache
from reviser.decoding.cpu.step import CpuStep, Steps, has_cpu_kernels
from reviser.decoding.drafts import DraftInputs
from reviser.decoding.engine import Engine, Request
from reviser.decoding.gpu.graph import Graph
from reviser.decoding.sampling import Sampling
from reviser.errors import MissingPackageError
from reviser.model.cache import Cache
from reviser.model.conditioning import CanvasInput
from reviser.model.transformer import Transformer, num_multiplied
from reviser.orders.record import Draft

PROMPT, NEW = 35, 128
CPU_KINDS = ("torch", "numba float32", "numba int8")
# STOP would end some rows early; this keeps every row busy to the last action.
NEVER_STOP = Sampling(temperature=0.9, top_k=50, stop_bias=-1e4)


def measure(
    config: ModelConfig,
    batches: list[int],
    device: str,
    dtype: torch.dtype,
    has_hf: bool,
    has_static: bool = False,
    new: int = NEW,
) -> dict[str, Any]:
    """Steps a second of each decoder for each batch size and kind of step, and the ratios between them.

    `has_static` adds `transformers` with a compiled static cache at a batch of 1.
    """
    torch.manual_seed(0)
    config = replace(config, context=max(config.context, PROMPT + new + 1))
    blind = Transformer(replace(spell_moves(config), canvas=CanvasConfig())).to(device, dtype).eval()
    seeing = Transformer(config).to(device, dtype).eval()
    moving = Transformer(spell_moves(config)).to(device, dtype).eval() if config.has_jumps else None
    gpt2 = _make_gpt2(config, device, dtype) if has_hf or has_static else None
    kinds = CPU_KINDS if has_cpu_kernels(seeing) else ("quickest",)
    bandwidth = _measure_bandwidth(device)
    result: dict[str, Any] = {
        "batches": [
            _measure_steps(blind, seeing, moving, gpt2 if has_hf else None, batch, kind, new, bandwidth)
            for batch in batches
            for kind in kinds
        ],
        "prompt": PROMPT,
        "new": new,
        "dtype": str(dtype).removeprefix("torch."),
        "bandwidth_bytes_per_s": bandwidth,
    }
    if has_static:
        tokens = torch.randint(0, config.num_text - 1, (1, PROMPT), device=device)
        spent = _time(device, {"static": lambda count: _run_hf(gpt2, tokens, count, is_static=True)}, new)
        result["transformers_static_tokens_per_s"] = new / spent["static"]
    return result


def profile_decoding(config: ModelConfig, batch: int, device: str, dtype: torch.dtype, rows: int = 25) -> str:
    """Where the time of 32 actions goes, kernel by kernel."""
    torch.manual_seed(0)
    model = Transformer(replace(config, context=max(config.context, PROMPT + NEW + 1))).to(device, dtype).eval()
    engine = Engine(model, NEVER_STOP, batch)
    tokens = torch.randint(0, config.num_text - 1, (batch, PROMPT), device=device)
    _run_ours(engine, tokens, 4)
    with torch.profiler.profile() as profiler:
        _run_ours(engine, tokens, 32)
        _now(device)
    order = "self_cuda_time_total" if device.startswith("cuda") else "self_cpu_time_total"
    return str(profiler.key_averages().table(sort_by=order, row_limit=rows, max_name_column_width=70))


def spell_moves(config: ModelConfig) -> ModelConfig:
    """The same model with MOVEs where it has JUMPs."""
    return replace(config, operators=tuple("move" if name == "jump" else name for name in config.operators))


def _measure_steps(
    blind: Transformer,
    seeing: Transformer,
    moving: Transformer | None,
    gpt2: Any,
    batch: int,
    kind: str,
    new: int,
    bandwidth: float,
) -> dict[str, Any]:
    device = seeing.embedding.weight.device
    tokens = torch.randint(0, seeing.config.num_text - 1, (batch, PROMPT), device=device)
    engine = _make_engine(seeing, kind, batch)
    bare = Bare(blind, _make_steps(blind, kind), batch)
    runs: dict[str, Callable[[int], None]] = {
        "ours": lambda count: _run_ours(engine, tokens, count),
        "ours_short": lambda count: _run_ours(engine, tokens, 1),
        "bare": lambda count: bare.run(tokens, count),
        "bare_short": lambda count: bare.run(tokens, 1),
    }
    if moving is not None:
        beside = _make_engine(moving, kind, batch)
        runs["moving"] = lambda count: _run_ours(beside, tokens, count)
        runs["moving_short"] = lambda count: _run_ours(beside, tokens, 1)
    if gpt2 is not None:
        runs["hf"] = lambda count: _run_hf(gpt2, tokens, count)
    spent = _time(str(device), runs, new)
    names = [name for name in ("ours", "bare", "moving") if name in runs]
    steps = {name: (spent[name] - spent[f"{name}_short"]) / (new - 1) for name in names}
    read = _bytes_read(seeing, engine.cache, kind, batch, PROMPT + new // 2)
    row: dict[str, Any] = {
        "batch": batch,
        "step": kind,
        "ours_actions_per_s": batch * new / spent["ours"],
        "bare_actions_per_s": batch * new / spent["bare"],
        "ours_over_bare_time": spent["ours"] / spent["bare"],
        "ours_step_ms": steps["ours"] * 1e3,
        "bare_step_ms": steps["bare"] * 1e3,
        "ours_over_bare_step": steps["ours"] / steps["bare"],
        "prefill_in_steps": (spent["ours_short"] - steps["ours"]) / steps["ours"],
        "bare_prefill_in_steps": (spent["bare_short"] - steps["bare"]) / steps["bare"],
        "bytes_read_per_step": read,
        "bandwidth_share": read / steps["ours"] / bandwidth,
        "flops_per_s": 2 * num_multiplied(seeing.config) * batch / steps["ours"],
        "memory_per_sequence_mib": _row_bytes(engine.cache) / 2**20,
    }
    if moving is not None:
        row |= {"moving_step_ms": steps["moving"] * 1e3, "ours_over_moving_step": steps["ours"] / steps["moving"]}
    if gpt2 is not None:
        hf = spent["hf"]
        row |= {"transformers_tokens_per_s": batch * new / hf, "ours_over_transformers": hf / spent["ours"]}
    return row


def _make_engine(model: Transformer, kind: str, batch: int) -> Engine | ArrayEngine:
    steps = _make_steps(model, kind)
    if kind == "numba int8" and isinstance(steps, CpuStep):
        return ArrayEngine(steps.kernels, NEVER_STOP, batch)
    return Engine(model, NEVER_STOP, batch, steps)


def _make_steps(model: Transformer, kind: str) -> Steps:
    if kind == "quickest":
        return steps_for(model)
    return model if kind == "torch" else CpuStep(model, "int8" if kind == "numba int8" else "float32")


def _row_bytes(cache: Cache | KernelCache) -> int:
    """What one row of a cache takes."""
    pointers = () if cache.pointers is None else (cache.pointers,)
    return sum(tensor[:1].nbytes for tensor in (*cache.keys, *cache.values, *pointers))


def _bytes_read(model: Transformer, cache: Cache | KernelCache, kind: str, batch: int, length: int) -> float:
    """Weights, and the keys and values of `length` steps in every row: what a step cannot do without."""
    size = 1 if kind == "numba int8" else model.embedding.weight.element_size()
    return num_multiplied(model.config) * size + batch * _row_bytes(cache) * length / (cache.context + 1)


def _measure_bandwidth(device: str) -> float:
    """Bytes a second that a plain sum over much memory reads."""
    numbers = torch.ones(1 << 28, device=device)
    best = torch.inf
    for _ in range(3):
        began = _now(device)
        numbers.sum()
        best = min(best, _now(device) - began)
    return numbers.nbytes / best


def _time(device: str, runs: dict[str, Callable[[int], None]], new: int) -> dict[str, float]:
    """The median of three runs each, in turn, so that a busy moment meets all of them; a short one first."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run(4)
    for _ in range(3):
        for name, run in runs.items():
            began = _now(device)
            run(new)
            times[name].append(_now(device) - began)
    return {name: sorted(each)[1] for name, each in times.items()}


def _now(device: str) -> float:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter()


def _run_ours(engine: Engine | ArrayEngine, tokens: Tensor, count: int) -> None:
    config = engine.model.config
    rules = Rules(config.alphabet, frozenset(config.operators), max_length=config.max_length)
    engine.write(
        [Request(Draft.continuation(row, rules), count, number) for number, row in enumerate(tokens.tolist())]
    )


class Bare:
    """Left-to-right decoding of the same trunk: cached steps, top-k, draw; nothing else."""

    def __init__(self, model: Transformer, steps: Steps, num_rows: int) -> None:
        weight = model.embedding.weight
        self.model, self.steps = model, steps
        self.cache = Cache.empty(model.config, num_rows, weight.device, weight.dtype)
        self.hidden = torch.zeros(num_rows, model.config.width, device=weight.device, dtype=weight.dtype)
        self.advance: Callable[[], None] = Graph(self._step) if weight.is_cuda else self._step

    @torch.no_grad()
    def run(self, tokens: Tensor, count: int) -> None:
        start = torch.full((len(tokens), 1), self.model.config.alphabet.start, device=tokens.device)
        self._read(torch.cat([start, tokens], dim=1))
        for _ in range(count - 1):
            self.advance()
        self.steps.logits(self.hidden).float().topk(50)

    def _read(self, actions: Tensor) -> None:
        if isinstance(self.steps, Reads):
            rows = torch.arange(len(actions), device=actions.device)
            counts = torch.full_like(rows, actions.shape[1])
            self.hidden.copy_(self.steps.read(DraftInputs(actions, counts, CanvasInput()), rows, self.cache))
        else:
            self.cache.reset()
            self.hidden.copy_(self.model.step(actions, CanvasInput(), self.cache)[:, -1])

    def _step(self) -> None:
        values, ids = self.steps.logits(self.hidden).float().topk(50)
        chosen = torch.multinomial((values / 0.9).softmax(dim=-1), 1)
        self.hidden.copy_(self.steps.step(ids.gather(1, chosen), CanvasInput(), self.cache)[:, 0])


def _make_gpt2(config: ModelConfig, device: str, dtype: torch.dtype) -> Any:
    try:
        import transformers
    except ImportError:
        raise MissingPackageError("transformers", "the comparison", "pip install 'reviser[eval]'") from None
    shape = transformers.GPT2Config(
        vocab_size=config.alphabet.size, n_positions=config.context, n_embd=config.width, n_layer=config.num_layers,
        n_head=config.num_heads, n_inner=config.ff_width, bos_token_id=config.pad, eos_token_id=None,
    )  # fmt: skip
    make: Any = transformers.GPT2LMHeadModel
    return make(shape).to(device, dtype).eval()


@torch.no_grad()
def _run_hf(model: Any, tokens: Tensor, count: int, is_static: bool = False) -> None:
    more = {"cache_implementation": "static"} if is_static else {}
    model.generate(
        tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=count, min_new_tokens=count, do_sample=True,
        temperature=0.9, top_k=50, pad_token_id=0, **more,
    )  # fmt: skip
