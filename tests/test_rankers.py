"""Rankers: any judge gives each of several texts a number; registered judges; our own models as evaluators."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import torch
from judged import arena_command, make_many, write
from tiny import random_model

import reviser
from reviser.cli import main
from reviser.config import CanvasConfig, ModelConfig
from reviser.errors import CheckpointError, ConfigError
from reviser.evaluation.evaluators import load
from reviser.evaluation.judges.judgments import UNANSWERED, Judgment
from reviser.evaluation.judges.pairs import Pair
from reviser.evaluation.judges.rankers import PairwiseRanker, open_ranker
from reviser.evaluation.metrics.evalppl import score
from reviser.model.checkpoint import save_pretrained
from reviser.model.conditioning import CanvasInput
from reviser.tokenizer import load as load_tokenizer

CONFIG = ModelConfig(
    num_text=257, pad=256, num_layers=2, width=32, num_heads=2, ff_width=64, context=48, max_length=40,
    operators=("jump", "delete"), canvas=CanvasConfig(kind="window", slot_width=8),
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "own"
    save_pretrained(random_model(CONFIG), path, load_tokenizer("bytes"))
    return path


class Longer:
    """A judge of pairs that prefers the longer text, and does not answer where one says nothing."""

    name, sha256 = "longer", None

    def judge(self, pairs: Iterable[Pair]) -> Iterator[Judgment]:
        for pair in reversed(list(pairs)):
            first, second = len(pair.first.text), len(pair.second.text)
            verdict = "first" if first > second else "second" if second > first else "tie"
            is_silent = "nothing" in pair.first.text + pair.second.text
            yield Judgment.of(pair, UNANSWERED if is_silent else verdict, "", self.name)


def test_a_judge_of_pairs_ranks_by_the_pairs_that_a_text_wins() -> None:
    ranker = PairwiseRanker(Longer(), "longer")
    groups = [[write("same", 1, text) for text in texts] for texts in (["aa", "a", "", "bb"], ["nothing", "a"], [])]
    assert ranker.score(groups) == [[2.5, 1.0, 0.0, 2.5], [0.5, 0.5], []]


def test_our_own_model_scores_a_text_as_its_inserts_from_left_to_right(folder: Path) -> None:
    evaluator, text = load(f"reviser:{folder}"), b"cde"
    [found] = score(evaluator, [write("a", 0, "cde")])
    model, tokens = random_model(CONFIG), [*b"Prompt 0:", *text]
    nats = 0.0
    for place in range(len(tokens) - len(text), len(tokens)):
        given = torch.tensor([[CONFIG.alphabet.start, *tokens[:place]]])
        window = [[*([257] * 4), *tokens[:step]][-4:] + [257] * 4 for step in range(place + 1)]
        shown = CanvasInput(windows=torch.tensor([window]))
        logits = model(given, shown)[0, -1, :256]
        nats -= float(logits.detach().log_softmax(0)[tokens[place]])
    assert (found.nats, found.num_tokens, found.num_bytes) == (pytest.approx(nats, rel=1e-5), 3, 3)


def test_a_likelihood_ranker_prefers_what_its_model_expects(folder: Path) -> None:
    ranker = open_ranker(f"likelihood:reviser:{folder}")
    texts = ["abc", "xyzxyz", "", "q"]
    groups = [[write("a", number, text) for text in texts] for number in range(2)]
    found = ranker.score(groups)
    for group, numbers in zip(groups, found, strict=True):
        alone = [score(load(f"reviser:{folder}"), [each])[0] for each in group]
        wanted = [-each.bits_per_byte if each.num_bytes else -math.inf for each in alone]
        assert numbers == pytest.approx(wanted, rel=1e-4)
    # In a gap it is what follows that is scored.
    [[one, other]] = ranker.score([[write("a", 0, text, suffix=" end") for text in ("abc", "x")]])
    assert one != other


def test_an_evaluator_of_ours_must_be_causal_and_a_model(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a causal model, but a masked one is needed; give another"):
        load(f"reviser:{folder}", "masked")
    with pytest.raises(CheckpointError, match=r"is not a model folder: it holds no config\.json"):
        load(f"reviser:{tmp_path}")


@pytest.mark.parametrize("spec", ["", "likelihood", "http:model", "nobody", "likelyhood:smollm2", "critic:"])
def test_a_judge_that_cannot_be_is_one_line(spec: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_ranker(spec)
    assert str(caught.value).startswith(
        f"no judge {spec!r}; write likelihood:MODEL, critic:MODEL, http:MODEL@URL or the name of a registered judge"
    )
    assert str(caught.value).endswith("; --plugin FILE loads a file that registers one")


def test_a_registered_judge_is_checked() -> None:
    reviser.register_judge("too-few", lambda texts: [1.0])
    reviser.register_judge("fails", lambda texts: [1 / 0 for _ in texts])
    group = [write("a", 0, text) for text in "xy"]
    with pytest.raises(ConfigError, match=r"judge too-few returned \[1.0\] for 2 texts; return a finite number for"):
        open_ranker("too-few").score([group])
    with pytest.raises(ConfigError, match=r"judge fails failed \(ZeroDivisionError: division by zero\); fix it"):
        open_ranker("fails").score([group])
    with pytest.raises(ConfigError, match="there is already a judge 'fails'; give this one another name"):
        reviser.register_judge("fails", len)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="reviser already has a judge 'critic'; give this one another name"):
        reviser.register_judge("critic", len)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="judge 'odd' is int; register a function of one prompt's texts"):
        reviser.register_judge("odd", 3)  # type: ignore[arg-type]


def test_the_arena_names_its_judges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arena_command(tmp_path, make_many(2), "--judge", "nobody")) == 2
    assert "no judge 'nobody'; judges are http, critic, likelihood" in capsys.readouterr().err
    reviser.register_judge("even", lambda texts: [0.0 for _ in texts])
    assert main(arena_command(tmp_path, make_many(2), "--judge", "even", "--model", "x")) == 2
    assert "--judge even is a function and asks no model; drop --model x" in capsys.readouterr().err
