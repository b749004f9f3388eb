"""Several processes: DDP and FSDP2 from PyTorch, and full tensors gathered from their shards and put back.

Started with torchrun, each process takes its share of every step's rows; alone, nothing here does anything.
Checkpoints hold full tensors, so a run continues on any number of processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from reviser.errors import CheckpointError, ConfigError, ReviserError
from reviser.training.objective import Learner


@dataclass(frozen=True)
class Team:
    """The processes of a run."""

    rank: int
    world: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def sum(self, value: float) -> float:
        """The sum of a number over all processes."""
        return float(self.sum_each(np.array(value)))

    def sum_each(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Each number summed over all processes; from host to host, so that none waits for its device."""
        if self.world == 1:
            return values
        tensor = torch.from_numpy(values.astype(np.float64))
        dist.all_reduce(tensor)
        return tensor.numpy()

    def any(self, flag: bool) -> bool:
        return self.sum(float(flag)) > 0

    def share(self, value: str) -> str:
        """What the first process gives, for all of them."""
        box = [value]
        if self.world > 1:
            dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        return box[0]

    def lead(self, work: Callable[[], str]) -> str:
        """What the first process makes of `work`, for all of them; where it fails, all fail with its error."""
        made, problem = "", None
        if self.is_first:
            try:
                made = work()
            except ReviserError as error:
                problem = error
        text = self.share(f"error:{problem}" if problem else f"made:{made}")
        if problem is not None:
            raise problem
        kind, _, rest = text.partition(":")
        if kind == "error":
            raise ReviserError(rest)
        return rest

    def wait(self) -> None:
        if self.world > 1:
            dist.barrier()


def join_team(device: str = "auto") -> Team:
    """This process's place among those torchrun started; alone without torchrun."""
    world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    kind = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    try:
        chosen = torch.device(kind)
    except RuntimeError:
        chosen = torch.device("meta")
    if chosen.type not in ("cpu", "cuda"):
        raise ConfigError(f"no device {device!r} to train on; write cpu, cuda or cuda:1")
    if chosen.type == "cuda":
        if not torch.cuda.is_available():
            raise ConfigError(f"device {device} was asked for, but no GPU is usable here; use --device cpu")
        index = int(os.environ.get("LOCAL_RANK", 0)) if world > 1 else (chosen.index or 0)
        chosen = torch.device("cuda", index)
        torch.cuda.set_device(chosen)
    if world > 1 and not dist.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if chosen.type == "cuda" else "gloo"
        dist.init_process_group(backend, rank=rank, world_size=world)
    return Team(rank, world, chosen)


LEFT: list[Any] = []
"""Process groups that were left. A DDP module that held the last reference would free its group while it keeps the
GIL, and wait for a thread of the group that may wait for the GIL."""


def leave_team() -> None:
    if dist.is_initialized():
        LEFT.append(dist.group.WORLD)
        dist.destroy_process_group()


def spread(objective: Learner, team: Team, parallel: Literal["ddp", "fsdp"]) -> nn.Module:
    """The module whose forward pass the loop calls."""
    if team.world == 1:
        return objective
    if parallel == "ddp":
        devices = [team.device.index] if team.device.type == "cuda" else None
        return DistributedDataParallel(objective, device_ids=devices)
    if any(parameter.ndim == 0 for parameter in objective.parameters()):
        raise ConfigError("train.parallel=fsdp cannot share model.canvas.gate=scalar; use ddp or another gate")
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh(team.device.type, (team.world,))
    for block in objective.model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(objective, mesh=mesh)
    return objective


def syncing(module: nn.Module, is_last: bool) -> AbstractContextManager[None]:
    """Inside, gradients are added up; only in a step's last part do the processes exchange them."""
    if isinstance(module, DistributedDataParallel) and not is_last:
        return cast(AbstractContextManager[None], module.no_sync())
    if isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(is_last)
    return nullcontext()


def full_tensor(tensor: Tensor) -> Tensor:
    """A tensor with all its shards; every process must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


Optimizers = list[torch.optim.Optimizer]


def gather_weights(model: nn.Module) -> dict[str, Any]:
    """The full tensors of a model by name, on every process."""
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))


def set_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Full tensors into a model that may be sharded; what is not among them stays as it is."""
    set_model_state_dict(model, dict(weights), options=StateDictOptions(full_state_dict=True, strict=False))


def gather_optimizers(model: nn.Module, optimizers: Optimizers) -> dict[str, Tensor]:
    """The full state of all optimizers as `parameter/key`, on the CPU of the first process; {} on the others."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    found: Any = get_optimizer_state_dict(model, optimizers, options=options)
    return {
        f"{name}/{key}": torch.as_tensor(value)
        for name, state in found.get("state", {}).items()
        for key, value in state.items()
    }


def set_optimizers(model: nn.Module, optimizers: Optimizers, tensors: Mapping[str, Tensor]) -> None:
    """What `gather_optimizers` gave into optimizers whose state may be sharded; their settings stay."""
    state: dict[str, dict[str, Tensor]] = {}
    for path, tensor in tensors.items():
        name, _, key = path.rpartition("/")
        state.setdefault(name, {})[key] = tensor
    parameters = dict(model.named_parameters())
    owners = {id(p): each for each in optimizers for group in each.param_groups for p in group["params"]}
    for name, entries in state.items():
        if name not in parameters:
            raise CheckpointError(f"the optimizer's state names {name}, which this model does not have")
        if ("exp_avg" in entries) != isinstance(owners[id(parameters[name])], torch.optim.AdamW):
            made_with = "adamw" if all("exp_avg" in each for each in state.values()) else "muon"
            raise CheckpointError(f"the checkpoint was made with optimizer.name={made_with}; resume with that one")
    found: Any = {"state": state, "param_groups": []}
    set_optimizer_state_dict(
        model, optimizers, found, options=StateDictOptions(full_state_dict=True, strict=False)
    )  # fmt: skip
