"""evalPPL against plain loops: one token at a time, no batch, no padding."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from test_eval_evaluators import make_bert, make_gpt2

from reviser.cli import main
from reviser.errors import DataError
from reviser.evaluation.evaluator import Evaluator
from reviser.evaluation.evaluators import load
from reviser.evaluation.generations import Generation
from reviser.evaluation.metrics.evalppl import Item, Score, bits_per_byte, perplexity, prepare, score, summarise
from reviser.evaluation.texts import lay_out

transformers = pytest.importorskip("transformers")

ONE = Generation("ours", "p1", 0, "the old light", "house stood empty", "", " stood there", True, 3, 3)
TEXTS = [
    ONE,
    replace(ONE, prompt_id="p2", prefix="nobody knew", text=" who had lit the lamp — naïve 🙂,\n so the cat went up"),
    replace(ONE, prompt_id="p3", text=""),
    replace(ONE, prompt_id="p4", prefix="", text="until morning"),
    replace(ONE, prompt_id="p5", text=" ", suffix=" and more"),
]


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Evaluator:
    return load(str(make_gpt2(tmp_path_factory.mktemp("gpt2"))))


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Evaluator:
    return load(str(make_bert(tmp_path_factory.mktemp("bert"))))


def plain_causal(evaluator: Evaluator, item: Item) -> float:
    """-log p of each token, the model run anew on what stands before it."""
    nats = 0.0
    for place in range(item.first, item.last):
        with torch.no_grad():
            logits = evaluator.model(torch.tensor([item.ids[:place]])).logits[0, -1]
        nats -= torch.log_softmax(logits, -1)[item.ids[place]].item()
    return nats


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_a_causal_score_is_a_plain_loop_over_tokens(gpt2: Evaluator, batch: int) -> None:
    found = score(replace(gpt2, known={}), TEXTS, batch)
    for generation, one in zip(TEXTS, found, strict=True):
        item = prepare(gpt2, generation)
        assert one.nats == pytest.approx(plain_causal(gpt2, item), rel=1e-5)
        assert one.num_tokens == item.last - item.first
        assert one.num_bytes == len(generation.text.encode())
    assert found[1].nats > 10


def test_what_was_read_is_not_read_again(gpt2: Evaluator) -> None:
    class Counting:
        def __init__(self) -> None:
            self.rows, self.device = 0, gpt2.device

        def __call__(self, **given: torch.Tensor) -> object:
            self.rows += len(given["input_ids"])
            return gpt2.model(**given)

    told: list[int] = []
    counting = Counting()
    counted = replace(gpt2, model=counting, known={})
    first = score(counted, [*TEXTS, *TEXTS], 2, advance=told.append)
    read = counting.rows
    assert read == len({prepare(gpt2, each).ids for each in TEXTS if prepare(gpt2, each).ids})
    assert sum(told) == 2 * len(TEXTS)
    assert score(counted, TEXTS, 2) == first[: len(TEXTS)] == first[len(TEXTS) :]
    behind = [replace(each, prefix=each.prefix + each.text[:5], text=each.text[5:]) for each in TEXTS if each.prefix]
    again = score(counted, behind, 2)
    assert counting.rows == read
    for one, generation in zip(again, behind, strict=True):
        assert one.nats == pytest.approx(plain_causal(gpt2, prepare(gpt2, generation)), rel=1e-5)


def test_scored_tokens_hold_the_text_and_no_more(gpt2: Evaluator) -> None:
    item = prepare(gpt2, TEXTS[1])
    assert gpt2.tokenizer.decode(item.ids[: item.first]) == TEXTS[1].prefix
    assert gpt2.tokenizer.decode(item.ids[item.first : item.last]) == TEXTS[1].text


def test_a_token_across_the_boundary_is_scored_whole(gpt2: Evaluator) -> None:
    item = prepare(gpt2, ONE)
    pieces = [gpt2.tokenizer.decode([each]) for each in item.ids]
    scored = "".join(pieces[item.first : item.last])
    assert scored == " lighthouse stood empty"
    assert score(gpt2, [ONE])[0].num_bytes == len("house stood empty")


def test_a_text_without_prefix_begins_behind_the_start_token(gpt2: Evaluator) -> None:
    item = prepare(gpt2, TEXTS[3])
    assert (item.ids[0], item.first) == (gpt2.tokenizer.eos_token_id, 1)


def test_an_evaluator_without_a_start_token_says_so(tmp_path: Path) -> None:
    evaluator = load(str(make_gpt2(tmp_path, unk_token="<unk>")))
    with pytest.raises(DataError, match="has no start token, so a text without prefix cannot be scored; give texts"):
        score(evaluator, TEXTS)


def test_a_start_token_the_tokenizer_forgets_is_put_in_front(tmp_path: Path) -> None:
    made = load(str(make_gpt2(tmp_path, bos_token="<start>")))
    plain, started = prepare(made, ONE), prepare(replace(made, has_start=True), ONE)
    assert started == Item((made.tokenizer.bos_token_id, *plain.ids), plain.first + 1, plain.last + 1)


def test_a_long_prefix_is_cut_at_its_far_end(gpt2: Evaluator) -> None:
    long = replace(ONE, prefix="the old cat went up and " * 30)
    item = prepare(gpt2, long)
    assert len(item.ids) == gpt2.limit == item.last
    assert gpt2.tokenizer.decode(item.ids[item.first :]) == long.text
    assert score(gpt2, [long])[0].nats == pytest.approx(plain_causal(gpt2, item), rel=1e-5)


def test_a_text_longer_than_the_evaluator_reads_is_refused(gpt2: Evaluator) -> None:
    with pytest.raises(DataError, match=r"of system ours for prompt p1 has \d+ tokens; evaluator .* reads 64 with"):
        score(gpt2, [replace(ONE, text=" morning" * 80)])


def plain_masked(evaluator: Evaluator, item: Item, chunk: int, back: int = 0) -> float:
    nats = 0.0
    for start in range(item.first, item.last, chunk):
        places = range(start, min(start + chunk, item.last))
        ids = torch.tensor([item.ids])
        ids[0, list(places)] = evaluator.tokenizer.mask_token_id
        with torch.no_grad():
            logits = evaluator.model(ids).logits[0]
        nats -= sum(torch.log_softmax(logits[at - back], -1)[item.ids[at]].item() for at in places)
    return nats


@pytest.mark.parametrize(("batch", "chunk"), [(1, 1), (3, 1), (4, 2), (2, 100)])
def test_a_masked_score_is_a_plain_loop_over_chunks(bert: Evaluator, batch: int, chunk: int) -> None:
    texts = [replace(each, suffix=" so the cat went up .") for each in TEXTS]
    for generation, one in zip(texts, score(bert, texts, batch, chunk), strict=True):
        item = prepare(bert, generation)
        assert one.nats == pytest.approx(plain_masked(bert, item, chunk), rel=1e-5)
        assert one.num_tokens == len(range(item.first, item.last))
    # The blank is a text, but none of this tokenizer's tokens.
    assert [one.num_tokens for one in score(bert, texts)][2:] == [0, 2, 0]


def test_a_masked_evaluator_keeps_what_stands_nearest(bert: Evaluator) -> None:
    item = prepare(bert, replace(ONE, prefix="the cat " * 40, text="went up", suffix=" and the lamp" * 40))
    assert len(item.ids) == bert.limit
    assert (item.ids[0], item.ids[-1]) == (bert.tokenizer.cls_token_id, bert.tokenizer.sep_token_id)
    assert bert.tokenizer.decode(item.ids[item.first : item.last]) == "went up"


DREAM = """
from transformers import BertConfig, BertForMaskedLM
class DreamConfig(BertConfig):
    model_type = "Dream"
