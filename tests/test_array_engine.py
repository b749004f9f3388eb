"""Writing without torch: its random numbers, its choices and its models are those of the code that uses torch."""

from __future__ import annotations

import json
import os
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
from test_decoding_jumps import AHEAD, requests
from test_engine import samplings

from reviser.actions import Alphabet
from reviser.canvas import Rules
from reviser.config import ModelConfig
from reviser.decoding.cpu.array_chooser import scan_arrays, score_landing_arrays, uniform_arrays
from reviser.decoding.cpu.array_engine import ArrayEngine
from reviser.decoding.cpu.array_reading import score_by_kernels
from reviser.decoding.cpu.file_weights import kernel_model
from reviser.decoding.cpu.step import CpuStep, transformer_of
from reviser.decoding.cpu.threads import _count_cores, num_threads
from reviser.decoding.engine import Engine
from reviser.decoding.reading import score_tokens
from reviser.decoding.requests import Request
from reviser.decoding.row_loop import RowLoop
from reviser.decoding.sampling import Sampling, uniform
from reviser.decoding.scanning import scan
from reviser.decoding.writer import Writer
from reviser.errors import CheckpointError, ConfigError
from reviser.files import hash_file
from reviser.model.checkpoint import from_pretrained, save_pretrained
from reviser.model.folder import read_config
from reviser.model.pointer import score_landings
from reviser.orders.record import Draft
from reviser.tokenizer import load

BYTES = load("bytes")
JUMPING = frozenset({"jump", "delete", "replace"})


@given(st.lists(st.integers(-(1 << 70), 1 << 70), min_size=1, max_size=3), st.integers(0, 1 << 40), st.integers(0, 2))
def test_uniforms_are_the_plain_ones(seeds: list[int], step: int, draw: int) -> None:
    found = uniform_arrays(seeds, np.array([step, step + 1]), draw)
    assert found.tolist() == [[uniform(seed, each, draw) for each in (step, step + 1)] for seed in seeds]


@given(st.integers(0, 1 << 30), st.integers(1, 4), st.integers(1, 9), st.floats(0.001, 0.9))
def test_landings_and_a_reader_s_next_action_are_those_of_torch(
    seed: int, rows: int, size: int, least: float
) -> None:
    numbers, alphabet = np.random.default_rng(seed), Alphabet(num_text=6, pad=5)
    queries, keys = (numbers.normal(size=shape).astype(np.float32) for shape in ((rows, 4), (rows, size, 4)))
    births = numbers.integers(-1, size, (rows, size + 1))
    births[0] = -1 if seed % 3 == 0 else births[0]
    landings = score_landing_arrays(queries, keys, births)
    wanted = score_landings(*map(torch.from_numpy, (queries, keys, births)))
    assert np.allclose(landings, wanted.numpy(), atol=1e-5)
    log_p = torch.from_numpy(numbers.normal(size=(rows, alphabet.size)) * 3).log_softmax(dim=-1).float()
    cursors, is_first = numbers.integers(0, size + 1, rows), numbers.integers(0, 2, rows) > 0
    given = wanted, torch.from_numpy(cursors), torch.from_numpy(is_first)
    for found, plain in zip(
        scan_arrays(log_p.numpy(), wanted.numpy(), cursors, is_first, alphabet, least),
        scan(log_p, *given, alphabet, least),
        strict=True,
    ):
        assert np.allclose(found, plain.numpy(), atol=1e-5)


@settings(max_examples=15)
@given(samplings, st.integers(1, 3), st.data())
def test_events_and_a_second_call_are_those_of_the_engine(sampling, num_rows, data):
    asked = data.draw(st.lists(requests(JUMPING), min_size=1, max_size=4))
    # Of rounded weights, for the pointer's query is rounded without torch alone.
    model = transformer_of(CpuStep(AHEAD["window"], "int8").kernels)
    steps = CpuStep(model, "int8")
    arrays, engine = ArrayEngine(steps.kernels, sampling, num_rows, 4), Engine(model, sampling, num_rows, steps, 4)
    first = arrays.write(asked)
    assert [each.actions for each in first] == [each.actions for each in engine.write(asked)]
    assert arrays.write(asked) == first
    streams = ArrayEngine(steps.kernels, sampling, 1, 4), Engine(model, sampling, 1, steps, 4)
    for found, wanted in zip(*(each.events(asked[0]) for each in streams), strict=True):
        assert (found.step, found.action, found.canvas) == (wanted.step, wanted.action, wanted.canvas)
        assert found.log_probability == pytest.approx(wanted.log_probability, abs=1e-4)
        shown = [[score for _, score in each.alternatives] for each in (found, wanted)]
        assert shown[0] == pytest.approx(shown[1], abs=1e-4)


