"""Canvas kinds of plugins, checked where a model is built: what they make, and what comes out of it.

The built-in kinds are tested with the package, so nothing is called for them. Models on "meta" compute nothing and
are checked once they have storage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from reviser.config import ModelConfig
from reviser.errors import ConfigError
from reviser.model.canvas_kinds import CanvasKind, canvas_of, describe, is_built_in
from reviser.model.conditioning import CanvasInput, Memory

if TYPE_CHECKING:
    from reviser.model.transformer import Transformer

ROWS, STEPS, PLACES = 2, 3, 4
"""The size of the canvases that are shown to try a kind; no two are the same, so that none is taken for another."""


def make_reader(kind: CanvasKind, config: ModelConfig) -> nn.Module | None:
    """The kind's reader, which must be a module; None where there is nothing to see."""
    if is_built_in(kind):
        return kind.reader(config)
    made: Any = _call(config, "reader(config)", kind.reader, config)
    if made is None and kind.shows == "nothing" and not kind.has_blocks:
        return None
    return _check_module(config, "reader", made)


def make_block(kind: CanvasKind, config: ModelConfig) -> nn.Module | None:
    """The kind's part of a layer, which must be a module where the kind defines `block`."""
    if is_built_in(kind) or not kind.has_blocks:
        return kind.block(config)
    return _check_module(config, "block", _call(config, "block(config)", kind.block, config))


@torch.no_grad()
def try_canvas(model: Transformer) -> None:
    """Read a few empty canvases with the kind of a plugin; random numbers are drawn afterwards as if it had not."""
    config, embedding = model.config, model.embedding.weight
    if is_built_in(canvas_of(config)) or embedding.is_meta:
        return
    describe(config)
    if model.canvas is None:
        return
    with torch.random.fork_rng([embedding.device] if embedding.is_cuda else []):
        memory = _call(config, "the reader's forward", model.canvas, _show_empty(config, embedding.device), embedding)
        _check_memory(config, memory, is_added=model.is_canvas_added)
        if not model.is_canvas_added:
            x = torch.zeros(ROWS, STEPS, config.width, device=embedding.device, dtype=embedding.dtype)
            last: Any = model.blocks[-1]
            _check_shape(config, "the block's forward", _call(config, "the block's forward", last.cross, x, memory))


def _show_empty(config: ModelConfig, device: torch.device) -> CanvasInput:
    none = config.alphabet.none
    windows = torch.full((ROWS, STEPS, 2 * config.canvas.window), none, device=device)
    rows = torch.full((ROWS, STEPS, min(PLACES, config.max_length + 1)), -1, device=device)
    rows[..., 0] = none
    return CanvasInput(windows if config.canvas.has_windows else None, rows if config.canvas.has_rows else None)


def _call(config: ModelConfig, what: str, call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except Exception as error:  # whatever a plugin raises
        said = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"{_name(config)}: {what} failed ({type(error).__name__}: {said}); mend the plugin, or see where it "
            "happened with --debug"
        ) from error


def _check_module(config: ModelConfig, method: str, made: Any) -> nn.Module:
    if not isinstance(made, nn.Module):
        raise ConfigError(f"{_name(config)}: {method}(config) gave {_type(made)}; it must return an nn.Module")
    return made


def _check_memory(config: ModelConfig, memory: Any, is_added: bool) -> None:
    what = "the reader's forward"
    if not isinstance(memory, Memory):
        raise ConfigError(f"{_name(config)}: {what} gave {_type(memory)}; it must return a Memory(vectors)")
    if is_added:
        _check_shape(config, f"{what}, in Memory.vectors,", memory.vectors)
    elif not isinstance(memory.vectors, Tensor):
        raise ConfigError(f"{_name(config)}: Memory.vectors is {_type(memory.vectors)}; it must be a Tensor")


def _check_shape(config: ModelConfig, what: str, found: Any) -> None:
    wanted = ROWS, STEPS, config.width
    if not isinstance(found, Tensor) or found.shape != wanted:
        shape = f"the shape {list(found.shape)}" if isinstance(found, Tensor) else _type(found)
        raise ConfigError(
            f"{_name(config)}: {what} gave {shape} for {ROWS} rows of {STEPS} steps; it must be {list(wanted)}, "
            "the last of them the model's width"
        )


def _name(config: ModelConfig) -> str:
    return f"canvas kind {config.canvas.kind.partition(':')[0]}"


def _type(value: Any) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"