class DreamModel(BertForMaskedLM):
    config_class = DreamConfig
"""


def test_a_diffusion_model_made_from_a_causal_one_predicts_one_place_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Dream: its own code in the folder, `AutoModel`, and logits shifted by one."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = make_bert(tmp_path / "dream")
    (folder / "modeling.py").write_text(DREAM)
    config = json.loads((folder / "config.json").read_text())
    auto = {"AutoConfig": "modeling.DreamConfig", "AutoModel": "modeling.DreamModel"}
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "Dream", "auto_map": auto}))
    evaluator = load(str(folder), has_remote_code=True)
    assert (evaluator.kind, evaluator.is_shifted) == ("masked", True)
    for generation, one in zip(TEXTS[:2], score(evaluator, TEXTS[:2], chunk=2), strict=True):
        item = prepare(evaluator, generation)
        assert one.nats == pytest.approx(plain_masked(evaluator, item, 2, back=1), rel=1e-5)


def test_a_tokenizer_without_offsets_scores_what_both_sides_do_not_share(bert: Evaluator) -> None:
    slow = transformers.ByT5Tokenizer()
    assert not slow.is_fast
    model = replace(bert, tokenizer=slow)
    item = prepare(model, replace(ONE, prefix="ab", text="cde", suffix="fg"))
    assert slow.decode(item.ids[item.first : item.last]) == "cde"
    item = prepare(model, replace(ONE, prefix="", text="cde", suffix="fg"))
    assert slow.decode(item.ids[item.first : item.last]) == "cde"


def test_perplexity_and_bits_per_byte_by_hand() -> None:
    pairs = [(ONE, Score(6.0, 3, 10)), (replace(ONE, prompt_id="p2"), Score(2.0, 1, 6))]
    # 8 nats over 4 tokens and 16 bytes; both texts have 2 nats a token, so there is no error.
    assert perplexity(pairs).value == pytest.approx(math.exp(2))
    assert perplexity(pairs).error == pytest.approx(0.0)
    assert bits_per_byte(pairs).value == pytest.approx(8 / math.log(2) / 16)
    # Rests 6 - 0.5 * 10 = 1 and 2 - 0.5 * 6 = -1, over 16 bytes.
    assert bits_per_byte(pairs).error == pytest.approx(math.sqrt(2 * 2) / 16 / math.log(2))
    assert Score(math.log(2), 1, 4).bits_per_byte == pytest.approx(0.25)


def test_rows_have_seeds_references_and_empty_texts() -> None:
    texts = [replace(ONE, seed=seed) for seed in (0, 1)] + [replace(ONE, system="mute", text="")]
    scores = [Score(2.0, 2, 12), Score(3.0, 3, 17), Score(6.0, 3, 17), Score(0.0, 0, 0)]
    human, ours, mute = summarise(texts, scores)
    assert human["perplexity"] == {"value": pytest.approx(math.e), "error": None, "n": 1}
    assert ours["perplexity"]["value"] == pytest.approx(math.exp(1.5))
    over = [math.exp(1), math.exp(2)]
    assert ours["perplexity_over_seeds"]["mean"] == pytest.approx(sum(over) / 2)
    assert ours["perplexity_over_seeds"]["deviation"] == pytest.approx((over[1] - over[0]) / math.sqrt(2))
    assert (ours["texts"], ours["prompts"], ours["seeds"], ours["tokens"]) == (2, 1, [0, 1], 6)
    assert ours["by_prompt"] == {"nats_per_token": {"p1": [9.0, 6.0]}}
    assert mute["by_prompt"] == {"nats_per_token": {}}
    assert (mute["empty"], mute["perplexity"], mute["bits_per_byte_over_seeds"]) == (1, None, None)
    assert mute["words"]["value"] == 0.0
    assert [each.system for each in lay_out(texts)] == ["(reference)", "ours", "ours", "mute"]


def write(path: Path, texts: list[Generation]) -> str:
    path.write_text("".join(json.dumps(asdict(each)) + "\n" for each in texts), "utf-8")
    return str(path)


def test_the_command_prints_one_document_and_writes_it(
    gpt2: Evaluator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [*TEXTS, *(replace(each, system="theirs", text=" the cat") for each in TEXTS[:2])]
    file, out = write(tmp_path / "g.jsonl", texts), tmp_path / "results" / "x.json"
    words = ["eval", "evalppl", file, "--evaluator", gpt2.name, "--device", "cpu"]
    assert main([*words, "--json", "--out", str(out)]) == 0
    shown = capsys.readouterr()
    result = json.loads(shown.out)
    assert result == json.loads(out.read_text("utf-8"))
    assert (result["kind"], result["evaluator"]) == ("evalppl", gpt2.about)
    assert [(row["system"], row["texts"], row["empty"]) for row in result["rows"]] == [
        ("(reference)", 5, 0), ("ours", 5, 1), ("theirs", 2, 0),
    ]  # fmt: skip
    found = score(gpt2, TEXTS)
    wanted = sum(one.nats for one in found) / sum(one.num_tokens for one in found)
    assert result["rows"][1]["perplexity"]["value"] == pytest.approx(math.exp(wanted), rel=1e-5)
    assert f"sha256 {gpt2.sha256}" in shown.err
    assert "note: systems have different prompts (ours 5, theirs 2)" in shown.err
    assert main([*words, "--n", "2"]) == 0
    table = capsys.readouterr().out
    assert "evalPPL" in table
    assert table.count("theirs") == 2


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--batch", "0"], "--batch 0 must be at least 1"),
        (["--chunk", "0"], "--chunk 0 must be at least 1"),
        (["--device", "mars"], "no device 'mars'"),
    ],
)
def test_what_cannot_be_scored_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    assert main(["eval", "evalppl", write(tmp_path / "g.jsonl", TEXTS), *words]) == 2
    assert text in capsys.readouterr().err