@pytest.mark.parametrize("num_rows", [2, 5])
def test_not_even_the_last_bit_depends_on_the_rows_beside(num_rows: int) -> None:
    config = replace(AHEAD["window"].config, width=96, num_heads=3, ff_width=150, pointer_width=48)
    steps = CpuStep(make_model(config, 5), "int8")
    rules = Rules(config.alphabet, JUMPING, max_length=24)
    asked = [Request(Draft.continuation(list(range(n)), rules), 30, n) for n in range(9)]
    sampling = Sampling(1.2, 0, stop_bias=-3.0, jump_bias=2.0)
    makers: list[Callable[[int], RowLoop]] = [
        lambda num_rows: ArrayEngine(steps.kernels, sampling, num_rows, 4),
        lambda num_rows: Engine(steps.model, sampling, num_rows, steps, 4),
    ]
    for make in makers:
        alone = [make(1).write([request])[0] for request in asked]
        assert make(num_rows).write(asked) == alone
        assert sum(config.alphabet.is_jump(action) for each in alone for action in each.actions) > 20


def test_no_rows_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_rows=0 must be at least 1"):
        ArrayEngine(CpuStep(AHEAD["none"]).kernels, num_rows=0)


def save_int8(config: ModelConfig, folder: Path, seed: int = 0) -> Path:
    return save_pretrained(make_model(config, seed), folder, None, weights="int8", overwrite=True)


@settings(max_examples=25)
@given(configs, st.integers(0, 99))
def test_a_folder_is_the_model_that_torch_reads_there(tmp_path_factory, config: ModelConfig, seed: int) -> None:
    folder = save_int8(config, tmp_path_factory.mktemp("models") / "int8", seed)
    model = kernel_model(folder, read_config(folder))
    assert model is not None
    assert model.is_rounded
    wanted = CpuStep(from_pretrained(folder), "int8").kernels.weights
    assert model.weights.floats.keys() == wanted.floats.keys()
    assert model.weights.matrices.keys() == wanted.matrices.keys()
    for name, array in model.weights.floats.items():
        assert np.array_equal(array, wanted.floats[name]), name
    for name, held in model.weights.matrices.items():
        for part, again in zip(held, wanted.matrices[name], strict=True):
            assert np.array_equal(part, again), name


@settings(max_examples=15)
@given(configs, st.data())
def test_tokens_are_as_probable_as_torch_finds_them(
    tmp_path_factory, config: ModelConfig, data: st.DataObject
) -> None:
    folder = save_int8(config, tmp_path_factory.mktemp("models") / "int8")
    kernels, model = kernel_model(folder, read_config(folder)), from_pretrained(folder)
    assert kernels is not None
    texts = data.draw(st.lists(st.lists(st.integers(0, 28), min_size=1, max_size=20), min_size=1, max_size=3))
    begins = [data.draw(st.integers(0, len(tokens))) for tokens in texts]
    wanted = score_tokens(model, CpuStep(model, "int8"), texts, begins)
    for found, scores in zip(score_by_kernels(kernels, texts, begins), wanted, strict=True):
        assert found == pytest.approx(scores, abs=1e-3)


def change(folder: Path, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Other tensors in a folder, with the checksum of the new file."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path, metadata={"weights": "int8"})
    config = json.loads((folder / "config.json").read_text())
    config["weights_sha256"] = hash_file(path)
    (folder / "config.json").write_text(json.dumps(config))


NORM, QKV = "norm.weight", "blocks.0.attention.qkv.weight"


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda tensors: tensors.pop(NORM), f"tensor {NORM} is missing"),
        (lambda tensors: tensors.update(more=torch.zeros(2)), "tensor more is not part of the model"),
        (lambda tensors: tensors.update({NORM: tensors[NORM][:-1]}), f"tensor {NORM} has the shape"),
        (lambda tensors: tensors[NORM].fill_(torch.nan), f"tensor {NORM} holds NaN or infinity"),
        (lambda tensors: tensors[f"{QKV}.scale"].fill_(torch.inf), f"tensor {QKV} holds NaN or infinity"),
        (
            lambda tensors: tensors.update({QKV: tensors[QKV].float()}),
            f"tensor {QKV} is float32, the config says int8",
        ),
        (lambda tensors: tensors.update({NORM: tensors[NORM].to(torch.int64)}), f"tensor {NORM} is int64"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said_as_ever(
    tmp_path: Path, edit: Callable[[dict[str, torch.Tensor]], object], why: str
) -> None:
    folder = save_pretrained(make_model(TALKING), tmp_path / "model", BYTES, weights="int8")
    change(folder, edit)
    assert kernel_model(folder, read_config(folder)) is None
    with pytest.raises(CheckpointError, match=why):
        Writer.from_pretrained(folder)


TALKING = ModelConfig(
    num_text=257, pad=256, num_layers=1, width=32, num_heads=2, ff_width=32, context=40, operators=("jump", "delete")
)


def test_a_weight_that_rounding_never_gives_is_left_to_torch(tmp_path: Path) -> None:
    folder = save_pretrained(make_model(TALKING), tmp_path / "model", BYTES, weights="int8")
    change(folder, lambda tensors: tensors[QKV][0, :1].fill_(-128))
    assert kernel_model(folder, read_config(folder)) is None
    assert Writer.from_pretrained(folder).precision == "int8"


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    folder = save_pretrained(make_model(TALKING), tmp_path / "model", BYTES, weights="int8")
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="is damaged or was replaced"):
        Writer.from_pretrained(folder)


