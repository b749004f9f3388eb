"""Configs: round trips, strict overrides, and every error text."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviser.config import CanvasConfig, ModelConfig, dump, from_dict, load, override, to_dict
from reviser.errors import ConfigError

MODEL = ModelConfig(num_text=257, pad=256, num_layers=2, width=64, num_heads=2, ff_width=128, context=32)


@dataclass(frozen=True)
class Optimizer:
    rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float | None = 1.0
    warmup: int | None = None


@dataclass(frozen=True)
class Run:
    model: ModelConfig
    optimizer: Optimizer = field(default_factory=Optimizer)
    name: str = "run"
    is_compiled: bool = False
    device: Literal["cpu", "cuda"] = "cpu"
    seeds: tuple[int, ...] = (0,)


RUN = Run(MODEL)


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("model.width=512", 512),
        ("optimizer.rate=3e-4", 3e-4),
        ("optimizer.rate=1", 1.0),
        ("optimizer.betas=0.8, 0.9", (0.8, 0.9)),
        ("optimizer.clip=none", None),
        ("optimizer.warmup=100", 100),
        ("name=a=b", "a=b"),
        ("is_compiled=true", True),
        ("device=cuda", "cuda"),
        ("seeds=1,2,3", (1, 2, 3)),
        ("seeds=", ()),
        ("model.operators=move,delete", ("move", "delete")),
        ("model.canvas.kind=cross-window", "cross-window"),
    ],
)
def test_an_override_sets_one_value_by_its_type(assignment: str, value: Any) -> None:
    changed: Any = override(RUN, [assignment])
    for name in assignment.partition("=")[0].split("."):
        changed = getattr(changed, name)
    assert changed == value
    assert type(changed) is type(value)


def test_overrides_are_checked_together_not_one_by_one() -> None:
    changed = override(RUN, ["model.width=99", "model.num_heads=3", "model.positions=absolute"])
    assert (changed.model.width, changed.model.num_heads) == (99, 3)


@pytest.mark.parametrize(
    ("assignment", "text"),
    [
        ("model.widht=512", "no setting model.widht; did you mean model.width?"),
        ("widht=512", "no setting widht; did you mean model.width?"),
        ("modle.width=512", "no setting modle.width; did you mean model.width?"),
        ("name.width=1", "no setting name.width; did you mean model.width?"),
        ("zzz=1", "no setting zzz; `reviser train RECIPE --show` prints all of them"),
        ("canvas=window", "no setting canvas; the nearest are model.canvas.kind, model.canvas.gate, "),
        ("model=big", "model is a group of settings; set one of model.num_text, model.pad, model.num_layers, "
         "model.width, model.num_heads, ..."),
        ("model.canvas=window", "model.canvas is a group of settings; set one of model.canvas.kind, "),
        ("model.width", "'model.width' is not a setting; write name=value"),
        ("model.width=wide", "model.width is 'wide'; it must be a whole number"),
        ("model.width=1.5", "model.width is '1.5'; it must be a whole number"),
        ("optimizer.rate=fast", "optimizer.rate is 'fast'; it must be a number"),
        ("optimizer.warmup=soon", "optimizer.warmup is 'soon'; it must be a whole number"),
        ("is_compiled=1", "is_compiled is '1'; it must be true or false"),
        ("device=tpu", "device is 'tpu'; it must be one of cpu, cuda"),
        ("optimizer.betas=0.9", "optimizer.betas needs 2 values, not 1"),
        ("seeds=1,x", "seeds is 'x'; it must be a whole number"),
        ("model.canvas.kind=pol", "canvas.kind is 'pol'; kinds are none, window, pool, cross, cross-window"),
    ],
)  # fmt: skip
def test_a_wrong_override_says_what_is_wanted(assignment: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        override(RUN, [assignment])
    assert str(caught.value).startswith(text)
    assert "\n" not in str(caught.value)


def test_an_error_names_five_settings_at_most_unless_there_are_few() -> None:
    with pytest.raises(ConfigError) as caught:
        override(RUN, ["canvas=window"])
    assert str(caught.value).count(",") == 4
    assert str(caught.value).endswith("; `reviser train RECIPE --show` prints all of them")
    with pytest.raises(ConfigError, match=r"no setting zzz; settings are rate, betas, clip, warmup$"):
        override(Optimizer(), ["zzz=1"])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"nmae": "x"}, "no setting nmae; did you mean name?"),
        ({"model": {**to_dict(MODEL), "heads": 3}}, "no setting model.heads; did you mean model."),
        ({"model": {"num_text": 5}}, "setting model.pad is missing"),
        ({"model": 3}, "model is 3; it must be a group of settings"),
        ({"name": 3}, "name is 3; it must be a text"),
        ({"is_compiled": 1}, "is_compiled is 1; it must be true or false"),
        ({"optimizer": {"warmup": 1.5}}, "optimizer.warmup is 1.5; it must be a whole number"),
        ({"optimizer": {"betas": 0.9}}, "optimizer.betas is 0.9; it must be a list"),
        ({"optimizer": {"rate": True}}, "optimizer.rate is True; it must be a number"),
        ({"seeds": [1, "2"]}, "seeds is '2'; it must be a whole number"),
    ],
)
def test_a_wrong_dictionary_says_what_is_wanted(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_dict(Run, to_dict(RUN) | change)
    assert str(caught.value).startswith(text)


@given(
    st.builds(
        Optimizer,
        rate=st.floats(0, 1),
        betas=st.tuples(st.floats(0, 1), st.floats(0, 1)),
        clip=st.none() | st.floats(0, 9),
        warmup=st.none() | st.integers(),
    ),
    st.text(),
    st.lists(st.integers()).map(tuple),
)
def test_a_config_comes_back_from_its_dictionary(optimizer: Optimizer, name: str, seeds: tuple[int, ...]) -> None:
    run = Run(MODEL, optimizer, name, seeds=seeds)
    assert from_dict(Run, json.loads(json.dumps(to_dict(run)))) == run


def test_a_config_comes_back_from_its_file(tmp_path: Path) -> None:
    run = replace(RUN, name="été", model=replace(MODEL, canvas=CanvasConfig("window", window=2)))
    dump(run, tmp_path / "run.json")
    assert load(Run, tmp_path / "run.json") == run
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_what_a_file_does_not_say_keeps_its_default(tmp_path: Path) -> None:
    values = to_dict(RUN)
    del values["model"]["rope_theta"], values["seeds"]
    assert from_dict(Run, values) == RUN


def test_a_config_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    dump(RUN, tmp_path / "run.json")
    with pytest.raises(TypeError):
        dump(replace(RUN, name=object()), tmp_path / "run.json")  # type: ignore[arg-type]
    assert load(Run, tmp_path / "run.json") == RUN
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, "No such file"), ("{", "is not valid JSON"), ("[1]", "must be a JSON object of settings")],
)
def test_an_unreadable_config_file_is_named(tmp_path: Path, content: str | None, text: str) -> None:
    path = tmp_path / "run.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=text) as caught:
        load(Run, path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"num_layers": 0}, "num_layers is 0; it must be at least 1"),
        ({"context": 1}, "context is 1; it must be at least 2"),
        ({"context": 1 << 40}, "context is 1099511627776; it must be at most 1048576"),
        ({"num_layers": 100_000}, "num_layers is 100000; it must be at most 1000"),
        ({"rope_theta": 0.0}, "rope_theta is 0.0; it must be at least 1"),
        ({"dropout": 1.0}, "dropout is 1.0; it must be at least 0 and below 1"),
        ({"pointer_ahead": 9}, "pointer_ahead is 9; it must be from 0 to 8"),
        ({"pointer_ahead": -1}, "pointer_ahead is -1; it must be from 0 to 8"),
        ({"num_heads": 3}, "width 64 does not divide into 3 heads (num_heads)"),
        ({"num_heads": 64}, "heads are 1 wide; rotary positions need an even width/num_heads"),
        ({"pad": 257}, "pad id 257 is not one of the 257 text tokens"),
        ({"operators": ("fly",)}, "unknown operator 'fly'; operators are "),
        ({"canvas": CanvasConfig("cross", layers=3)}, "canvas.layers is 3, but the model has 2 layers"),
    ],
)
def test_a_model_that_cannot_be_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        replace(MODEL, **changes)
    assert text in str(caught.value)


@pytest.mark.parametrize("name", ["window", "slot_width"])
def test_a_window_needs_room(name: str) -> None:
    with pytest.raises(ConfigError, match=f"canvas.{name} is 0; it must be at least 1"):
        CanvasConfig(**{name: 0})  # type: ignore[arg-type]
