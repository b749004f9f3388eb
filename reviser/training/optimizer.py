"""Optimizers and learning-rate schedules: AdamW as in the paper, Muon for the matrices as an option."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from reviser.errors import ConfigError
from reviser.training.settings import OptimizerConfig

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of Muon's polynomial, torch's own."""


def build_optimizers(model: nn.Module, config: OptimizerConfig) -> list[torch.optim.Optimizer]:
    """One AdamW, or Muon for the blocks' matrices with AdamW for everything else."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if config.name == "adamw":
        return [_adamw(named, config)]
    matrices = [p for name, p in named if _is_matrix(name, p)]
    others = [(name, p) for name, p in named if not _is_matrix(name, p)]
    if all(p.device.type == "cpu" for p in matrices):
        return [CpuMuon(matrices, config.muon_lr, config.weight_decay), _adamw(others, config)]
    if not hasattr(torch.optim, "Muon"):
        raise ConfigError(
            f"optimizer.name=muon needs torch 2.9 or later on a GPU, this is {torch.__version__}; use adamw"
        )
    muon = torch.optim.Muon(
        matrices, lr=config.muon_lr, weight_decay=config.weight_decay, momentum=0.95, nesterov=True,
        adjust_lr_fn="match_rms_adamw",
    )  # fmt: skip
    return [muon, _adamw(others, config)]


class CpuMuon(torch.optim.Optimizer):
    """torch's Muon with its products in float32.

    torch has them in bf16, which takes more than a hundred times as long on a CPU without it. State and settings have
    torch's names, so a run that was begun on one device can be resumed on the other.
    """

    def __init__(self, matrices: Iterable[Tensor], lr: float, weight_decay: float) -> None:
        settings = {
            "lr": lr, "weight_decay": weight_decay, "momentum": 0.95, "nesterov": True,
            "ns_coefficients": NEWTON_SCHULZ, "ns_steps": 5, "eps": 1e-7, "adjust_lr_fn": "match_rms_adamw",
        }  # fmt: skip
        super().__init__(matrices, settings)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One step; nothing here has a closure."""
        for group in self.param_groups:
            lr, momentum = group["lr"], group["momentum"]
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                state = self.state[matrix]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(matrix.grad)
                mean = state["momentum_buffer"].lerp_(matrix.grad, 1 - momentum)
                update = orthogonalize(matrix.grad.lerp(mean, momentum), group["ns_steps"], group["eps"])
                matrix.mul_(1 - lr * group["weight_decay"])
                matrix.add_(update, alpha=-lr * 0.2 * math.sqrt(max(matrix.shape)))


def orthogonalize(matrix: Tensor, steps: int = 5, eps: float = 1e-7) -> Tensor:
    """About the nearest matrix with orthogonal rows or columns: `steps` times a polynomial that moves every singular
    value towards 1."""
    a, b, c = NEWTON_SCHULZ
    is_tall = matrix.shape[0] > matrix.shape[1]
    found: Tensor = (matrix.T if is_tall else matrix).float()
    found = found / found.norm().clamp(min=eps)
    for _ in range(steps):
        square = found @ found.T
        found = a * found + (b * square + c * square @ square) @ found
    whole: Tensor = found.T if is_tall else found
    return whole.to(matrix.dtype)


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