def test_the_model_for_torch_is_made_of_the_same_weights(tmp_path: Path) -> None:
    folder = save_pretrained(make_model(TALKING), tmp_path / "model", BYTES, weights="int8", notes="Of a test.")
    writer = Writer.from_pretrained(folder)
    assert repr(writer) == f"Writer({folder}, cpu, int8)"
    wanted = from_pretrained(folder).state_dict()
    for path in folder.iterdir():
        path.unlink()
    found = writer.model.state_dict()
    assert found.keys() == wanted.keys()
    for name, tensor in found.items():
        assert torch.equal(tensor, wanted[name]), name
    assert writer.kernels is not None
    assert writer.kernels.model is writer.model
    again = writer.save_pretrained(tmp_path / "again")
    assert read_config(again).weights == "int8"
    assert kernel_model(again, read_config(again)) is not None
    assert Writer.from_pretrained(again).generate("Hi", max_actions=9) == writer.generate("Hi", max_actions=9)


def test_writers_with_and_without_torch_write_alike(tmp_path: Path) -> None:
    folder = save_pretrained(make_model(TALKING), tmp_path / "model", BYTES, weights="int8")
    light, heavy = Writer.from_pretrained(folder), Writer(from_pretrained(folder), BYTES, weights="int8")
    assert light.generate(["Hi", "No"], n=2, max_actions=9) == heavy.generate(["Hi", "No"], n=2, max_actions=9)
    assert light.write([]) == []
    [found], [wanted] = light.read([[72, 105]]), heavy.read([[72, 105]])
    assert found == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize(
    "words",
    [
        ["generate", "The old lighthouse", "--max-tokens", "5", "--n", "2"],
        ["infill", "The old ___ stands ___ here.", "--max-tokens", "5", "--best-of", "2"],
        ["edit", "He go home evry day."],
    ],
)
def test_the_shipped_model_writes_without_torch(words: list[str]) -> None:
    code = "import sys; from reviser.cli import main; main(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    process = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


def test_threads_without_torch_are_those_asked_for_or_the_cores() -> None:
    code = "from reviser.decoding.cpu.threads import num_threads; print(num_threads())"
    for asked, wanted in (("3", "3"), ("5,2", "5"), ("", str(_count_cores())), ("many", str(_count_cores()))):
        found = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"OMP_NUM_THREADS": asked}
        )
        assert found.stdout.strip() == wanted
    assert num_threads() == torch.get_num_threads()
    assert _count_cores() >= 1


FRESH = """
import hashlib
import numpy as np
from reviser.config import CanvasConfig, ModelConfig
from reviser.decoding.cpu.array_engine import ArrayEngine
from reviser.decoding.cpu.kernel_model import Held, KernelModel, KernelWeights
from reviser.decoding.cpu.file_weights import matrix_shapes, vector_sizes, TABLES, head_of
from reviser.decoding.cpu.array_chooser import ArrayChooser
from reviser.decoding.requests import Request
from reviser.decoding.presets import Sampling
from reviser.orders.record import Draft
from reviser.canvas import Rules
numbers, digest = np.random.default_rng(7), hashlib.sha256()
for norm, activation, scaled in (("rms", "relu2", True), ("layer", "gelu", True), ("rms", "swiglu", False)):
    config = ModelConfig(
        num_text=300, pad=299, num_layers=3, width=96, num_heads=3, ff_width=200, context=200, norm=norm,
        qk_norm=True, activation=activation, operators=("jump", "delete", "replace"), pointer_width=16,
        pointer_ahead=2, canvas=CanvasConfig("window", window=3, slot_width=8),
    )
    def floats(*shape):
        return (numbers.normal(size=shape) * 0.3).astype(np.float32)
    shapes = matrix_shapes(config)
    held = {
        name: Held(numbers.integers(-127, 128, shape).astype(np.int8), np.abs(floats(shape[0])) / 50)
        if scaled else Held(floats(*shape)) for name, shape in shapes.items()
    }
    tables = {name: held[name].floats for name in shapes if name in TABLES}
    rest = {name: floats(size) for name, size in vector_sizes(config).items()}
    matrices = {name: held[name] for name in shapes if name not in TABLES or name == head_of(config)}
    model = KernelModel(config, KernelWeights(matrices, {**tables, **rest}))
    rules = Rules(config.alphabet, frozenset(config.operators), max_length=190)
    drafts = [Draft.continuation(numbers.integers(0, 299, size).tolist(), rules) for size in (0, 3, 40, 77)]
    asked = [Request(draft, 99, number) for number, draft in enumerate(drafts)]
    for written in ArrayEngine(model, Sampling(stop_bias=-5.0, calm=True, no_repeat=3), 2).write(asked):
        digest.update(np.array(written.actions).tobytes() + np.array(written.log_probabilities).tobytes())
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_kernels_from_the_cache_compute_what_they_did_when_they_were_compiled(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    runs = [
        subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=True, env=environment)
        for _ in range(2)
    ]
    assert len(runs[0].stdout.strip()) == 64
    assert runs[0].stdout == runs[1].stdout
