"""PPO as a whole: engine and training agree on probabilities, a judge's wish is learned, resuming changes nothing."""

import json

import numpy as np
import pytest
import torch
from tiny import fail, metrics, random_model, train

import reviser
from reviser.canvas import Rules
from reviser.config import CanvasConfig, ModelConfig
from reviser.data.examples import Examples, join_examples
from reviser.data.packing import Packer
from reviser.model.checkpoint import from_pretrained, weights
from reviser.orders.policies import LeftToRight
from reviser.own_states.episodes import Warmth, pack_rollouts
from reviser.own_states.policy_loss import action_terms
from reviser.own_states.rollouts import Roller
from reviser.training.objective import to_inputs

SHAPE = {
    "num_text": 257, "pad": 256, "num_layers": 2, "width": 32, "num_heads": 2, "ff_width": 64, "context": 64,
    "max_length": 40,
}  # fmt: skip
MODELS = {
    "the paper's": ModelConfig(**SHAPE, positions="absolute", tied=False),
    "window and jumps": ModelConfig(
        **SHAPE, operators=("jump", "delete", "replace"), canvas=CanvasConfig(kind="window", slot_width=8),
        pointer_ahead=2,
    ),
    "whole canvas": ModelConfig(**SHAPE, operators=("move", "delete", "replace"), canvas=CanvasConfig(kind="pool")),
}  # fmt: skip
FEW = {
    "train.steps": 2, "train.save_every": 1, "train.eval_examples": 4, "train.eval_prefix": 6, "train.eval_length": 8,
    "train.rows": 16, "optimizer.lr": "1e-3", "optimizer.warmup": 1,
    "data.jobs.prefix": "2,6", "data.jobs.length": "6,12", "data.jobs.gap": "1,8", "data.jobs.suffix": "1,8",
    "data.row": 128, "data.workers": 1,
    "ppo.prompts": 4, "ppo.candidates": 4, "ppo.parts": 2, "ppo.max_actions": 16, "ppo.oracle_rounds": 3,
    "ppo.guard.least": 0, "ppo.guard.repeats": 1, "ppo.judge": "many-e",
}  # fmt: skip


def count_e(texts):
    return [each.text.count("e") for each in texts]


@pytest.fixture(autouse=True)
def _judge():
    reviser.register_judge("many-e", count_e)


@pytest.fixture(scope="module")
def model_folder(whole):
    return whole / "model"


def flags(*more, **changes):
    settings = FEW | {name.replace("__", "."): value for name, value in changes.items()}
    return [*(f"--set={name}={value}" for name, value in settings.items()), *more]


def learn(data, out, model_folder, *more, **changes):
    return train("--ppo", "--data", data, "--out", out, f"--set=train.init={model_folder}", *flags(*more, **changes))


def example(tokens, prefix, suffix, draft=b"", inner=()):
    """What is given of a canvas, with nothing written yet; `inner` are the sizes of what is given between gaps."""
    one, size = np.array, len(tokens)
    return Examples(
        np.frombuffer(tokens + draft, np.uint8).astype(np.int32), one([0]), one([prefix]),
        one([size - prefix - suffix]), one([suffix]), one([1], np.uint64), one([0]), one([size]), one([len(draft)]),
        np.array([[[0, count] for count in inner]], np.int64).reshape(1, -1, 2),
    )  # fmt: skip


def make_examples(config):
    """Something to continue, to fill and, where the model can, to edit and to fill in several places."""
    parts = [example(b"ab cd", 5, 0), example(b"abyz", 2, 2), example(b"", 0, 0)]
    if "jump" in config.operators:
        parts += [example(b"abyz", 2, 2, b"draft"), example(b"abcdeyz", 2, 2, inner=(3,))]
    return join_examples([each for each in parts for _ in range(4)])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("max_actions", [9, 100])
def test_training_gives_the_log_probabilities_that_the_engine_reports(name, max_actions):
    config = MODELS[name]
    model, examples = random_model(config), make_examples(config)
    rules = Rules(config.alphabet, frozenset(config.operators), max_length=config.max_length)
    roller = Roller(config, num_rows=7, max_actions=max_actions)
    roller.take(model)
    drafts = [examples.draft(i, rules) for i in range(len(examples))]
    rollouts = roller.roll(drafts, 3, Warmth([b"xy"[: i % 3] for i in range(len(drafts))]))
    packer = Packer(LeftToRight(), rules, config.canvas, row=160, context=config.context)
    packed = pack_rollouts(packer, examples, rollouts, max_actions)
    inputs = to_inputs(packed.rows, config.context, torch.device("cpu"))
    with torch.no_grad():
        found = action_terms(model, model.hidden(inputs.actions, inputs.canvas, inputs.layout), inputs, None)
    flat = np.zeros(packed.rows.labels.size)
    flat[inputs.chosen[: inputs.num_labels]] = found.log_p[: inputs.num_labels]
    assert sum(map(len, packed.places)) == inputs.num_labels > 50
    for rollout, places, steps in zip(rollouts, packed.places, packed.steps, strict=True):
        assert packed.rows.labels.reshape(-1)[places].tolist() == [rollout.actions[step] for step in steps]
        told = [rollout.log_probabilities[step] for step in steps]
        np.testing.assert_allclose(flat[places], told, atol=2e-5)
        assert [step for step, guided in enumerate(rollout.is_guided) if not guided] == steps.tolist()


