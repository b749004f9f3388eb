"""Canvas inputs by name: a new one in one file trains, decodes, is saved, counted and described; every error text."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import place_canvas  # noqa: F401 - registers a kind that sees the cursor alone
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import SETTINGS, make_trainer, random_model, show
from torch import Tensor, nn

from reviser.canvas import Canvas, Rules
from reviser.cli import main
from reviser.config import CanvasConfig, ModelConfig, override, to_dict
from reviser.decoding.cpu.step import has_cpu_kernels, steps_of
from reviser.decoding.engine import Engine, Request
from reviser.decoding.reference import decode
from reviser.decoding.sampling import GREEDY, Sampling
from reviser.errors import CheckpointError, ConfigError
from reviser.evaluation.metrics.flops import flops
from reviser.model import conditioning, transformer
from reviser.model.attention import Layout
from reviser.model.canvas_kinds import CanvasKind, canvas_of, parse_canvas, register_canvas
from reviser.model.checkpoint import from_pretrained, save_pretrained
from reviser.model.conditioning import CanvasInput, Memory
from reviser.model.transformer import Transformer, make_meta, num_multiplied, num_parameters
from reviser.orders.record import Draft
from reviser.plugins import VARIABLE, load_plugin
from reviser.tokenizer import load

ROOT = Path(__file__).parents[1]
EXAMPLE = Path(__file__).parent / "distance_canvas.py"
BUILT_IN = {
    "none": (False, False, False, False),
    "window": (True, False, False, False),
    "pool": (False, True, False, False),
    "cross": (False, True, False, True),
    "cross-window": (True, False, False, True),
    "window-index": (True, False, True, False),
}
"""Whether each has windows, rows, the cursor, blocks in the layers."""
BLIND = SETTINGS.model


@pytest.fixture(scope="module", autouse=True)
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The example as a user has it: a file of their own, loaded by its path."""
    file = tmp_path_factory.mktemp("mine") / "distance.py"
    file.write_text(EXAMPLE.read_text("utf8"), "utf8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "")
        load_plugin(file)
        yield file


@dataclass(frozen=True)
class Ahead(CanvasKind):
    """The token right of the cursor, by a gated block in the layers, with weights of its own kind."""

    shows = "windows"

    def reader(self, config: ModelConfig) -> nn.Module:
        return AheadReader(config)

    def block(self, config: ModelConfig) -> nn.Module:
        return AheadBlock(config)

    def macs(self, config: ModelConfig, positions: float, places: float) -> float:
        return positions * config.width

    def sentence(self, config: ModelConfig) -> str:
        return "the token right of the cursor, in its layers"


class AheadReader(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.window = config.canvas.window

    def forward(self, canvas: CanvasInput, embedding: Tensor) -> Memory:
        assert canvas.windows is not None
        return Memory(embedding[canvas.windows[..., self.window]])


class AheadBlock(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.empty(config.width))

    def reset_parameters(self) -> None:
        nn.init.constant_(self.scale, 0.25)

    def forward(self, x: Tensor, memory: Memory) -> Tensor:
        return x + self.scale * memory.vectors


register_canvas("ahead", Ahead)


def seeing(kind: str, **changes: Any) -> ModelConfig:
    return replace(BLIND, canvas=CanvasConfig(kind, window=3, slot_width=8, **changes))


every_new = pytest.mark.parametrize("kind", ["distance:buckets=5", "ahead", "place"])
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def test_the_example_is_short() -> None:
    assert len(EXAMPLE.read_text("utf8").splitlines()) < 60


def test_the_docs_show_the_example_that_is_tested_here() -> None:
    page = (ROOT / "docs" / "extending.md").read_text("utf8")
    assert f"```python\n{EXAMPLE.read_text('utf8')}```\n" in page


@given(st.lists(st.integers(0, 255), max_size=40), st.data())
@settings(max_examples=30)
def test_the_example_sees_how_far_the_cursor_is_from_the_end(tokens: list[int], data: st.DataObject) -> None:
    cursor = data.draw(st.integers(0, len(tokens)))
    model = random_model(seeing("distance:buckets=5"))
    assert model.canvas is not None
    shown = show([Canvas(tuple(tokens), cursor)], model.config)
    bucket = min((len(tokens) - cursor).bit_length(), 4)
    assert torch.equal(model.canvas(shown, model.embedding.weight).vectors[0, 0], model.canvas.table.weight[bucket])


@every_new
def test_a_new_kind_trains_by_name(kind: str, data: Path) -> None:
    trainer = make_trainer(data, f"model.canvas.kind={kind}", "train.steps=2")
    before = [parameter.clone() for parameter in trainer.model.parameters()]
    assert trainer.train()["continue"].nats_per_token > 0
    changed = [not torch.equal(old, new) for old, new in zip(before, trainer.model.parameters(), strict=True)]
    assert trainer.step == 2
    assert all(changed)


@every_new
def test_the_fast_decoders_leave_a_new_kind_to_the_models_own_step(kind: str) -> None:
    pytest.importorskip("triton", reason="Triton comes with the `kernels` extra and with torch for CUDA")
    from reviser.decoding.gpu.step import GpuStep

    wide = Transformer(replace(seeing(kind), num_heads=2, width=32))
    assert GpuStep.knows(Transformer(replace(wide.config, canvas=CanvasConfig())))
    assert not GpuStep.knows(wide)
    assert not has_cpu_kernels(wide)
    assert steps_of(wide) is wide


@every_new
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=cuda)])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=1.3, top_k=0)], ids=["greedy", "sampled"])
def test_the_engine_writes_what_the_reference_writes_with_a_new_kind(
    kind: str, device: str, sampling: Sampling
) -> None:
    model = random_model(seeing(kind)).to(device)
    rules = Rules(model.config.alphabet, max_length=40)
    drafts = [
        Draft.continuation([], rules),
        Draft.continuation(b"The old boat", rules),
        Draft.infill(b"The old", b" lay still.", rules),
    ]
    asked = [Request(draft, 24, number) for number, draft in enumerate(drafts)]
    for request, written in zip(asked, Engine(model, sampling, num_rows=2).write(asked), strict=True):
        plain = decode(model, request.draft, sampling, request.max_actions, request.number)
        assert len(plain.actions) > 3
        assert written.actions == plain.actions
        assert written.canvas == plain.canvas


