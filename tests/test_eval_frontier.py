"""`reviser eval frontier`: how much is revised beside what it costs, by hand and from the command line."""

import json
import math
from dataclasses import asdict, replace

import pytest

from reviser.actions import Alphabet
from reviser.canvas import Rules
from reviser.cli import main
from reviser.errors import DataError
from reviser.evaluation.generations import Generation
from reviser.evaluation.metrics.frontier import frontier, ratio
from reviser.orders.record import Draft, Trajectory, to_record
from reviser.reports.results import make_result, write_result
from reviser.reports.sections import RENDERERS

ALPHABET = Alphabet(20, 0)
RULES = Rules(ALPHABET, frozenset({"move"}), max_length=32)


def write(system: str, prompt: int, *actions: int) -> Generation:
    """A text by the actions given; none is a system that does not edit."""
    drawn = Trajectory(Draft.continuation([9], RULES), (*actions, ALPHABET.stop), (True,) * (len(actions) + 1))
    return Generation(system, f"p{prompt}", 0, "a", " b", "", " c", True, 2, len(actions), to_record(drawn))


def evalppl(system: str, value: float, error: float | None = None) -> dict[str, object]:
    return {"system": system, "perplexity": {"value": value, "error": error, "n": 2}}


TEXTS = [
    write("ar", 0, 1, 2, 3), write("ar", 1, 4, 5),
    write("ours", 0, 1, ALPHABET.move(-1), 2, ALPHABET.move(1)), write("ours", 1, 1, 2),
]  # fmt: skip
PERPLEXITIES = [evalppl("ours", 30.0, 3.0), evalppl("ar", 20.0, 1.0)]


def test_rows_by_hand() -> None:
    first, second = frontier(TEXTS, "ar", PERPLEXITIES)
    assert (first["system"], second["system"]) == ("ar", "ours")
    assert first["not_at_end"]["value"] == 0
    assert first["perplexity_ratio"] == {"value": 1.0, "error": None, "n": 2}
    # One of its four insertions stands before another token.
    assert second["not_at_end"]["value"] == 0.25
    assert second["perplexity_ratio"]["value"] == 1.5
    assert second["perplexity_ratio"]["error"] == pytest.approx(1.5 * (0.1**2 + 0.05**2) ** 0.5)
    assert second["bound"] is second["bound_ratio"] is None


def test_ratios_of_the_same_prompts_have_the_error_of_their_own_ratios() -> None:
    sums = {"ar": {"p0": [2.0, 1.0], "p1": [6.0, 1.0]}, "ours": {"p0": [3.0, 1.0], "p1": [7.0, 1.0]}}
    rows = [row | {"by_prompt": {"nats_per_token": sums[str(row["system"])]}} for row in PERPLEXITIES]
    first, second = frontier(TEXTS, "ar", rows)
    assert first["perplexity_ratio"]["value"] == 1.0
    # Prompts differ by 4 nats a token, and by none in how much worse ours is on them.
    assert second["perplexity_ratio"] == {
        "value": pytest.approx(math.e),
        "error": pytest.approx(0, abs=1e-12),
        "n": 2,
    }


def test_bounds_stand_beside_where_they_were_measured() -> None:
    bounds = [
        {"system": name, "perplexity": value, "error": 0.1, "n": 5} for name, value in (("ar", 10), ("ours", 14))
    ]
    first, second = frontier(TEXTS, "ar", PERPLEXITIES, bounds)
    assert (first["bound"]["value"], first["bound_ratio"]["value"]) == (10, 1.0)
    assert (second["bound"]["error"], second["bound_ratio"]["value"]) == (pytest.approx(1.4), 1.4)


def test_evalppl_of_other_texts_is_refused() -> None:
    sizes = {"texts": 2, "bytes": 4}
    assert frontier(TEXTS, "ar", [row | sizes for row in PERPLEXITIES])
    with pytest.raises(
        DataError, match=r"evalPPL of system ar is that of other texts \(5 bytes; the generations have 4"
    ):
        frontier(TEXTS, "ar", [row | {"texts": 2, "bytes": 5} for row in PERPLEXITIES])


def test_a_system_that_does_not_edit_is_left_out() -> None:
    texts = [*TEXTS, *(replace(each, system="mdlm", record=None) for each in TEXTS[:2])]
    assert [row["system"] for row in frontier(texts, "ar", PERPLEXITIES)] == ["ar", "ours"]
    with pytest.raises(DataError, match="no generations of system mdlm; there are ar, ours"):
        frontier(texts, "mdlm", PERPLEXITIES)
    with pytest.raises(DataError, match="no evalPPL of system ar; there are ours"):
        frontier(texts, "ar", PERPLEXITIES[:1])


def test_a_ratio_needs_both_errors_to_have_one() -> None:
    assert ratio(None, None) is None
    assert ratio({"value": 3.0, "error": None, "n": 1}, {"value": 2.0, "error": 1.0, "n": 1}) == {
        "value": 1.5, "error": None, "n": 1,
    }  # fmt: skip


def test_the_command_reads_results_and_writes_one(tmp_path, capsys) -> None:
    texts, scores, out = tmp_path / "texts.jsonl", tmp_path / "evalppl.json", tmp_path / "frontier.json"
    texts.write_text("".join(json.dumps(asdict(each)) + "\n" for each in TEXTS))
    write_result(make_result("evalppl", PERPLEXITIES, {}), scores)
    words = ["eval", "frontier", str(texts), "--against", "ar", "--evalppl", str(scores)]
    assert main([*words, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "ours" in shown
    assert "20 ± 20%" in shown
    document = json.loads(out.read_text())
    [table] = RENDERERS[document["kind"]](document)
    assert [point.label for point in table.plot.points] == ["ar", "ours"]
    assert main([*words, "--likelihood", str(scores)]) == 2
    assert "is a result of kind evalppl; give one of `reviser eval likelihood`" in capsys.readouterr().err
