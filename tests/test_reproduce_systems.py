"""`reviser reproduce --system`, `--without` and `--positions`: other systems than the five, and shorter trainings."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reproducing import BYTES, Notes, one_line, save_model
from test_reproduce import write_texts

from reviser.actions import Alphabet
from reviser.cli import build_parser, main
from reviser.cli.reproduce import read_setup
from reviser.errors import MissingPackageError
from reviser.evaluation.generations import Generation
from reviser.evaluation.metrics.flops import diffusion_flops
from reviser.evaluation.metrics.gaps import NOTHING
from reviser.evaluation.plan import Step
from reviser.evaluation.specs import SystemSpec
from reviser.evaluation.suites import EvalPpl, Likelihood, Trajectories
from reviser.model.checkpoint import save_pretrained
from reviser.model.folder import Trained
from reviser.model.transformer import Transformer
from reviser.paper.comparison import gather, measured_by
from reviser.paper.costs import positions_of
from reviser.paper.jobs import Training
from reviser.paper.making import _describe
from reviser.paper.needs import num_written
from reviser.paper.reproduction import pick, plan
from reviser.paper.running import run_steps
from reviser.paper.setup import SCALES, SYSTEMS, Setup, writers
from reviser.paper.writing_costs import _gmacs, flops_rows

RUNS = "runs:jump=0.05,start=end"


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(SCALES["debug"], tmp_path / "out", device="cpu")


def save_trained(setup: Setup, folder: Path) -> Path:
    model = Transformer(setup.scale.settings("ours", BYTES.alphabet).model)
    return save_pretrained(model, folder, BYTES, trained=Trained(RUNS, "", "debug --set a=1", "0" * 64, 1, 99))


def test_a_model_folder_may_be_compared_too_and_all_is_measured_of_it(setup: Setup, tmp_path: Path) -> None:
    folders = {"ours": save_trained(setup, tmp_path / "ours"), "mdlm": save_model(setup, "mdlm", tmp_path / "mdlm")}
    specs = (f"mine={folders['ours']}", f"m={folders['mdlm']},steps=3", "gpt2=hf:gpt2")
    others = {spec.name: spec for spec in map(SystemSpec.parse, specs)}
    asked = replace(setup, others=others)
    steps = {step.name: step for step in plan(asked)}
    assert asked.folders == [*SYSTEMS, "mine", "m"]
    assert asked.editing == ["ar", "paper", "ours", "mine"]
    assert {"generate:mine", "infill:mine", "generate:m", "generate:gpt2"} <= set(steps)
    bound, edits = steps["likelihood:mine"].job, steps["trajectories"].job
    assert isinstance(bound, Likelihood)
    assert bound.system == (f"mine={folders['ours']}",)
    assert bound.order == (f"mine={RUNS}",)
    assert "--order" not in steps["likelihood:paper"].command, "it will say its order when it is trained"
    assert "likelihood:gpt2" not in steps
    assert {"likelihood:m", "gaps:mine"} <= set(steps)
    assert isinstance(edits, Trajectories)
    assert str(asked.written("continuation", "mine")) in edits.generations
    assert folders["mdlm"] / "config.json" in steps["generate:m"].inputs
    write_texts(asked, {name: [(4, 6), (0, 1)] for name in writers(asked)})
    for system in SYSTEMS:
        save_model(asked, system)
    assert [row["system"] for row in flops_rows(asked)] == [name for name in writers(asked) if name != "gpt2"]
    assert [row["system"] for row in gather(asked) if row["table"] == "systems"][5:] == ["mine", "m"]


def test_a_model_without_its_weights_is_still_described(setup: Setup) -> None:
    folder = save_model(setup, "ours")
    (folder / "model.safetensors").unlink()
    [row] = [row for row in gather(setup) if row["table"] == "systems"]
    assert row["system"] == "ours"
    assert row["weights"] is None
    setup.result("").parent.mkdir(parents=True)
    bound = {
        "order": "x",
        "K": 2,
        "bits_per_byte": 1.5,
        "error": 0.1,
        "nats_per_token": 2.0,
        "is_exact": False,
        "n": 4,
    }
    rows = [bound | {"system": name, "weights_sha256": "abc" * 9} for name in ("ours", "gone")]
    setup.result("likelihood_ours").write_text(json.dumps({"kind": "likelihood", "rows": rows}))
    found = gather(setup)
    assert [row["weights"] for row in found if row["table"] == "systems"] == [("abc" * 4)]
    assert [row["system"] for row in found if row["table"] == "likelihood"] == ["ours"], "nobody asked for the other"


def test_what_is_kept_of_several_texts_costs_what_all_of_them_cost(setup: Setup, tmp_path: Path) -> None:
    folder = save_trained(setup, tmp_path / "ours")
    specs = (SystemSpec.parse(f"one={folder}"), SystemSpec.parse(f"four={folder},best_of=4"))
    asked = replace(setup, others={spec.name: spec for spec in specs})
    for system in SYSTEMS:
        save_model(asked, system)
    write_texts(asked, {name: [(4, 24 if name == "four" else 6)] for name in writers(asked)})
    cost = {row["system"]: row["gmacs"]["value"] for row in flops_rows(asked)}
    assert cost["four"] == pytest.approx(4 * cost["one"])


def test_a_run_folder_is_as_good_as_its_model(setup: Setup, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    (run / "config.json").write_text("{}")
    save_trained(setup, run / "model")
    text = tmp_path / "t.jsonl"
    text.write_text(json.dumps({"text": "So she sat on the bank, with nothing to read and nothing to do. " * 3}))
    words = ["reproduce", "--scale", "debug", "--out", str(setup.out), "--system", f"mine={run}", "--cut"]
    words += ["--prompts", str(text), "--n", "1", "--device", "cpu", "--only", "generate:mine"]
    assert main(words) == 0
    [row] = json.loads(setup.result("continuation_mine").read_text())["rows"]
    assert row["generations"] == 1


def test_what_a_user_may_get_wrong_about_a_system_is_one_line(
    setup: Setup, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--scale", "debug", "--out", setup.out)
    silent = save_model(setup, "ours", tmp_path / "silent")
    assert "does not say what order it was trained with" in one_line(capsys, *words, "--system", f"x={silent}")
    assert one_line(capsys, *words, "--system", "x=a/b") == (
        "--system x=a/b: no such folder; a model of the hub is hf:MODEL"
    )
    twice = one_line(capsys, *words, "--system", "x=hf:a", "--system", "x=hf:b")
    assert twice == "--system names x twice; give one of the two another name"
    assert not setup.out.exists()


def test_a_system_named_like_a_label_has_no_bound_of_another(setup: Setup) -> None:
    row = {
        "order": "mdlm",
        "K": 2,
        "nats_per_token": 2.0,
        "error": 0.1,
        "bits_per_byte": 1.5,
        "is_exact": False,
        "n": 4,
    }
    setup.result("").parent.mkdir(parents=True)
    setup.result("likelihood_mdlm").write_text(json.dumps({"kind": "likelihood", "rows": [{"system": "mdlm"} | row]}))
    asked = replace(setup, others={"MDLM": SystemSpec("MDLM", "hf:x")})
    short = {row["system"]: row for row in gather(asked) if row["table"] == "summary"}
    assert short["mdlm-512"]["bits_per_byte"] == {"value": 1.5, "error": pytest.approx(0.075), "n": 4}
    assert "MDLM" not in short


def test_systems_are_compared_prompt_by_prompt(setup: Setup) -> None:
    def sums(*tops: float) -> dict[str, list[float]]:
        return {f"p{i}": [top, 1.0] for i, top in enumerate(tops)}

    def write(kind: str, key: str, values: dict[str, tuple[float, float]]) -> None:
        rows = [extra[kind] | {"system": name, "by_prompt": {key: sums(*tops)}} for name, tops in values.items()]
        # Some were measured by themselves, perhaps on another machine.
        parts = {f"{kind}_{row['system']}": [row] for row in rows} if kind == "likelihood" else {kind: rows}
        for name, part in parts.items():
            setup.result(name).write_text(json.dumps({"kind": kind, "rows": part}))

    extra = {
        "likelihood": {"order": "x", "K": 2, "nats_per_token": 2.0, "error": 0.1, "bits_per_byte": 1.5,
                       "is_exact": False, "n": 2},
        "evalppl": {"perplexity": None, "bits_per_byte": None},
    }  # fmt: skip
    setup.result("").parent.mkdir(parents=True)
    write("likelihood", "bits_per_byte", {"ar": (1.0, 3.0), "ours": (1.5, 3.5), "mdlm": (2.0, 3.0)})
    write("evalppl", "nats_per_token", {"ar": (1.0, 2.0), "ours": (2.0, 3.0), "mdlm-512": (1.0, 2.0)})
    both = {key: sums(1.0, 2.0) for key in ("middle_bits_per_byte", "suffix_bits_per_byte")}
    less = {key: sums(0.5, 1.5) for key in both}
    rows = [{"system": "ours", "by_prompt": less}, {"system": "ar", "by_prompt": both}, {"system": "paper"}]
    rows.append({"system": NOTHING, "by_prompt": {"suffix_bits_per_byte": sums(1.0, 2.0)}})
    for row in rows[:3]:
        setup.result(f"gaps_{row['system']}").write_text(json.dumps({"kind": "gaps", "rows": [rows[3], row]}))
    tables = gather(setup)
    assert [row["system"] for row in tables if row["table"] == "gaps"] == ["ar", "paper", "ours", NOTHING]
    found = {row["system"]: row for row in tables if row["table"] == "differences"}
    assert found["ours"]["bits_per_byte_more"] == {"value": 0.5, "error": 0.0, "n": 2}
    assert found["ours"]["perplexity_ratio"]["value"] == pytest.approx(math.e)
    assert found["ours"]["middle_bits_per_byte_more"]["value"] == -0.5
    assert found["ours"]["suffix_bits_per_byte_more"]["error"] == 0.0
    assert found["mdlm-512"]["bits_per_byte_more"] == {
        "value": 0.5,
        "error": 0.5,
        "n": 2,
    }
    assert found["mdlm-512"]["perplexity_ratio"]["value"] == 1.0
    assert found["mdlm"]["perplexity_ratio"] is None
    assert found["ar"]["bits_per_byte_more"] == {
        "value": 0.0,
        "error": 0.0,
        "n": 2,
    }
    assert "paper" not in found, "an older result of gaps says nothing about its prompts"


def test_a_diffusion_models_room_ends_with_its_canvas(setup: Setup) -> None:
    save_model(setup, "mdlm")
    model = setup.scale.settings("mdlm", BYTES.alphabet).model
    prefix = "x" * (model.context - 10)
    each = Generation("mdlm", "p", 1, prefix, "y", "", "r", True, 1, 3)
    [found] = _gmacs(setup, SystemSpec("mdlm", str(setup.model("mdlm"))), [each])
    assert found == diffusion_flops(model, 10, steps=3, prompt=len(prefix)).macs / 1e9


def test_a_report_says_what_really_made_its_models_and_how_many_prompts_there_are(
    setup: Setup, tmp_path: Path
) -> None:
    asked = replace(setup, models={"ours": str(save_trained(setup, tmp_path / "ours"))})
    [step] = pick(plan(asked), "train:ours")
    assert _describe(asked, step)["command"] == f"{tmp_path / 'ours'}: reviser train debug --set a=1"
    assert num_written(asked) == 16
    write_texts(asked, {"ar": [(4, 6)] * 3})
    assert num_written(asked) == 3


def test_what_cannot_work_is_said_before_anything_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    assert one_line(capsys, "--scale", "debug", "--out", tmp_path / "file") == (
        f"--out {tmp_path / 'file'}: cannot be made (File exists); give another folder"
    )
    found = one_line(capsys, "--scale", "debug", "--out", tmp_path / "o", "--device", "tpu")
    assert found == "no device 'tpu' to train on; write cpu, cuda or cuda:1"
    assert not (tmp_path / "o").exists()
    found = one_line(capsys, "--scale", "debug", "--out", tmp_path / "o", "--only", "report")
    assert found == f"nothing is measured yet in {tmp_path / 'o'}; run the steps before the report first"
    assert not list((tmp_path / "o").rglob("*.json"))

    def lack(*names: str) -> None:
        raise MissingPackageError(names[0], "scoring", f"pip install {names[0]}")

    monkeypatch.setattr("reviser.evaluation.evaluators.require", lack)
    small = Setup(SCALES["small"], tmp_path / "s", device="cpu")
    train = Training("ar_small", (), tmp_path / "no-data", tmp_path / "run", "cpu")
    steps = [
        Step("train:ar", train, (tmp_path / "no-data",), tmp_path / "x"),
        Step("evalppl", EvalPpl(generations=("g",)), (), tmp_path / "y"),
    ]
    told: dict[str, str] = {}
    notes = Notes()
    assert run_steps(small, steps, False, told, listener=notes) == 2
    assert told == {"train:ar": "failed"}
    assert "run: pip install transformers" in notes.lines[0]
    run_steps(small, steps[:1], False, told, listener=notes)
    assert "transformers" not in notes.lines[-2], "nothing is scored"


def test_a_report_names_who_made_its_numbers_not_who_was_asked_for_now(setup: Setup) -> None:
    assert measured_by(setup) == {}
    setup.result("").parent.mkdir(parents=True)
    setup.result("evalppl").write_text(json.dumps({"kind": "evalppl", "rows": [], "evaluator": {"name": "tiny"}}))
    setup.result("arena").write_text(json.dumps({"kind": "arena", "rows": [], "config": {"judge": "critic x"}}))
    assert measured_by(setup) == {"evaluator": "tiny", "judge": "critic x"}
    steps = {step.name: step for step in plan(setup)}
    assert _describe(setup, steps["mauve"])["why_not"].startswith("MAUVE needs at least 100 prompts")
    assert _describe(setup, steps["evalppl"])["why_not"] is None


@given(st.sampled_from(list(SCALES)), st.sets(st.sampled_from(SYSTEMS[1:])), st.integers(1, 10**9))
def test_fewer_systems_are_trained_on_the_positions_asked_for(name: str, left_out: set[str], positions: int) -> None:
    scale = replace(SCALES[name].without(sorted(left_out)), positions=positions, changes=("train.seed=7",))
    assert scale.systems == tuple(system for system in SYSTEMS if system not in left_out)
    for system in scale.systems:
        settings = scale.settings(system, Alphabet(257, 256))
        step = settings.train.rows * settings.data.row
        assert abs(positions_of(settings) - max(positions, step)) <= step / 2
        assert settings.optimizer.warmup <= settings.train.steps / 20
        assert max(settings.train.save_every, settings.train.eval_every) <= settings.train.steps
        assert settings.train.seed == 7


def test_a_setting_that_is_given_is_not_fitted() -> None:
    scale = replace(SCALES["100m"], positions=10**8, changes=("optimizer.warmup=900",))
    assert scale.settings("ours", Alphabet(257, 256)).optimizer.warmup == 900


def test_fewer_systems_make_a_plan_of_their_own(tmp_path: Path) -> None:
    words = ["reproduce", "--scale", "100m", "--without", "mdlm,sedd", "--positions", "1000", "--set", "train.rows=2"]
    setup = read_setup(build_parser().parse_args([*words, "--out", str(tmp_path)]))
    assert list(writers(setup)) == ["ar", "paper", "ours"]
    assert not any("mdlm" in step.name or "sedd=" in step.command for step in plan(setup))
    [step] = pick(plan(setup), "flops")
    again = read_setup(build_parser().parse_args(list(step.job.words)))
    assert again == setup


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--without", "ar"], "--without ar: systems that can be left out are paper, ours, mdlm, sedd"),
        (["--without", "gpt2"], "--without gpt2: systems that can be left out"),
        (["--positions", "0"], "--positions 0 must be at least 1"),
        (["--set", "train.row=1"], "train.row"),
        (["--without", "sedd", "--models", "sedd=x"], "--models sedd=...: no such system"),
    ],
)
def test_what_cannot_be_left_out_or_set_is_said(
    more: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert text in one_line(capsys, "--scale", "100m", "--plan", *more)
