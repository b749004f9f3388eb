"""Gaps: the true middle, the suffix, guesses and lengths by hand; pairing; what a system is shown; the command."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_eval_evaluators import make_bert, make_gpt2
from tiny import random_model

import reviser
from reviser.cli import main
from reviser.config import ModelConfig
from reviser.diffusion.denoiser import FAMILIES
from reviser.diffusion.denoiser_folder import save_denoiser
from reviser.errors import ConfigError, DataError
from reviser.evaluation.evaluator import Evaluator
from reviser.evaluation.evaluators import load
from reviser.evaluation.gap_kinds import GAP_KINDS, count_gap_words, find_stretches
from reviser.evaluation.generations import Generation, Prompt
from reviser.evaluation.measures import Sums, quotient
from reviser.evaluation.metrics.evalppl import score
from reviser.evaluation.metrics.gaps import EXACT, MIDDLE, NOTHING, SUFFIX, WITHIN, length_quantiles, measure_gaps
from reviser.evaluation.middles import Middles
from reviser.evaluation.systems import CausalSystem, DiffusionSystem, ReviserSystem, open_system
from reviser.evaluation.texts import REFERENCE
from reviser.model.checkpoint import save_pretrained
from reviser.model.folder import Trained
from reviser.orders.record import from_record
from reviser.tokenizer import load as load_tokenizer

transformers = pytest.importorskip("transformers")

ONE = Generation("ours", "p1", 0, "the old", " light", " house stood", " lamp", True, 3, 3, kind="word")
OTHER = replace(ONE, prompt_id="p2", prefix="nobody knew", text=" who", suffix=" had lit it", reference=" that she",
                kind="words")  # fmt: skip
TEXTS = [ONE, replace(ONE, seed=1, text=""), OTHER, replace(OTHER, seed=1, text=" why they")]
BYTES = load_tokenizer("bytes")
CONFIG = ModelConfig(num_text=257, pad=256, num_layers=1, width=32, num_heads=2, ff_width=32, context=300,
                     max_length=120)  # fmt: skip
PROMPTS = [
    Prompt("a", "The boats lay", " still, and", " the gulls slept.", "words"),
    Prompt("b", "A child came", " down", " the steps.", "word"),
]
JOBS = "prefix=0,16 length=4,40 gap=1,12 suffix=1,16 infill={} from_start=0.3"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_gpt2(tmp_path_factory.mktemp("gpt2"))


@pytest.fixture(scope="module")
def gpt2(model: Path) -> Evaluator:
    return load(str(model))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of random weights that say how they were trained: left to right, on gaps, by jumps, and denoisers."""
    root = tmp_path_factory.mktemp("folders")
    for name, order, infill in (("ar", "left-to-right", 0.0), ("fim", "left-to-right", 0.5), ("jumps", "runs", 0.5)):
        trained = Trained(order, JOBS.format(infill), "debug", "0" * 64, 1, 99)
        save_pretrained(random_model(CONFIG, seed=3), root / name, BYTES, trained=trained)
    for family, kind in FAMILIES.items():
        save_denoiser(kind(CONFIG), root / family, BYTES)
    return root


def opened(folders: Path, name: str, changes: str = "") -> ReviserSystem:
    system = open_system(f"{name}={folders / name}{changes}")
    assert isinstance(system, ReviserSystem)
    return system


def nats(evaluator: Evaluator, prefix: str, text: str) -> float:
    return score(evaluator, [replace(ONE, prefix=prefix, text=text, suffix="")])[0].nats


def total(sums: Sums) -> float:
    return math.fsum(top for top, _ in sums.values()) / math.fsum(bottom for _, bottom in sums.values())


def plain_bits(system: ReviserSystem, given: list[int], middle: str) -> float:
    """The log-probabilities of the middle's tokens after a history, step after step; STOP and bytes are valid."""
    model, tokens, bits = system.writer.model, BYTES.encode(middle), 0.0
    valid = [*range(256), model.config.alphabet.stop]
    for place, token in enumerate(tokens):
        history = torch.tensor([[model.config.alphabet.start, *given, *tokens[:place]]])
        with torch.no_grad():
            scores = model(history)[0, -1, valid].log_softmax(-1)
        bits -= float(scores[token]) / math.log(2)
    return bits


