"""Optimizers and learning-rate schedules: AdamW as in the paper, Muon for the matrices as an option."""

from __future__ import annotations

import math

import torch
from torch import nn

from reviser.errors import ConfigError
from reviser.training.settings import OptimizerConfig


def build_optimizers(model: nn.Module, config: OptimizerConfig) -> list[torch.optim.Optimizer]:
    """One AdamW, or Muon for the blocks' matrices with AdamW for everything else."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if config.name == "adamw":
        return [_adamw(named, config)]
    if not hasattr(torch.optim, "Muon"):
        raise ConfigError(f"optimizer.name=muon needs torch 2.9 or later, this is {torch.__version__}; use adamw")
    matrices = [p for name, p in named if _is_matrix(name, p)]
    others = [(name, p) for name, p in named if not _is_matrix(name, p)]
    muon = torch.optim.Muon(
        matrices, lr=config.muon_lr, weight_decay=config.weight_decay, momentum=0.95, nesterov=True,
        adjust_lr_fn="match_rms_adamw",
    )  # fmt: skip
    return [muon, _adamw(others, config)]


def _is_matrix(name: str, parameter: torch.Tensor) -> bool:
    return parameter.ndim == 2 and ".blocks." in f".{name}"


def _adamw(named: list[tuple[str, nn.Parameter]], config: OptimizerConfig) -> torch.optim.AdamW:
    """Decay on matrices and tables, none on norms and biases, as the author's code has it."""
    decayed = [p for _, p in named if p.ndim >= 2]
    plain = [p for _, p in named if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    is_cuda = any(p.device.type == "cuda" for _, p in named)
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps, fused=is_cuda,
    )  # fmt: skip


def lr_factor(step: int, steps: int, config: OptimizerConfig) -> float:
    """The learning rate of a step (from 0) over its peak."""
    if step < config.warmup:
        return (step + 1) / config.warmup
    if config.schedule == "constant":
        return 1.0
    low = config.min_lr / config.lr
    along = min((step - config.warmup) / max(steps - config.warmup, 1), 1.0)
    fallen = (1 + math.cos(math.pi * along)) / 2 if config.schedule == "cosine" else 1 - along
    return low + (1 - low) * fallen


def set_lr(optimizers: list[torch.optim.Optimizer], factor: float, config: OptimizerConfig) -> None:
    for optimizer in optimizers:
        peak = config.lr if isinstance(optimizer, torch.optim.AdamW) else config.muon_lr
        for group in optimizer.param_groups:
            group["lr"] = peak * factor
