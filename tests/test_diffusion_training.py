"""MDLM and SEDD through the same trainer, run folder and model folder as a Reviser."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from tiny import copied, fail, losses, metrics, settings, start, train

from reviser.actions import Alphabet
from reviser.data.examples import Gap
from reviser.data.shards import Shards
from reviser.data.slots import Slots
from reviser.diffusion.bound import bound_nats
from reviser.diffusion.denoiser import FAMILIES, num_parameters
from reviser.diffusion.denoiser_folder import denoiser_tokenizer, family_of, load_denoiser, save_denoiser
from reviser.diffusion.denoising_family import DenoiserFamily
from reviser.diffusion.heldout_canvases import SAMPLES, HeldoutCanvases
from reviser.errors import CheckpointError, ConfigError
from reviser.model.checkpoint import from_pretrained
from reviser.tokenizer import load
from reviser.training import families
from reviser.training.distributed import Team
from reviser.training.families import count_parameters, find_family, register_family
from reviser.training.loop import Trainer
from reviser.training.progress import Progress
from reviser.training.recipes import mdlm_small, sedd_small, small
from reviser.training.reviser_family import ReviserFamily

CPU = torch.device("cpu")
BOTH = pytest.mark.parametrize("family", FAMILIES)
HARD = (
    "model.dropout=0.2", "train.accumulate=2", "data.workers=3", "train.steps=8", "data.jobs.infill=0.3",
    "data.jobs.gap=1,9", "data.jobs.suffix=2,6",
)  # fmt: skip
"""Settings under which a careless resume would show."""


def make_trainer(data, *changes):
    chosen, shards = settings(*changes), Shards.open(data, "train")
    team = Team(0, 1, CPU)
    return Trainer(chosen, Slots.of(shards, chosen.data.jobs), team, None, Shards.open(data, "heldout"))


@pytest.fixture(scope="module", params=FAMILIES)
def run(request, data, tmp_path_factory):
    """A whole run of each family."""
    out = tmp_path_factory.mktemp(request.param) / "run"
    assert start(data, out, f"family={request.param}", *HARD, more=["--json"]) == 0
    return out


def test_a_run_leaves_what_every_run_leaves(run):
    family = run.parent.name.rstrip("0123456789")
    assert {path.name for path in run.iterdir()} >= {
        "config.json",
        "metrics.jsonl",
        "model",
        "samples",
        "checkpoints",
    }
    assert family_of(run / "model") == json.loads((run / "config.json").read_text())["family"] == family
    measured = [line for line in metrics(run) if "bound_nats_per_token" in line]
    assert [line["step"] for line in measured] == [4, 8]
    assert all(math.isfinite(line["bits_per_byte"]) and line["bound_error"] > 0 for line in measured)
    written = (run / "samples" / "step-00000008.txt").read_text()
    assert "--- 'The old lighthouse', " in written
    card = (run / "model" / "README.md").read_text()
    assert "held-out continue" in card
    assert "8 steps" in card


def test_stopping_and_going_on_gives_the_same_losses(run, data, tmp_path):
    family = run.parent.name.rstrip("0123456789")
    half = tmp_path / "half"
    assert start(data, half, f"family={family}", *HARD, more=["--steps", 4]) == 0
    assert train("--resume", half) == 0
    assert losses(half) == losses(run)


def test_the_folder_holds_the_model_that_was_measured(run, data):
    model = load_denoiser(run / "model")
    chosen = settings()
    heldout = HeldoutCanvases(
        Shards.open(data, "heldout"), chosen.train.eval_examples, chosen.train.eval_prefix, chosen.train.eval_length
    )
    bound = heldout.summarise(heldout.score(model, CPU))
    last = [line for line in metrics(run) if "bound_nats_per_token" in line][-1]
    assert bound.nats_per_token == pytest.approx(last["bound_nats_per_token"], rel=1e-5)
    assert denoiser_tokenizer(run / "model").sha256 == load("bytes").sha256


def test_training_can_begin_with_a_folders_weights(run, data):
    family = family_of(run / "model")
    trainer = make_trainer(data, f"family={family}", *HARD, f"train.init={run / 'model'}")
    trainer.begin()
    given = load_denoiser(run / "model").state_dict()
    assert all(torch.equal(tensor, given[name]) for name, tensor in trainer.model.state_dict().items())


def test_a_run_goes_on_only_as_the_family_it_was(run, tmp_path, capsys):
    family, other = family_of(run / "model"), copied(run, tmp_path)
    line = fail(capsys, "--resume", other, "--set", "family=reviser", "--set", "train.steps=99")
    assert line == f"the checkpoint is of family={family}, not reviser; drop the setting that changes it"


@pytest.mark.slow
@BOTH
def test_one_batch_can_be_learnt_by_heart(family, data):
    trainer = make_trainer(data, f"family={family}", "optimizer.lr=1e-2", "train.rows=2", "data.row=64")
    feed = trainer.feed()
    work = next(iter(feed))
    feed.close()
    found = []
    with Progress(trainer.settings) as progress:
        for _ in range(80):
            trainer.step = 3
            trainer.advance(work, progress)
            found.append(trainer._check_last()[0])
    assert found[-1] < 0.35 * found[0]


@BOTH
def test_a_fresh_model_knows_nothing_and_a_batch_has_its_own_noise(family, data):
    trainer, other = (make_trainer(data, f"family={family}", f"train.accumulate={n}") for n in (1, 2))
    batch = next(iter(trainer.feed().stream))
    inputs = trainer.prepare(batch)
    assert inputs.count == (batch.rows.labels >= 0).sum()
    assert (trainer.objective(inputs) / inputs.count).item() == pytest.approx(math.log(257), abs=0.1)
    assert torch.equal(inputs.tokens, other.prepare(batch).tokens)


def test_processes_draw_noise_of_their_own(data):
    trainer = make_trainer(data, "family=mdlm")
    batch = next(iter(trainer.feed().stream))
    mine = trainer.prepare(batch)
    trainer.team = Team(1, 2, CPU)
    assert not torch.equal(trainer.prepare(batch).tokens, mine.tokens)


def test_several_processes_share_the_heldout_texts(data):
    trainer = make_trainer(data, "family=mdlm")
    heldout = trainer.heldout["continue"]
    alone = heldout.score(trainer.model, CPU)
    shares = [heldout.score(trainer.model, CPU, rank=rank, world=2) for rank in range(2)]
    assert (np.count_nonzero(shares, axis=0) == 1).all()
    assert sum(shares) == pytest.approx(alone, rel=1e-5)


def test_held_out_canvases_have_one_room_and_are_the_revisers_texts(data):
    heldout = HeldoutCanvases(Shards.open(data, "heldout"), 6, 6, 12, infill=True)
    reviser = make_trainer(data, "train.eval_infill=6").heldout["infill"]
    assert [len(gap.target) for gap in heldout.gaps] == reviser.packed.num_tokens.tolist()
    assert heldout.num_bytes == reviser.num_bytes
    assert heldout.room == max(len(gap.target) for gap in heldout.gaps) + 1
    assert all(len(gap.prefix) == len(gap.suffix) == 6 for gap in heldout.gaps)
    model = make_trainer(data, "family=mdlm").model.eval()
    assert heldout.score(model, CPU) == pytest.approx(bound_nats(model, heldout.gaps, heldout.room, SAMPLES))


@pytest.mark.parametrize("num_text", [257, 8192, 50257])
def test_recipes_are_as_large_as_small(num_text):
    alphabet = Alphabet(num_text, 0)
    size = count_parameters(small(alphabet))
    for recipe, family in ((mdlm_small, "mdlm"), (sedd_small, "sedd")):
        config = recipe(alphabet)
        assert config.family == family
        assert abs(num_parameters(family, config.model) / size - 1) < 0.01
        assert config.data.jobs == small(alphabet).data.jobs


def test_families_are_found_by_name_and_others_can_be_added(data, monkeypatch):
    monkeypatch.setattr(families, "_registered", {})
    assert [find_family(name).name for name in ("reviser", "mdlm", "sedd")] == ["reviser", "mdlm", "sedd"]
    with pytest.raises(ConfigError) as caught:
        settings("family=mdml")
    assert str(caught.value) == "no family 'mdml'; families are reviser, mdlm, sedd; did you mean mdlm?"
    with pytest.raises(ConfigError, match=r"^there is already a family 'mdlm'; give this one another name$"):
        register_family(DenoiserFamily("mdlm"))

    class Quiet(ReviserFamily):
        def write_samples(self, model, tokenizer, settings):
            return "nothing"

    register_family(Quiet("quiet"))
    register_family(Quiet("quiet"))
    with pytest.raises(ConfigError, match=r"^there is already a family 'quiet'; give this one another name$"):
        register_family(ReviserFamily("quiet"))
    trainer = make_trainer(data, "family=quiet", "train.steps=1")
    assert trainer.family.write_samples(None, None, None) == "nothing"
    assert trainer.train()


@pytest.mark.slow
def test_training_imports_no_diffusion_model_until_one_is_asked_for():
    code = "import sys, reviser.training.api; sys.exit(any('diffusion' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_errors_are_one_line(run, data, tmp_path, capsys):
    wrong = fail(capsys, "debug", "--data", data, "--out", tmp_path / "x", "--set", "family=mdlm")
    assert wrong == "model.canvas.kind=window: a denoiser sees the canvas anyway; set none"
    family = family_of(run / "model")
    with pytest.raises(CheckpointError, match=f"has the format {family} 1; this version reads reviser 1"):
        from_pretrained(run / "model")
    model, tokenizer = load_denoiser(run / "model"), load("bytes")
    with pytest.raises(CheckpointError, match="already exists"):
        save_denoiser(model, run / "model", tokenizer)
    with pytest.raises(CheckpointError, match=r"holds no config\.json"):
        family_of(data)
    heldout = HeldoutCanvases(Shards.open(data, "heldout"), 2, 6, 12)
    short = settings("model.positions=absolute", "model.context=8").model
    with pytest.raises(ConfigError, match=r"take up to \d+ places and the model has a table of 8; measure shorter"):
        heldout.check_fits(short)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"version": 1', '"version": 2', "this version reads .* 1"),
        ('"width"', '"widht"', "does not describe a model: no setting"),
        ("{", "", "does not describe a model"),
        ('"format": ', '"format": "x", "was": ', "has the format x; denoisers are mdlm, sedd"),
    ],
)
def test_a_config_that_is_no_denoisers_is_named(run, tmp_path, old, new, message):
    folder = copied(run / "model", tmp_path)
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace(old, new, 1))
    with pytest.raises(CheckpointError, match=message):
        load_denoiser(folder)


def test_another_tokenizer_is_refused(run, tmp_path):
    folder = copied(run / "model", tmp_path)
    text = (folder / "config.json").read_text()
    sha256 = load("bytes").sha256
    (folder / "config.json").write_text(text.replace(sha256, "0" * 64))
    with pytest.raises(CheckpointError, match="is not the tokenizer the model was trained with"):
        denoiser_tokenizer(folder)


def test_a_trained_model_gives_better_bounds_than_a_fresh_one(run, data):
    trained = load_denoiser(run / "model")
    fresh = FAMILIES[trained.family](trained.config)
    gaps = [Gap(load("bytes").encode("the boat lay still. "), load("bytes").encode("And "))] * 8
    before, after = (bound_nats(model.eval(), gaps, 21, samples=8).mean() for model in (fresh, trained))
    assert after < before