def test_the_middle_of_a_left_to_right_model_is_the_sum_of_its_tokens(folders: Path) -> None:
    system = opened(folders, "ar")
    found = system.middles(PROMPTS, samples=7)
    assert (found.is_exact, found.sees_suffix, found.samples, found.ended) == (True, False, 1, {})
    for prompt in PROMPTS:
        bits, size = found.bits[prompt.id]
        assert size == len(prompt.reference)
        assert bits == pytest.approx(plain_bits(system, BYTES.encode(prompt.prefix), prompt.reference), rel=1e-5)


def test_a_model_that_fills_in_the_middle_is_exact_with_both_sides_in_view(folders: Path) -> None:
    system = opened(folders, "fim")
    found = system.middles(PROMPTS, samples=7)
    assert (found.is_exact, found.sees_suffix, found.samples, found.has_end) == (True, True, 1, False)
    for prompt in PROMPTS:
        given = list(system.writer.gap(prompt.prefix, prompt.suffix).actions)
        bits, _ = found.bits[prompt.id]
        assert bits == pytest.approx(plain_bits(system, given, prompt.reference), rel=1e-5)
        assert found.ended[prompt.id][0] > bits, "its end costs something"
    [other] = system.middles([replace(PROMPTS[0], suffix=" another end.")]).bits.values()
    assert other != found.bits["a"]


def test_a_model_that_jumps_has_a_bound_that_more_trajectories_tighten(folders: Path) -> None:
    system = opened(folders, "jumps")
    few, many = (system.middles(PROMPTS, samples=samples) for samples in (1, 64))
    assert not many.is_exact
    assert many.samples == 64
    assert total(many.ended) < total(few.ended)
    assert total(many.bits) <= total(many.ended) + 1e-9
    alone = opened(folders, "jumps", ",sees=prefix").middles(PROMPTS, samples=64)
    assert (alone.is_exact, alone.sees_suffix) == (True, False)


def test_a_transformers_model_is_exact_after_the_prefix(model: Path) -> None:
    system = open_system(f"gpt2=hf:{model}")
    assert isinstance(system, CausalSystem)
    prompt = Prompt("a", "the old", " lamp", " house stood")
    found = system.middles([prompt])
    likely = system.log_likelihood([replace(prompt, suffix="")]).log_p[0]
    assert found.bits == {"a": (pytest.approx(-likely / math.log(2)), 5.0)}
    assert (found.sees_suffix, found.is_exact, found.ended) == (False, True, {})
    [guess] = system.fill_greedily([prompt])
    assert guess == next(iter(system.fill_greedily([prompt])))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_denoiser_gets_no_canvas_longer_than_those_of_its_training(folders: Path, family: str) -> None:
    config = json.loads((folders / family / "config.json").read_text())
    trained = asdict(Trained("none", JOBS.format(0.25), "debug", "0" * 64, 1, 99))
    del config["settings_sha256"]
    (folders / family / "config.json").write_text(json.dumps(config | {"trained": trained}))
    system = open_system(f"d={folders / family}")
    assert isinstance(system, DiffusionSystem)
    assert (system.limits.canvas, system.limits.room) == (16 + 25 + 16, 25)
    long = Prompt("long", "x" * 8, "y" * 30, "z" * 8)
    wide = Prompt("wide", "x" * 40, "y" * 3, "z" * 8)
    fits = Prompt("fits", "x" * 8, "y" * 3, "z" * 8)
    found = system.middles([long, wide, fits], samples=2)
    assert set(found.bits) == set(found.ended) == {"fits"}
    assert (found.left_out, found.longest, found.has_end, found.is_exact) == (2, 57, True, False)
    assert system.middles([long]).bits == {}
    assert system._request(fits, 1).room <= 25


