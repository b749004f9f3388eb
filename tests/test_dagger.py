"""DAgger: lessons are true, rows hold them, a run that is stopped continues, and a model that derailed recovers."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from own import make_pairs, make_trainer, settings, without
from tiny import checkpoint, fail, losses

from reviser.canvas import apply, replay, valid_mask
from reviser.cli import main
from reviser.data.packing import Packer
from reviser.decoding.presets import GREEDY
from reviser.errors import CheckpointError, ConfigError
from reviser.model.checkpoint import read_weights
from reviser.orders.history import follow_births
from reviser.own_states.dagger import DaggerTrainer
from reviser.own_states.lessons import Lessons, OracleGuide, make_lessons
from reviser.own_states.oracle import advise, write_script
from reviser.own_states.own_rows import OwnRows
from reviser.own_states.rollouts import Roller
from reviser.own_states.seeds import find_goals
from reviser.training.api import train
from reviser.training.recipes import RECIPES, ROUNDS

GAPS = ("data.jobs.pairs=0.5", "data.jobs.infill=1", "data.jobs.gaps=1,3", "data.jobs.sparse=0.3", "dagger.infill=1")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pairs(tmp_path_factory.mktemp("pairs"))


@pytest.fixture(scope="module", params=[(), GAPS], ids=["pairs", "gaps"])
def rolled(data, request):
    """A trainer, and what a fresh model did on some drafts, with some help."""
    trainer = make_trainer(data, settings(*request.param))
    assert isinstance(trainer, DaggerTrainer)
    numbers = trainer.seeds.choose(np.arange(40))
    examples = trainer.seeds.examples(numbers)
    roller = Roller(trainer.settings.model, num_rows=16, max_actions=12)
    roller.take(trainer.model)
    guide = OracleGuide(examples, trainer.seeds, 0.5, seed=3)
    return trainer, numbers, examples, roller.roll(trainer.seeds.drafts(examples), 1, guide)


def lesson_of(lessons, i):
    part = slice(int(lessons.ends[i - 1]) if i else 0, int(lessons.ends[i]))
    return lessons.actions[part].tolist(), lessons.labels[part].tolist(), lessons.landings[part].tolist()


def test_a_guided_action_is_the_oracles(rolled):
    trainer, _, examples, rollouts = rolled
    for i, rollout in enumerate(rollouts):
        canvas, goals = rollout.draft.canvas, find_goals(examples, i)
        for step, (action, is_guided) in enumerate(zip(rollout.actions, rollout.is_guided, strict=True)):
            if is_guided:
                assert action == advise(canvas, goals, trainer.settings.rules, step > 0)
            canvas = apply(canvas, action, trainer.settings.rules)
    flags = [flag for rollout in rollouts for flag in rollout.is_guided]
    assert 0.3 < np.mean(flags) < 0.7


@pytest.mark.parametrize("form", ["both", "states", "splice"])
def test_a_lesson_follows_the_model_and_ends_with_its_target(rolled, form):
    trainer, numbers, examples, rollouts = rolled
    rules = trainer.settings.rules
    made = make_lessons(trainer.seeds, numbers, [each.actions for each in rollouts], 0, form).lessons
    assert len(made) == len(rollouts)
    for i, rollout in enumerate(rollouts):
        (actions, labels, _), cut, draft = lesson_of(made, i), int(made.cuts[i]), rollout.draft
        assert actions[:cut] == list(rollout.actions[:cut])
        final = replay(draft.canvas, actions, rules)
        assert (final.tokens, final.is_stopped) == (examples.text(i), True)
        assert made.sizes[i] == len(draft.actions) + len(actions) <= trainer.settings.model.context
        assert labels[cut:] == actions[cut:]
        goals, canvas = find_goals(examples, i), draft.canvas
        for step in range(cut):
            assert labels[step] == (-1 if form == "splice" else advise(canvas, goals, rules, step > 0))
            canvas = apply(canvas, actions[step], rules)
        assert tuple(actions[cut:]) == write_script(canvas, goals, rules, cut > 0)


def test_rows_of_lessons_hold_their_labels_and_where_those_jump(rolled):
    trainer, numbers, _, rollouts = rolled
    alphabet, rules, packer = trainer.settings.model.alphabet, trainer.settings.rules, trainer.packer
    assert isinstance(packer, Packer)
    made = make_lessons(trainer.seeds, numbers, [each.actions for each in rollouts], 0, "states").lessons
    rows = OwnRows(made, trainer.seeds, packer, seed=0)
    order, places, num_rows = rows._plan(0)
    packed = rows.rows(0, num_rows)
    for lesson, (row, column, size) in zip(order.tolist(), places.tolist(), strict=True):
        draft, (actions, labels, _) = rollouts[lesson].draft, lesson_of(made, lesson)
        first, canvas = column + size - len(actions), draft.canvas
        births = tuple(range(1, len(draft.tokens) + 1))
        assert packed.labels[row, column:first].tolist() == [-1] * (first - column)
        assert packed.labels[row, first : column + size].tolist() == labels
        assert packed.actions[row, first + 1 : column + size].tolist() == actions[:-1]
        for step, (action, label) in enumerate(zip(actions, labels, strict=True)):
            assert int(packed.valid[row, first + step]) == valid_mask(canvas, rules)
            if label >= 0:
                is_jump = alphabet.is_jump(label)
                ways = [(0, *births)[at] for at in (alphabet.landing(label), canvas.cursor)] if is_jump else [-1, -1]
                assert packed.lives[row, first + step, 1:].tolist() == ways
            births = follow_births(births, canvas, action, len(draft.actions) + step + 1, alphabet)
            canvas = apply(canvas, action, rules)


def test_rows_are_the_same_wherever_a_series_is_continued(rolled):
    trainer, numbers, _, rollouts = rolled
    made = make_lessons(trainer.seeds, numbers, [each.actions for each in rollouts], 0, "states").lessons
    whole, again = (OwnRows(made, trainer.seeds, trainer.packer, seed=4) for _ in range(2))
    expected = np.concatenate([whole.rows(first, 3).labels for first in range(0, 60, 3)])
    assert (again.rows(31, 17).labels == expected[31:48]).all()


def test_lessons_survive_a_file_and_a_damaged_file_is_named(rolled, tmp_path):
    trainer, numbers, _, rollouts = rolled
    made = make_lessons(trainer.seeds, numbers, [each.actions for each in rollouts], 0, "states").lessons
    made.save(tmp_path / "round.npz")
    read = Lessons.load(tmp_path / "round.npz")
    for name in ("numbers", "sizes", "cuts", "ends", "actions", "labels", "landings"):
        assert (getattr(read, name) == getattr(made, name)).all()
    (tmp_path / "round.npz").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match=r"round.npz: the rollouts of a round can't be read"):
        Lessons.load(tmp_path / "round.npz")


def test_any_bit_flipped_in_a_file_of_lessons_is_noticed_or_changes_nothing(tmp_path):
    path, arrays = tmp_path / "round.npz", {each.name: np.arange(3, dtype=np.int32) for each in fields(Lessons)}
    made = Lessons(**arrays)
    made.save(path)
    good, num_named = path.read_bytes(), 0
    for place in range(0, 8 * len(good), 53):
        data = bytearray(good)
        data[place // 8] ^= 1 << place % 8
        path.write_bytes(data)
        try:
            read = Lessons.load(path)
        except CheckpointError:
            num_named += 1
        else:
            assert all((getattr(read, each.name) == getattr(made, each.name)).all() for each in fields(Lessons))
    assert num_named > 100


def weights_of(run, step):
    return read_weights(checkpoint(run, step) / "model.safetensors")


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dagger") / "whole"
    train(settings(), data=data, out=folder, device="cpu")
    return folder


@pytest.mark.parametrize("step", [4, *(pytest.param(step, marks=pytest.mark.slow) for step in (2, 5))])
def test_a_run_that_is_stopped_continues_bit_by_bit(data, whole, tmp_path, step):
    """Rounds begin at steps 2 and 5; checkpoints are made at every second step and where a run is stopped."""
    train(settings(), data=data, out=tmp_path / "run", steps=step, device="cpu")
    train(resume=tmp_path / "run", device="cpu")
    assert losses(tmp_path / "run") == losses(whole)
    expected, found = weights_of(whole, 8), weights_of(tmp_path / "run", 8)
    assert all((found[name] == tensor).all() for name, tensor in expected.items())


def test_each_round_is_recorded_once_with_the_time_it_took(whole, data, tmp_path):
    from tiny import metrics

    rounds = [line for line in metrics(whole) if "round" in line]
    assert [line["round"] for line in rounds] == [1, 2]
    assert [line["mixing"] for line in rounds] == [0.5, 0.25]
    assert all(line["rollouts"] == 48 and line["label_waiting_s"] >= 0 for line in rounds)
    assert len(list((whole / "rollouts").iterdir())) == 2


def test_rollouts_that_are_gone_are_missed(data, tmp_path):
    train(settings(), data=data, out=tmp_path / "run", steps=4, device="cpu")
    [path] = (tmp_path / "run" / "rollouts").iterdir()
    path.unlink()
    with pytest.raises(CheckpointError, match="the rollouts of round 1 are missing"):
        train(resume=tmp_path / "run", device="cpu")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model.operators=jump", "takes the operators jump and delete"),
        ("data.jobs.pairs=0", "needs drafts; set data.jobs.edit, data.jobs.pairs or dagger.infill"),
        ("dagger.infill=0.5", "dagger.infill=0.5 needs gaps in training too"),
        ("dagger.after=7", "need a step each; train.steps=8 and dagger.after=7 leave 1"),
        ("dagger.share=1", "dagger.share=1.0 must be above 0 and below 1"),
        ("dagger.mixing=2", "dagger.mixing=2.0 must be between 0 and 1"),
        ("dagger.rollouts=0", "dagger.rollouts=0 must be 1 or more"),
        ("dagger.temperature=-1", "dagger.temperature=-1.0 must be 0 or more"),
        ("train.accumulate=4", "leave one row, make it two or more"),
        ("family=mdlm", "is for models that edit; family=mdlm does not"),
    ],
)
def test_settings_that_cannot_be_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        settings(change)


def test_recipes_that_learn_from_own_states_say_so_once(capsys, data):
    assert {name for name in RECIPES if RECIPES[name](settings().model.alphabet).dagger.rounds} == {
        "dagger_edit", "dagger_small",
    }  # fmt: skip
    assert "drop --dagger" in fail(capsys, "dagger_edit", "--dagger")
    assert "drop --dagger" in fail(capsys, "edit_small", "--dagger", "--set", "dagger.rounds=2")
    assert "drop it" in fail(capsys, "--resume", "runs/none", "--dagger")
    assert main(["train", "edit_small", "--dagger", "--show", "--data", str(data)]) == 0
    assert f'"rounds": {ROUNDS}' in capsys.readouterr().out


def test_the_oracle_steps_back_from_round_to_round(data):
    trainer = make_trainer(data, settings("dagger.rounds=4", "dagger.after=4", "train.steps=12"))
    assert isinstance(trainer, DaggerTrainer)
    assert [trainer.first_step(number) for number in range(5)] == [4, 6, 8, 10, 12]
    assert [trainer.roll_out(number).mixing for number in (0, 2)] == [0.5, 0.125]


class Slip:
    """A guide that starts with a mistake: it goes behind an a that no x follows, and inserts a y there."""

    def is_asked(self, numbers, steps):
        return steps < 2

    def choose(self, numbers, steps, canvases):
        return [ord("y") if step else self.jump(canvas) for step, canvas in zip(steps, canvases, strict=True)]

    def jump(self, canvas):
        text = bytes(canvas.tokens)
        places = [place for place in range(1, len(text)) if text[place - 1 : place] == b"a"]
        return settings().model.alphabet.jump(next(place for place in places if text[place : place + 1] != b"x"))


@pytest.mark.slow
def test_a_model_that_derailed_after_a_slip_recovers_once_it_has_learned_from_own_states(data):
    """At equal steps, and so at equal positions. The task is to insert a y before the x; no teacher ever deletes."""
    config = settings(
        "train.steps=160", "dagger.after=40", "dagger.rounds=4", "dagger.rollouts=256", "dagger.rows=64",
        "dagger.max_actions=8", "dagger.mixing=0.2", "dagger.temperature=1.5", "dagger.share=0.75",
        "train.save_every=1000", "train.log_every=1000",
    )  # fmt: skip
    shares = []
    for each in (without(config), config):
        trainer = make_trainer(data, each)
        trainer.train()
        roller = Roller(config.model, num_rows=64, sampling=GREEDY, max_actions=12)
        roller.take(trainer.model)
        seeds = make_trainer(data, config).seeds
        examples = seeds.examples(np.arange(9000, 9100))
        for guide in (None, Slip()):
            rollouts = roller.roll(seeds.drafts(examples), 0, guide)
            is_right = [each.canvas.tokens == examples.text(i) for i, each in enumerate(rollouts)]
            shares.append(np.mean(is_right))
    plain, plain_slipped, own, own_slipped = shares
    assert min(plain, own) > 0.9
    assert plain_slipped < 0.1
    assert own_slipped > 0.8
