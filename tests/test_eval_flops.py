"""Cost: the paper's printed tables, our systems against PyTorch's own counter, the command."""

import json
import re
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import show
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from reviser.canvas import Canvas, Rules, apply
from reviser.cli import main
from reviser.config import CanvasConfig, ModelConfig
from reviser.decoding.engine import Engine, Request
from reviser.decoding.sampling import GREEDY
from reviser.errors import ConfigError
from reviser.evaluation.metrics import paper_flops as paper
from reviser.evaluation.metrics.flops import Shape, diffusion_flops, flops, left_to_right_flops
from reviser.model.attention import masked
from reviser.model.cache import Cache
from reviser.model.checkpoint import save_pretrained
from reviser.model.layers import rotation, turned
from reviser.model.transformer import Transformer
from reviser.orders.record import Draft
from reviser.reports.tables import show as show_number
from reviser.tokenizer import load

PAPER = Path(__file__).parents[2] / "shared" / "paper" / "reviser.tex"

# What the paper prints: method, variant, GMACs, ratio; None where the table prints none.
PRINTED = {
    "summary": (  # tab:prior_art_summary_main
        ("AR", "baseline", None, "1.00"),
        ("Reviser", "p_move=0.20", None, "1.25"),
        ("Reviser", "p_move=0.33", None, "1.50"),
        ("LevT", "EE (f=0.5), R=5", None, "6.91"),
        ("LevT", "no EE, R=10", None, "19.40"),
        ("InsT", "balanced-tree", None, "2.02"),
        ("InsT", "serial", None, "65.01"),
        ("CMLM", "Mask-Predict, T=10", None, "11.86"),
        ("Diffusion-LM", "T=200, gamma=0", None, "140.51"),
        ("Diffusion-LM", "T=2000, gamma=0", None, "1402.36"),
        ("NAT", "one-shot", None, "1.96"),
    ),
    "diffusion-100m": (  # app:diff_family_table_100m
        ("AR (100M)", "baseline", "15.939", "1"),
        ("Reviser", "p_move=0.20", "19.9709", "1.25"),
        ("Reviser", "p_move=0.33", "23.9006", "1.50"),
        ("SEDD", "T=32", "514.8424", "32.3008"),
        ("SEDD", "T=2048", "32949.9154", "2067.2497"),
        ("MDLM", "T=1000", "16088.8259", "1009.3993"),
        ("D3PM", "T=1000", "16088.8259", "1009.3993"),
        ("Diffusion-LM", "T=200, gamma=0", "2239.6404", "140.5131"),
        ("Diffusion-LM", "T=200, gamma=1", "3217.7652", "201.8799"),
        ("Diffusion-LM", "T=2000, gamma=0", "22352.1669", "1402.356"),
    ),
    "diffusion-large": (  # app:diff_family_table_big
        ("AR (Qwen2.5-32B)", "baseline", "4099.3869", "1"),
        ("SDLM-32B-D4", "D=4, k=2", "8198.9416", "2"),
        ("AR (Qwen2.5-7B)", "baseline", "906.6536", "1"),
        ("Dream-7B", "T=10", "8768.9307", "9.6718"),
        ("Dream-7B", "T=20", "17502.9816", "19.305"),
        ("AR (LLaMA3-8B)", "baseline", "962.7605", "1"),
        ("LLaDA-8B", "T=256", "238317.9374", "247.536"),
        ("LLaDA-8B", "semi-AR, b=32, T=16", "36426.5572", "37.8355"),
    ),
    "refinement": (  # app:prior_art_table
        ("AR", "baseline", "15.939", "1"),
        ("Reviser", "p_move=0.20", "19.9709", "1.25"),
        ("Reviser", "p_move=0.33", "23.9006", "1.50"),
        ("LevT", "no EE, R=5", "154.6186", "9.7006"),
        ("LevT", "no EE, R=10", "309.2373", "19.4013"),
        ("LevT", "EE (f=0.5), R=5", "110.1657", "6.9117"),
        ("LevT", "EE (f=0.5), R=10", "220.3315", "13.8234"),
        ("InsT", "balanced-tree", "32.1602", "2.0177"),
        ("InsT", "serial", "1036.2024", "65.0105"),
        ("NAT", "one-shot", "31.1932", "1.957"),
        ("CMLM", "Mask-Predict, T=10", "189.0486", "11.8607"),
    ),
}
LABELS = {
    "summary": "tab:prior_art_summary_main",
    "diffusion-100m": "app:diff_family_table_100m",
    "diffusion-large": "app:diff_family_table_big",
    "refinement": "app:prior_art_table",
}
ROWS = {(row.group, row.method, row.variant): row for row in paper.rows()}
CASES = [(group, *line) for group, lines in PRINTED.items() for line in lines]


