"""Drafts as tensors are what replaying them entry by entry gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from reviser.canvas import Rules
from reviser.config import CanvasConfig, ModelConfig
from reviser.decoding.drafts import draft_inputs
from reviser.decoding.reference import draft_history, show
from reviser.model.transformer import Transformer
from reviser.orders.record import Draft

CONFIG = ModelConfig(num_text=9, pad=8, num_layers=1, width=16, num_heads=1, ff_width=16, context=64, max_length=40)
RULES = [Rules(CONFIG.alphabet, max_length=40, has_jumps=has_jumps) for has_jumps in (False, True)]
MODELS = {
    kind: Transformer(replace(CONFIG, canvas=CanvasConfig(kind, window=3)))  # type: ignore[arg-type]
    for kind in ("none", "window", "pool", "window-index")
}


@st.composite
def drafts(draw: Any) -> Draft:
    prefix, suffix = (draw(st.lists(st.integers(0, 7), max_size=12)) for _ in range(2))
    rules = draw(st.sampled_from(RULES))
    return draw(st.sampled_from([Draft.infill(prefix, suffix, rules), Draft.continuation(prefix, rules),
                                 Draft.edit(suffix, rules), Draft.gaps([prefix, [5], suffix], rules)]))  # fmt: skip


@given(st.lists(drafts(), min_size=1, max_size=4), st.sampled_from(list(MODELS)))
def test_inputs_are_those_of_the_replayed_seeds(given_drafts: list[Draft], kind: str) -> None:
    model = MODELS[kind]
    inputs = draft_inputs(given_drafts, model.config)
    for row, draft in enumerate(given_drafts):
        history, states = draft_history(draft)
        count = len(history)
        assert inputs.counts[row] == count
        assert inputs.actions[row, :count].tolist() == history
        wanted = show([states], model)
        if wanted.windows is not None:
            assert inputs.canvas.windows is not None
            assert torch.equal(inputs.canvas.windows[row, :count], wanted.windows[0])
        if wanted.cursors is not None:
            assert inputs.canvas.cursors is not None
            assert torch.equal(inputs.canvas.cursors[row, :count], wanted.cursors[0])
        if wanted.rows is not None:
            assert inputs.canvas.rows is not None
            got = inputs.canvas.rows[row, :count]
            assert torch.equal(got[:, : wanted.rows.shape[2]], wanted.rows[0])
            assert (got[:, wanted.rows.shape[2] :] == -1).all()