def test_gaps_too_long_for_a_canvas_are_left_out_and_counted(folders: Path) -> None:
    found = opened(folders, "jumps").middles([replace(PROMPTS[0], reference="x" * 119), PROMPTS[1]])
    assert (set(found.bits), found.left_out, found.longest) == ({"b"}, 1, 120)


def test_a_left_to_right_model_is_shown_the_prefix_alone_and_one_that_learned_gaps_both_sides(folders: Path) -> None:
    other = [replace(prompt, suffix=" something else entirely.") for prompt in PROMPTS]
    for name, changes, sees in (("ar", "", False), ("fim", "", True), ("jumps", "", True),
                                ("jumps", ",sees=prefix", False), ("ar", ",sees=both", True)):  # fmt: skip
        system = opened(folders, name, changes)
        assert system.sees_suffix == sees
        made = list(system.generate(PROMPTS, 3))
        assert ([each.text for each in made] == [each.text for each in system.generate(other, 3)]) != sees
        for prompt, each in zip(PROMPTS, made, strict=True):
            assert each.full_text == prompt.prefix + each.text + prompt.suffix
            assert each.kind == prompt.kind
            draft = from_record(each.record or {}).draft
            given = prompt.prefix + (prompt.suffix if sees else "")
            assert BYTES.decode(draft.tokens) == given
            has_moved = any(action >= CONFIG.alphabet.num_text for action in draft.actions)
            assert has_moved == sees, "the prefix is inserted, and nothing else"


def test_greedy_fillings_depend_on_nothing_random(folders: Path) -> None:
    for name in ("ar", "fim", "mdlm"):
        warm = open_system(f"x={folders / name},temperature=1.3")
        cold = open_system(f"x={folders / name},temperature=0")
        texts = [[each.text for each in system.fill_greedily(PROMPTS)] for system in (warm, cold)]
        assert texts[0] == texts[1]
    assert [each.text for each in cold.generate(PROMPTS, 0)] == texts[0]


def test_the_suffix_is_scored_after_all_that_stands_before_it(gpt2: Evaluator) -> None:
    rows = {row["system"]: row for row in measure_gaps(gpt2, TEXTS[2:3])}
    assert list(rows) == [REFERENCE, "ours", NOTHING]
    prefix, suffix = OTHER.prefix, OTHER.suffix
    wanted = {"ours": OTHER.text, NOTHING: "", REFERENCE: OTHER.reference}
    bits = {name: nats(gpt2, prefix + text, suffix) / math.log(2) / len(suffix) for name, text in wanted.items()}
    for name, value in bits.items():
        assert rows[name][SUFFIX]["value"] == pytest.approx(value)
        more = rows[name]["suffix_more_than_nothing"]["value"]
        assert more == pytest.approx(value - bits[NOTHING], abs=1e-6)
    assert rows["ours"][MIDDLE] is rows["ours"][EXACT] is None


def test_a_result_holds_what_each_prompt_gave(gpt2: Evaluator) -> None:
    middles = {"ours": Middles({"p1": (9.0, 5.0), "p2": (20.0, 9.0)}, {"p1": (12.0, 5.0)}, False, 8, True)}
    for row in measure_gaps(gpt2, TEXTS, middles=middles, greedy={"ours": TEXTS[::2]}):
        for key, sums in row["by_prompt"].items():
            assert total(sums) == pytest.approx(row[key]["value"])
            tops, bottoms = zip(*sums.values(), strict=True)
            found = quotient(list(sums), tops, bottoms)
            assert found is not None
            assert row[key]["error"] == (None if found.error is None else pytest.approx(found.error))
    [ours] = [row for row in measure_gaps(gpt2, TEXTS, middles=middles) if row["system"] == "ours"]
    assert ours[MIDDLE]["value"] == pytest.approx(29 / 14)
    assert ours["by_kind"]["word"][MIDDLE]["value"] == pytest.approx(9 / 5)
    assert ours["by_kind"]["words"]["ended_middle_bits_per_byte"] is None
    assert set(ours["by_kind"]) == {"word", "words"}


