"""MAUVE: alike sets near 1, disjoint ones low, the same seeds the same number."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from test_eval_evaluators import PROSE, make_bert

from reviser.cli import main
from reviser.errors import DataError
from reviser.evaluation.evaluator import Evaluator
from reviser.evaluation.evaluators import load
from reviser.evaluation.generations import Generation
from reviser.evaluation.metrics.features import embed
from reviser.evaluation.metrics.mauve import check_counts, compare, summarise

pytest.importorskip("transformers")
pytest.importorskip("mauve")
# faiss's bindings do what Python 3.12 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")

ONE = Generation("ours", "p0", 0, "Once", " the cat went up", "", " the lamp stood empty", True, 4, 4)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Evaluator:
    return load(str(make_bert(tmp_path_factory.mktemp("bert"))), "encoder")


def some_texts(count: int, words: list[str], seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(words, size=random.integers(3, 12))) for _ in range(count)]


def test_a_set_is_like_itself_and_unlike_a_disjoint_one(encoder: Evaluator) -> None:
    words = PROSE.replace(",", "").split()
    half = embed(encoder, some_texts(60, words[:8], 1), "mean")
    other = embed(encoder, some_texts(60, words[8:], 2), "mean")
    again = embed(encoder, some_texts(60, words[:8], 3), "mean")
    assert min(compare(half, half, [1, 2])) > 0.99
    assert max(compare(half, other, [1, 2])) < 0.2
    assert max(compare(half, other, [1, 2])) < min(compare(half, again, [1, 2]))


def test_the_same_seeds_give_the_same_numbers(encoder: Evaluator) -> None:
    words = PROSE.replace(",", "").split()
    ours, theirs = (embed(encoder, some_texts(80, words, seed)) for seed in (1, 2))
    found = compare(ours, theirs, [5, 6, 7])
    assert found == compare(ours, theirs, [5, 6, 7])
    assert found[1:] == compare(ours, theirs, [6, 7])
    assert len(set(found)) > 1


def many(count: int, system: str = "ours", seed: int = 0) -> list[Generation]:
    words = PROSE.replace(",", "").split()
    texts, references = some_texts(count, words, len(system) + seed), some_texts(count, words, 99)
    return [
        replace(ONE, system=system, seed=seed, prompt_id=f"p{i}", text=text, reference=reference)
        for i, (text, reference) in enumerate(zip(texts, references, strict=True))
    ]


def test_a_row_is_over_seeds_and_clusterings_and_says_how_many(encoder: Evaluator) -> None:
    texts = [*many(30), *many(30, seed=1)]
    features = {name: embed(encoder, [each.text for each in own]) for name, own in (
        ("(reference)", [replace(each, text=each.reference) for each in texts[:30]]), ("ours", texts),
    )}  # fmt: skip
    [row] = summarise(texts, features, [1, 2], None)
    found = [compare(features["ours"][part], features["(reference)"], [1, 2]) for part in (slice(30), slice(30, 60))]
    assert row["mauve"]["value"] == pytest.approx(np.mean(found))
    assert row["mauve"]["error"] == pytest.approx(np.std(np.mean(found, 1), ddof=1) / np.sqrt(2))
    assert row["mauve_over_clusterings"]["deviation"] == pytest.approx(np.std(np.mean(found, 0), ddof=1))
    assert row["mauve_over_clusterings"]["n"] == 2
    assert (row["texts"], row["references"], row["clusters"], row["seeds"]) == (30, 30, 3, [0, 1])


@pytest.mark.parametrize(
    ("texts", "error"),
    [
        (many(99), "the references are 99 texts; MAUVE over fewer than 100 says nothing"),
        ([*many(100), *many(40, "few")], "system few, seed 0, has 40 texts; MAUVE over fewer than 100 says nothing"),
        ([replace(ONE, reference="")], "no generation has a reference, so there is nothing to compare with"),
    ],
)
def test_too_little_to_compare_is_refused(texts: list[Generation], error: str) -> None:
    with pytest.raises(DataError) as raised:
        check_counts(texts)
    assert error in str(raised.value)


def test_the_command_prints_one_document(
    encoder: Evaluator, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "g.jsonl"
    path.write_text("".join(json.dumps(asdict(each)) + "\n" for each in [*many(100), *many(100, "theirs")]), "utf-8")
    words = [
        "eval",
        "mauve",
        str(path),
        "--features",
        f"mean:{encoder.name}",
        "--device",
        "cpu",
        "--clusterings",
        "2",
    ]
    assert main([*words, "--json"]) == 0
    shown = capfd.readouterr()
    result = json.loads(shown.out)
    assert [(row["system"], row["texts"], row["clusters"]) for row in result["rows"]] == [
        ("ours", 100, 10), ("theirs", 100, 10),
    ]  # fmt: skip
    assert result["evaluator"] == encoder.about
    assert result["config"]["clustering_seeds"] == [25, 26]
    assert result["config"]["features"] == "mean"
    assert all(0 < row["mauve"]["value"] <= 1 for row in result["rows"])
    assert "WARNING clustering" not in shown.err
    assert main(words) == 0
    assert "over clusterings" in capfd.readouterr().out
    assert main([*words, "--n", "20"]) == 2
    assert main([*words, "--clusterings", "0"]) == 2
    assert "--clusterings 0 must be at least 1" in capfd.readouterr().err


def test_the_papers_features_run_from_the_command_line(
    encoder: Evaluator, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "g.jsonl", tmp_path / "r.json"
    path.write_text("".join(json.dumps(asdict(each)) + "\n" for each in many(100)), "utf-8")
    words = ["eval", "mauve", str(path), "--features", f"bert:{encoder.name}", "--device", "cpu", "--tokens", "12"]
    assert main([*words, "--clusterings", "1", "--batch", "256", "--out", str(out)]) == 0
    result = json.loads(out.read_text("utf-8"))
    assert result["config"]["features"] == "bert"
    assert result["evaluator"]["kind"] == "masked"
    assert list(result["config"]["generations"]) == [str(path)]
    assert capfd.readouterr().err.startswith(f"features bert:{encoder.name}, sha256 ")
