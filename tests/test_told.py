"""Continuations that are told to be written out of order: their histories, their rows, and who may be told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_filling import fill_both
from tiny import make_trainer, random_model, settings, start

from reviser.actions import Alphabet
from reviser.canvas import Rules
from reviser.config import CanvasConfig
from reviser.data.examples import ANYWHERE, CUT, JobConfig
from reviser.data.packing import Packer
from reviser.data.shards import Shards
from reviser.data.slots import Slots
from reviser.decoding.presets import PAPER
from reviser.decoding.writer import Writer
from reviser.errors import ConfigError
from reviser.evaluation.plan import _told_order
from reviser.evaluation.prompts import Prompt
from reviser.evaluation.specs import SystemSpec
from reviser.evaluation.systems import Budget, ReviserSystem, open_system
from reviser.model.checkpoint import save_pretrained
from reviser.orders import replay
from reviser.orders.policies import LeftToRight
from reviser.orders.record import Draft, from_record, to_record
from reviser.orders.registry import parse_order
from reviser.tokenizer import load

RULES = Rules(Alphabet(257, 256), frozenset({"jump", "delete", "replace"}), max_length=96)
JOBS = JobConfig((0, 12), (8, 40), (1, 20), (1, 20), infill=0.5, gaps=(1, 3), cut_stops=False, told=0.5)


@given(st.integers(1, 40))
def test_a_told_history_goes_to_the_front_and_back_twice(size: int) -> None:
    tokens = np.arange(3 + size, dtype=np.int32)
    draft = Draft.told(tokens[3:].tolist(), Rules(Alphabet(5000, 4999), frozenset({"jump"})))
    names = [draft.rules.alphabet.name(action) for action in draft.actions[size:]]
    assert names == ["JUMP 0", f"JUMP {size}"] * 2
    assert draft.canvas == Draft.continuation(tokens[3:].tolist(), draft.rules).canvas
    history = np.empty(size + 20, np.int32)
    count = replay.write_draft(history, tokens, 3, size, 5, 0, 0, 0, 1, np.zeros(4, np.int64), 5000, 1)
    assert tuple(history[:count].tolist()) == draft.actions


def test_no_other_draft_begins_like_a_told_one() -> None:
    told = Draft.told([1, 2, 3], RULES).actions
    others = (
        Draft.continuation([1, 2, 3], RULES), Draft.edit([1, 2, 3], RULES), Draft.infill([1, 2], [3], RULES),
        Draft.gaps([[1], [2], [3]], RULES), Draft.gaps([[], [1, 2, 3], []], RULES),
        Draft.revision([1], [2], [3], RULES),
    )  # fmt: skip
    assert told not in [each.actions[: len(told)] for each in others]


@pytest.mark.parametrize("rules", [RULES, Rules(Alphabet(257, 256))])
def test_nothing_is_told_without_a_prompt_or_without_jumps(rules: Rules) -> None:
    with pytest.raises(ConfigError, match=r"^only what continues a prompt, by a model that JUMPs, can be told"):
        Draft.told([] if rules is RULES else [1], rules)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_told_is_out_of_order_and_nothing_else_is(data: Path, seed: int) -> None:
    slots = Slots.of(Shards.open(data, "train"), JOBS)
    packer = Packer(LeftToRight(), RULES, CanvasConfig(), 400, told_order=parse_order("runs:jump=0.3,by=pointer"))
    examples = slots.examples(slots.shuffle(seed, 0)[:80], seed, 0)
    drawn = packer.draw(examples)
    is_told = examples.told > 0
    can_be = (examples.suffix == 0) & ~examples.has_gaps & (examples.prefix > 0)
    assert not (is_told & ~can_be).any()
    assert 0.25 < is_told.sum() / can_be.sum() < 0.75
    num_jumps = 0
    for i in np.flatnonzero(can_be).tolist():
        jumps = sum(map(RULES.alphabet.is_jump, drawn.rows[i].tolist()))
        num_jumps += jumps
        assert is_told[i] or not jumps
        # Whoever is told has an end to reach; others learn to stop where documents end.
        assert bool(drawn.rows.has_loss[i, -1]) == (examples.ending[i] != CUT)
        assert examples.ending[i] == ANYWHERE if is_told[i] else examples.ending[i] != ANYWHERE
    assert num_jumps > 10
    fill_both(drawn, RULES, 400, 4)
    log_q = packer.pack(slots.examples(slots.shuffle(seed, 0)[:80], seed, 0)).log_q
    assert (log_q[is_told] < 0).any()
    assert (log_q[~is_told] == 0).all()


def test_telling_changes_no_other_example(data: Path) -> None:
    shards = Shards.open(data, "train")
    told, plain = Slots.of(shards, JOBS), Slots.of(shards, replace(JOBS, told=0.0))
    one, other = (each.examples(each.shuffle(3, 0)[:90], 3, 0) for each in (told, plain))
    assert not other.told.any()
    for name in ("first", "prefix", "length", "suffix", "inner"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    # Only those that may be told have drawn something more.
    can_be = (one.suffix == 0) & ~one.has_gaps & (one.prefix > 0)
    assert np.array_equal(one.states != other.states, can_be)


def test_a_trained_model_says_what_it_was_told(data: Path, tmp_path: Path) -> None:
    told = "data.jobs.told=0.5", "data.jobs.told_order=runs:jump=0.2,by=pointer"
    assert start(data, tmp_path / "run", *told, *JUMPING, "train.steps=2") == 0
    writer = Writer.from_pretrained(tmp_path / "run")
    assert "told=0.5 told_order=runs:jump=0.2,by=pointer" in writer.jobs
    assert writer.continuation("The sea", out_of_order=True).visits == (0, 7, 0)
    told_spec = SystemSpec.parse(f"ahead={tmp_path / 'run'},out_of_order=true")
    assert _told_order(told_spec) == "runs:jump=0.2,by=pointer"
    assert _told_order(SystemSpec.parse(f"plain={tmp_path / 'run'}")) is None
    assert open_system(told_spec).request(Prompt("a", "The sea", " is wide."), 0).draft.visits == (0, 7, 0)


JUMPING = "model.operators=jump", "data.order=left-to-right"
TELLING = "prefix=0,12 told=0.5 told_order=ending"


def make_writer(jobs: str) -> Writer:
    config = settings(*JUMPING).model
    return Writer(random_model(config), load("bytes"), jobs=jobs)


def test_a_writer_tells_a_model_that_has_learned_it() -> None:
    writer = make_writer(TELLING)
    [text] = writer.generate("The sea", max_actions=20, out_of_order=True)
    assert text.draft.visits == (0, 7, 0)
    assert text.text.startswith("The sea")
    assert text.fillings == (text.new,)
    assert from_record(to_record(text.trajectory)) == text.trajectory
    [plain] = writer.generate("The sea", max_actions=20)
    assert not plain.draft.visits
    with pytest.raises(
        ConfigError, match=r"^only what continues a prompt can be written out of order; give a prompt$"
    ):
        writer.generate("", out_of_order=True)
    with pytest.raises(ConfigError, match=r"^this model was not trained to write out of order; train one with "):
        make_writer("prefix=0,12").generate("The sea", out_of_order=True)


def test_an_evaluated_system_may_be_told(tmp_path: Path) -> None:
    spec = SystemSpec.parse("ahead=runs/mine,out_of_order=true,temperature=0.5")
    assert (spec.out_of_order, spec.sampling) == (True, ["temperature=0.5"])
    with pytest.raises(ConfigError, match=r"out_of_order=maybe must be true or false$"):
        SystemSpec.parse("ahead=runs/mine,out_of_order=maybe")
    folder = save_pretrained(random_model(settings(*JUMPING).model), tmp_path / "model", load("bytes"))
    with pytest.raises(
        ConfigError, match=r"^--system a=.*,out_of_order=true: .*/model was not trained to write out "
    ):
        open_system(f"a={folder},out_of_order=true")
    told = ReviserSystem("ahead", make_writer(TELLING), PAPER, Budget(), out_of_order=True)
    assert told.request(Prompt("a", "The sea", " is wide."), 0).draft.visits == (0, 7, 0)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (["data.jobs.told=2"], r"^jobs.told=2.0 is not a share between 0 and 1$"),
        (
            ["data.jobs.told=0.5", "data.order=left-to-right", "model.operators=move"],
            r"^data.jobs.told with told_order=ending takes the operator jump; model.operators is move$",
        ),
        (
            ["data.jobs.told=0.5", "data.jobs.told_order=random-walk", *JUMPING],
            r"^data.jobs.told with told_order=random-walk takes the operator move; model.operators is jump$",
        ),
        (["data.jobs.told=1", "family=mdlm"], r"^data.jobs.told is for models that edit; family=mdlm has no order$"),
    ],
)  # fmt: skip
def test_what_cannot_be_told_is_refused(data: Path, changes: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make_trainer(data, *changes)