def test_lengths_are_a_distribution_and_no_mean(gpt2: Evaluator) -> None:
    [row] = [row for row in measure_gaps(gpt2, TEXTS) if row["system"] == "ours"]
    assert row["empty"] == 1
    ratios = sorted([6 / 5, 0, 4 / 9, 1])
    assert row[WITHIN]["value"] == 2 / 4
    assert row["length_quantiles"]["50%"] == pytest.approx((ratios[1] + ratios[2]) / 2, abs=1e-6)
    assert row["length_quantiles"]["10%"] == pytest.approx(0.3 * ratios[1], abs=1e-6)
    assert length_quantiles([replace(ONE, reference="")]) is None
    for size, is_within in ((2, False), (3, True), (10, True), (11, False)):
        [found] = measure_gaps(gpt2, [replace(ONE, text="x" * size)])[1:2]
        assert found[WITHIN]["value"] == is_within


class Original:
    """Returns what stood in the gap."""

    def generate(self, prompts: Sequence[Prompt], seed: int) -> list[str]:
        return [prompt.reference for prompt in prompts]

    def fill_greedily(self, prompts: Sequence[Prompt]) -> list[str]:
        return self.generate(prompts, 0)


class Wrong(Original):
    def generate(self, prompts: Sequence[Prompt], seed: int) -> list[str]:
        return [prompt.reference + prompt.reference + "." for prompt in prompts]


def test_a_system_that_returns_the_original_guesses_all_and_has_its_length(model: Path) -> None:
    prompts = [replace(prompt, suffix=" the old lamp") for prompt in PROMPTS]
    prompts.append(Prompt("c", "the old", " lamp house stood that she", " had lit it"))
    systems = {"original": Original(), "wrong": Wrong()}
    found = reviser.evaluate(systems, prompts, ["gaps"], evaluator=str(model), device="cpu")
    rows = {row["system"]: row for row in found.rows("gaps")}
    assert rows["original"][EXACT] == {"value": 1.0, "error": 0.0, "n": 2}, "the third has too many words"
    assert rows["original"][WITHIN]["value"] == 1
    assert set(rows["original"]["length_quantiles"].values()) == {1.0}
    assert rows["original"][SUFFIX] == rows[REFERENCE][SUFFIX]
    assert rows["wrong"][EXACT]["value"] == rows["wrong"][WITHIN]["value"] == 0
    assert rows["wrong"]["more_than_first"][EXACT] == {"value": -1.0, "error": 0.0, "n": 2}
    assert rows["original"]["more_than_first"] == {}


@settings(max_examples=6)
@given(seed=st.integers(0, 99))
def test_pairs_are_the_same_gaps_in_whatever_order_prompts_come(gpt2: Evaluator, seed: int) -> None:
    shuffled, ours = random.Random(seed), TEXTS
    other = [replace(each, system="other", text=each.text + " lamp") for each in TEXTS]
    bits = {"p1": (9.0, 5.0), "p2": (20.0, 9.0)}
    worse = {"p2": (29.0, 9.0), "p1": (14.0, 5.0)}
    plain = _rows(gpt2, [*ours, *other], bits, worse)
    first, second = shuffled.sample(ours, 4), shuffled.sample(other, 4)
    again = _rows(gpt2, [*first, *second], bits, worse)
    for name, row in plain.items():
        for key in (SUFFIX, WITHIN, MIDDLE):
            assert again[name][key] == (pytest.approx(row[key]) if row[key] else row[key])
            for got, wanted in ((again[name]["more_than_first"], row["more_than_first"]),):
                assert got.get(key) == (pytest.approx(wanted[key], abs=1e-9) if key in wanted else None)
    assert plain["other"]["more_than_first"][MIDDLE]["value"] == pytest.approx(1.0)
    assert plain["other"]["more_than_first"][MIDDLE]["error"] == pytest.approx(0.0, abs=1e-9)


