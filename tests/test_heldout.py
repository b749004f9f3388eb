"""The held-out bound is what one action after another gives, and its bytes are those of the text."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scramble  # noqa: F401 - registers an order that uses every operator
import torch
from tiny import SETTINGS, make_trainer, metrics, random_model, show, start

from reviser.canvas import Canvas, apply, valid_actions
from reviser.config import CanvasConfig
from reviser.data.corpus import prepare
from reviser.data.examples import heldout_examples
from reviser.data.shards import Shards
from reviser.errors import ConfigError
from reviser.model.checkpoint import read_config
from reviser.model.transformer import Transformer
from reviser.orders.record import Draft, Trajectory
from reviser.orders.registry import parse_order
from reviser.orders.rng import Random
from reviser.tokenizer import load
from reviser.training.heldout import Heldout

CPU = torch.device("cpu")
ORDERS = ("left-to-right", "runs:jump=0.2", "random-walk", "0.6*runs:jump=0.2,start=end+0.4*left-to-right")


@torch.no_grad()
def score(model: Transformer, trajectory: Trajectory) -> list[float]:
    """Log-probabilities of a trajectory's actions among the valid ones, one softmax after another."""
    draft, canvas = trajectory.draft, Canvas()
    states, history, scores = [canvas], [draft.rules.alphabet.start], []
    for action in draft.actions:
        canvas = apply(canvas, action, draft.rules.for_draft())
        states.append(canvas)
        history.append(action)
    canvas = draft.canvas
    for action in trajectory.actions:
        logits = model(torch.tensor([history]), show(states, model.config))[0, -1]
        valid = valid_actions(canvas, draft.rules)
        scores.append(float(logits[torch.tensor(valid)].log_softmax(-1)[valid.index(action)]))
        canvas = apply(canvas, action, draft.rules)
        states.append(canvas)
        history.append(action)
    return scores


@pytest.mark.parametrize("infill", [False, True])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", ["window", "pool", "window-index"])
def test_the_bound_is_what_one_action_after_another_gives(kind: Any, order: str, infill: bool, data: Path) -> None:
    shards, policy = Shards.open(data, "heldout"), parse_order(order)
    model = random_model(replace(SETTINGS.model, canvas=CanvasConfig(kind, window=3, slot_width=8)))
    examples = heldout_examples(shards, 4, 5, 9, infill)
    totals, log_q, tokens = [], 0.0, 0
    for i in range(len(examples)):
        first, prefix, suffix = int(examples.first[i]), int(examples.prefix[i]), int(examples.suffix[i])
        text = examples.tokens[first : first + prefix + int(examples.length[i]) + suffix].tolist()
        draft = Draft.infill(text[:prefix], text[len(text) - suffix :], SETTINGS.rules)
        drawn = policy.draw(draft, text, Random(int(examples.states[i])))
        assert drawn.log_q is not None
        totals.append(drawn.log_q - sum(score(model, drawn)))
        log_q, tokens = log_q + drawn.log_q, tokens + int(examples.length[i])
    held = Heldout.of(shards, policy, SETTINGS.rules, model.config.canvas, 4, 5, 9, infill)
    bound = held.measure(model, CPU)
    assert bound.nats_per_token == pytest.approx(sum(totals) / tokens, rel=1e-5)
    assert bound.log_q_per_token == pytest.approx(log_q / tokens, abs=1e-9)
    assert bound.perplexity == pytest.approx(math.exp(sum(totals) / tokens), rel=1e-4)
    assert bound.bits_per_byte == pytest.approx(sum(totals) / tokens / math.log(2), rel=1e-5)  # a token is a byte
    assert bound.num_examples == 4
    mean = sum(totals) / tokens
    off = [total - mean * int(length) for total, length in zip(totals, examples.length, strict=True)]
    assert bound.error == pytest.approx(np.std(off, ddof=1) * 2 / tokens, rel=1e-4)
    assert not model.training


def test_one_example_has_no_error_and_none_is_shown(data: Path, tmp_path: Path) -> None:
    held = Heldout.of(Shards.open(data, "heldout"), parse_order("runs"), SETTINGS.rules, CanvasConfig(), 1, 5, 9)
    bound = held.measure(random_model(SETTINGS.model), CPU)
    assert (bound.error, bound.num_examples) == (None, 1)
    assert bound.metrics("infill")["infill_bound_error"] is None
    run = tmp_path / "run"
    assert start(data, run, "train.steps=1", "train.eval_examples=1") == 0
    (measured,) = (line for line in metrics(run) if "bits_per_byte" in line)
    assert measured["bound_error"] is None
    nats = f"{measured['bound_nats_per_token']:.4f}"
    assert f"({nats} ± - nats)" in (run / "log.txt").read_text()
    assert f"{nats} ± - nats a token" in (run / "model" / "README.md").read_text()
    trained = read_config(run / "model").trained
    assert trained is not None
    assert [each.error for each in trained.bounds] == [None]


