"""Features of texts against plain loops: mean state, last state, and log p of each token by either kind of model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_eval_evaluators import PROSE, make_bert, make_gpt2

from reviser.errors import CheckpointError
from reviser.evaluation.evaluator import Evaluator
from reviser.evaluation.evaluators import load
from reviser.evaluation.metrics.features import embed, load_features, parse

pytest.importorskip("transformers")
TEXTS = [" the old lighthouse stood", "the cat went up and nobody knew who had lit the lamp", "", "zebra the"]
WORDS = st.lists(st.sampled_from([*PROSE.split(), "zebra"]), max_size=14).map(" ".join)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_bert(tmp_path_factory.mktemp("bert")))


@pytest.fixture(scope="module")
def encoder(folder: str) -> Evaluator:
    return load(folder, "encoder")


@pytest.fixture(scope="module")
def masked(folder: str) -> Evaluator:
    return load_features(f"bert:{folder}")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("mean:minilm", ("mean", "minilm")),
        ("last:some/hub", ("last", "some/hub")),
        ("bert:", ("mean", "bert:")),
        ("C:models/x", ("mean", "C:models/x")),
    ],
)
def test_a_way_is_a_known_one_and_else_part_of_the_name(text: str, found: tuple[str, str]) -> None:
    assert parse(text) == found


def states(encoder: Evaluator, text: str, count: int) -> torch.Tensor:
    ids = encoder.tokenizer(" ".join(text.split()[:count]))["input_ids"]
    with torch.no_grad():
        return encoder.model(torch.tensor([ids])).last_hidden_state[0]


def test_states_are_those_of_each_text_alone(encoder: Evaluator) -> None:
    mean, last = (embed(encoder, TEXTS, way, num_tokens=5, batch=2) for way in ("mean", "last"))
    for number, text in enumerate(TEXTS):
        wanted = states(encoder, text, 5)
        assert mean[number] == pytest.approx(wanted.mean(0).numpy(), abs=1e-5)
        assert last[number] == pytest.approx(wanted[-1].numpy(), abs=1e-5)


def test_a_start_token_the_tokenizer_forgets_is_read_too(encoder: Evaluator) -> None:
    encoder.tokenizer.bos_token = "."
    started = embed(replace(encoder, has_start=True), ["the cat"], "mean")
    ids = encoder.tokenizer("the cat")["input_ids"]
    with torch.no_grad():
        wanted = encoder.model(torch.tensor([[encoder.tokenizer.bos_token_id, *ids]])).last_hidden_state[0].mean(0)
    encoder.tokenizer.bos_token = None
    assert started[0] == pytest.approx(wanted.numpy(), abs=1e-5)


def test_an_empty_text_without_special_tokens_has_features_too(tmp_path: Path) -> None:
    causal = load(str(make_gpt2(tmp_path / "gpt2")), "encoder")
    found = embed(causal, ["", "the lamp", ""], "last")
    assert np.isfinite(found).all()
    assert (found[0] == found[2]).all()


def plain_likelihoods(masked: Evaluator, text: str, num_tokens: int) -> list[float]:
    """One token masked at a time, one pass each, nothing else in the batch."""
    tokenizer, found = masked.tokenizer, []
    ids = tokenizer(" ".join(text.split()[:num_tokens]))["input_ids"]
    for place in range(1, len(ids) - 1):
        hidden = [*ids[:place], tokenizer.mask_token_id, *ids[place + 1 :]]
        with torch.no_grad():
            logits = masked.model(torch.tensor([hidden])).logits[0, place]
        found.append(logits.log_softmax(-1)[ids[place]].item())
    return found + [0.0] * (num_tokens - len(found))


@settings(max_examples=20, deadline=None)
@given(texts=st.lists(WORDS, min_size=1, max_size=4), batch=st.integers(1, 40), num_tokens=st.integers(1, 16))
def test_likelihoods_are_those_of_one_masked_token_at_a_time(
    masked: Evaluator, texts: list[str], batch: int, num_tokens: int
) -> None:
    texts = [text.replace(",", "") for text in texts]
    found = embed(masked, texts, "bert", num_tokens, batch)
    assert found.shape == (len(texts), num_tokens)
    for text, row in zip(texts, found, strict=True):
        assert row == pytest.approx(plain_likelihoods(masked, text, num_tokens), abs=1e-4)


@pytest.mark.parametrize("has_start", [False, True])
def test_causal_likelihoods_are_those_of_each_text_alone(tmp_path: Path, has_start: bool) -> None:
    causal = replace(load(str(make_gpt2(tmp_path / "gpt2", bos_token="<s>"))), has_start=has_start)
    found = embed(causal, TEXTS, "logp", num_tokens=9, batch=3)
    for text, row in zip(TEXTS, found, strict=True):
        ids = causal.tokenizer(text.strip())["input_ids"][:9]
        given = [causal.tokenizer.bos_token_id] * has_start + ids
        wanted = [0.0] * 9
        for number in range(1 - has_start, len(ids)):
            with torch.no_grad():
                logits = causal.model(torch.tensor([given[: number + has_start]])).logits[0, -1]
            wanted[number] = logits.log_softmax(-1)[ids[number]].item()
        assert row == pytest.approx(wanted, abs=1e-4)


def test_a_model_without_a_masked_head_gives_no_likelihoods(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"lacks .* tensors of a masked language model"):
        load_features(f"bert:{make_bert(tmp_path / 'bare', has_head=False)}")
