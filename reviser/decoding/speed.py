"""How fast decoding is: the engine, a bare left-to-right step of the same trunk, and `transformers` beside them.

All of it in one run, on random weights, so only ratios mean something: prompts of 35 tokens, 128 actions or tokens,
temperature 0.9 and top-k 50. The bare loop has the same trunk and cache and no canvas, window or mask.
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
from reviser.decoding.engine import Engine, Request
from reviser.decoding.sampling import Sampling
from reviser.errors import MissingPackageError
from reviser.model.cache import Cache
from reviser.model.conditioning import CanvasInput
from reviser.model.transformer import Transformer
from reviser.trajectory.record import Seed

PROMPT, NEW = 35, 128
# STOP would end some rows early; this keeps every row busy to the last action.
NEVER_STOP = Sampling(temperature=0.9, top_k=50, stop_bias=-1e4)


def measure(config: ModelConfig, batches: list[int], device: str, dtype: torch.dtype, has_hf: bool) -> dict[str, Any]:
    """Steps a second of each decoder for each batch size, and the ratios between them."""
    torch.manual_seed(0)
    config = replace(config, context=max(config.context, PROMPT + NEW + 1))
    blind = Transformer(replace(config, canvas=CanvasConfig())).to(device, dtype).eval()
    seeing = Transformer(config).to(device, dtype).eval()
    rows = [_measure_batch(blind, seeing, batch, device, has_hf) for batch in batches]
    return {"batches": rows, "prompt": PROMPT, "new": NEW, "dtype": str(dtype).removeprefix("torch.")}


def _measure_batch(blind: Transformer, seeing: Transformer, batch: int, device: str, has_hf: bool) -> dict[str, Any]:
    tokens = torch.randint(0, seeing.config.num_text - 1, (batch, PROMPT), device=device)
    _run_ours(seeing, tokens[:, :4], 4)
    ours = _time(device, lambda: _run_ours(seeing, tokens, NEW))
    _run_bare(blind, tokens, 4)
    bare = _time(device, lambda: _run_bare(blind, tokens, NEW))
    short = _time(device, lambda: _run_bare(blind, tokens, 1))
    step_s = (bare - short) / (NEW - 1)
    row: dict[str, Any] = {
        "batch": batch,
        "ours_actions_per_s": batch * NEW / ours,
        "bare_actions_per_s": batch * NEW / bare,
        "ours_over_bare_time": ours / bare,
        "bare_prefill_in_steps": (short - step_s) / step_s,
    }
    if has_hf:
        model = _make_gpt2(seeing.config, device, seeing.embedding.weight.dtype)
        _run_hf(model, tokens, 4)
        spent = _time(device, lambda: _run_hf(model, tokens, NEW))
        row |= {"transformers_tokens_per_s": batch * NEW / spent, "ours_over_transformers": spent / ours}
    return row


def _time(device: str, run: Callable[[], None]) -> float:
    """The median of three runs."""
    times = []
    for _ in range(3):
        began = _now(device)
        run()
        times.append(_now(device) - began)
    return sorted(times)[1]


def _now(device: str) -> float:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter()


def _run_ours(model: Transformer, tokens: Tensor, count: int) -> None:
    config = model.config
    rules = Rules(config.alphabet, frozenset(config.operators), max_length=config.max_length)
    requests = [Request(Seed.continuation(row, rules), count, number) for number, row in enumerate(tokens.tolist())]
    Engine(model, NEVER_STOP, len(requests)).write(requests)


@torch.no_grad()
def _run_bare(model: Transformer, tokens: Tensor, count: int) -> None:
    """Left-to-right decoding of the same trunk: cached steps, top-k, draw; nothing else."""
    config = model.config
    cache = Cache.empty(config, len(tokens), tokens.device, model.embedding.weight.dtype)
    start = torch.full((len(tokens), 1), config.alphabet.start, device=tokens.device)
    hidden = model.step(torch.cat([start, tokens], dim=1), CanvasInput(), cache)[:, -1]
    for _ in range(count - 1):
        values, ids = model.logits(hidden).float().topk(50)
        chosen = torch.multinomial((values / 0.9).softmax(dim=-1), 1)
        hidden = model.step(ids.gather(1, chosen), CanvasInput(), cache)[:, -1]
    model.logits(hidden).float().topk(50)


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
def _run_hf(model: Any, tokens: Tensor, count: int) -> None:
    model.generate(
        tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=count, min_new_tokens=count, do_sample=True,
        temperature=0.9, top_k=50, pad_token_id=0,
    )  # fmt: skip
