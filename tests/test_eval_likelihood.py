"""The bound is below the truth, tightens with samples and tends to what is enumerated; left to right it is exact.

On a canvas of three tokens every trajectory can be written down: a tree of all actions, scored one softmax after
another in double precision, gives the truth that the measured numbers are compared with.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scramble  # noqa: F401 - registers an order that uses every operator
import torch
from hypothesis import given
from hypothesis import settings as laws
from hypothesis import strategies as st
from test_heldout import score
from tiny import SETTINGS, random_model

from reviser import config as configs
from reviser.canvas import Canvas, Rules, apply, valid_actions
from reviser.cli import main
from reviser.config import CanvasConfig, ModelConfig, override
from reviser.data.shards import Shards
from reviser.errors import ConfigError, DataError
from reviser.evaluation.generations import Prompt
from reviser.evaluation.metrics import likelihood
from reviser.evaluation.metrics.likelihood import (
    Gap,
    cut_prompts,
    log_likelihood,
    log_mean_exp,
    measure,
    rules_of,
    score_gaps,
    trained_order,
)
from reviser.model.checkpoint import save_pretrained
from reviser.model.conditioning import CanvasInput
from reviser.model.transformer import Transformer
from reviser.orders.policies import LeftToRight, Order
from reviser.orders.record import Draft, Trajectory
from reviser.orders.registry import parse_order
from reviser.orders.rng import Random
from reviser.reports.tables import show as show_number
from reviser.tokenizer import load
from reviser.training.heldout import Heldout
from reviser.training.provenance import describe

BYTES = load("bytes")
TINY = ModelConfig(
    num_text=3, pad=0, num_layers=1, width=16, num_heads=2, ff_width=32, context=32, max_length=3,
    canvas=CanvasConfig("window", window=2, slot_width=4),
)  # fmt: skip
DEPTH = 9
"""Actions after which the tree ends; the longest trajectory of runs on three tokens has as many, as is checked."""
ALL_TEXTS = [text for size in range(4) for text in itertools.product((1, 2), repeat=size)]
TEXTS = [(), (1,), (1, 1), (2, 1), (1, 2, 1)]
ENUMERABLE = ("runs:jump=0.3", "runs:jump=0.2,start=end", "0.6*runs:jump=0.3,start=end+0.4*left-to-right")
"""Orders that can draw finitely many trajectories of a text."""


@dataclass(frozen=True)
class Tree:
    """All trajectories by the text they end with, as actions and log p, and what had not ended at some depth."""

    draft: Draft
    finished: dict[tuple[int, ...], list[tuple[tuple[int, ...], float]]]
    unfinished: float

    def log_p(self, text: tuple[int, ...]) -> float:
        """Of all trajectories that end with the text."""
        return log_sum([log_p for _, log_p in self.finished[text]])

    def drawable(self, text: tuple[int, ...], order: Order) -> list[tuple[float, float]]:
        """log q and log p of the trajectories an order can draw."""
        pairs = [(order.log_q(self._trajectory(actions)), log_p) for actions, log_p in self.finished[text]]
        return [pair for pair in pairs if pair[0] > -math.inf]

    def _trajectory(self, actions: tuple[int, ...]) -> Trajectory:
        return Trajectory(self.draft, actions, (True,) * len(actions))


def log_sum(values: list[float]) -> float:
    return float(np.logaddexp.reduce(np.array(values)))


def model_of(config: ModelConfig = TINY) -> Transformer:
    model = random_model(config, seed=3)
    torch.nn.init.normal_(model.embedding.weight, std=0.6)
    return model


@functools.cache
def grow(prefix: tuple[int, ...] = (), suffix: tuple[int, ...] = (), moves: bool = True) -> Tree:
    """The tree of everything the tiny model may do, with moves or without."""
    rules = Rules(TINY.alphabet, frozenset({"move"} if moves else ()), max_length=TINY.max_length)
    model, draft = model_of().double(), Draft.infill(prefix, suffix, rules)
    states, canvas = [Canvas()], Canvas()
    for action in draft.actions:
        canvas = apply(canvas, action, draft.rules.for_draft())
        states.append(canvas)
    states[-1] = draft.canvas
    alive: list[tuple[tuple[int, ...], list[Canvas], float]] = [((), states, 0.0)]
    finished: dict[tuple[int, ...], list[tuple[tuple[int, ...], float]]] = {}
    for _ in range(DEPTH):
        following = []
        for (actions, before, log_p), scores in zip(alive, _scores(model, draft, alive), strict=True):
            valid = valid_actions(before[-1], draft.rules)
            for action, share in zip(valid, scores[valid].log_softmax(-1).tolist(), strict=True):
                after = apply(before[-1], action, draft.rules)
                if after.is_stopped:
                    text = after.tokens[len(prefix) : len(after.tokens) - len(suffix)]
                    finished.setdefault(text, []).append(((*actions, action), log_p + share))
                else:
                    following.append(((*actions, action), [*before, after], log_p + share))
        alive = following
    return Tree(draft, finished, sum(math.exp(log_p) for _, _, log_p in alive))


@torch.no_grad()
def _scores(model: Transformer, draft: Draft, alive: list[Any]) -> torch.Tensor:
    if not alive:
        return torch.empty(0)
    alphabet = draft.rules.alphabet
    histories = torch.tensor([[alphabet.start, *draft.actions, *actions] for actions, _, _ in alive])
    windows = torch.tensor([[state.window(2, alphabet.none) for state in states] for _, states, _ in alive])
    scores: torch.Tensor = model(histories, CanvasInput(windows, None))[:, -1]
    return scores


def expectation(pairs: list[tuple[float, float]], count: int) -> float:
    """The bound's expectation with `count` samples, over all ways to draw them."""
    log_q = np.array([each for each, _ in pairs])
    weights = np.array([log_p - each for each, log_p in pairs])
    chances = functools.reduce(np.add.outer, [log_q] * count)
    sums = functools.reduce(np.logaddexp.outer, [weights] * count)
    return float((np.exp(chances) * (sums - math.log(count))).sum())