@cuda
@every_new
def test_a_new_kind_compiles_whole_on_cuda(kind: str) -> None:
    model = random_model(replace(seeing(kind), width=128)).cuda()
    states = [Canvas((97,) * n, n // 2) for n in range(16)]
    shown = show(states, model.config)
    parts = shown.windows, shown.rows, shown.cursors
    layout = Layout.of(torch.tensor([[0] * 5 + [1] * 11]).cuda(), num_starts=8)
    canvas = CanvasInput(*(None if each is None else each.cuda() for each in parts))
    inputs = torch.full((1, 16), 97).cuda(), canvas, layout
    with torch.autocast("cuda", torch.bfloat16):
        fused = torch.compile(model.hidden, fullgraph=True)(*inputs)
        plain = model.hidden(*inputs)
    assert (fused.float() - plain.float()).abs().mean() < 0.05


@every_new
@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_a_new_kind_comes_back_from_its_model_folder(kind: str, weights: Any, tmp_path: Path) -> None:
    model = random_model(seeing(kind))
    save_pretrained(model, tmp_path / "model", load("bytes"), weights=weights)
    again = from_pretrained(tmp_path / "model")
    assert again.config == model.config
    save_pretrained(again, tmp_path / "again", load("bytes"), weights=weights)
    assert (tmp_path / "model/model.safetensors").read_bytes() == (tmp_path / "again/model.safetensors").read_bytes()
    if weights == "float32":
        actions, states = torch.tensor([[BLIND.alphabet.start, 97, 98]]), [Canvas((97,) * n, n) for n in range(3)]
        shown = show(states, model.config)
        assert torch.equal(again(actions, shown), model(actions, shown))


@every_new
def test_card_and_info_say_what_a_new_kind_sees(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = seeing(kind)
    save_pretrained(Transformer(config), tmp_path / "model", load("bytes"))
    sentence = canvas_of(config).sentence(config)
    assert f"| sees | {sentence} |" in (tmp_path / "model" / "README.md").read_text("utf8")
    assert main(["info", str(tmp_path / "model")]) == 0
    assert sentence in capsys.readouterr().out


def test_parameters_and_operations_of_a_new_kind_are_counted() -> None:
    config = seeing("distance:buckets=5")
    assert num_parameters(config) == num_parameters(BLIND) + 5 * BLIND.width
    assert num_multiplied(config) == num_multiplied(BLIND)
    assert flops(config, 8, prompt=2) == flops(BLIND, 8, prompt=2)
    ahead = seeing("ahead")
    assert num_parameters(ahead) == num_parameters(BLIND) + BLIND.num_layers * BLIND.width
    assert flops(ahead, 8, prompt=2).canvas == 10 * BLIND.width


def test_a_folder_whose_plugin_is_not_loaded_says_so(tmp_path: Path) -> None:
    save_pretrained(Transformer(BLIND), tmp_path / "model", load("bytes"))
    file = tmp_path / "model" / "config.json"
    file.write_text(file.read_text().replace('"kind": "none"', '"kind": "sideways:reach=2"'))
    with pytest.raises(CheckpointError) as caught:
        from_pretrained(tmp_path / "model")
    text = "canvas.kind is 'sideways'; kinds are none, window, pool, cross, cross-window"
    assert f"does not describe a model: {text}" in str(caught.value)
    assert str(caught.value).endswith("; a file that registers another is loaded with --plugin FILE")


def test_blocks_stand_in_the_last_layers_and_draw_their_own_weights() -> None:
    model = Transformer(seeing("ahead", layers=1))
    assert [name for name in model.state_dict() if "cross" in name] == ["blocks.1.cross.scale"]
    assert model.state_dict()["blocks.1.cross.scale"].unique().tolist() == [0.25]


@pytest.mark.parametrize("kind", BUILT_IN)
def test_each_built_in_kind_sees_what_it_says(kind: str) -> None:
    canvas = CanvasConfig(kind)
    assert (canvas.has_windows, canvas.has_rows, canvas.has_cursor, canvas.has_cross) == BUILT_IN[kind]
    assert canvas_of(replace(BLIND, canvas=canvas)) is parse_canvas(kind)


def test_settings_follow_a_name_and_are_read_by_their_type() -> None:
    kind: Any = parse_canvas("distance:buckets=3")
    assert (kind.buckets, parse_canvas("distance").buckets) == (3, 8)  # type: ignore[attr-defined]
    run = override(SETTINGS, ["model.canvas.kind=distance:buckets=3"])
    assert to_dict(run)["model"]["canvas"]["kind"] == "distance:buckets=3"


def test_what_data_and_the_card_ask_of_a_kind_needs_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from reviser.config import CanvasConfig, ModelConfig\n"
        "from reviser.evaluation.metrics.flops import flops\n"
        "from reviser.model.card import rows\n"
        "from reviser.model.folder import FolderConfig\n"
        f"for kind in {list(BUILT_IN)}:\n"
        "    canvas = CanvasConfig(kind)\n"
        "    config = ModelConfig(9, 8, 1, 8, 2, 8, 16, canvas=canvas)\n"
        "    sees = canvas.has_windows, canvas.has_rows, canvas.has_cursor, canvas.has_cross\n"
        "    print(*sees, flops(config, 4).canvas > 0)\n"
        "    rows(FolderConfig(config), 1)['sees']\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    wanted = [" ".join(map(str, (*each, kind != "none"))) for kind, each in BUILT_IN.items()]
    assert done.stdout.splitlines() == wanted


@pytest.mark.slow
def test_an_installed_package_adds_a_kind_by_an_entry_point(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(EXAMPLE.read_text("utf8").replace('register_canvas("distance", Distance)', ""))
    (tmp_path / "broken.py").write_text("Kind = 3\n")
    about = tmp_path / "mine-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[reviser.canvases]\nfar = mine:Distance\nbad = broken:Kind\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from reviser.config import CanvasConfig\n"
        "try:\n    CanvasConfig('bad')\nexcept Exception as error:\n    print(error)\n"
        "print(CanvasConfig('far:buckets=4').has_rows)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    error, has_rows = done.stdout.splitlines()
    assert "the canvas kind 'bad' of the package that provides broken:Kind cannot be loaded" in error
    assert "canvas kind 'bad' is 3; register a subclass of CanvasKind" in error
    assert has_rows == "True"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("windwo", "canvas.kind is 'windwo'; kinds are none, window, pool, cross, cross-window"),
        ("", "canvas.kind is ''; kinds are none, window, "),
        ("window:size=3", "canvas kind window has no setting 'size'; it has none"),
        ("distance:bucket=3", "canvas kind distance has no setting 'bucket'; it has buckets"),
        ("distance:", "'' after canvas kind distance is not a setting; write distance:SETTING=VALUE"),
        ("distance:5", "'5' after canvas kind distance is not a setting; write distance:SETTING=VALUE"),
        ("distance:buckets=many", "canvas kind distance: buckets is 'many'; it must be a whole number"),
        ("distance:buckets=1", "canvas kind distance: buckets is 1; it must be at least 2"),
    ],
)
def test_a_kind_that_cannot_be_used_is_refused_by_the_config(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        CanvasConfig(text)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@dataclass(frozen=True)
class Bare(CanvasKind):
    def reader(self, config: ModelConfig) -> None:
        return None


@dataclass(frozen=True)
class Whole(Ahead):
    shows = "everything"  # type: ignore[assignment]


@dataclass(frozen=True)
class Demanding(Ahead):
    size: int


class Undecorated(Ahead):
    size: int = 3


@dataclass(frozen=True)
class Buffered(Ahead):
    def reader(self, config: ModelConfig) -> nn.Module:
        reader = AheadReader(config)
        reader.register_buffer("places", torch.arange(3), persistent=False)
        return reader


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("mine", AheadReader, "is <class '.*AheadReader'>; register a subclass of CanvasKind"),
        ("mine", Undecorated, r"canvas kind 'mine': decorate Undecorated with @dataclass\(frozen=True\)"),
        ("mine", Bare, "canvas kind 'mine': Bare has no macs, sentence; a kind must define every one"),
        ("mine", Whole, "Whole.shows is 'everything'; it must be one of nothing, windows, rows"),
        ("mine", Demanding, "canvas kind 'mine': give the setting size of Demanding a default"),
        ("window", Ahead, "there is already a canvas kind 'window'; give this one another name"),
        ("Mine", Ahead, "canvas kind 'Mine': a name has lower-case letters"),
    ],
)
def test_a_class_that_is_no_kind_is_not_registered(name: str, kind: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        register_canvas(name, kind)


def test_a_buffer_would_be_lost_in_a_folder_and_is_refused() -> None:
    register_canvas("buffered", Buffered)
    message = (
        "canvas kind buffered: canvas.places is a buffer, which model folders do not hold; make it an nn.Parameter"
    )
    with pytest.raises(ConfigError, match=message):
        Transformer(seeing("buffered"))


class Returning(nn.Module):
    """A reader whose forward gives what it was made with, or raises it."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def forward(self, canvas: CanvasInput, embedding: Tensor) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class NoBlock(nn.Module):
    def forward(self, x: Tensor, memory: Memory) -> Tensor:
        return x[..., :1]


def plugin_kind(name: str, reader: Any, **methods: Any) -> ModelConfig:
    """The config of a model whose canvas kind was registered with those methods."""
    body = {"shows": "rows", "reader": reader, "macs": lambda *_: 0.0, "sentence": lambda *_: "something", **methods}
    register_canvas(name, dataclass(frozen=True)(type("Odd", (CanvasKind,), body)))
    return seeing(name)


def raises(error: Exception) -> Any:
    raise error


@pytest.mark.parametrize(
    ("name", "reader", "message"),
    [
        (
            "odd-a",
            lambda *_: raises(KeyError("deep")),
            r"reader\(config\) failed \(KeyError: 'deep'\); fix the plugin",
        ),
        ("odd-b", lambda *_: len, r"reader\(config\) gave a value of type builtin_.*; it must return an nn.Module"),
        ("odd-c", lambda *_: None, r"reader\(config\) gave None; it must return an nn.Module"),
        (
            "odd-d",
            lambda *_: Returning(torch.zeros(2, 3, 16)),
            r"gave a value of type Tensor; it must return a Memory",
        ),
        ("odd-e", lambda *_: Returning(None), "the reader's forward gave None; it must return a Memory"),
        ("odd-f", lambda *_: Returning(Memory(torch.zeros(2, 3, 5))), r"gave the shape \[2, 3, 5\] for 2 rows of 3 "),
        ("odd-g", lambda *_: Returning(Memory(3)), "in Memory.vectors, gave a value of type int for 2 rows"),  # type: ignore[arg-type]
        ("odd-h", lambda *_: Returning(ValueError("a\nb")), r"forward failed \(ValueError: a b\); fix the plugin"),
    ],
)
def test_a_plugin_whose_reader_cannot_be_used_is_named_where_the_model_is_built(
    name: str, reader: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=f"^canvas kind {name}: .*{message}") as caught:
        Transformer(plugin_kind(name, reader))
    assert "\n" not in str(caught.value)


def test_a_kind_that_sees_the_cursor_alone_needs_a_reader() -> None:
    config = plugin_kind("unread", lambda *_: None, shows="nothing", sees_cursor=True)
    with pytest.raises(ConfigError, match=r"^canvas kind unread: reader\(config\) gave None; it must return"):
        Transformer(config)


def test_a_plugin_whose_block_cannot_be_used_is_named_too() -> None:
    def reader(self: CanvasKind, config: ModelConfig) -> nn.Module:
        return Returning(Memory(torch.zeros(2)))

    with pytest.raises(ConfigError, match=r"^canvas kind blocked-a: block\(config\) gave None; it must return"):
        Transformer(plugin_kind("blocked-a", reader, block=lambda *_: None))
    with pytest.raises(ConfigError, match=r"^canvas kind blocked-b: the block's forward gave the shape \[2, 3, 1\]"):
        Transformer(plugin_kind("blocked-b", reader, block=lambda *_: NoBlock()))


def test_a_sentence_that_is_no_text_is_refused() -> None:
    def reader(self: CanvasKind, config: ModelConfig) -> nn.Module:
        return Returning(Memory(torch.zeros(2, 3, config.width)))

    config = plugin_kind("wordless", reader, sentence=lambda *_: 3)
    with pytest.raises(ConfigError, match=r"canvas kind wordless: sentence\(config\) gave 3; it must return a text"):
        Transformer(config)


def test_a_model_without_storage_is_checked_when_its_weights_are_loaded(tmp_path: Path) -> None:
    value = Returning(Memory(torch.zeros(2, 3, BLIND.width)))
    config = plugin_kind("changing", lambda *_: value)
    save_pretrained(Transformer(config), tmp_path / "model", load("bytes"))
    value.value = None
    assert make_meta(config).canvas is value
    with pytest.raises(ConfigError, match="canvas kind changing: the reader's forward gave None"):
        from_pretrained(tmp_path / "model")


@every_new
def test_trying_a_kind_draws_no_random_number(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    states = []
    for is_tried in (True, False):
        if not is_tried:
            monkeypatch.setattr(transformer, "try_canvas", lambda model: None)
        torch.manual_seed(3)
        Transformer(seeing(kind))
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


@pytest.mark.parametrize("kind", BUILT_IN)
def test_built_in_kinds_are_not_tried(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditioning, "_show_empty", lambda *_: raises(AssertionError()))
    Transformer(seeing(kind))
