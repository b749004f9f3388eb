"""`reviser reproduce`: the plan and its costs, what is done once and gone on with, tables beside the paper's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reproducing import BYTES, Notes, one_line, save_model

from reviser.actions import Alphabet
from reviser.cli import build_parser, main
from reviser.cli.reproduce import read_setup
from reviser.cli.shared.fields import from_args
from reviser.errors import CheckpointError, ConfigError, DataError
from reviser.evaluation.generations import Generation, Prompt
from reviser.evaluation.metrics.flops import diffusion_flops, flops
from reviser.evaluation.plan import Step
from reviser.evaluation.specs import SystemSpec
from reviser.evaluation.suites import Continuation, Suite
from reviser.evaluation.suites.writing import Writing
from reviser.paper import printed as paper
from reviser.paper.comparison import _ratio, gather, measured_by, win_rate
from reviser.paper.costs import (
    TRAINING_SHARES,
    WRITING_SHARE,
    StepCost,
    cost_of,
    positions_of,
    training_flops,
)
from reviser.paper.making import Own
from reviser.paper.reproduction import pick, plan
from reviser.paper.running import is_there, is_trained, resumed, run_step, run_steps
from reviser.paper.setup import DENOISERS, SCALES, SYSTEMS, Setup, find_scale, writers
from reviser.paper.writing_costs import flops_rows, time_system
from reviser.reports.results import format_command, make_result, write_result
from reviser.reports.sections import render
from reviser.tokenizer import load
from reviser.training.families import count_parameters
from reviser.training.progress import PEAK_FLOPS
from reviser.training.runs import Run

ROOT = Path(__file__).parents[1]
GPT2 = SystemSpec("gpt2", "hf:gpt2")
ALPHABETS = {"debug": BYTES.alphabet, "small": load("default").alphabet, "100m": Alphabet(50257, 50256)}
NAMES = [step.name for step in plan(Setup(SCALES["debug"], Path("out")))]


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(SCALES["debug"], tmp_path / "out", device="cpu")


@pytest.mark.parametrize("scale", SCALES)
def test_systems_of_a_scale_are_equally_large_and_trained_on_equally_many_positions(scale: str) -> None:
    alphabet = ALPHABETS.get(scale, ALPHABETS["100m"])
    settings = {system: SCALES[scale].settings(system, alphabet) for system in SYSTEMS}
    sizes = {system: count_parameters(each) for system, each in settings.items()}
    assert max(sizes.values()) <= 1.01 * min(sizes.values())
    assert len({positions_of(each) for each in settings.values()}) == 1
    assert {system: each.family for system, each in settings.items()} == dict.fromkeys(SYSTEMS, "reviser") | {
        system: system for system in DENOISERS
    }
    assert settings["ar"].data.order == "left-to-right"
    assert settings["paper"].data.order == "random-walk"
    assert settings["paper"].model.canvas.kind == "none"
    assert settings["ours"].model.canvas.kind == "window"
    assert len({each.optimizer for each in settings.values()}) == 1


@pytest.mark.parametrize(
    "scale", ["debug", *(pytest.param(name, marks=pytest.mark.slow) for name in SCALES if name != "debug")]
)
def test_every_planned_command_is_one_that_the_command_line_takes(scale: str) -> None:
    setup = Setup(SCALES[scale], Path("out"), ("text.jsonl",), others={"gpt2": GPT2}, n=7)
    names = [step.name for step in plan(setup)]
    assert len(set(names)) == len(names)
    for step in plan(setup):
        args = build_parser().parse_args(list(step.job.words))
        if isinstance(step.job, Suite):
            assert from_args(args.kind_of_suite, args) == step.job
        assert args.run


def test_steps_read_only_what_steps_before_them_leave() -> None:
    setup = Setup(SCALES["small"], Path("out"), ("text.jsonl",), others={"gpt2": GPT2})
    left = {Path("text.jsonl")}
    for step in plan(setup):
        assert set(step.inputs) <= left
        left |= {step.out}
        left |= {Path(step.job.generations)} if isinstance(step.job, Writing) else set()


def test_diffusion_models_write_in_the_papers_steps_and_in_more() -> None:
    found = writers(Setup(SCALES["debug"], Path("o"), models={"mdlm": "m"}))
    assert {name: spec for name, spec in found.items() if "mdlm" in name} == {
        "mdlm": SystemSpec("mdlm", "m"),
        "mdlm-512": SystemSpec("mdlm-512", "m", ("steps=512",)),
        "mdlm-1024": SystemSpec("mdlm-1024", "m", ("steps=1024",)),
    }
    for step in plan(Setup(SCALES["100m"], Path("o"))):
        if step.kind in ("generate", "infill"):
            assert isinstance(step.job, Writing)
            assert (step.job.n, step.job.seeds, step.job.ruler) == (1000, (123, 124, 125), "gpt2")
            assert (step.job.temperature, step.job.top_k) == (0.9, 50)


@given(st.sets(st.sampled_from(NAMES)))
def test_only_picks_what_it_names_in_the_order_of_the_plan(wanted: set[str]) -> None:
    steps = plan(Setup(SCALES["debug"], Path("out")))
    chosen = pick(steps, ",".join(wanted)) if wanted else []
    assert [step.name for step in chosen] == [name for name in NAMES if name in wanted]
    assert pick(steps, None) == steps


def test_a_word_before_the_colon_picks_all_of_them() -> None:
    found = pick(plan(Setup(SCALES["debug"], Path("out"))), "train,report")
    assert [step.name for step in found] == [*(f"train:{system}" for system in SYSTEMS), "report"]


def test_with_all_models_and_prompts_no_data_is_wanted(setup: Setup, tmp_path: Path) -> None:
    models = {system: str(save_model(setup, system, tmp_path / system)) for system in ("ar", "mdlm")}
    models |= dict.fromkeys(("paper", "ours", "sedd"), models["ar"])
    given = replace(setup, models=models, prompts=str(tmp_path / "ar" / "config.json"))
    assert {"data", "prompts"} & {step.name for step in plan(given)} == set()
    assert {"data"} <= {step.name for step in plan(replace(given, models={}))}
    assert {"data", "prompts"} <= {step.name for step in plan(replace(given, prompts=None))}


def test_training_costs_by_hand(setup: Setup) -> None:
    """2 layers of 96 with an MLP of 448, 291 actions, norms of 96 and 32; 60 steps of 6 rows of 256, context 224."""
    weights = 291 * 96 + 2 * (4 * 96 * 96 + 2 * 96 * 448 + 2 * 96 + 2 * 32) + 96
    expected = (6 * weights + 12 * 2 * 96 * 224) * (60 * 6 * 256)
    settings = setup.scale.settings("paper", BYTES.alphabet)
    assert training_flops(settings) == expected
    [step] = pick(plan(setup), "train:paper")
    cost = cost_of(setup, step, BYTES.alphabet)
    assert cost == StepCost(expected, TRAINING_SHARES["debug"], (2 * 12 + 4) * weights)
    assert cost.hours(1e12) == pytest.approx(expected / (0.35 * 1e12) / 3600)


def test_writing_costs_are_those_of_the_flops_module(setup: Setup) -> None:
    costs = {step.name: cost_of(setup, step, BYTES.alphabet) for step in plan(setup)}
    shapes = {system: setup.scale.settings(system, BYTES.alphabet).model for system in SYSTEMS}
    assert costs["generate:ar"].flops == 16 * flops(shapes["ar"], 48, prompt=16).flops
    assert costs["generate:sedd-512"].flops == 16 * diffusion_flops(shapes["sedd"], 48, steps=512, prompt=16).flops
    assert costs["generate:mdlm-1024"].flops == 8 * costs["generate:mdlm"].flops
    assert costs["evalppl"].flops == 2 * 134.5e6 * 16 * (1 + 9) * 64
    unknown = replace(setup, evaluator="gpt2-large", others={"gpt2": GPT2})
    costs = {step.name: cost_of(unknown, step, BYTES.alphabet) for step in plan(unknown)}
    assert costs["evalppl"].hours(1e12) is costs["generate:gpt2"].flops is None
    assert costs["report"].hours(1e12) == 0


def test_shares_of_the_peak_are_those_measured() -> None:
    rows = json.loads((ROOT / "results" / "train_speed_h200.json").read_text())["rows"]
    measured = {row["recipe"]: row["ours"]["nominal_peak_share"] for row in reversed(rows)}
    assert TRAINING_SHARES["100m"] == round(measured["paper_100m"], 2)
    assert TRAINING_SHARES["300m"] == round(measured["paper_300m"], 2)
    batches = json.loads((ROOT / "results" / "decode_h200.json").read_text())["rows"]
    [speed] = [row["flops_per_s"] for row in batches if row["batch"] == 64]
    assert round(speed / PEAK_FLOPS["H200"], 4) == WRITING_SHARE


@pytest.mark.parametrize("scale", SCALES)
def test_a_plan_needs_nothing_and_leaves_nothing(
    scale: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "o"
    words = ["reproduce", "--scale", scale, "--out", str(out), "--plan", "--gpu", "a100"]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    hours = {row["step"]: row["hours"] for row in told["steps"]}
    assert told["peak_flops"] == 312e12
    assert hours["train:ours"] > 0
    assert not any(row["is_there"] for row in told["steps"])
    assert main(words) == 0
    text = capsys.readouterr().out
    assert all(row["step"] in text and row["command"] in text for row in told["steps"])
    assert "left to do" in text
    assert not out.exists()


def test_what_a_user_may_get_wrong_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ("--out", tmp_path / "o")
    found = one_line(capsys, "--scale", "1b", *out)
    assert found == "no scale '1b'; scales are debug, small, 100m, 300m"
    assert "no step 'trian'; steps are data, prompts, train:ar," in one_line(
        capsys, "--scale", "debug", *out, "--only", "trian"
    )
    assert one_line(capsys, "--scale", "small", *out) == (
        "scale small needs text to train on; give --data, a data folder or text files"
    )
    assert one_line(capsys, "--scale", "small", *out, "--data", "/no/such") == (
        "--data /no/such: no such file or folder"
    )
    assert "systems are ar, paper" in one_line(capsys, "--scale", "debug", *out, "--models", "gpt=x")
    assert "--models ar is not NAME=MODEL" in one_line(capsys, "--scale", "debug", *out, "--models", "ar")
    for name in ("ar=hf:x", "mdlm-9=hf:x", "a/b=hf:x"):
        assert "not one of the systems ar, paper" in one_line(capsys, "--scale", "debug", *out, "--system", name)
    assert "/no/such" in one_line(capsys, "--scale", "debug", *out, "--system", "x=/no/such")
    assert "must be likelihood or critic:MODEL" in one_line(capsys, "--scale", "debug", *out, "--judge", "me")
    assert "--n 0 must be at least 1" in one_line(capsys, "--scale", "debug", *out, "--n", 0)
    assert "no GPU 'tpu'; those" in one_line(capsys, "--scale", "debug", *out, "--plan", "--gpu", "tpu")
    needs = one_line(capsys, "--scale", "small", *out, "--only", "train:ar")
    assert needs == f"step train:ar needs {tmp_path / 'o' / 'data' / 'data.json'}; run the step that makes it, data"
    needs = one_line(capsys, "--scale", "debug", *out, "--only", "flops")
    assert needs.endswith("ar.jsonl; run the step that makes it, generate:ar")
    with pytest.raises(ConfigError, match="no scale"):
        find_scale("")


def test_a_failure_names_its_step_and_how_to_resume(setup: Setup) -> None:
    suite = Continuation(texts=("absent",), system=("ar=x",), generations="g", ruler="bytes")
    steps = [Step("generate:ar", suite, (), Path("x")), Step("report", Own(setup, "report"), (), Path("y"))]
    told: dict[str, str] = {}
    notes = Notes()
    assert run_steps(setup, steps, False, told, listener=notes) == 2
    assert told == {"generate:ar": "failed"}
    assert notes.lines == [
        f"step generate:ar: {format_command(suite.words)}",
        "error: absent: no such file or folder; give .jsonl or text files, or a data folder",
        f"step generate:ar failed; fix that and resume with: {format_command((*setup.words, '--resume'))}",
    ]
    assert run_steps(setup, steps, False, told, only="generate", listener=notes) == 2
    assert notes.lines[-1].endswith("--only generate --resume")


def test_the_words_of_a_setup_give_the_setup_again(setup: Setup, tmp_path: Path) -> None:

    (tmp_path / "t.jsonl").write_text("")
    text = str(tmp_path / "t.jsonl")
    asked = replace(
        setup, data=(text,), prompts=text, models={"ar": "a", "sedd": "b"}, n=3,
        others={"opt": SystemSpec("opt", "hf:opt")},
        is_cut=True, judge="critic:c", evaluator="e",
    )  # fmt: skip
    assert read_setup(build_parser().parse_args(list(asked.words))) == asked


def test_a_result_by_the_same_command_is_not_made_again(setup: Setup) -> None:
    [step] = pick(plan(setup), "evalppl")
    assert not is_there(setup, step)
    for path in step.inputs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    write_result(make_result("evalppl", [], {}, step.job.words), step.out)
    told: dict[str, str] = {}
    run_step(setup, step, False, told)
    assert told == {"evalppl": "there"}
    [other] = pick(plan(replace(setup, evaluator="gemma3-270m")), "evalppl")
    assert not is_there(setup, other)
    [report] = pick(plan(setup), "report")
    write_result(make_result("reproduction", [], {}), report.out)
    assert not is_there(setup, report)


def test_data_is_there_when_it_is_whole(setup: Setup) -> None:
    [step] = pick(plan(setup), "data")
    assert not is_there(setup, step)
    step.out.parent.mkdir(parents=True)
    for is_whole in (False, True):
        step.out.write_text(json.dumps({"format": "reviser data", "version": 1, "complete": is_whole}))
        assert is_there(setup, step) == is_whole


@pytest.mark.parametrize("system", ["ours", "mdlm"])
def test_a_model_folder_alone_counts_as_trained(setup: Setup, system: str, tmp_path: Path) -> None:
    """It was trained elsewhere and brought here without its run."""
    assert not is_trained(setup, system)
    folder = save_model(setup, system)
    assert is_trained(setup, system)
    moved = tmp_path / "elsewhere"
    folder.rename(moved)
    assert not is_trained(setup, system)
    assert is_trained(replace(setup, models={system: str(moved)}), system)


def test_a_model_of_another_kind_is_refused(setup: Setup, tmp_path: Path) -> None:
    save_model(setup, "paper", setup.model("ours"))
    with pytest.raises(CheckpointError, match=r"does not have the shape of scale debug; .* --models ours="):
        is_trained(setup, "ours")
    with pytest.raises(CheckpointError, match="of the family reviser, but system mdlm is mdlm"):
        is_trained(replace(setup, models={"mdlm": str(setup.model("ours"))}), "mdlm")
    with pytest.raises(CheckpointError):
        is_trained(replace(setup, models={"ar": str(tmp_path)}), "ar")


def test_a_stopped_training_is_gone_on_with_when_asked(setup: Setup) -> None:
    [step] = pick(plan(setup), "train:ar")
    assert resumed(setup, step, True) == resumed(setup, step, False) == step.job
    settings = setup.scale.settings("ar", BYTES.alphabet)
    run = Run.create(setup.run("ar"), settings, "data")
    with pytest.raises(
        CheckpointError, match="was started but is not finished; resume it with --resume, or remove it"
    ):
        resumed(setup, step, False)
    (run.folder / "checkpoints" / "step-00000030").mkdir()
    words = resumed(setup, step, True).words
    assert words[:3] == ("train", "--resume", str(run.folder))
    assert build_parser().parse_args(list(words)).data == str(setup.data_folder)


def test_a_training_stopped_before_its_first_checkpoint_begins_again(setup: Setup) -> None:
    [step] = pick(plan(setup), "train:ar")
    run = Run.create(setup.run("ar"), setup.scale.settings("ar", BYTES.alphabet), "data")
    assert resumed(setup, step, True) == step.job
    assert not run.folder.exists()


def test_a_run_by_other_settings_is_refused(setup: Setup) -> None:
    [step] = pick(plan(setup), "train:ar")
    run = Run.create(setup.run("ar"), setup.scale.settings("paper", BYTES.alphabet), "data")
    (run.folder / "checkpoints" / "step-00000030").mkdir()
    with pytest.raises(CheckpointError, match="was trained with other settings than those of scale debug"):
        resumed(setup, step, True)


def test_without_the_evaluators_package_debug_skips_and_says_so(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    import reviser.evaluation.evaluators as evaluators

    notes = Notes()

    absent = replace(evaluators.PACKAGES["smollm2"], parts=("no_such_module/x.gguf",))
    monkeypatch.setitem(evaluators.PACKAGES, "smollm2", absent)
    told: dict[str, str] = {}
    assert run_steps(setup, pick(plan(setup), "evalppl,arena"), False, told, listener=notes) == 0
    assert all(text.startswith("skipped: the evaluator smollm2 needs the package") for text in told.values())
    assert run_steps(setup, pick(plan(setup), "mauve"), False, told) == 0
    assert told["mauve"] == "skipped: MAUVE needs at least 100 prompts, and there are 16; give --n 100"
    assert notes.lines[0].startswith("skipped: step evalppl")
    small = replace(setup, scale=SCALES["small"])
    with pytest.raises(DataError, match="run the step that makes it, generate:ar"):
        run_step(small, pick(plan(small), "evalppl")[0], False, {})


class Slow:
    """A system that says what it was asked."""

    name = "slow"
    precision = "none"

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def generate(self, prompts: Sequence[Prompt], seed: int) -> Iterator[Generation]:
        self.asked.append([prompt.id for prompt in prompts])
        for prompt in prompts:
            yield Generation("slow", prompt.id, seed, prompt.prefix, "four", "", "", True, 7, 7)


def test_texts_are_timed_one_at_a_time_after_one_that_is_not() -> None:
    system, prompts = Slow(), [Prompt(f"p{n}", "a", "b") for n in range(3)]
    found = time_system(system, prompts, 1, torch.device("cpu"))
    assert system.asked == [["p0"], ["p0"], ["p1"], ["p2"]]
    assert found["seconds"]["n"] == 3
    assert found["seconds_per_byte"]["value"] == pytest.approx(found["seconds"]["value"] / 4)
    few = time_system(system, [*prompts, *prompts], 1, torch.device("cpu"), patience=0.0)
    assert few["seconds"]["n"] == 3


def write_texts(setup: Setup, texts: dict[str, list[tuple[int, int]]]) -> None:
    """Texts of some tokens by some actions, after a prompt of 2 bytes."""
    for name, sizes in texts.items():
        own = [Generation(name, f"p{n}", 1, "ab", "x", "", "r", True, *size) for n, size in enumerate(sizes)]
        path = setup.written("continuation", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(asdict(each)) + "\n" for each in own))


def test_flops_are_those_of_the_actions_that_texts_took(setup: Setup) -> None:
    folders = {system: save_model(setup, system) for system in SYSTEMS}
    write_texts(setup, {name: [(4, 6), (0, 1)] for name in writers(setup)})
    found = {row["system"]: row["gmacs"] for row in flops_rows(setup)}
    shape = setup.scale.settings("ours", BYTES.alphabet).model
    two = [flops(shape, 4, actions=6, prompt=2).macs / 1e9, flops(shape, 1, actions=1, prompt=2).macs / 1e9]
    assert found["ours"]["value"] == pytest.approx(sum(two) / 2)
    assert found["ours"]["error"] == pytest.approx(abs(two[0] - two[1]) / 2)
    shape = setup.scale.settings("mdlm", BYTES.alphabet).model
    passes = [diffusion_flops(shape, 48, steps=steps, prompt=2).macs / 1e9 for steps in (6, 1)]
    assert found["mdlm-512"]["value"] == pytest.approx(sum(passes) / 2)
    assert list(found) == list(writers(setup))
    assert folders["ar"] == setup.model("ar")


@given(st.lists(st.floats(0, 1), min_size=3, max_size=3).map(sorted))
def test_what_one_wins_the_other_loses(ends: list[float]) -> None:
    share = {"low": ends[0], "value": ends[1], "high": ends[2], "error": 0.1, "n": 9}
    one, other = (win_rate({("a", "b"): share}, *pair) for pair in (("a", "b"), ("b", "a")))
    assert one is not None
    assert other is not None
    assert one["value"] + other["value"] == pytest.approx(100)
    assert one["high"] + other["low"] == pytest.approx(100)
    assert one["low"] <= one["value"] <= one["high"]
    assert win_rate({}, "a", "b") is None


def test_ratios_carry_the_errors_of_both() -> None:
    rows = {"ar": {"s": {"value": 2.0, "error": 0.2, "n": 4}}, "x": {"s": {"value": 6.0, "error": 0.0, "n": 4}}}
    assert _ratio(rows, "x", "s") == {"value": 3.0, "error": pytest.approx(0.3), "n": 4}
    assert _ratio(rows, "ar", "s") == {"value": 1.0, "error": None, "n": 4}
    assert _ratio(rows, "y", "s") is None
    assert _ratio(rows, "x", "of a newer version") is None


def test_tables_hold_our_numbers_beside_the_papers(setup: Setup) -> None:
    measure = {"value": 20.0, "error": 1.0, "n": 8}
    share = {"value": 0.25, "low": 0.1, "high": 0.5, "error": 0.1, "n": 8}
    row = {"perplexity": measure, "bits_per_byte": measure, "distinct_2": measure}
    rows = [{"system": name, **row} for name in ("(reference)", "ar", "paper", "sedd-512")]
    write_result(make_result("evalppl", rows, {}, evaluator={"name": "smollm2"}), setup.result("evalppl"))
    arena = [{"system": "ar", "opponent": "ours", "win_rate": share}]
    write_result(make_result("arena", arena, {"judge": "likelihood"}), setup.result("arena"))
    found = gather(setup)
    [ppl] = [row for row in found if row["table"] == "evalppl" and row["system"] == "ar"]
    assert ppl["paper_gpt2_100m"] == 13.5210
    assert ppl["paper_dream_300m"] == 12.0203
    assert ppl["perplexity"] == measure
    [won] = [row for row in found if row["table"] == "arena" and row["system"] == "ar"]
    assert (won["paper_100m"], won["paper_300m"]) == (61.3, 54.4)
    assert won["ours"] == {"value": 75.0, "low": 50.0, "high": 90.0, "n": 8}
    assert won["paper"] is None
    commands = [{"step": "data", "command": "reviser data"}]
    section, _ = render(
        Path("x.json"), make_result("reproduction", found, {}, commands=commands, measured_by=measured_by(setup))
    )
    tables = section.tables
    assert tables[-1].rows == (("data", "reviser data"),)
    assert any("here by smollm2" in table.columns for table in tables)
    [arena_table] = [table for table in tables if table.title.startswith("Arena")]
    assert ("left to right", "61.30", "54.40", "75 (50 to 90)") in arena_table.rows
    short = tables[0]
    assert (short.title, short.columns[:3]) == ("Summary", ("system", "evalPPL", "distinct-2"))
    assert ("our Reviser", "-", "-", "75 (50 to 90)") in short.rows
    assert short.rows[-1] == ("the original text", "20.0 ± 1.0", "20.0 ± 1.0", "-")
    assert len(tables) == 4


def test_the_papers_numbers_are_printed_in_it() -> None:
    source = ROOT.parent / "shared" / "paper" / "reviser.tex"
    if not source.is_file():
        pytest.skip("the paper's source is not here")
    text = source.read_text("utf-8")
    numbers = [
        number for table in (paper.ARENA, paper.EVALPPL, paper.MAUVE) for row in table.values() for number in row
    ]
    assert all(re.search(rf"\\num\{{{number}0*\}}", text) for number in numbers if number is not None)
    texts = re.findall(r"[\d.]+", " ".join(each for row in paper.TRAJECTORIES.values() for each in row))
    assert all(each in text for each in texts)


@pytest.mark.slow
def test_debug_goes_from_nothing_to_a_report_and_nothing_is_done_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["reproduce", "--scale", "debug", "--out", str(out), "--device", "cpu", "--json"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told["steps"]) == NAMES
    assert all(text == "done" or text.startswith("skipped: ") for text in told["steps"].values())
    document = json.loads((out / "results" / "reproduction.json").read_text())
    sizes = [row["parameters"] for row in document["rows"] if row["table"] == "systems"]
    assert len(sizes) == len(SYSTEMS)
    assert max(sizes) <= 1.01 * min(sizes)
    assert {row["trained_positions"] for row in document["rows"] if "trained_positions" in row} == {60 * 6 * 256}
    assert [step["step"] for step in document["commands"]] == NAMES
    page = (out / "report.html").read_text()
    assert all(step["command"].split()[1] in page for step in document["commands"])
    assert main([*words, "--resume"]) == 0
    again = json.loads(capsys.readouterr().out)["steps"]
    assert {name: text for name, text in again.items() if text == "done"} == {"report": "done"}
