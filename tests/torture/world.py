"""Small files of every format, made once and copied for each trial."""

from __future__ import annotations

import atexit
import json
import random
import shutil
import tempfile
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import own
from tiny import flags, flags_of, make_data, random_model, write_prose

from reviser.config import ModelConfig
from reviser.model.checkpoint import save_pretrained
from reviser.tokenizer import load
from torture.trial import reviser, run

TINY = ModelConfig(
    num_text=257,
    pad=256,
    num_layers=1,
    width=16,
    num_heads=2,
    ff_width=16,
    context=128,
    max_length=128,
    operators=("move", "delete"),
)


@cache
def world() -> World:
    """The one world of this process."""
    root = Path(tempfile.mkdtemp(prefix="torture-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return World(root)


class World:
    """A folder with a corpus, its data folder, a model, a run, and what commands made of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = make_data(root, 120)
        self.corpus = root / "source.jsonl"
        self.model = save_pretrained(random_model(TINY), root / "model", load("bytes"))
        editor = replace(TINY, context=48, max_length=40, operators=("jump", "delete", "replace"))
        self.editor = save_pretrained(random_model(editor), root / "editor", load("bytes"))
        self.texts = root / "texts.jsonl"
        draw = random.Random(1)
        lines = [json.dumps({"text": (write_prose(draw) * 9)[:300]}) for _ in range(12)]
        self.texts.write_text("".join(line + "\n" for line in lines))
        self.pairs = root / "pairs.jsonl"
        pairs = [
            {"before": f"teh {word} sat.", "after": f"the {word} sat."}
            for word in ["cat", "dog", "cow", "hen", "fox"]
        ]
        self.pairs.write_text("".join(json.dumps(pair) + "\n" for pair in pairs))

        self.prompts = root / "prompts.jsonl"
        prompts = [{"prompt": write_prose(draw)[:12], "id": number} for number in range(40)]
        lines = [json.dumps(each) for each in prompts]
        self.prompts.write_text(
            "\n".join([*lines[:9], "no JSON", *lines[9:30], '{"text": "no prompt"}', *lines[30:]])
        )

    def train_words(self, out: Path, *changes: str) -> list[str]:
        words = flags("train.steps=12", "train.save_every=3", "train.eval_every=6", "train.sample_every=6", *changes)
        return ["train", "debug", "--device", "cpu", "--data", str(self.data), "--out", str(out), *words]

    @cached_property
    def edit_data(self) -> Path:
        """A data folder of pairs."""
        (self.root / "edits").mkdir()
        return own.make_pairs(self.root / "edits")

    def dagger_words(self, out: Path) -> list[str]:
        # --dagger stands for a number of rounds.
        words = [
            word
            for word in flags_of(own.settings("train.steps=10", "train.save_every=3", "dagger.rollouts=16"))
            if not word.startswith("--set=dagger.rounds=")
        ]
        place = ["--device", "cpu", "--data", str(self.edit_data), "--out", str(out)]
        return ["train", "debug", "--dagger", *place, *words]

    def eval_words(self, made: Path, out: Path, model: Path | None = None) -> list[str]:
        return [
            "eval",
            "continuation",
            str(self.texts),
            "--ruler",
            "bytes",
            "--cut",
            "--prefix",
            "12",
            "--total",
            "60",
            "--system",
            f"ours={model or self.model}",
            "--generations",
            str(made),
            "--device",
            "cpu",
            "--seeds",
            "1,2",
            "--out",
            str(out),
        ]

    def made(self, name: str, *words: object) -> Path:
        """A file or folder that a command makes, once; the last word is where."""
        path = self.root / name
        if not path.exists():
            done = run(reviser(*words))
            assert done.code == 0, done.err
            assert path.exists(), words
        return path

    @property
    def run_folder(self) -> Path:
        return self.made("run", *self.train_words(self.root / "run"))

    @property
    def own_run(self) -> Path:
        """A run that learned from own states."""
        return self.made("own-run", *self.dagger_words(self.root / "own-run"))

    @property
    def generations(self) -> Path:
        return self.made("made.jsonl", *self.eval_words(self.root / "made.jsonl", self.root / "result.json"))

    @property
    def result(self) -> Path:
        assert self.generations
        return self.root / "result.json"

    @property
    def trajectories(self) -> Path:
        out = self.root / "trajectories.jsonl"
        words = ["generate", "The old", "--model", self.model, "--seed", "1", "--max-actions", "30", "--out", out]
        return self.made("trajectories.jsonl", *words)

    @property
    def trajectory(self) -> dict[str, Any]:
        """A line of that file."""
        first: dict[str, Any] = json.loads(self.trajectories.read_text().splitlines()[0])
        return first

    def copy(self, path: Path, place: Path) -> Path:
        """A copy that a trial may damage."""
        target = place / path.name
        if path.is_dir():
            shutil.copytree(path, target, dirs_exist_ok=True)
        else:
            shutil.copy(path, target)
        return target