def is_printed(ratio, text):
    """Whether the paper's rounding gives the text: 2 decimals in summaries, else 4 without zeros at the end."""
    return round(ratio, 2 if re.fullmatch(r"\d+\.\d\d", text) else 4) == float(text)


@pytest.mark.parametrize("group, method, variant, gmacs, ratio", CASES, ids=lambda each: str(each))
def test_every_number_of_the_papers_tables_follows_from_its_formulas(group, method, variant, gmacs, ratio):
    row = ROWS[group, method, variant]
    assert gmacs is None or round(row.gmacs, 4) == float(gmacs)
    assert is_printed(row.ratio, ratio)


def test_no_row_is_without_a_printed_number():
    printed = {case[:3] for case in CASES}
    # The tables print the ends of Reviser's range; the text prints the third (below).
    assert {row for row in ROWS if row not in printed} == {
        (group, "Reviser", "p_move=0.28") for group in PRINTED if group != "diffusion-large"
    }


@pytest.mark.parametrize("group", PRINTED)
def test_the_numbers_typed_above_are_all_that_the_paper_prints(group):
    if not PAPER.exists():
        pytest.skip("the paper's source is not here")
    text = PAPER.read_text("utf8")
    tables = re.findall(r"\\begin\{table\}.*?\\end\{table\}", text, re.S)
    if group == "summary":
        table = next(each for each in tables if rf"\label{{{LABELS[group]}}}" in each)
    else:
        table = next(each for each in tables if text.index(each) > text.index(rf"\label{{{LABELS[group]}}}"))
    found = re.findall(r"\\num\{([\d.]+)\}", table)
    typed = [number for line in PRINTED[group] for number in line[2:] if number not in (None, "1")]
    assert sorted(found) == sorted(typed)


def test_the_numbers_in_the_papers_text_follow_too():
    shape = paper.SHARED
    actions = [128 / (1 - share) for share in paper.MOVE_SHARES]
    assert [round(each, 2) for each in actions] == [160, 177.78, 191.04]
    assert [round(shape.causal(n) / 1e9, 4) for n in (128, *actions)] == [11.0238, 13.8269, 15.3924, 16.5644]
    assert [round(shape.head(n) / 1e9, 4) for n in (128, *actions)] == [4.9152, 6.144, 6.8267, 7.3361]
    reviser = [ROWS["refinement", "Reviser", f"p_move={share:.2f}"] for share in paper.MOVE_SHARES]
    assert [round(row.gmacs, 4) for row in reviser] == [19.9709, 22.2191, 23.9006]
    assert [round(row.ratio, 4) for row in reviser] == [1.253, 1.394, 1.4995]
    assert [round(shape.full(n) / 1e9, 4) for n in (102.4, 128)] == [8.8906, 11.1736]
    assert [round(paper.levenshtein(128, 1, depth) / 1e9, 4) for depth in (1, 0.5)] == [30.9237, 22.0331]
    for lengths, trunk, head in (([2**i for i in range(8)], 22.061, 10.0992), (range(1, 129), 714.2568, 321.9456)):
        assert round(sum(map(shape.full, lengths)) / 1e9, 4) == trunk
        assert round(sum(shape.head(n + 1) for n in lengths) / 1e9, 4) == head
    assert round(shape.cross(128, 128) / 1e9, 4) == 3.9259
    assert paper.masked_counts(128, 10) == [128, 115, 102, 89, 76, 64, 51, 38, 25, 12]
    assert round(shape.head(700) / 1e9, 4) == 26.88


def test_a_small_shape_by_hand():
    shape = Shape(num_layers=1, width=2, ff_width=4, vocabulary=10)
    # Four 2 x 2 matrices and two 2 x 4: 32 a position; 6 pairs of 3 positions, 9 in full, each 2 products of 2.
    assert (shape.dense(3), shape.causal(3), shape.full(3), shape.head(1)) == (96, 96 + 24, 96 + 36, 20)
    assert shape.cross(3, 2) == 2 * 3 * 4 + 2 * 2 * 4 + 24
    gated = Shape(num_layers=1, width=4, ff_width=6, vocabulary=10, kv_width=2, num_mlp=3)
    assert gated.dense(1) == 2 * 16 + 2 * 8 + 3 * 24