def test_a_model_that_knows_nothing_pays_the_logarithm_of_all_it_may_do(data: Path) -> None:
    model = Transformer(SETTINGS.model)
    torch.nn.init.zeros_(model.embedding.weight)
    held = Heldout.of(
        Shards.open(data, "heldout"), parse_order("left-to-right"), SETTINGS.rules, CanvasConfig(), 3, 0, 1
    )
    lengths = held.packed.num_tokens.tolist()
    # Every INSERT but padding, STOP, and the moves back over what is there.
    wanted = sum(math.log(257 + size.bit_length()) for length in lengths for size in range(length + 1))
    assert held.measure(model, CPU).nats_per_token == pytest.approx(wanted / sum(lengths), rel=1e-5)


@pytest.mark.parametrize("order", ["runs:noise=0.1", "random-walk:budget=99", "scramble"])
def test_orders_without_likelihood_are_refused(order: str, data: Path) -> None:
    with pytest.raises(
        ConfigError, match="with noise or a step budget has no likelihood; measure with an order that has neither"
    ):
        Heldout.of(Shards.open(data, "heldout"), parse_order(order), SETTINGS.rules, CanvasConfig(), 4, 5, 9)


def test_long_trajectories_are_measured_whole(data: Path) -> None:
    shards = Shards.open(data, "heldout")
    wander = Heldout.of(shards, parse_order("random-walk:delete=0.03"), SETTINGS.rules, CanvasConfig(), 6, 5, 9)
    assert wander.packed.num_tokens.tolist() == heldout_examples(shards, 6, 5, 9).length.tolist()
    assert wander.longest > 8 * 30


@pytest.mark.parametrize("tokenizer", ["bytes", "default"])
def test_bytes_are_those_of_the_text_even_where_a_target_cuts_a_character(tokenizer: str, tmp_path: Path) -> None:
    draw, characters = random.Random(0), "aé漢🦆ø. "
    texts = ["".join(draw.choices(characters, k=300)) for _ in range(30)]
    source = tmp_path / "source.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    prepare([source], tmp_path / "data", load(tokenizer), holdout=0.5)
    shards = Shards.open(tmp_path / "data", "heldout")
    rules = replace(SETTINGS.rules, alphabet=shards.tokenizer.alphabet)
    held = Heldout.of(shards, parse_order("left-to-right"), rules, CanvasConfig(), 8, 5, 20)
    examples, wanted = heldout_examples(shards, 8, 5, 20), 0
    for i in range(8):
        document, end = shards[int(examples.document[i])], 5 + int(examples.length[i])
        text = shards.tokenizer.decode(document.tolist()).encode()
        behind = b"".join(map(shards.tokenizer.bytes_of, document[end:].tolist()))
        before = b"".join(map(shards.tokenizer.bytes_of, document[:5].tolist()))
        assert text.startswith(before)
        assert text.endswith(behind)
        wanted += len(text) - len(before) - len(behind)
    assert held.num_bytes == wanted
    nats = np.full(8, 3.0)
    assert held.summarise(nats).bits_per_byte == pytest.approx(24 / math.log(2) / wanted)


@pytest.mark.parametrize("world", [2, 3, 50])
def test_processes_share_the_examples(world: int, data: Path) -> None:
    held = Heldout.of(Shards.open(data, "heldout"), parse_order("runs"), SETTINGS.rules, CanvasConfig(), 30, 5, 9)
    model = random_model(SETTINGS.model)
    shares = [held.score(model, CPU, rank=rank, world=world) for rank in range(world)]
    assert (np.sum([share > 0 for share in shares], axis=0) == 1).all()
    np.testing.assert_allclose(np.sum(shares, axis=0), held.score(model, CPU), rtol=1e-5)
    busy = sum(share.any() for share in shares)
    assert busy == min(world, len(held.packed.actions))


def test_texts_that_fit_no_canvas_and_positions_that_fit_no_table_are_named(data: Path) -> None:
    shards, order = Shards.open(data, "heldout"), parse_order("random-walk:delete=0.1")
    with pytest.raises(ConfigError, match=r"held-out texts of \d+ tokens do not fit a canvas of 96; measure shorter"):
        Heldout.of(shards, order, SETTINGS.rules, CanvasConfig(), 6, 40, 80)
    held = Heldout.of(shards, order, SETTINGS.rules, CanvasConfig(), 6, 5, 20)
    model = Transformer(replace(SETTINGS.model, positions="absolute"))
    text = rf"take up to {held.longest} positions and the model has a table of 64; measure shorter texts"
    with pytest.raises(ConfigError, match=text):
        held.measure(model, CPU)


def test_positions_that_fit_no_table_are_named_at_the_start(data: Path) -> None:
    table = ("model.positions=absolute", "data.order=random-walk:delete=0.1")
    with pytest.raises(ConfigError, match=r"^held-out trajectories take up to \d+ positions and the model has"):
        make_trainer(data, *table, "train.eval_length=20", "train.eval_prefix=5")
