"""Drafts as arrays and tensors: the histories that write them and what the model is shown on the way, unreplayed.

A draft's history inserts its tokens in order and then goes back to the cursor, by way of the gaps that it visits, so
each canvas on the way is known:

    tokens a b c, cursor 1     history  START  a   b    c     MOVE -2 or JUMP 1
                               canvas   |      a|  ab|  abc|  a|bc
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reviser.config import ModelConfig
from reviser.orders.history import draft_cursors
from reviser.orders.record import Draft

if TYPE_CHECKING:
    import torch

    from reviser.model.conditioning import CanvasInput


@dataclass(frozen=True, eq=False)
class DraftArrays:
    """[B, S] histories that begin with START, with padding behind them, and how long each is; of what the model is
    shown, what its canvas kind wants (`CanvasInput`)."""

    actions: np.ndarray
    counts: np.ndarray
    windows: np.ndarray | None = None
    rows: np.ndarray | None = None
    cursors: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class DraftInputs:
    """The same as tensors."""

    actions: torch.Tensor
    counts: torch.Tensor
    canvas: CanvasInput


def draft_arrays(drafts: Sequence[Draft], config: ModelConfig) -> DraftArrays:
    """What the model reads of drafts, for one forward pass."""
    alphabet = config.alphabet
    histories = [draft.actions for draft in drafts]
    counts = np.array([len(history) + 1 for history in histories])
    sizes, longest = np.array([len(draft.tokens) for draft in drafts]), int(counts.max())
    actions = np.full((len(drafts), longest), alphabet.pad, np.int64)
    tokens = np.full((len(drafts), int(sizes.max(initial=0))), alphabet.none, np.int64)
    cursors = np.minimum(np.arange(longest), sizes[:, None])
    actions[:, 0] = alphabet.start
    for row, (draft, history) in enumerate(zip(drafts, histories, strict=True)):
        actions[row, 1 : len(history) + 1] = history
        tokens[row, : len(draft.tokens)] = draft.tokens
        way = len(draft.tokens), draft.cursor, alphabet, bool(draft.rules.has_jumps), draft.visits
        cursors[row, 1 : len(history) + 1] = draft_cursors(*way)
    lengths = np.minimum(np.arange(longest), sizes[:, None])
    windows, rows = _show(tokens, lengths, cursors, config)
    return DraftArrays(actions, counts, windows, rows, cursors if config.canvas.has_cursor else None)


def draft_inputs(drafts: Sequence[Draft], config: ModelConfig, device: torch.device | str = "cpu") -> DraftInputs:
    """`draft_arrays` as tensors on a device."""
    import torch

    from reviser.model.conditioning import CanvasInput

    def on_device(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(device)

    made = draft_arrays(drafts, config)
    shown = (None if each is None else on_device(each) for each in (made.windows, made.rows, made.cursors))
    return DraftInputs(on_device(made.actions), on_device(made.counts), CanvasInput(*shown))


def _show(
    tokens: np.ndarray, lengths: np.ndarray, cursors: np.ndarray, config: ModelConfig
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Windows [B, S, 2 W] or rows [B, S, R] of the canvases `tokens[:length]`."""
    none = config.alphabet.none
    padded = np.pad(tokens, ((0, 0), (1, 1)), constant_values=none)
    rows = np.arange(len(tokens))[:, None, None]
    if config.canvas.has_windows:
        width = config.canvas.window
        places = cursors[:, :, None] + np.arange(-width, width)
        is_there = (places >= 0) & (places < lengths[:, :, None])
        return np.where(is_there, padded[rows, np.clip(places + 1, 0, padded.shape[1] - 1)], none), None
    if config.canvas.has_rows:
        places, cursor = np.arange(tokens.shape[1] + 1), cursors[:, :, None]
        shown = padded[rows, np.where(places > cursor, places, np.minimum(places + 1, padded.shape[1] - 1))]
        shown = np.where(places == cursor, none, shown)
        return None, np.where(places > lengths[:, :, None], -1, shown)
    return None, None