@given(st.integers(1, 500), st.integers(0, 500), st.integers(1, 9), st.integers(1, 64), st.integers(1, 64))
def test_a_pass_costs_what_its_parts_cost_behind_each_other(new, old, layers, width, kv):
    shape = Shape(layers, width, 3 * width, 100, kv_width=kv)
    assert shape.causal(old) + shape.behind(new, old) == shape.causal(old + new)
    assert shape.full(new) - shape.causal(new) == shape.pairs(new * (new - 1) / 2)


@st.composite
def configs(draw, kinds=("none", "window", "pool", "cross", "cross-window", "window-index")):
    layers = draw(st.integers(1, 3))
    canvas = CanvasConfig(
        kind=draw(st.sampled_from(kinds)),
        window=draw(st.integers(1, 3)),
        slot_width=draw(st.integers(1, 9)),
        projection=draw(st.booleans()),
        layers=draw(st.integers(0, layers)),
        gate=draw(st.sampled_from(("none", "scalar", "mlp"))),
    )
    num_text, heads = draw(st.integers(5, 140)), draw(st.integers(1, 3))
    return ModelConfig(
        num_text=num_text,
        pad=num_text - 1,
        num_layers=layers,
        width=heads * 2 * draw(st.integers(1, 4)),
        num_heads=heads,
        ff_width=draw(st.integers(1, 30)),
        context=32,
        activation=draw(st.sampled_from(("gelu", "relu2", "swiglu"))),
        positions=draw(st.sampled_from(("rope", "absolute"))),
        norm=draw(st.sampled_from(("layer", "rms"))),
        tied=draw(st.booleans()),
        canvas=canvas,
    )


@contextmanager
def counting():
    """PyTorch's counter; it does not know the CPU's fused attention, so there is none inside."""
    with sdpa_kernel(SDPBackend.MATH), torch.no_grad(), FlopCounterMode(display=False) as counter:
        yield counter


def macs(counter):
    """It counts a multiply-accumulate as two."""
    return counter.get_total_flops() / 2


def padding(model, heads):
    """What scoring rows of the table costs that only fill it up; the convention leaves them out."""
    return (len(model.head_weight) - model.config.alphabet.size) * model.config.width * heads


def write(model, history, prompt):
    """Take the history step by step with cached keys, score from the prompt's end on; places of all canvases."""
    config = model.config
    rules, canvas, places = Rules(config.alphabet), Canvas(), 0
    cache = Cache.empty(config, num_rows=1)
    for length, action in enumerate(history, 1):
        canvas = canvas if action == config.alphabet.start else apply(canvas, action, rules)
        places += len(canvas.tokens) + 1
        hidden = model.step(torch.tensor([[action]]), show([canvas], config), cache, span=length)
        if length > prompt:
            model.logits(hidden)
    return places


@given(configs(), st.integers(0, 6), st.integers(1, 8))
@settings(max_examples=15)
def test_a_model_that_inserts_costs_what_pytorch_counts(config, prompt, tokens):
    model = Transformer(config).eval()
    history = [config.alphabet.start, *[1] * (prompt + tokens - 1)]
    with counting() as counter:
        places = write(model, history, prompt)
    cost = flops(config, tokens, prompt=prompt)
    # The counter does not know embedding_bag, which is one of a pool's two sums over the canvas.
    bags = places * config.width if config.canvas.has_rows else 0
    assert cost.macs == macs(counter) - padding(model, tokens) + bags
    assert cost.flops == 2 * cost.macs
    assert (cost.canvas > 0) == (config.canvas.kind != "none")


@pytest.mark.slow
@given(configs(kinds=("none", "window", "cross-window", "window-index")), st.integers(1, 6), st.integers(1, 6))
@settings(max_examples=8)
def test_a_model_that_moves_costs_what_pytorch_counts(config, prompt, tokens):
    model, alphabet = Transformer(config).eval(), config.alphabet
    actions = [each for _ in range(tokens) for each in (alphabet.move(-1), 1, alphabet.move(1))]
    with counting() as counter:
        write(model, [alphabet.start, *[1] * prompt, *actions[:-1]], prompt)
    assert flops(config, tokens, actions=len(actions), prompt=prompt).macs == macs(counter) - padding(
        model, len(actions)
    )


