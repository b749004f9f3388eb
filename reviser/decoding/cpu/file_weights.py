"""An int8 model folder as a `KernelModel`, without torch.

Only what is plainly right is taken: a folder whose tensors are not exactly those of its config, in int8 and float32,
all finite, gives None, and the model is loaded by checkpoint.py, which says what is wrong with it or can use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import safetensors

from reviser.config import ModelConfig
from reviser.decoding.arguments import Weights
from reviser.decoding.cpu.cells import Array
from reviser.decoding.cpu.kernel_model import (
    EMBEDDING,
    HEAD,
    KINDS,
    TABLES,
    Held,
    KernelModel,
    KernelWeights,
    head_of,
)
from reviser.model.folder import SCALE, WEIGHTS, FolderConfig, checking_weights

if TYPE_CHECKING:
    from reviser.model.transformer import Transformer

LEAST = -127
"""Of rounded weights: a file may hold -128, which rounding never gives and kernels do not expect."""


def load_model(
    folder: Path, described: FolderConfig, device: str, weights: Weights
) -> tuple[KernelModel | Transformer, Weights]:
    """A folder's model, without torch where that can be, and what its steps compute with."""
    if str(device) == "cpu" and weights != "float32" and (read := kernel_model(folder, described)) is not None:
        return read, "int8"
    from reviser.decoding.cpu.step import has_cpu_kernels
    from reviser.model.checkpoint import from_pretrained

    model = from_pretrained(folder, device=device)
    is_rounded = weights == "auto" and described.weights == "int8" and has_cpu_kernels(model)
    return model, "int8" if is_rounded else weights


def kernel_model(folder: Path, described: FolderConfig) -> KernelModel | None:
    """The model of a folder, where this can read it."""
    config = described.model
    if described.weights != "int8" or config.canvas.kind not in KINDS:
        return None
    with checking_weights(folder, described):
        found = _read(folder / WEIGHTS)
        weights = None if found is None else _weights(found, config)
        return None if weights is None else KernelModel(config, weights)


def matrix_shapes(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """All matrices of a model that the kernels know, by their names in its file."""
    d, A, canvas = config.width, config.alphabet.size, config.canvas
    units = config.ff_width * (2 if config.activation == "swiglu" else 1)
    shapes = {EMBEDDING: (A, d)}
    if not config.tied:
        shapes[HEAD] = A, d
    if config.positions == "absolute":
        shapes["positions.weight"] = config.context, d
    if canvas.kind == "window":
        shapes["canvas.table.weight"] = config.num_text + 1, canvas.slot_width
        shapes["canvas.projection.weight"] = d, 2 * canvas.window * canvas.slot_width
    for at in (f"blocks.{layer}." for layer in range(config.num_layers)):
        shapes |= {f"{at}attention.qkv.weight": (3 * d, d), f"{at}attention.out.weight": (d, d)}
        shapes |= {f"{at}mlp.up.weight": (units, d), f"{at}mlp.down.weight": (d, config.ff_width)}
    if config.has_jumps:
        P, ahead = config.pointer_width, config.pointer_ahead
        shapes |= {f"pointer.{name}_matrix.weight": (P, d) for name in ("query", "key")}
        shapes |= {"pointer.ahead_matrix.weight": (ahead * P, d)} if ahead else {}
    return shapes


def vector_sizes(config: ModelConfig) -> dict[str, int]:
    """All other tensors."""
    d, D, has_bias = config.width, config.head_width, config.norm == "layer"
    units = config.ff_width * (2 if config.activation == "swiglu" else 1)
    blocks = [f"blocks.{layer}." for layer in range(config.num_layers)]
    norms = ["norm", *(f"{at}{name}" for at in blocks for name in ("attention_norm", "mlp_norm"))]
    sizes = {f"{name}.{part}": d for name in norms for part in (("weight", "bias") if has_bias else ("weight",))}
    if config.qk_norm:
        sizes |= {f"{at}attention.{name}.weight": D for at in blocks for name in ("q_norm", "k_norm")}
    if has_bias:
        sizes |= {f"{at}mlp.{name}.bias": size for at in blocks for name, size in (("up", units), ("down", d))}
    return sizes


def _read(path: Path) -> dict[str, Array] | None:
    """The tensors of a safetensors file, bfloat16 ones as float32; None where it holds any other type."""
    try:
        entries = safetensors.deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    except (OSError, safetensors.SafetensorError):
        return None
    found = {}
    for name, entry in entries:
        data, shape = entry["data"], entry["shape"]
        if entry["dtype"] == "I8":
            found[name] = np.frombuffer(data, np.int8).reshape(shape)
        elif entry["dtype"] == "F32":
            found[name] = np.frombuffer(data, np.float32).reshape(shape)
        elif entry["dtype"] == "BF16":
            found[name] = (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
        else:
            return None
    return found


def _weights(found: Mapping[str, Array], config: ModelConfig) -> KernelWeights | None:
    shapes, sizes = matrix_shapes(config), vector_sizes(config)
    wanted = {**shapes, **{name: (size,) for name, size in sizes.items()}}
    wanted |= {name + SCALE: shape[:1] for name, shape in shapes.items()}
    is_right = found.keys() == wanted.keys() and all(found[name].shape == shape for name, shape in wanted.items())
    if not is_right or not all(_is_usable(name, found[name], shapes) for name in wanted):
        return None
    held = {name: Held(found[name], found[name + SCALE]) for name in shapes}
    multiplied = (shapes.keys() - {*TABLES}) | {head_of(config)}
    floats = {name: held[name].floats for name in shapes.keys() & {*TABLES}}
    return KernelWeights(
        {name: held[name] for name in multiplied}, {**floats, **{name: found[name] for name in sizes}}
    )


def _is_usable(name: str, tensor: Array, shapes: Mapping[str, tuple[int, int]]) -> bool:
    if name in shapes:
        return tensor.dtype == np.int8 and (not tensor.size or bool(tensor.min() >= LEAST))
    return tensor.dtype == np.float32 and bool(np.isfinite(tensor).all())
