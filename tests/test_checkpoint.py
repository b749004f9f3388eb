"""Model folders: round trips, damage, tokenizers, the hub, and every error text."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from reviser import tokenizer as tokenizers
from reviser.config import CanvasConfig, ModelConfig
from reviser.errors import CheckpointError, MissingPackageError, ReviserError, TokenizerError
from reviser.files import hash_file
from reviser.model.checkpoint import (
    find,
    from_pretrained,
    pack_folder,
    read_config,
    save_pretrained,
    tokenizer_of,
    weights,
)
from reviser.model.folder import SHIPPED, Weights, checkpoint_steps
from reviser.model.transformer import Transformer

TINY = ModelConfig(num_text=257, pad=256, num_layers=2, width=16, num_heads=2, ff_width=24, context=12)
BYTES = tokenizers.load("bytes")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    return save_pretrained(Transformer(TINY), tmp_path / "model", BYTES)


@pytest.mark.parametrize(
    "config",
    [
        TINY,
        replace(TINY, norm="layer", qk_norm=False, activation="gelu", positions="absolute", tied=False),
        replace(TINY, canvas=CanvasConfig("window", window=2, slot_width=4)),
        replace(TINY, canvas=CanvasConfig("cross", gate="scalar")),
        replace(TINY, operators=("jump",), pointer_ahead=2),
    ],
    ids=["modern", "author", "window", "cross", "pointer"],
)
def test_a_model_comes_back_from_its_folder(config: ModelConfig, tmp_path: Path) -> None:
    model = Transformer(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    save_pretrained(model, tmp_path / "model", BYTES)
    again = from_pretrained(tmp_path / "model")
    assert again.config == config
    assert not again.training
    for name, tensor in weights(model).items():
        assert torch.equal(weights(again)[name], tensor), name
    assert not again.head_weight[config.alphabet.size :].any()


def test_a_folder_holds_four_files_and_exactly_the_action_rows(folder: Path) -> None:
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["README.md", "config.json", "model.safetensors", "tokenizer.json"]
    assert load_file(folder / "model.safetensors")["embedding.weight"].shape == (257 + 34, 16)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_the_card_says_what_the_config_says(folder: Path, tmp_path: Path) -> None:
    card = (folder / "README.md").read_text()
    assert "| layers, width, heads | 2, 16, 2 |" in card
    assert "| actions | insert, stop, move |" in card
    assert f"tokenizer.json, sha256 {BYTES.sha256}" in card
    noted = save_pretrained(Transformer(TINY), tmp_path / "noted", None, notes="Trained on nothing.")
    assert (noted / "README.md").read_text().endswith("| tokenizer | missing |\n\nTrained on nothing.\n")


def test_a_model_is_loaded_in_any_dtype(folder: Path) -> None:
    model, half = from_pretrained(folder), from_pretrained(folder, dtype=torch.bfloat16)
    for name, tensor in weights(model).items():
        assert torch.equal(weights(half)[name], tensor.bfloat16()), name


def test_a_folder_of_before_still_loads(folder: Path) -> None:
    described = json.loads((folder / "config.json").read_text())
    for name in ("weights", "trained", "notes", "weights_sha256", "settings_sha256"):
        del described[name]
    (folder / "config.json").write_text(json.dumps(described))
    before = from_pretrained(folder).embedding.weight
    tensors = {name: tensor.bfloat16() for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    assert torch.equal(from_pretrained(folder).embedding.weight, before.bfloat16().float())


def test_every_file_of_a_folder_is_made_for_the_same_readers(folder: Path) -> None:
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1


def test_a_folder_is_replaced_only_when_asked(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="already exists; give another folder, or remove it first"):
        save_pretrained(Transformer(TINY), folder, BYTES)
    other = Transformer(TINY)
    save_pretrained(other, folder, BYTES, overwrite=True)
    assert torch.equal(from_pretrained(folder).embedding.weight, other.embedding.weight)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_save_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="the tokenizer has 257 tokens and pad 256, the model 300 and 256"):
        save_pretrained(Transformer(replace(TINY, num_text=300)), tmp_path / "model", BYTES)
    with pytest.raises(AttributeError):
        save_pretrained(Transformer(TINY), tmp_path / "model", BYTES, notes=3)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def edit_weights(folder: Path, name: str, tensor: torch.Tensor | None) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors.pop(name, None)
    save_file(tensors if tensor is None else tensors | {name: tensor}, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("name", "tensor", "text"),
    [
        ("norm.weight", None, "tensor norm.weight is missing"),
        ("extra", torch.zeros(1), "tensor extra is not part of the model"),
        ("norm.weight", torch.zeros(3), r"tensor norm.weight has the shape \(3,\), but the config says \(16,\)"),
    ],
)
def test_a_wrong_tensor_is_named(folder: Path, name: str, tensor: torch.Tensor | None, text: str) -> None:
    edit_weights(folder, name, tensor)
    with pytest.raises(CheckpointError, match=text) as caught:
        from_pretrained(folder)
    assert "model.safetensors: tensor" in str(caught.value)


@pytest.mark.parametrize("place", [0.3, 0.6, 0.99])
def test_one_bit_flipped_in_the_weights_is_noticed(folder: Path, place: float) -> None:
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        CheckpointError, match=r"model\.safetensors is damaged or was replaced: its sha256 is "
    ) as caught:
        from_pretrained(folder)
    assert "\n" not in str(caught.value)


def test_the_shipped_folder_and_every_new_one_say_the_sha256_of_their_weights(folder: Path) -> None:
    packed = pack_folder(folder, folder.parent / "packed", "int8")
    for each in (SHIPPED, folder, packed):
        assert read_config(each).weights_sha256 == hash_file(each / "model.safetensors")


def test_checkpoints_that_cannot_be_listed_are_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.listdir", refuse)
    with pytest.raises(CheckpointError, match=r"cannot read .*checkpoints: Permission denied; make it readable$"):
        checkpoint_steps(tmp_path)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("weights", ["float32", "bf16", "int8"])
def test_a_weight_that_is_no_number_is_named(folder: Path, value: float, weights: Weights) -> None:
    packed = pack_folder(folder, folder.parent / "packed", weights)
    tensors = load_file(packed / "model.safetensors")
    name = "embedding.weight.scale" if weights == "int8" else "embedding.weight"
    tensors[name].view(-1)[3] = value
    save_file(tensors, packed / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"tensor embedding\.weight holds NaN or infinity; copy the file again"):
        from_pretrained(packed)


@pytest.mark.parametrize("keep", [0, 5, 1000, -1])
def test_a_file_cut_short_is_named(folder: Path, keep: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match="is damaged or cut short") as caught:
        from_pretrained(folder)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors is missing"):
        from_pretrained(folder)
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"is not a model folder: it holds no config\.json"):
        from_pretrained(folder)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"version": 9}, "has the format reviser 9; this version reads reviser 1"),
        ({"modle": 1}, "does not describe a model: no setting modle; did you mean model?"),
    ],
)
def test_a_config_of_another_kind_is_refused(folder: Path, change: dict[str, int], text: str) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CheckpointError) as caught:
        from_pretrained(folder)
    assert text in str(caught.value)


def test_settings_that_were_changed_are_refused(folder: Path) -> None:
    path = folder / "config.json"
    good = path.read_text()
    path.write_text(good.replace('"rope_theta": 10000.0', '"rope_theta": 10001.0'))
    with pytest.raises(
        CheckpointError, match=r"the settings in config\.json are not those that were saved \(.*remove"
    ):
        from_pretrained(folder)
    described = json.loads(path.read_text())
    del described["settings_sha256"]
    path.write_text(json.dumps(described))
    assert from_pretrained(folder).config.rope_theta == 10001, "on purpose"
    path.write_text(good.replace('"notes": ""', '"notes": "Mine."'))
    from_pretrained(folder)


def test_the_tokenizer_comes_back_and_must_be_the_one_it_was(folder: Path) -> None:
    assert tokenizer_of(folder).sha256 == BYTES.sha256
    described = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(described | {"tokenizer_sha256": "0"}))
    with pytest.raises(CheckpointError, match="is not the tokenizer the model was trained with"):
        tokenizer_of(folder)


def test_a_folder_without_a_tokenizer_names_or_misses_it(tmp_path: Path) -> None:
    named = save_pretrained(Transformer(TINY), tmp_path / "named", None, missing_tokenizer="bytes")
    assert "missing: it is `bytes`" in (named / "README.md").read_text()
    assert tokenizer_of(named).sha256 == BYTES.sha256
    bare = save_pretrained(Transformer(TINY), tmp_path / "bare", None)
    with pytest.raises(CheckpointError, match=r"holds no tokenizer\.json; copy the one the model was trained with"):
        tokenizer_of(bare)


def test_what_is_no_folder_and_no_hub_id_is_refused(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="no model folder nowhere; give a folder, or a hub id like name/model"):
        find("nowhere")
    with pytest.raises(CheckpointError, match=r"config\.json is a file; give the model's folder"):
        find(folder / "config.json")


def test_a_hub_id_out_of_reach_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="no-such/model is not a folder here, and is not on the hub") as caught:
        find("no-such/model")
    assert "\n" not in str(caught.value)


def test_the_hubs_retries_are_not_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub, logging = pytest.importorskip("huggingface_hub"), pytest.importorskip("huggingface_hub.utils.logging")
    logger = logging.get_logger("huggingface_hub.utils._http")

    def retry(*_: object, **__: object) -> None:
        for number in range(5):
            logger.warning(f"Retrying in {number}s")
        raise OSError("Name or service not known")

    monkeypatch.setattr(hub, "snapshot_download", retry)
    level = logging.get_verbosity()
    with pytest.raises(CheckpointError, match=r"cannot be reached: Name or service not known$"):
        find("no-such/model")
    assert capsys.readouterr().err == ""
    assert logging.get_verbosity() == level


def test_a_hub_id_without_the_hub_package_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingPackageError, match="run: pip install 'reviser\\[hub\\]'"):
        find("some/model")
    assert issubclass(MissingPackageError, ReviserError)