@given(configs(kinds=("none",)), st.integers(2, 12))
@settings(max_examples=20)
def test_one_masked_pass_is_counted_with_its_masked_half(config, n):
    model, shape = Transformer(config).eval(), Shape.of(config)
    with counting() as counter:
        model(torch.ones(1, n, dtype=torch.int64))
    masked_half = shape.pairs(n * (n - 1) / 2)
    assert flops(config, n).macs == macs(counter) - padding(model, n) - masked_half


@given(configs(kinds=("none", "window")), st.integers(0, 4), st.integers(2, 8))
@settings(max_examples=10)
def test_the_engine_does_no_more_than_read_slots_that_are_still_empty(config, prompt, most):
    model, shape = Transformer(config).eval(), Shape.of(config)
    draft = Draft.continuation([1] * prompt, Rules(config.alphabet, max_length=20))
    with counting() as counter:
        [written] = Engine(model, GREEDY, num_rows=1, steps=model).write([Request(draft, most)])
    actions = len(written.actions)
    cost = flops(config, 1, actions=actions, prompt=prompt)
    seen, read = (prompt + actions) * (prompt + actions + 1) / 2, (prompt + 1) ** 2 + (actions - 1) * config.context
    assert cost.macs == macs(counter) - padding(model, actions) - shape.pairs(read - seen)


@given(configs(), st.integers(0, 5), st.integers(1, 8), st.integers(1, 4))
@settings(max_examples=8)
def test_a_diffusion_model_of_the_same_blocks_costs_what_pytorch_counts(config, prompt, tokens, steps):
    model = Transformer(ModelConfig(**{**vars(config), "canvas": CanvasConfig()})).eval()
    places = torch.arange(prompt + tokens)
    turn = rotation(places, config) if model.positions is None else None
    everything = torch.ones(1, 1, 1, 1, dtype=torch.bool)

    def attend(qkv, turn):
        return masked(*turned(qkv, turn), mask=everything)

    with counting() as counter:
        for _ in range(steps):
            x = model.embedding(torch.ones(1, prompt + tokens, dtype=torch.int64))
            for block in model.blocks:
                x = block(x, turn, None, attend)
            model.logits(model.norm(x)[:, prompt:])
    cost = diffusion_flops(config, tokens, steps=steps, prompt=prompt)
    assert cost.macs == macs(counter) - padding(model, steps * tokens)


@given(configs(), st.integers(0, 8), st.integers(1, 10), st.integers(0, 10))
def test_left_to_right_is_the_blind_model_without_moves_and_never_dearer(config, prompt, tokens, moves):
    blind = left_to_right_flops(config, tokens, prompt=prompt)
    ours = flops(config, tokens, actions=tokens + moves, prompt=prompt)
    assert blind.canvas == 0
    assert (ours.macs == blind.macs) == (moves == 0 and config.canvas.kind == "none")
    assert ours.macs >= blind.macs


CONFIG = ModelConfig(
    num_text=257, pad=256, num_layers=2, width=32, num_heads=2, ff_width=64, context=64, max_length=40,
    canvas=CanvasConfig(kind="window"),
)  # fmt: skip


