"""Judges: what they are shown and how they are read; a tiny critic; likelihood."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from judged import arena_command, make_many, write

from reviser.errors import CheckpointError, ConfigError, DataError
from reviser.evaluation.evaluator import Evaluator
from reviser.evaluation.evaluators import load
from reviser.evaluation.generations import Generation
from reviser.evaluation.judges.arena import Pair, make_pairs
from reviser.evaluation.judges.critic import CriticJudge
from reviser.evaluation.judges.likelihood_judge import EvaluatorScorer, LikelihoodJudge
from reviser.evaluation.judges.messages import (
    CHAT_TEMPLATE,
    CRITIC_TEMPLATE,
    make_message,
    make_request,
    read_template,
    read_verdict,
)


@given(st.text(), st.text(), st.text())
def test_a_message_holds_the_texts_whatever_they_say(prefix: str, first: str, second: str) -> None:
    one = Generation("a", "p", 0, prefix, first, "", "", True, 1, 1)
    pair = Pair(one, Generation("b", "p", 0, prefix, second, "", "", True, 1, 1))
    for template in (CHAT_TEMPLATE, CRITIC_TEMPLATE):
        head, tail = template.split("{request}")
        middle, tail = tail.split("{first}")
        last, tail = tail.split("{second}")
        assert make_message(template, pair) == head + make_request(pair) + middle + first + last + second + tail
    assert make_request(pair).endswith(prefix)


def test_a_text_may_name_a_placeholder_and_a_gap_is_shown() -> None:
    pair = Pair(write("a", 1, "{second} [[A]]", " the end."), write("b", 1, "{first}", " the end."))
    assert make_message("{request}|{first}|{second}", pair).endswith("Prompt 1:[GAP] the end.|{second} [[A]]|{first}")


def test_the_last_mark_is_the_verdict() -> None:
    assert read_verdict("[[A]]") == "first"
    assert read_verdict("[[A]] or [[B]]? I say [[C]].") == "tie"
    assert read_verdict("[[C]]", "AB") is None
    assert read_verdict("A is better; [A]; [[D]]") is None


def test_a_template_holds_each_part_once(tmp_path: Path) -> None:
    path = tmp_path / "message.txt"
    path.write_text("{request} {first} {second}")
    assert read_template(path) == "{request} {first} {second}"
    path.write_text("{request} {first} {first} {second}")
    with pytest.raises(ConfigError, match=r"contains \{first\} 2 times; it must contain it exactly once"):
        read_template(path)
    path.write_bytes(b"\xff")
    with pytest.raises(DataError, match="not a text file in UTF-8"):
        read_template(path)
    with pytest.raises(DataError, match=r"cannot be read \(No such file or directory\)"):
        read_template(tmp_path / "none")


CHAT = "{% for m in messages %}<user>{{ m['content'] }}<end>{% endfor %}<judge>"


def make_model(folder: Path, chat: str | None = CHAT, reply: str | None = None, room: int = 4096) -> Evaluator:
    """A tiny GPT-2 of bytes with random weights, or one that always says `reply`, saved and loaded."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<end>", "<user>", "<judge>", "[[A]]", "[[B]]"]
    inner = Tokenizer(models.BPE({token: i for i, token in enumerate([*special, *alphabet])}, []))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    inner.add_special_tokens(special[:3])
    inner.add_tokens(special[3:])
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<end>", bos_token="<end>", model_max_length=room
    )
    tokenizer.chat_template = chat
    torch.manual_seed(4)
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_positions=room, n_embd=16, n_layer=2, n_head=2, eos_token_id=0, bos_token_id=0,
        initializer_range=0.3,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    if reply is not None:
        # The state before the head is one constant, which only the reply's own vector resembles.
        constant = torch.linspace(-1.0, 1.0, 16)
        with torch.no_grad():
            model.transformer.ln_f.weight.zero_()
            model.transformer.ln_f.bias.copy_(constant)
            model.transformer.wte.weight[tokenizer.convert_tokens_to_ids(reply)] = 99.0 * constant
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return load(str(folder))


@pytest.mark.parametrize("reply, verdict", [("[[A]]", "first"), ("[[B]]", "second"), ("x", "failed")])
def test_a_critic_is_asked_greedily_and_its_mark_read(reply: str, verdict: str, tmp_path: Path) -> None:
    judge = CriticJudge(make_model(tmp_path, reply=reply), batch=3, reply_tokens=4)
    pairs = make_many(4)
    judgments = list(judge.judge(pairs))
    assert [(each.key, each.verdict, each.reply) for each in judgments] == [
        (p.key, verdict, 4 * reply) for p in pairs
    ]


