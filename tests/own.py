"""A small world for learning from own states: pairs of texts in bytes, and a model that soon learns them."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import torch

from reviser.config import CanvasConfig, ModelConfig, override
from reviser.data.corpus import prepare
from reviser.data.examples import JobConfig
from reviser.data.shards import Shards
from reviser.data.slots import Slots
from reviser.own_states.dagger import DaggerTrainer
from reviser.tokenizer import load
from reviser.training.distributed import Team
from reviser.training.loop import Trainer
from reviser.training.runs import Run
from reviser.training.settings import DaggerConfig, DataConfig, OptimizerConfig, RunConfig, TrainConfig

SETTINGS = RunConfig(
    model=ModelConfig(
        num_text=257, pad=256, num_layers=1, width=32, num_heads=2, ff_width=64, context=48, max_length=40,
        operators=("jump", "delete", "replace"), canvas=CanvasConfig(kind="window", window=1, slot_width=16),
    ),
    data=DataConfig(
        order="left-to-right", row=128, workers=1,
        jobs=JobConfig(
            prefix=(0, 2), length=(1, 8), gap=(1, 3), suffix=(1, 3), pairs=1.0, draft=(1, 12), around=(0, 0),
        ),
    ),
    optimizer=OptimizerConfig(lr=1e-2, min_lr=2e-3, warmup=10),
    train=TrainConfig(
        steps=8, rows=4, log_every=1, eval_every=1000, eval_examples=4, eval_prefix=0, eval_length=2,
        sample_every=1000, save_every=2,
    ),
    dagger=DaggerConfig(rounds=2, rollouts=48, rows=16, max_actions=12, after=2),
)  # fmt: skip


def make_pairs(folder: Path) -> Path:
    """Texts in which a y is missing before the only x; and documents, for gaps."""
    draw, pairs = random.Random(0), set()
    for _ in range(600):
        text, place = "".join("a" + draw.choice("bcd") for _ in range(4)), 2 * draw.randrange(4) + 1
        pairs.add((text[:place] + "x" + text[place:], text[:place] + "yx" + text[place:]))
    lines = [{"before": before, "after": after, "source": before} for before, after in sorted(pairs)]
    texts = [{"text": "".join(draw.choices("abcdefgh", k=40))} for _ in range(60)]
    source = folder / "source.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines + texts))
    prepare([source], folder / "data", load("bytes"), holdout=0.2)
    return folder / "data"


def settings(*changes: str) -> RunConfig:
    return override(SETTINGS, changes)


def make_trainer(data: Path, config: RunConfig, run: Run | None = None) -> Trainer:
    """A trainer, alone on the CPU."""
    shards, team = Shards.open(data, "train"), Team(0, 1, torch.device("cpu"))
    kind = DaggerTrainer if config.dagger.rounds else Trainer
    return kind(config, Slots.of(shards, config.data.jobs), team, run)


def without(config: RunConfig) -> RunConfig:
    """The same as plain teacher forcing."""
    return replace(config, dagger=DaggerConfig())