@pytest.mark.parametrize(
    "given, message",
    [
        ({"tokens": 0}, "0 tokens by 0 actions after 0; tokens and actions must be at least 1, the prompt"),
        ({"tokens": 4, "prompt": -1}, "4 tokens by 4 actions after -1; tokens and actions must be at least 1, the"),
        ({"tokens": 4, "actions": float("nan")}, "4 tokens by nan actions after 0; tokens and actions must be"),
        ({"tokens": 4, "actions": 3.5}, "4 tokens by 3.5 actions: a model without paste inserts one token an action"),
        ({"tokens": 30, "actions": 60, "prompt": 5}, "60 actions after a prompt of 5 need 65 positions, but the "
         "model's context is 64; ask for fewer tokens"),
        ({"tokens": 36, "prompt": 5}, "a canvas of 41 tokens is more than the 40 that this model can hold; ask"),
    ],
)  # fmt: skip
def test_what_a_model_cannot_write_has_no_cost(given, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        flops(CONFIG, **given)


def test_a_model_that_pastes_may_write_more_tokens_than_it_takes_actions():
    pasting = ModelConfig(**{**vars(CONFIG), "operators": ("move", "copy", "paste")})
    assert flops(pasting, tokens=8, actions=5).macs == flops(pasting, tokens=5).macs


def test_each_state_that_a_pointers_keys_take_in_costs_what_pytorch_counts():
    plain, ahead = (replace(CONFIG, operators=("jump",), pointer_width=7, pointer_ahead=A) for A in (0, 3))
    counted = []
    for config in (plain, ahead):
        with counting() as counter:
            write(Transformer(config).eval(), [config.alphabet.start, *[1] * 8], prompt=4)
        counted.append(macs(counter))
    more = flops(ahead, 5, prompt=4).macs - flops(plain, 5, prompt=4).macs
    assert more == counted[1] - counted[0] == 9 * 3 * 7 * 32


def test_a_diffusion_model_takes_a_step_at_least():
    with pytest.raises(ConfigError, match="0 steps; a diffusion model takes at least 1"):
        diffusion_flops(CONFIG, 4, steps=0)


def run(capsys, *words):
    code = main(["eval", "flops", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command_prints_every_table(capsys):
    code, out, _ = run(capsys)
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("Cost: ")] == [f"Cost: {name}" for name in PRINTED]
    for row in ROWS.values():
        numbers = rf"{re.escape(show_number(row.gmacs))} +{re.escape(show_number(row.ratio))}"
        assert re.search(rf"{re.escape(row.method)} +{re.escape(row.variant)} +{numbers}", out)


def test_the_document_has_a_row_for_every_number(capsys, tmp_path):
    code, out, _ = run(capsys, "--json", "--out", tmp_path / "new" / "flops.json")
    document = json.loads(out)
    assert code == 0
    assert json.loads((tmp_path / "new" / "flops.json").read_text("utf8")) == document
    assert (document["kind"], document["config"]) == ("flops", {"tokens": 128})
    assert document["rows"] == [
        {"group": group, "method": method, "variant": variant, "gmacs": row.gmacs, "ratio": row.ratio}
        for (group, method, variant), row in ROWS.items()
    ]


def test_a_recipe_stands_beside_left_to_right_and_diffusion_of_its_shape(capsys):
    words = ("--model", "paper-100m", "--vocabulary", 1000, "--tokens", 20, "--prompt", 4, "--actions-per-token", 1.5)
    document = json.loads(run(capsys, *words, "--steps", 3, "--json")[1])
    first, ours, diffusion = document["rows"]
    assert [row["method"] for row in document["rows"]] == ["left-to-right", "Reviser", "diffusion"]
    shape = Shape(24, 512, 2048, 1034)
    assert first["gmacs"] == (shape.causal(24) + shape.head(20)) / 1e9
    assert ours["gmacs"] == (shape.causal(34) + shape.head(30)) / 1e9
    assert diffusion["gmacs"] == 3 * (shape.full(24) + shape.head(20)) / 1e9
    assert ours["ratio"] == pytest.approx(ours["gmacs"] / first["gmacs"])
    assert ours["head_gmacs"] == shape.head(30) / 1e9
    assert document["config"].pop("model")["num_layers"] == 24
    assert document["config"] == {"tokens": 20, "prompt": 4, "actions": 30.0, "steps": 3}


def test_a_model_folder_has_its_own_shape(capsys, tmp_path):
    save_pretrained(Transformer(CONFIG), tmp_path / "model", load("bytes"))
    code, out, _ = run(capsys, "--model", tmp_path / "model", "--tokens", 16, "--prompt", 8)
    assert code == 0
    cost = flops(CONFIG, 16, actions=20, prompt=8)
    assert out.splitlines()[0] == f"Cost: {tmp_path / 'model'}: 16 tokens after a prompt of 8"
    assert re.search(
        rf"Reviser +20 actions, canvas window +{show_number(cost.macs / 1e9)} .*{show_number(cost.head / 1e9)}", out
    )
    assert re.search(r"diffusion +16 steps", out)


def test_options_that_nothing_would_read_are_refused(capsys, tmp_path):
    save_pretrained(Transformer(CONFIG), tmp_path / "model", load("bytes"))
    folder = tmp_path / "model"
    refused = {
        ("--tokens", 3): "--tokens needs --model: the paper's tables are for its own lengths",
        ("--actions-per-token", 3): "--actions-per-token needs --model: the paper's tables are for its own lengths",
        ("--model", folder, "--vocabulary", 9):
            f"--vocabulary is for recipes: {folder} is a folder, whose model has its own",
        ("--model", "huge"): "no model folder and no recipe 'huge'; recipes are debug, small,",
        ("--model", tmp_path): f"{tmp_path} is not a model folder: it holds no config.json",
    }  # fmt: skip
    for words, message in refused.items():
        code, out, err = run(capsys, *words)
        assert (code, out) == (2, "")
        assert err.startswith(f"error: {message}")
