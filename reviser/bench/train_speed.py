"""How fast training is: a recipe's real steps, and a plain GPT loop of the same shape beside them.

The recipe's step is the one `reviser train` makes, on documents of random tokens: trajectories drawn in threads,
packed rows, masked loss, clipping, optimizer. The plain loop is what a good short script would be: LayerNorm,
GELU, causal SDPA, full logits, fused AdamW, torch.compile, data already on the device. A recipe that JUMPs is
measured beside the same one that spells its jumps in MOVEs, which has no pointer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reviser.bench.decode_speed import spell_moves
from reviser.config import ModelConfig
from reviser.data.shards import copy_stretches
from reviser.data.slots import Slots
from reviser.model.transformer import flops_per_position
from reviser.orders.policies import Mixture
from reviser.orders.registry import format_order, parse_order
from reviser.training.distributed import Team, join_team
from reviser.training.loop import Trainer
from reviser.training.progress import Progress, Speed, peak_flops, step_flops
from reviser.training.settings import RunConfig


class RandomDocuments:
    """Documents of random tokens, cut at will from one stretch of them."""

    def __init__(self, num_text: int, count: int = 20_000, length: int = 600) -> None:
        self.lengths: npt.NDArray[np.int64] = np.full(count, length, np.int64)
        self.tokens = np.random.default_rng(0).integers(1, num_text - 1, count + length, dtype=np.int32)

    def gather(
        self, documents: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int32]:
        out = np.empty(int(sizes.sum()), np.int32)
        copy_stretches(self.tokens, documents + starts, sizes, np.cumsum(sizes) - sizes, out)
        return out


def spell_orders(settings: RunConfig) -> RunConfig:
    """The same recipe with jumps spelled in MOVEs, and no pointer."""
    order = format_order(_spell(parse_order(settings.data.order)))
    return replace(settings, model=spell_moves(settings.model), data=replace(settings.data, order=order))


def _spell(order: Any) -> Any:
    if isinstance(order, Mixture):
        return Mixture(tuple((weight, _spell(part)) for weight, part in order.parts))
    return replace(order, by="moves") if hasattr(order, "by") else order


def measure_recipe(settings: RunConfig, steps: int, warmup: int, device: str) -> dict[str, Any]:
    """Actions a second, share of the peak, memory and waiting share of a recipe's steps."""
    team = join_team(device)
    num_text = settings.model.num_text
    slots = Slots(RandomDocuments(num_text), settings.data.jobs, np.zeros(num_text, np.uint8))
    trainer = Trainer(settings, slots, team)
    feed, progress, speeds = trainer.feed(), Progress(settings), []
    with progress:
        for number, work in enumerate(islice(feed, warmup + steps)):
            if number == warmup:
                began = _now(team)
            trainer.advance(work, progress)
            speeds.append(Speed.of(work, 1))
    elapsed = _now(team) - began
    feed.close()
    timed = speeds[warmup:]
    flops = sum(step_flops(settings.model, speed) for speed in timed)
    nominal = sum(
        flops_per_position(settings.model, speed.span_sum / speed.positions) * speed.positions for speed in timed
    )
    return {
        "actions_per_s": sum(speed.actions for speed in timed) / elapsed,
        "positions_per_s": sum(speed.positions for speed in timed) / elapsed,
        "label_share": sum(speed.labels for speed in timed) / sum(speed.positions for speed in timed),
        "fill": sum(speed.actions for speed in timed) / sum(speed.positions for speed in timed),
        "waiting_share": sum(speed.waited_s for speed in timed) / elapsed,
        **_shares(flops / elapsed, "flops_per_s"),
        **_shares(nominal / elapsed, "nominal_flops_per_s"),
        **_memory(team),
        "step_s": elapsed / steps,
    }


def _shares(rate: float, name: str) -> dict[str, float]:
    peak = peak_flops()
    share = {name.replace("flops_per_s", "peak_share"): rate / peak} if peak else {}
    return {name: rate, **share}


def _memory(team: Team) -> dict[str, float]:
    if team.device.type != "cuda":
        return {}
    return {"memory_gib": torch.cuda.max_memory_allocated(team.device) / 2**30}


def _now(team: Team) -> float:
    if team.device.type == "cuda":
        torch.cuda.synchronize(team.device)
    return time.perf_counter()


class PlainBlock(nn.Module):
    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(B, T, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(B, T, D))
        return x + cast(Tensor, self.down(F.gelu(self.up(self.norm2(x)))))


class PlainGpt(nn.Module):
    def __init__(self, config: ModelConfig, context: int) -> None:
        super().__init__()
        rows = -(-config.alphabet.size // 64) * 64
        self.table, self.places = nn.Embedding(rows, config.width), nn.Embedding(context, config.width)
        self.blocks = nn.ModuleList(PlainBlock(config.width, config.num_heads) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.width)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        x = self.table(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.table.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def measure_plain(
    config: ModelConfig, positions: int, context: int, steps: int, warmup: int, device: str
) -> dict[str, Any]:
    """Tokens a second and share of the peak of the plain loop at the same number of positions a step."""
    team = join_team(device)
    torch.manual_seed(0)
    model = PlainGpt(config, context).to(team.device)
    is_cuda = team.device.type == "cuda"
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=is_cuda)
    tokens = torch.randint(0, config.num_text, (positions // context, context), device=team.device)
    run: Callable[..., Tensor] = torch.compile(model) if is_cuda else model
    for number in range(warmup + steps):
        if number == warmup:
            began = _now(team)
        with torch.autocast(team.device.type, torch.bfloat16, enabled=is_cuda):
            loss = run(tokens, tokens)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    elapsed = _now(team) - began
    rate = flops_per_position(config, context) * tokens.numel() * steps / elapsed
    return {
        "positions_per_s": tokens.numel() * steps / elapsed,
        **_shares(rate, "flops_per_s"),
        **_memory(team),
        "step_s": elapsed / steps,
    }


def profile_recipe(settings: RunConfig, device: str, rows: int = 25) -> str:
    """Where a step's time goes, kernel by kernel."""
    team = join_team(device)
    num_text = settings.model.num_text
    slots = Slots(RandomDocuments(num_text), settings.data.jobs, np.zeros(num_text, np.uint8))
    trainer = Trainer(settings, slots, team)
    feed, progress = trainer.feed(), Progress(settings)
    with progress:
        steps = iter(feed)
        for work in islice(steps, 4):
            trainer.advance(work, progress)
        with torch.profiler.profile() as profiler:
            trainer.advance(next(steps), progress)
            _now(team)
    feed.close()
    order = "self_cuda_time_total" if team.device.type == "cuda" else "self_cpu_time_total"
    return str(profiler.key_averages().table(sort_by=order, row_limit=rows, max_name_column_width=70))