def _rows(evaluator: Evaluator, texts: list[Generation], first: Any, second: Any) -> dict[str, dict[str, Any]]:
    made = {"ours": Middles(first, {}, True, 1, True), "other": Middles(second, {}, True, 1, True)}
    return {row["system"]: row for row in measure_gaps(evaluator, texts, middles=made)}


PARTS = ("The boats", "a gull", "slept,", "of old.", "It rained!", "\n", "and", "so (he", "said)", "“Why?”", "— no —",
         "x-ray", "didn't")  # fmt: skip
PROSE = st.lists(st.sampled_from(PARTS), min_size=1, max_size=40)


@given(PROSE)
def test_stretches_stand_at_their_own_boundaries(parts: list[str]) -> None:
    text = " ".join(parts)
    found = find_stretches(text)
    assert list(found) == list(GAP_KINDS)
    for kind, stretches in found.items():
        for first, last in stretches:
            stretch = text[first:last]
            size = count_gap_words(stretch)
            assert "\n" not in stretch
            assert stretch == stretch.rstrip()
            assert first == 0 or not text[first].isalnum() or not text[first - 1].isalnum()
            assert last == len(text) or not (text[last - 1].isalnum() and text[last].isalnum())
            assert {"word": size == 1, "words": 2 <= size <= 3, "phrase": 4 <= size <= 12,
                    "sentence": size >= 4, "paragraph": size >= 1}[kind]  # fmt: skip
            if kind in ("word", "words", "phrase"):
                assert not any(mark in stretch for mark in ".,!?")
            if kind == "sentence":
                assert stretch.rstrip("”)").endswith((".", "!", "?"))


def test_what_cannot_be_scored_is_refused(gpt2: Evaluator, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="some generations have no suffix; gaps are scored on what `reviser eval inf"):
        measure_gaps(gpt2, [ONE, replace(ONE, suffix="")])
    with pytest.raises(ConfigError, match=r"evaluator .* is masked; gaps are scored by a causal one"):
        measure_gaps(load(str(make_bert(tmp_path))), [ONE])


def test_the_command_prints_and_writes_what_each_system_is_worth(
    model: Path, folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, file, out = tmp_path / "t.jsonl", tmp_path / "gaps.jsonl", tmp_path / "out.json"
    prose = "The boats lay still, and the old gulls slept. A child came down. "
    texts.write_text("".join(json.dumps({"text": f"{number} {prose * 3}"}) + "\n" for number in range(6)))
    systems = [word for name in ("ar", "jumps") for word in ("--system", f"{name}={folders / name}")]
    words = ["--ruler", "bytes", "--context", "20", "--longest", "20", "--seeds", "1", "--device", "cpu"]
    assert main(["eval", "infill", str(texts), *systems, *words, "--generations", str(file)]) == 0
    capsys.readouterr()
    asked = ["eval", "gaps", str(file), "--evaluator", str(model), "--device", "cpu"]
    assert main([*asked, *systems, "--samples", "2", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "ar: the true middle given the prefix alone, for it cannot see the suffix: exact" in printed
    assert "jumps: the true middle given both sides: a bound, K = 2" in printed
    for heading in ("true middle, bits/byte", "with its end", "suffix, bits/byte", "exact, 1 to 3 words"):
        assert heading in printed.splitlines()[1]
    assert "gap and suffix" not in printed
    rows = {row["system"]: row for row in json.loads(out.read_text())["rows"]}
    assert rows["ar"]["middle"]["sees_suffix"] is False
    assert set(rows["ar"]["greedy"]) <= set(rows["ar"]["by_prompt"][SUFFIX])
    assert main([*asked, "--system", f"other={folders / 'ar'}"]) == 2
    said = "no text in the generations is by other; they are by ar, jumps"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("system", "said"),
    [
        ("x=shipped,sees=nothing", "--system x=shipped,sees=nothing: sees=nothing must be one of both, prefix"),
        ("x={}/mdlm,sees=both", "sees is for a model that edits, and .*mdlm is not one"),
    ],
)
def test_a_view_that_is_none_is_refused(folders: Path, system: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        open_system(system.format(folders))
