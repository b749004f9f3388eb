"""How files hold weights: a model's tensors in float32 in, smaller ones out, and back into a model.

    float32   as they are
    bf16      matrices in bfloat16
    int8      matrices in a byte a weight, NAME [rows, columns], and a scale for each row, NAME.scale [rows] bfloat16

Matrices are what is multiplied with or looked up. Norms, biases and gates are few and stay float32.

>>> whole, scales = round_rows(torch.tensor([[0.5, -2.54], [0.0, 0.0]]))
>>> whole.tolist(), [round(scale, 4) for scale in scales.tolist()]
([[25, -127], [0, 0]], [0.02, 0.0])
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set

import torch
from torch import Tensor, nn

from reviser.errors import CheckpointError
from reviser.model.folder import SCALE, Weights

LARGEST = 127


def matrices(model: nn.Module) -> frozenset[str]:
    """The names of a model's matrices."""
    kinds = (nn.Linear, nn.Embedding)
    return frozenset(f"{name}.weight" for name, module in model.named_modules() if isinstance(module, kinds))


def round_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix as int8 and the scale of each row: scale * int8 is the weight, to half a scale.

    The largest of a row is 127. A scale has no more digits than bfloat16, so scale * int8 is exact in float32, and
    rounding that again gives the same int8 and the same scales.
    """
    weight = weight.float()
    largest = torch.maximum(weight.amax(dim=1), -weight.amin(dim=1))
    scales = (largest / LARGEST).to(torch.bfloat16).float()
    # Below this, bfloat16 has fewer digits.
    scales.masked_fill_(scales < torch.finfo(torch.bfloat16).tiny, 0)
    whole = weight / scales.masked_fill(scales == 0, math.inf)[:, None]
    return whole.round_().to(torch.int8), scales


class Rounded:
    """What a matrix was filled from, kept beside it, so that nobody rounds it again while it stays as it is."""

    def __init__(self, weight: Tensor, whole: Tensor, scales: Tensor) -> None:
        self.whole, self.scales = whole, scales.float()
        self._state = weight.data_ptr(), weight._version

    def is_of(self, weight: Tensor) -> bool:
        """Whether the matrix is still where it was, with nothing written into it."""
        return self._state == (weight.data_ptr(), weight._version)


def keep_rounded(weight: Tensor, whole: Tensor, scales: Tensor) -> None:
    """Remember how a matrix is held in int8; it must have just been filled from that."""
    # A file may hold -128, which rounding never gives; tensors of inference mode do not count who writes to them.
    if not weight.is_inference() and whole.numel() and whole.amin() >= -LARGEST:
        weight.rounded = Rounded(weight, whole, scales)  # type: ignore[attr-defined]


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """`round_rows`, or what it would give where that is remembered."""
    kept = getattr(weight, "rounded", None)
    return (kept.whole, kept.scales) if kept is not None and kept.is_of(weight) else round_rows(weight.detach())


def pack(tensors: Mapping[str, Tensor], chosen: Set[str], weights: Weights) -> dict[str, Tensor]:
    """Tensors as a file holds them; `chosen` names the matrices."""
    packed = {name: tensor.to("cpu", torch.float32).contiguous() for name, tensor in tensors.items()}
    for name in sorted(chosen) if weights != "float32" else ():
        if weights == "bf16":
            packed[name] = packed[name].to(torch.bfloat16)
            continue
        if not packed[name].isfinite().all():
            raise CheckpointError(f"tensor {name} holds NaN or infinity, which int8 cannot represent")
        packed[name], scales = round_rows(packed[name])
        packed[name + SCALE] = scales.to(torch.bfloat16)
    return packed


def check_packed(tensors: Mapping[str, Tensor], chosen: Set[str], weights: Weights, source: str) -> None:
    """Refuse a file that does not hold its matrices as `weights` says."""
    for name in sorted(chosen & tensors.keys()):
        if (tensors[name].dtype == torch.int8) != (weights == "int8"):
            raise CheckpointError(f"{source}: tensor {name} is {_type(tensors[name])}, the config says {weights}")


def split_scales(tensors: Mapping[str, Tensor], source: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A file's tensors without scales, and the scales by the names of their matrices."""
    scales = {}
    for name, tensor in tensors.items():
        if tensor.dtype == torch.int8:
            scales[name] = _scales(name, tensors, source)
        elif not tensor.is_floating_point():
            raise CheckpointError(f"{source}: tensor {name} is {_type(tensor)}, which no model uses")
    names = tensors.keys() - {name + SCALE for name in scales}
    return {name: tensors[name] for name in names}, scales


def _scales(name: str, tensors: Mapping[str, Tensor], source: str) -> Tensor:
    scales, wanted = tensors.get(name + SCALE), tuple(tensors[name].shape[:1])
    if tensors[name].ndim != 2:
        raise CheckpointError(f"{source}: tensor {name} is int8, which only matrices may be")
    if scales is None:
        raise CheckpointError(f"{source}: tensor {name} is int8, but {name}{SCALE} is missing")
    if not scales.is_floating_point() or tuple(scales.shape) != wanted:
        found = f"{_type(scales)} of the shape {tuple(scales.shape)}"
        raise CheckpointError(f"{source}: tensor {name}{SCALE} is {found}, but its matrix needs bfloat16 of {wanted}")
    return scales


def fill(place: Tensor, given: Tensor, scales: Tensor | None) -> None:
    """Write a file's tensor where a model has it, in the model's dtype."""
    if scales is None:
        place.copy_(given)
    else:
        torch.mul(given.to(place.device), scales.to(place.device, torch.float32)[:, None], out=place)


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
