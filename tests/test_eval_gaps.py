"""Gaps: what is scored of them by hand, what a result holds of each prompt, and the command."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from test_eval_evaluators import make_bert, make_gpt2

from reviser.cli import main
from reviser.errors import ConfigError, DataError
from reviser.evaluation.evaluator import Evaluator
from reviser.evaluation.evaluators import load
from reviser.evaluation.generations import Generation
from reviser.evaluation.measures import Sums, quotient
from reviser.evaluation.metrics.evalppl import score
from reviser.evaluation.metrics.gaps import NOTHING, length_quantiles, measure_gaps
from reviser.evaluation.texts import REFERENCE
from reviser.reports.tables import show

transformers = pytest.importorskip("transformers")

ONE = Generation("ours", "p1", 0, "the old", " light", " house stood", " lamp", True, 3, 3)
OTHER = replace(ONE, prompt_id="p2", prefix="nobody knew", text=" who", suffix=" had lit it", reference=" that she")
TEXTS = [ONE, replace(ONE, seed=1, text=""), OTHER, replace(OTHER, seed=1, text=" why they")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_gpt2(tmp_path_factory.mktemp("gpt2"))


@pytest.fixture(scope="module")
def gpt2(model: Path) -> Evaluator:
    return load(str(model))


def nats(evaluator: Evaluator, prefix: str, text: str) -> float:
    return score(evaluator, [replace(ONE, prefix=prefix, text=text, suffix="")])[0].nats


def total(sums: Sums) -> float:
    return math.fsum(top for top, _ in sums.values()) / math.fsum(bottom for _, bottom in sums.values())


def test_each_view_scores_its_part_behind_all_that_stands_before(gpt2: Evaluator) -> None:
    rows = {row["system"]: row for row in measure_gaps(gpt2, TEXTS[2:3])}
    assert list(rows) == [REFERENCE, "ours", NOTHING]
    prefix, text, suffix = OTHER.prefix, OTHER.text, OTHER.suffix
    wanted = {
        "gap": (nats(gpt2, prefix, text), text),
        "suffix": (nats(gpt2, prefix + text, suffix), suffix),
        "whole": (nats(gpt2, prefix, text + suffix), text + suffix),
    }
    for view, (cost, written) in wanted.items():
        found = rows["ours"][f"{view}_bits_per_byte"]
        assert found["value"] == pytest.approx(cost / math.log(2) / len(written)), view
    assert rows[NOTHING]["gap_bits_per_byte"] is None
    empty = nats(gpt2, prefix, suffix) / math.log(2) / len(suffix)
    assert rows[NOTHING]["suffix_bits_per_byte"]["value"] == pytest.approx(empty)
    assert rows[NOTHING]["whole_bits_per_byte"]["value"] == pytest.approx(empty)
    assert rows[REFERENCE]["length_over_reference"]["value"] == 1.0


def test_a_result_holds_what_each_prompt_gave(gpt2: Evaluator) -> None:
    for row in measure_gaps(gpt2, TEXTS):
        for key, sums in row["by_prompt"].items():
            if row[key] is None:
                assert sums == {}
                continue
            assert list(sums) == ["p1", "p2"]
            assert total(sums) == pytest.approx(row[key]["value"])
            tops, bottoms = zip(*sums.values(), strict=True)
            assert quotient(list(sums), tops, bottoms).error == pytest.approx(row[key]["error"])
        assert {f"{view}_bits_per_byte" for view in ("whole", "suffix", "gap")} == set(row["by_prompt"])


def test_lengths_are_those_of_all_together_and_how_they_spread(gpt2: Evaluator) -> None:
    [row] = [row for row in measure_gaps(gpt2, TEXTS) if row["system"] == "ours"]
    assert row["empty"] == 1
    assert row["length_over_reference"]["value"] == pytest.approx((6 + 0 + 4 + 9) / (5 + 5 + 9 + 9))
    ratios = sorted([6 / 5, 0, 4 / 9, 1])
    assert row["length_quantiles"]["50%"] == pytest.approx((ratios[1] + ratios[2]) / 2, abs=1e-6)
    assert row["length_quantiles"]["10%"] == pytest.approx(0.3 * ratios[1], abs=1e-6)
    assert length_quantiles([replace(ONE, reference="")]) is None


def test_what_cannot_be_scored_is_refused(gpt2: Evaluator, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="some generations have no suffix; gaps are scored on what `reviser eval inf"):
        measure_gaps(gpt2, [ONE, replace(ONE, suffix="")])
    with pytest.raises(ConfigError, match=r"evaluator .* is masked; gaps are scored by a causal one"):
        measure_gaps(load(str(make_bert(tmp_path))), [ONE])


def test_the_command_prints_lengths_and_writes_the_rows(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "gaps.jsonl", tmp_path / "out.json"
    file.write_text("\n".join(json.dumps(asdict(each)) for each in TEXTS))
    assert main(["eval", "gaps", str(file), "--evaluator", str(model), "--out", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "of each: 10, 50 and 90%" in lines[1]
    [line] = [line for line in lines if line.startswith("ours")]
    rows = {row["system"]: row for row in json.loads(out.read_text())["rows"]}
    assert ", ".join(map(show, rows["ours"]["length_quantiles"].values())) in line
    assert set(rows["ours"]["by_prompt"]["suffix_bits_per_byte"]) == {"p1", "p2"}
