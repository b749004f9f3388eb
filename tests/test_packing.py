"""Rounded model folders: packing twice is packing once, the bytes are the CPU engine's, damage is named."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from test_cpu_step import configs, make_model
from tiny import random_model

from reviser import tokenizer as tokenizers
from reviser.cli import main
from reviser.config import CanvasConfig, ModelConfig
from reviser.decoding.cpu.kernel_model import Held
from reviser.decoding.cpu.step import CpuStep
from reviser.decoding.writer import Writer
from reviser.errors import CheckpointError
from reviser.model.checkpoint import from_pretrained, pack_folder, save_pretrained, weights
from reviser.model.folder import HeldoutBound, Trained, Weights, count_weights, read_config
from reviser.model.quantize import (
    fill,
    keep_rounded,
    matrices,
    pack,
    round_rows,
    rounded,
    split_scales,
)
from reviser.model.transformer import Transformer, num_parameters
from reviser.training.recipes import small

TINY = ModelConfig(
    num_text=257, pad=256, num_layers=2, width=16, num_heads=2, ff_width=24, context=64, max_length=32,
    canvas=CanvasConfig("window", window=2, slot_width=4),
)  # fmt: skip
BYTES = tokenizers.load("bytes")
TRAINED = Trained(
    "runs", "prefix=0,64", "small", "0" * 64, 600, 78_643_200, (HeldoutBound("continue", 3.25, 0.0125, 1.5),)
)
KINDS: tuple[Weights, ...] = ("float32", "bf16", "int8")


def draw_matrix(rows: int, columns: int, size: float, seed: int) -> torch.Tensor:
    return size * torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


matrix = st.builds(draw_matrix, st.integers(1, 40), st.integers(1, 60), st.floats(1e-37, 1e35), st.integers(0, 999))


@given(matrix)
def test_rounding_twice_is_rounding_once(weight: torch.Tensor) -> None:
    whole, scales = round_rows(weight)
    again, scales_again = round_rows(whole * scales[:, None])
    assert torch.equal(whole, again)
    assert torch.equal(scales, scales_again)
    assert torch.equal(scales, scales.bfloat16().float()), "a file keeps them in bfloat16"


@given(matrix)
def test_every_weight_is_within_half_a_scale(weight: torch.Tensor) -> None:
    whole, scales = round_rows(weight)
    # A row too small for a scale is nothing.
    allowed = torch.maximum(scales * 0.5001, torch.tensor(127 * torch.finfo(torch.bfloat16).tiny))
    assert (weight - whole * scales[:, None]).abs().le(allowed[:, None]).all()
    assert whole.abs().amax(dim=1)[scales > 0].eq(127).all()
    assert not whole[scales == 0].any()


@given(st.lists(st.floats(width=32, max_value=2.0**126, min_value=-(2.0**126)), min_size=1))
def test_rows_of_any_numbers_round_once_and_for_all(row: list[float]) -> None:
    whole, scales = round_rows(torch.tensor([row]))
    again, scales_again = round_rows(whole * scales[:, None])
    assert torch.equal(whole, again)
    assert torch.equal(scales, scales_again)


@given(matrix)
def test_what_a_file_held_stands_for_rounding_until_the_matrix_changes(weight: torch.Tensor) -> None:
    whole, scales = round_rows(weight)
    place = torch.nn.Parameter(torch.empty_like(weight))
    with torch.no_grad():
        fill(place, whole, scales.bfloat16())
    keep_rounded(place, whole, scales.bfloat16())
    assert rounded(place)[0] is whole
    assert torch.equal(rounded(place)[1], scales)
    assert all(torch.equal(a, b) for a, b in zip(rounded(place), round_rows(place), strict=True))
    with torch.no_grad():
        place.neg_()
    assert torch.equal(rounded(place)[0], -whole)
    keep_rounded(place, -whole, scales)
    place.data = place.data.clone().neg_()
    assert torch.equal(rounded(place)[0], whole)


def test_a_byte_that_rounding_never_gives_is_rounded_again() -> None:
    whole, scales = torch.tensor([[-128, 64]], dtype=torch.int8), torch.tensor([0.5])
    place = torch.nn.Parameter(torch.tensor([[-64.0, 32.0]]))
    keep_rounded(place, whole, scales)
    assert rounded(place)[0].tolist() == [[-127, 64]]


def reloaded(model: Transformer, how: Weights) -> Transformer:
    """The model after a file, without one."""
    copy = Transformer(model.config).eval()
    tensors, scales = split_scales(pack(weights(model), matrices(model), how), "a file")
    with torch.no_grad():
        for name, place in weights(copy).items():
            fill(place, tensors[name], scales.get(name))
        for table in {copy.embedding.weight, copy.head_weight}:
            table[model.config.alphabet.size :] = 0
    return copy


def rounded_matrices(steps: CpuStep) -> dict[str, Held]:
    """The bytes that the kernels read, each with the scales beside it."""
    return {name: held for name, held in steps.kernels.weights.matrices.items() if held.scales is not None}


@settings(max_examples=40)
@given(configs, st.integers(0, 99))
def test_the_engine_makes_the_same_bytes_of_a_packed_model(config: ModelConfig, seed: int) -> None:
    model = make_model(config, seed)
    with torch.no_grad():
        model.embedding.weight[config.alphabet.size :] = 0
        model.head_weight[config.alphabet.size :] = 0
    packed = reloaded(model, "int8")
    kept = [rounded_matrices(CpuStep(each, "int8")) for each in (model, packed)]
    num_pointing = config.has_jumps * (2 + (config.pointer_ahead > 0))
    assert len(kept[0]) == 4 * config.num_layers + 1 + (config.canvas.kind == "window") + num_pointing
    assert kept[0].keys() == kept[1].keys()
    for name, held in kept[0].items():
        for array, again in zip(held, kept[1][name], strict=True):
            assert np.array_equal(array, again), name


@settings(max_examples=20)
@given(configs, st.sampled_from(KINDS), st.integers(0, 99))
def test_packing_twice_is_packing_once(config: ModelConfig, how: Weights, seed: int) -> None:
    model = make_model(config, seed)
    once = pack(weights(model), matrices(model), how)
    twice = pack(weights(reloaded(model, how)), matrices(model), how)
    assert once.keys() == twice.keys()
    for name, tensor in once.items():
        assert torch.equal(tensor, twice[name]), name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_pretrained(random_model(TINY), tmp_path / "model", BYTES, notes="Of a test.", trained=TRAINED)


@pytest.mark.parametrize(
    "config",
    [
        TINY,
        replace(TINY, norm="layer", qk_norm=False, activation="gelu", positions="absolute", tied=False),
        replace(TINY, canvas=CanvasConfig("pool", projection=True)),
        replace(TINY, canvas=CanvasConfig("cross", gate="scalar")),
        replace(TINY, canvas=CanvasConfig("cross-window", gate="mlp")),
        replace(TINY, canvas=CanvasConfig("window-index")),
    ],
    ids=["modern", "author", "pool", "cross", "cross-window", "window-index"],
)
@pytest.mark.parametrize("how", KINDS)
def test_any_model_comes_back_near_from_a_packed_folder(config: ModelConfig, how: Weights, tmp_path: Path) -> None:
    model = random_model(config)
    packed = save_pretrained(model, tmp_path / "packed", BYTES, weights=how)
    file, names = load_file(packed / "model.safetensors"), matrices(model)
    kinds = {"float32": torch.float32, "bf16": torch.bfloat16, "int8": torch.int8}
    assert {file[name].dtype for name in names} == {kinds[how]}
    assert {file[name].dtype for name in weights(model).keys() - names} == {torch.float32}
    assert count_weights(packed / "model.safetensors") == num_parameters(config)
    again = from_pretrained(packed)
    assert again.config == config
    assert not again.head_weight[config.alphabet.size :].any()
    for name, tensor in weights(model).items():
        error = {"float32": 0, "bf16": 2**-8, "int8": 1 / 250}[how] if name in names else 0
        assert (weights(again)[name] - tensor).abs().max() <= error * tensor.abs().max(), name
    half = from_pretrained(packed, dtype=torch.bfloat16)
    for name, tensor in weights(again).items():
        assert torch.equal(weights(half)[name], tensor.bfloat16()), name


def test_a_packed_folder_says_what_it_holds_and_keeps_what_was_said(folder: Path, tmp_path: Path) -> None:
    packed = pack_folder(folder, tmp_path / "packed", "int8")
    before, after = read_config(folder), read_config(packed)
    assert (before.weights, after.weights) == ("float32", "int8")
    assert replace(after, weights="float32", weights_sha256=before.weights_sha256) == before
    card = (packed / "README.md").read_text("utf8")
    assert "| weights | matrices in int8, a scale for each row |" in card
    assert "| order | `runs` |" in card
    assert "| held-out text, continue | at most 3.2500 ± 0.0125 nats a token, 1.5000 bits a byte |" in card
    assert card.endswith("\nOf a test.\n")
    assert tokenizers.load(packed / "tokenizer.json").sha256 == BYTES.sha256
    again = pack_folder(packed, tmp_path / "again", "int8")
    assert (again / "model.safetensors").read_bytes() == (packed / "model.safetensors").read_bytes()
    assert (again / "config.json").read_text() == (packed / "config.json").read_text()


def test_a_folder_without_its_tokenizer_is_packed_without_it(tmp_path: Path) -> None:
    named = save_pretrained(random_model(TINY), tmp_path / "named", None, missing_tokenizer="bytes")
    packed = pack_folder(named, tmp_path / "packed", "bf16")
    assert read_config(packed).missing_tokenizer == "bytes"
    assert not (packed / "tokenizer.json").exists()


def test_a_writer_takes_the_bytes_of_an_int8_folder_by_itself(folder: Path, tmp_path: Path) -> None:
    packed = pack_folder(folder, tmp_path / "packed", "int8")
    asked = {"max_actions": 12, "seed": 3}
    by_itself = Writer.from_pretrained(packed).generate("ab", **asked)
    assert by_itself == Writer.from_pretrained(packed, weights="int8").generate("ab", **asked)
    in_float = Writer(from_pretrained(packed), BYTES).generate("ab", **asked)
    assert [text.log_probability for text in by_itself] != [text.log_probability for text in in_float]
    plain = Writer.from_pretrained(folder).generate("ab", **asked)
    assert plain == Writer(from_pretrained(folder), BYTES).generate("ab", **asked)
    pooled = save_pretrained(
        random_model(replace(TINY, canvas=CanvasConfig("pool"))), tmp_path / "pooled", BYTES, weights="int8"
    )
    assert len(Writer.from_pretrained(pooled).generate("ab", **asked)) == 1, "no lean steps for it"


def change_file(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


UP = "blocks.0.mlp.up.weight"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda file: file.pop(UP + ".scale"), f"tensor {UP} is int8, but {UP}.scale is missing"),
        (lambda file: file.pop(UP), f"tensor {UP} is missing"),
        (
            lambda file: file.update({UP + ".scale": torch.ones(5)}),
            f"tensor {UP}.scale is float32 of the shape (5,), but its matrix needs bfloat16 of (24,)",
        ),
        (
            lambda file: file.update({UP + ".scale": torch.ones(24, dtype=torch.int64)}),
            f"tensor {UP}.scale is int64 of the shape (24,), but its matrix needs bfloat16 of (24,)",
        ),
        (lambda file: file.update({UP: torch.ones(24, 16)}), f"tensor {UP} is float32, the config says int8"),
        (lambda file: file.update({UP: torch.ones(24, 16).int()}), f"tensor {UP} is int32, the config says int8"),
        (
            lambda file: file.update({"norm.weight": torch.ones(16).int()}),
            "tensor norm.weight is int32, which no model uses",
        ),
        (
            lambda file: file.update({"norm.weight": torch.ones(16).to(torch.int8)}),
            "tensor norm.weight is int8, which only matrices may be",
        ),
        (
            lambda file: file.update({UP: torch.ones(24, 15).to(torch.int8)}),
            f"tensor {UP} has the shape (24, 15), but the config says (24, 16)",
        ),
        (
            lambda file: file.update({"norm.weight.scale": torch.ones(1)}),
            "tensor norm.weight.scale is not part of the model",
        ),
    ],
)
def test_damage_is_named_in_one_line(
    folder: Path, tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], object], text: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    packed = pack_folder(folder, tmp_path / "packed", "int8")
    change_file(packed, change)
    assert main(["pack", str(packed), str(tmp_path / "again"), "--weights", "float32"]) == 2
    assert capsys.readouterr().err == f"error: {packed}/model.safetensors: {text}\n"
    assert not (tmp_path / "again").exists()


def test_int8_where_the_config_says_float32_is_refused(folder: Path, tmp_path: Path) -> None:
    packed = pack_folder(folder, tmp_path / "packed", "int8")
    (packed / "model.safetensors").rename(folder / "model.safetensors")
    with pytest.raises(
        CheckpointError, match=r"tensor blocks.0.attention.out.weight is int8, the config says float32"
    ):
        from_pretrained(folder)


def test_what_int8_cannot_hold_is_refused(tmp_path: Path) -> None:
    model = random_model(TINY)
    with torch.no_grad():
        model.blocks[1].mlp.up.weight[3, 4] = torch.nan
    with pytest.raises(CheckpointError, match=r"tensor blocks.1.mlp.up.weight holds NaN or infinity"):
        save_pretrained(model, tmp_path / "packed", BYTES, weights="int8")
    assert list(tmp_path.iterdir()) == []


def test_pack_tells_the_sizes(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "packed"
    assert main(["pack", str(folder), str(out), "--weights", "int8", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["folder"], told["weights"], told["num_parameters"]) == (str(out), "int8", num_parameters(TINY))
    assert told["num_bytes"] == sum(path.stat().st_size for path in out.iterdir())
    assert told["num_bytes"] < told["num_bytes_before"]
    assert main(["pack", str(out), str(tmp_path / "back"), "--weights", "float32"]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path}/back: {num_parameters(TINY):,} parameters in float32, ")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["{folder}", "{folder}"], "{folder} already exists; give another folder, or remove it first"),
        (["nowhere", "out"], "no model folder nowhere; give a folder, or a hub id like name/model"),
        (["{folder}", "/dev/null/out"], "cannot write /dev/null/out: Not a directory"),
    ],
)
def test_pack_refuses_in_one_line(
    words: list[str], text: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pack", *(word.format(folder=folder) for word in words), "--weights", "int8"]) == 2
    assert capsys.readouterr().err == f"error: {text.format(folder=folder)}\n"


def test_info_shows_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(folder)]) == 0
    table, notes = capsys.readouterr().out.split("\n\n")
    shown = dict(line.split("  ", 1) for line in table.splitlines())
    shown = {name: value.strip() for name, value in shown.items()}
    assert shown["folder"] == str(folder)
    assert shown["parameters"] == f"{num_parameters(TINY):,}"
    assert shown["order"] == "runs"
    assert shown["recipe"] == "reviser train small"
    assert shown["trained for"] == "600 steps, 78,643,200 positions"
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert shown["on disk"] == f"{size / 1e6:.1f} MB"
    assert notes == "Of a test.\n"
    assert main(["info", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["num_parameters"], told["num_bytes"], told["weights"]) == (num_parameters(TINY), size, "float32")
    assert told["trained"]["bounds"] == [
        {"job": "continue", "nats_per_token": 3.25, "error": 0.0125, "bits_per_byte": 1.5}
    ]
    assert told["model"]["width"] == 16


def test_info_names_what_is_missing_or_damaged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert main(["info", str(folder)]) == 2
    assert "model.safetensors is damaged or cut short" in capsys.readouterr().err
    path.unlink()
    assert main(["info", str(folder)]) == 2
    assert capsys.readouterr().err == f"error: {path} is missing\n"


def test_info_needs_no_torch(folder: Path) -> None:
    code = "import sys; from reviser.cli import main; main(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, "info", str(folder)], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_the_shipped_shape_fits_in_36_megabytes(tmp_path: Path) -> None:
    tokenizer = tokenizers.load("default")
    model = Transformer(small(tokenizer.alphabet).model)
    assert num_parameters(model.config) > 30_000_000
    packed = save_pretrained(model, tmp_path / "packed", tokenizer, weights="int8")
    assert sum(path.stat().st_size for path in packed.iterdir()) < 36_000_000