def test_a_critics_reply_does_not_hang_on_its_batch(tmp_path: Path) -> None:
    evaluator, pairs = make_model(tmp_path), make_many(5)
    pairs = [Pair(write("a", p, "x" * 40 * p), write("b", p, "yes")) for p in range(5)]
    alone = [each.reply for each in CriticJudge(evaluator, batch=1).judge(pairs)]
    assert alone == [each.reply for each in CriticJudge(evaluator, batch=4).judge(pairs)]
    assert len(set(alone)) > 1


def test_a_critic_without_a_chat_template_or_room_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no chat template"):
        CriticJudge(make_model(tmp_path / "plain", chat=None))
    short = make_model(tmp_path / "short", room=64)
    with pytest.raises(DataError, match="reads 64 tokens, but a pair takes"):
        list(CriticJudge(short).judge(make_many(1)))
    with pytest.raises(ConfigError, match="--batch 0 and --reply-tokens 16"):
        CriticJudge(short, batch=0)


class Lengths:
    """Bits per byte by a table; notes what it was asked."""

    name, sha256 = "lengths", "0" * 64

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def bits_per_byte(self, prefix: str, text: str) -> float:
        self.asked.append((prefix, text))
        return len(text) / 10


@given(st.lists(st.text(min_size=1, max_size=9), min_size=2, max_size=5), st.floats(0, 1))
def test_likelihood_prefers_fewer_bits_ties_within_the_margin_and_scores_a_text_once(
    texts: list[str], margin: float
) -> None:
    scorer = Lengths()
    pairs = make_pairs([write(f"s{i}", 0, text, "") for i, text in enumerate(texts)], both_orders=True)
    for pair, judgment in zip(pairs, LikelihoodJudge(scorer, margin).judge(pairs), strict=True):
        gap = len(pair.second.text) / 10 - len(pair.first.text) / 10
        assert judgment.verdict == ("tie" if abs(gap) <= margin else "first" if gap > 0 else "second")
        assert judgment.key == pair.key
    assert len(scorer.asked) == len(set(scorer.asked)) == len(set(texts))


def test_of_a_filled_gap_the_suffix_alone_is_scored_after_the_filling() -> None:
    scorer, pairs = Lengths(), make_pairs([write("a", 0, " x", " end"), write("b", 0, " long and bland", " end")])
    assert {judgment.verdict for judgment in LikelihoodJudge(scorer).judge(pairs)} == {"tie"}
    assert {text for _, text in scorer.asked} == {" end"}
    assert {prefix for prefix, _ in scorer.asked} == {
        each.prefix + each.text for each in (pairs[0].first, pairs[0].second)
    }


def test_the_evaluator_is_a_scorer_and_the_command_judges_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from reviser.cli import main
    from reviser.evaluation.metrics.evalppl import score

    evaluator = make_model(tmp_path / "model")
    scorer, pairs = EvaluatorScorer(evaluator), make_many(6)
    texts = [pair.first for pair in pairs]
    assert [scorer.bits_per_byte(each.prefix, each.text) for each in texts] == pytest.approx(
        [each.bits_per_byte for each in score(evaluator, texts)], abs=1e-5
    )
    words = arena_command(tmp_path, pairs, "--judge", "likelihood", "--model", tmp_path / "model", "--json")
    assert main([*words, "--both-orders", "--device", "cpu"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["evaluator"] == {"name": str(tmp_path / "model"), "sha256": evaluator.sha256}
    assert result["agreement"]["value"] == 1.0
    assert result["position_bias"]["value"] == 0.5
    wins = [
        scorer.bits_per_byte(a.prefix, a.text) < scorer.bits_per_byte(b.prefix, b.text)
        for a, b in (sorted((pair.first, pair.second), key=lambda each: each.system) for pair in pairs)
    ]
    assert result["rows"][0]["win_rate"]["value"] == pytest.approx(sum(wins) / len(wins))
    for margin in (-1, math.nan, math.inf):
        with pytest.raises(ConfigError, match=rf"--margin {margin} must be a finite number .* at least 0"):
            LikelihoodJudge(scorer, margin)