def test_the_tree_holds_everything_the_model_may_do() -> None:
    tree = grow()
    assert set(tree.finished) == set(ALL_TEXTS)
    total = sum(math.exp(tree.log_p(text)) for text in ALL_TEXTS)
    assert total < 1
    assert total + tree.unfinished == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("name", ENUMERABLE)
def test_the_expected_bound_rises_with_samples_and_stays_below_the_truth(name: str) -> None:
    tree, order, total = grow(), parse_order(name), 0.0
    for text in ALL_TEXTS:
        pairs = tree.drawable(text, order)
        assert sum(math.exp(log_q) for log_q, _ in pairs) == pytest.approx(1, abs=1e-9), "all that q can draw"
        limit = log_sum([log_p for _, log_p in pairs])
        bounds = [expectation(pairs, count) for count in (1, 2, 3)]
        steps = itertools.pairwise([*bounds, limit, tree.log_p(text)])
        assert all(low <= high + 1e-12 for low, high in steps)
        if len(text) > 1:
            assert bounds[0] + 1e-4 < bounds[1] < bounds[2] - 1e-4 < limit - 2e-4
            assert limit < tree.log_p(text) - 1e-4, "these orders draw less than the model may do"
        total += math.exp(limit)
    assert total < 1


def test_the_random_walk_can_draw_everything_and_left_to_right_one_trajectory() -> None:
    tree = grow()
    for text in TEXTS:
        assert len(tree.drawable(text, parse_order("random-walk"))) == len(tree.finished[text])
        assert len(tree.drawable(text, LeftToRight())) == 1


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", ENUMERABLE)
def test_what_is_measured_has_the_enumerated_expectation(name: str, count: int) -> None:
    tree, order, times = grow(), parse_order(name), 1500
    for text in ((2, 1), (1, 2, 1)):
        pairs = tree.drawable(text, order)
        found = score_gaps(model_of(), order, [Gap(text)] * times, count, seed=count)
        values = np.array(found.log_p)
        error = values.std(ddof=1) / math.sqrt(times)
        assert abs(values.mean() - expectation(pairs, count)) < 5 * error
        assert not found.is_exact
        assert found.samples == count
        # A mean of p/q has no bias at all: it is the sum of p over what q can draw.
        shares, limit = np.exp(values), log_sum([log_p for _, log_p in pairs])
        assert abs(shares.mean() - math.exp(limit)) < 5 * shares.std(ddof=1) / math.sqrt(times)
        if count == 1:
            known = np.array([(log_q, log_p - log_q) for log_q, log_p in pairs])
            drawn = np.stack([found.log_q, found.log_p], axis=1)
            assert np.abs(drawn[:, None] - known[None]).max(axis=2).min(axis=1).max() < 1e-4, "one of the tree's"