@pytest.mark.parametrize("advantage", [pytest.param(each, marks=pytest.mark.slow) for each in ("value", "group")])
def test_a_judges_wish_is_learned(data, tmp_path, model_folder, advantage):
    out = tmp_path / "run"
    changes = {"train__steps": 6, "ppo__candidates": 8, "ppo__kl_weight": 0.0, "ppo__epochs": 3}
    rate = {"ppo__advantage": advantage, "optimizer__lr": "6e-3", "train__save_every": 6}
    assert learn(data, out, model_folder, **rate, **changes) == 0
    found = [line for line in metrics(out) if "judge_score" in line]
    scores = [line["judge_score"] for line in found]
    assert np.mean(scores[-2:]) > 1.5 * np.mean(scores[:2])
    assert found[-1]["kl"] > found[0]["kl"] >= 0
    assert all(line["engine_gap_nats"] < 1e-4 for line in found)
    shares = {name: value for name, value in found[-1].items() if name.startswith("share_")}
    assert sum(shares.values()) == pytest.approx(1)
    assert {"entropy", "clipped", "reward", "sound_share", "stopped_share"} <= found[-1].keys()
    assert ("value_loss" in found[-1]) == (advantage == "value")
    assert "--- reward" in (out / "samples" / "step-00000006-rollouts.txt").read_text()
    assert any((out / "tensorboard").iterdir())


@pytest.mark.slow
def test_a_resumed_run_is_bit_equal(data, tmp_path, model_folder):
    same = {"train__accumulate": 2, "ppo__action_penalty": 0.01, "ppo__type_weight": 0.1}
    runs = [tmp_path / name for name in ("whole", "halves")]
    assert learn(data, runs[0], model_folder, **same) == 0
    assert learn(data, runs[1], model_folder, "--steps", 1, **same) == 0
    assert train("--resume", runs[1]) == 0
    first, second = (weights(from_pretrained(run / "model")) for run in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)
    timed = ("elapsed_s", "actions_per_s", "waiting_share")
    rounds = [[line for line in metrics(run) if "judge_score" in line] for run in runs]
    found = [[{name: value for name, value in each.items() if name not in timed} for each in run] for run in rounds]
    assert found[0] == found[1]
    given = weights(from_pretrained(model_folder))
    assert any(not torch.equal(given[name], first[name]) for name in given)


@pytest.mark.slow
def test_the_kl_weight_holds_the_model_where_it_began(data, tmp_path, model_folder):
    found = []
    for number, weight in enumerate((0.0, 30.0)):
        out, changes = tmp_path / str(number), {"ppo__kl_weight": weight, "ppo__epochs": 6, "optimizer__lr": "1e-2"}
        assert learn(data, out, model_folder, "--steps", 1, **changes) == 0
        found.append([line["kl"] for line in metrics(out) if "kl" in line][-1])
    assert found[1] < found[0] / 2


def test_a_run_takes_the_shape_of_the_model_it_begins_with(data, model_folder, capsys):
    settings = [f"train.init={model_folder}", *(f"{name}={value}" for name, value in FEW.items())]
    resolved = reviser.training.api.resolve("ppo_small", data=data, settings=settings)
    assert resolved.model == from_pretrained(model_folder).config
    assert train("debug", "--ppo", "--data", data, f"--set=train.init={model_folder}", "--show", *flags()) == 0
    assert json.loads(capsys.readouterr().out)["ppo"]["candidates"] == 4


def test_what_cannot_be_is_refused_in_one_line(data, tmp_path, model_folder, capsys):
    given, out = f"--set=train.init={model_folder}", tmp_path / "run"
    said = fail(capsys, "--ppo", "--data", data, "--out", out, *flags())
    assert said == "train.init is empty, and such a run starts from a trained model; set it to a model folder"
    said = fail(capsys, "--ppo", "--data", data, "--out", out, given, *flags(ppo__judge="meny-e"))
    assert said.startswith("no judge 'meny-e'; write likelihood:MODEL, critic:MODEL, http:MODEL@URL or the name of a")
    said = fail(capsys, "--ppo", "--data", data, "--out", out, given, *flags(train__masked="false"))
    assert said == "ppo takes train.masked=true: rollouts choose among valid actions alone"
    said = fail(capsys, "mdlm_small", "--ppo", "--data", data, "--out", out, given, *flags())
    assert said == "ppo is for models that edit, not for family=mdlm"
    assert fail(capsys, "--ppo", "--resume", out) == f"{out} is resumed as it began; drop --ppo"
    said = fail(capsys, "--ppo", "--dagger", "--data", data, given)
    assert said == "--ppo and --dagger learn from own states in two ways; choose one"
    said = fail(capsys, "dagger_small", "--ppo", "--data", data, "--out", out, given, *flags())
    assert "dagger.rounds=6" in said
    assert not out.exists()


def test_a_run_is_not_resumed_from_another_model_than_it_began_with(data, tmp_path, model_folder, capsys):
    assert learn(data, tmp_path / "run", model_folder, "--steps", 1) == 0
    other = tmp_path / "run" / "checkpoints" / "step-00000001"
    said = fail(capsys, "--resume", tmp_path / "run", f"--set=train.init={other}")
    assert said == f"{other} is not the model that this run began with; give that one as train.init"
