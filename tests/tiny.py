"""A small world for training tests: a data folder of invented prose, tiny settings, runs and what they measured."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from reviser.canvas import Canvas
from reviser.cli import main
from reviser.config import ModelConfig, override
from reviser.data.corpus import prepare
from reviser.data.examples import JobConfig
from reviser.data.shards import Shards
from reviser.data.slots import Slots
from reviser.model.conditioning import CanvasInput
from reviser.model.transformer import Transformer
from reviser.tokenizer import load
from reviser.training.distributed import Team
from reviser.training.loop import Trainer
from reviser.training.runs import Run
from reviser.training.settings import DataConfig, OptimizerConfig, RunConfig, TrainConfig

WORDS = ("the", "boat", "lay", "still", "and", "a", "gull", "slept", "on", "its", "mast", "while", "rain", "fell",
         "over", "sea", "wall", "stone", "light", "of", "old", "harbour")  # fmt: skip

SETTINGS = RunConfig(
    model=ModelConfig(
        num_text=257, pad=256, num_layers=2, width=32, num_heads=2, ff_width=64, context=64, max_length=96,
    ),
    data=DataConfig(order="runs:jump=0.1", jobs=JobConfig(prefix=(0, 12), length=(4, 28)), row=128, workers=1),
    optimizer=OptimizerConfig(lr=5e-3, min_lr=1e-3, warmup=2),
    train=TrainConfig(
        steps=8, rows=4, log_every=1, eval_every=4, eval_examples=6, eval_prefix=6, eval_length=12, sample_every=8,
        save_every=4,
    ),
)  # fmt: skip

HARD = ("model.dropout=0.2", "train.accumulate=2", "data.workers=3", "model.canvas.kind=window", "train.steps=12")
"""Settings under which a careless resume would show."""


class Numbered:
    """Documents whose tokens are their own places, so that a stretch tells where it was cut."""

    def __init__(self, *lengths: int) -> None:
        self.lengths = np.array(lengths, np.int64)

    def __getitem__(self, document: int) -> npt.NDArray[Any]:
        return np.arange(self.lengths[document], dtype=np.uint16)

    def gather(
        self, documents: npt.NDArray[Any], starts: npt.NDArray[Any], sizes: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        parts = [self[d][s : s + n] for d, s, n in zip(documents, starts, sizes, strict=True)]
        return np.concatenate([np.empty(0, np.int32), *parts]).astype(np.int32)


class Shifted(Numbered):
    """The same with tokens that begin elsewhere in each document, so that sentences end elsewhere."""

    def __getitem__(self, document: int) -> npt.NDArray[Any]:
        return (super().__getitem__(document) + 37 * document) % 2000


def settings(*changes: str) -> RunConfig:
    """The tiny config with some `name=value` applied."""
    return override(SETTINGS, changes)


def write_prose(draw: random.Random) -> str:
    sentences = [
        " ".join(draw.choices(WORDS, k=draw.randint(3, 12))).capitalize() + "." for _ in range(draw.randint(1, 25))
    ]
    return " ".join(sentences)


def make_data(folder: Path, num_documents: int = 400, holdout: float = 0.1) -> Path:
    """A data folder of invented prose, in bytes."""
    draw = random.Random(0)
    source = folder / "source.jsonl"
    source.write_text("".join(json.dumps({"text": write_prose(draw)}) + "\n" for _ in range(num_documents)))
    prepare([source], folder / "data", load("bytes"), holdout=holdout)
    return folder / "data"


def flags(*changes: str) -> list[str]:
    """The tiny config as --set flags on top of `debug`."""
    return flags_of(settings(*changes))


def flags_of(config: RunConfig) -> list[str]:
    """A config as --set flags on top of `debug`."""
    from reviser.config import to_dict
    from reviser.training.recipes import debug

    wanted, given = (_leaves(to_dict(each)) for each in (config, debug(settings().model.alphabet)))
    return [f"--set={name}={value}" for name, value in wanted.items() if value != given[name]]


def _leaves(values: dict[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= _leaves(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return found


def show(states: list[Canvas], config: ModelConfig) -> CanvasInput:
    """Windows, rows and cursors of canvases, written out."""
    none, size = config.alphabet.none, max(len(state.tokens) for state in states) + 1
    windows = [state.window(config.canvas.window, none) for state in states]
    rows = [[*state.tokens[: state.cursor], none, *state.tokens[state.cursor :]] for state in states]
    padded = [row + [-1] * (size - len(row)) for row in rows]
    cursors = [state.cursor for state in states]
    return CanvasInput(torch.tensor([windows]), torch.tensor([padded]), torch.tensor([cursors]))


def make_trainer(data: Path, *changes: str, run: Run | None = None) -> Trainer:
    """A trainer of the tiny config, alone on the CPU."""
    chosen, shards = settings(*changes), Shards.open(data, "train")
    team = Team(0, 1, torch.device("cpu"))
    return Trainer(chosen, Slots.of(shards, chosen.data.jobs), team, run, Shards.open(data, "heldout"))


def random_model(config: ModelConfig, seed: int = 0) -> Transformer:
    """A model whose branches all speak: fresh ones start at zero."""
    torch.manual_seed(seed)
    model = Transformer(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model


def train(*words: object) -> int:
    return main(["train", "--device", "cpu", *map(str, words)])


def start(data: Path, out: Path, *changes: str, more: Sequence[object] = ()) -> int:
    """`reviser train debug` with the tiny config."""
    return train("debug", "--data", data, "--out", out, *flags(*changes), *more)


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def losses(run: Path) -> dict[int, float]:
    """The loss of each step, as a run folder has them."""
    return {line["step"]: line["loss_nats"] for line in metrics(run) if "loss_nats" in line}


def wait_for(run: Path, step: int, limit_s: float = 40.0) -> None:
    """Until a running process has logged a step."""
    for _ in range(round(limit_s * 100)):
        if (run / "metrics.jsonl").exists() and f'"step": {step},' in (run / "metrics.jsonl").read_text():
            return
        time.sleep(0.01)
    raise AssertionError(f"step {step} never came")


def fork(work: Callable[..., None], *args: Any) -> Any:
    """A process that runs `work`: a fork of a server that has torch loaded, which takes no time to start."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["reviser.training.loop", "reviser.cli.train", "reviser.batch.batch_run"])
    process = context.Process(target=work, args=args)
    process.start()
    return process


def train_in_process(words: Sequence[object], place: dict[str, str], log: Path) -> None:
    """What a started process does: `reviser train` with some environment, its output in a file."""
    os.environ |= place
    with open(log, "wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    raise SystemExit(train(*words))


def copied(folder: Path, to: Path) -> Path:
    return Path(shutil.copytree(folder, to / "run"))


def checkpoint(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:08d}"


def fail(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one line that a refused command prints."""
    capsys.readouterr()
    assert train(*words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    line = err.splitlines()[-1]
    assert line.startswith("error: ")
    return line.removeprefix("error: ")