@pytest.mark.parametrize("name", ENUMERABLE)
def test_many_samples_give_the_sum_over_what_the_order_can_draw(name: str) -> None:
    order, count = parse_order(name), 4000
    pairs = grow().drawable((1, 2, 1), order)
    limit = log_sum([log_p for _, log_p in pairs])
    squares = log_sum([2 * log_p - log_q for log_q, log_p in pairs])
    error = math.sqrt((math.exp(squares - 2 * limit) - 1) / count)
    found = score_gaps(model_of(), order, [Gap((1, 2, 1))], count)
    assert error < 0.1
    assert found.log_p == pytest.approx([limit], abs=5 * error)


def test_many_samples_of_the_random_walk_give_the_truth_itself() -> None:
    tree, order, text = grow(), parse_order("random-walk"), (2, 1)
    most = math.log(math.exp(tree.log_p(text)) + tree.unfinished)
    found = {
        count: score_gaps(model_of(), order, [Gap(text)] * (4000 // count), count).log_p for count in (1, 4, 4000)
    }
    assert np.mean(found[1]) < np.mean(found[4]) - 0.1 < found[4000][0]
    assert tree.log_p(text) - 0.1 < found[4000][0] < most + 0.1
    drawable = log_sum([log_p for _, log_p in tree.drawable(text, parse_order("runs"))])
    assert found[4000][0] > drawable, "runs draw fewer trajectories, so theirs is a looser limit"


@pytest.mark.parametrize(("prefix", "suffix"), [((), ()), ((2,), ()), ((2,), (1,))])
def test_left_to_right_is_exact_and_sums_to_one_over_all_texts(
    prefix: tuple[int, ...], suffix: tuple[int, ...]
) -> None:
    tree = grow(prefix, suffix, moves=False)
    texts = [text for text in ALL_TEXTS if len(prefix + text + suffix) <= TINY.max_length]
    found = score_gaps(model_of(), LeftToRight(), [Gap(text, prefix, suffix) for text in texts], samples=8)
    assert found.is_exact
    assert found.samples == 1
    assert found.log_q == [0.0] * len(texts)
    assert found.log_p == pytest.approx([tree.log_p(text) for text in texts], abs=1e-4)
    assert all(len(tree.finished[text]) == 1 for text in texts)
    assert sum(map(math.exp, found.log_p)) == pytest.approx(1, abs=1e-5)
    again = score_gaps(model_of(), LeftToRight(), [Gap(text, prefix, suffix) for text in texts], seed=5)
    assert again == found


@pytest.mark.parametrize("at_once", [1, 7])
def test_a_text_is_worth_the_same_in_any_company(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    order = parse_order("0.5*runs:jump=0.3+0.5*random-walk")
    whole = score_gaps(model_of(), order, [Gap(text) for text in TEXTS], 6, seed=2)
    scored: list[int] = []
    monkeypatch.setattr(likelihood, "AT_ONCE", at_once)
    parted = score_gaps(model_of(), order, [Gap(text) for text in TEXTS], 6, seed=2, advance=scored.append)
    assert parted.log_p == pytest.approx(whole.log_p, abs=1e-5)
    assert parted.log_q == whole.log_q
    assert sum(scored) == 6 * len(TEXTS)
    assert parted.num_tokens == [len(text) for text in TEXTS]


@pytest.mark.parametrize("order", ["left-to-right", "runs:jump=0.2", "0.5*runs:start=end+0.5*left-to-right"])
def test_prompts_are_scored_as_one_action_after_another_gives(order: str) -> None:
    model, policy = random_model(SETTINGS.model), parse_order(order)
    prompts = [Prompt("a", "The gull", " slept é", " on"), Prompt("b", "", "rain.")]
    found = log_likelihood(model, BYTES, policy, [*prompts, "rain."], samples=3, seed=9)
    for number, prompt in enumerate([*prompts, Prompt("", "", "rain.")]):
        prefix, target, suffix = BYTES.encode_many([prompt.prefix, prompt.reference, prompt.suffix])
        draft = Draft.infill(prefix, suffix, rules_of(model.config, policy))
        drawn = [
            policy.draw(draft, prefix + target + suffix, Random.of(9, number, sample))
            for sample in range(found.samples)
        ]
        weights = [sum(score(model, each)) - (each.log_q or 0.0) for each in drawn]
        assert found.log_p[number] == pytest.approx(float(log_mean_exp(np.array(weights))), abs=1e-3)
        assert found.num_tokens[number] == len(target)


def test_a_model_that_knows_nothing_pays_the_logarithm_of_its_vocabulary() -> None:
    model = Transformer(SETTINGS.model)
    torch.nn.init.zeros_(model.embedding.weight)
    prompts = [Prompt("a", "x", "déjà"), Prompt("b", "", "vu")]
    row = measure(model, BYTES, LeftToRight(), prompts, samples=4)
    # 256 bytes or STOP, at each of the six and two bytes and at their ends.
    nats = [7 * math.log(257), 3 * math.log(257)]
    assert row["nats_per_token"] == pytest.approx(sum(nats) / 8, rel=1e-6)
    assert row["perplexity"] == pytest.approx(257 ** (10 / 8), rel=1e-5)
    assert row["bits_per_byte"] == pytest.approx(10 * math.log2(257) / 8, rel=1e-6)
    off = [nats[0] - sum(nats) / 8 * 6, nats[1] - sum(nats) / 8 * 2]
    assert row["error"] == pytest.approx(np.std(off, ddof=1) * math.sqrt(2) / 8, rel=1e-4)
    # Bytes are tokens here.
    assert row["bits_per_byte_error"] == pytest.approx(row["error"] / math.log(2), rel=1e-4)
    assert (row["K"], row["n"], row["is_exact"], row["operators"]) == (1, 2, True, [])
    assert (row["num_tokens"], row["num_bytes"]) == (8, 8)
    assert measure(model, BYTES, LeftToRight(), prompts[:1])["error"] is None


def test_bytes_are_those_of_the_text_whatever_the_tokenizer() -> None:
    tokenizer = load("default")
    config = replace(SETTINGS.model, num_text=tokenizer.num_text, pad=tokenizer.pad)
    row = measure(random_model(config), tokenizer, LeftToRight(), [Prompt("a", "The", " lighthouse é")])
    assert row["num_bytes"] == 14
    assert row["num_tokens"] == len(tokenizer.encode(" lighthouse é")) < 14
    assert row["bits_per_byte"] == pytest.approx(row["nats_per_token"] * row["num_tokens"] / 14 / math.log(2))


def test_training_and_evaluation_cut_and_score_alike(data: Path) -> None:
    shards, model = Shards.open(data, "heldout"), random_model(replace(SETTINGS.model, operators=()))
    held = Heldout.of(shards, LeftToRight(), rules_of(model.config, LeftToRight()), model.config.canvas, 5, 6, 20)
    bound = held.measure(model, torch.device("cpu"))
    documents = [(str(i), BYTES.decode(shards[i].tolist())) for i in range(len(shards))]
    row = measure(model, BYTES, LeftToRight(), cut_prompts(documents, BYTES, 5, 6, 20))
    names = ("nats_per_token", "error", "bits_per_byte", "perplexity")
    assert [row[name] for name in names] == pytest.approx([getattr(bound, name) for name in names], rel=1e-5)


@laws(max_examples=60)
@given(
    st.lists(st.text(st.sampled_from("aé漢🦆. \n"), max_size=120), min_size=1, max_size=6),
    st.sampled_from(["bytes", "default"]),
    st.integers(1, 9),
    st.integers(1, 20),
    st.booleans(),
)
def test_prompts_are_the_beginnings_of_texts_and_split_no_character(
    texts: list[str], ruler: str, prefix: int, length: int, infill: bool
) -> None:
    tokenizer, named = load(ruler), [(str(i), text) for i, text in enumerate(texts)]
    need = length + (2 if infill else 1) * prefix + 16
    if all(len(tokenizer.encode(text)) < need for text in texts):
        with pytest.raises(DataError, match=f"no text has {need} tokens; give longer texts, or measure shorter"):
            cut_prompts(named, tokenizer, 3, prefix, length, infill)
        return
    prompts = cut_prompts(named, tokenizer, 3, prefix, length, infill)
    assert len(prompts) <= 3
    for prompt in prompts:
        assert texts[int(prompt.id)].startswith(prompt.prefix + prompt.reference + prompt.suffix)
        assert prompt.reference
        if ruler == "bytes":
            assert prefix - 3 <= len(prompt.prefix.encode()) <= prefix
            assert not infill or abs(len(prompt.reference.encode()) - length) <= 3
        assert infill or not prompt.suffix


@pytest.mark.parametrize(
    ("order", "text"),
    [
        (
            "runs:noise=0.1",
            "Runs with noise or a step budget has no likelihood; measure with an order that has neither",
        ),
        ("random-walk:budget=9", "RandomWalk with noise or a step budget has no likelihood"),
        ("scramble", "Scramble with noise or a step budget has no likelihood"),
        ("0.5*scramble+0.5*runs", "Mixture with noise or a step budget has no likelihood"),
        ("diff", "diff turns one text into another; to measure new text choose left-to-right, runs"),
        ("0.5*diff+0.5*runs", "diff turns one text into another"),
    ],
)
def test_orders_that_cannot_be_measured_are_refused(order: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        score_gaps(model_of(), parse_order(order), [Gap((1, 2))])


def test_what_a_model_cannot_be_asked_is_said() -> None:
    appends = model_of(replace(TINY, operators=()))
    with pytest.raises(ConfigError, match=r"^runs uses move, which the model does not have; it has none$"):
        score_gaps(appends, parse_order("runs"), [Gap((1, 2))])
    with pytest.raises(ConfigError, match=r"^0 samples a text; at least 1 is needed$"):
        score_gaps(model_of(), parse_order("runs"), [Gap((1, 2))], samples=0)
    with pytest.raises(ConfigError, match="texts of 4 tokens do not fit a canvas of 3; measure shorter ones"):
        score_gaps(model_of(), parse_order("runs"), [Gap((1, 2), (1, 2))])
    table = model_of(replace(TINY, positions="absolute", context=4))
    with pytest.raises(ConfigError, match="take up to 5 positions and the model has a table of 4"):
        score_gaps(table, LeftToRight(), [Gap((1,), (1,), (2,))])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with its model, as training leaves it."""
    folder = tmp_path_factory.mktemp("runs") / "mine"
    folder.mkdir()
    configs.dump(SETTINGS, folder / "config.json")
    save_pretrained(random_model(SETTINGS.model), folder / "model", BYTES)
    return folder


SHORT = ["--n", "4", "--prefix", "6", "--length", "20", "--device", "cpu"]


def evaluate(*words: object) -> int:
    return main(["eval", "likelihood", *map(str, words), *SHORT])


def test_the_command_measures_systems_on_a_file_or_on_held_out_documents(
    run: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shards, out = Shards.open(data, "heldout"), tmp_path / "results" / "likelihood.json"
    lines = [json.dumps({"text": BYTES.decode(shards[i].tolist())}) for i in range(len(shards))]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    systems = ("--system", f"ours={run}/model", "--system", f"ar={run}/model", "--samples", 2, "--json")
    orders = ("--order", "runs:jump=0.1", "--order", "ar=left-to-right")
    assert evaluate(data, *systems, *orders, "--out", out) == 0
    printed, noted = capsys.readouterr()
    result = json.loads(printed)
    assert result == json.loads(out.read_text())
    assert "ar: left-to-right has one trajectory for each text, so K = 1 is exact" in noted
    assert [(row["system"], row["order"], row["K"], row["is_exact"], row["n"]) for row in result["rows"]] == [
        ("ours", "runs", 2, False, 4),
        ("ar", "left-to-right", 1, True, 4),
    ]
    assert result["texts"] == {str(data): shards.header.sha256}
    assert evaluate(tmp_path / "texts.jsonl", *systems, *orders) == 0
    again = json.loads(capsys.readouterr().out)
    for row, other in zip(again["rows"], result["rows"], strict=True):
        sums, others = row.pop("by_prompt"), other.pop("by_prompt")
        assert list(sums["bits_per_byte"].values()) == list(others["bits_per_byte"].values()), "the same texts"
        assert row == other
    more = result["rows"][1]["more_than_first"]
    assert more["value"] == pytest.approx(result["rows"][1]["bits_per_byte"] - result["rows"][0]["bits_per_byte"])
    assert (more["error"] > 0, more["n"]) == (True, 4)
    assert evaluate(data, *systems[:-1], *orders) == 0
    _, head, first, second = capsys.readouterr().out.splitlines()
    assert "bits/byte more than the first's" in head
    assert show_number(more["value"], more["error"]) in second
    assert first.split()[-2:] == ["bound", "4"]
    assert evaluate(tmp_path / "texts.jsonl", *systems[:2], "--job", "infill") == 0
    _, head, line = capsys.readouterr().out.splitlines()
    parts = ["nats/token of inserts", "of the cursor", "of log q"]
    columns = ["system", "order", "K", "nats/token", "perplexity/token", "bits/byte", *parts, "is", "texts"]
    assert re.split(r"\s{2,}", head.strip()) == columns
    assert line.split()[:3] == ["ours", "runs", "1"], "the order it was trained with"


def test_the_order_comes_from_the_folder_or_its_run_or_must_be_given(run: Path, tmp_path: Path) -> None:
    assert trained_order(run / "model") == "runs:jump=0.1"
    lone = save_pretrained(random_model(SETTINGS.model), tmp_path / "model", BYTES)
    with pytest.raises(ConfigError, match=r"does not say what order it was trained with; give it, e.g. --order left"):
        trained_order(lone)
    configs.dump(replace(SETTINGS, model=replace(SETTINGS.model, num_layers=3)), tmp_path / "config.json")
    with pytest.raises(ConfigError, match="does not say what order"):
        trained_order(lone)
    trained = describe(override(SETTINGS, ["data.order=left-to-right"]), 3, "0", {})
    said = save_pretrained(random_model(SETTINGS.model), run / "said", BYTES, trained=trained)
    assert trained_order(said) == "left-to-right", "its own word counts, not the run's"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--system", "ours"], "--system ours is not NAME=MODEL; write shipped, ours=runs/mine or gpt2=hf:gpt2"),
        (["--system", "ours=x"], "--system names ours twice; give one of the two another name"),
        (
            ["--order", "runs", "--order", "runs"],
            "--order runs: runs is already the order of all systems; name one of them: ours",
        ),
        (
            ["--system", "b=runs/b,out_of_order=true"],
            "--system b: out_of_order is for writing, and a likelihood writes nothing; leave it out",
        ),
        (["--samples", "0"], "--samples 0 must be at least 1"),
        (["--job", "infill", "--prefix", "0"], "--prefix 0 must be at least 1"),
        (["--order", "scramble"], "Scramble with noise or a step budget has no likelihood; measure with an order"),
        (["none.jsonl"], "none.jsonl: no such file or folder; give .jsonl or text files, or a data folder"),
        (["bad.jsonl"], "bad.jsonl holds no text (bad.jsonl:1: no field 'text')"),
    ],
)
def test_the_command_refuses_in_one_line(
    words: list[str], text: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("bad.jsonl").write_text('{"title": "no text"}\n')
    Path("good.jsonl").write_text(json.dumps({"text": "The boat lay still. " * 20}))
    given_system = [] if "--system" in words and words[1] == "ours" else ["--system", f"ours={run}/model"]
    source = [] if words[0].endswith(".jsonl") else ["good.jsonl"]
    short = ["--n", "4", "--length", "20", "--device", "cpu"]
    assert main(["eval", "likelihood", *source, *words, *short, *given_system]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {text}")
