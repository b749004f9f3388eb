"""The run folder: what a run was asked, what it measured, and the states it can continue from.

    config.json  run.json            the resolved config; version, commit, command, data, hardware
    metrics.jsonl  log.txt           one JSON object a measurement; what was printed
    tensorboard/  samples/           event files; texts the model wrote on the way
    checkpoints/step-00001000/       model.safetensors, optimizer.safetensors, state.json with their sha256
    model/                           the finished model folder

Checkpoints are written beside and renamed, so one that has its name is whole; nothing is overwritten.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from reviser import __version__, config
from reviser.errors import CheckpointError
from reviser.training.settings import RunConfig

MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"


@dataclass(frozen=True)
class Saved:
    """A state read back: weights, optimizer tensors by name, and the numbers of state.json."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]


class Run:
    """One run folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @classmethod
    def create(cls, folder: str | Path, settings: RunConfig, data: str) -> Run:
        """A new folder; one that exists already is refused."""
        run = cls(folder)
        if run.folder.exists() and any(run.folder.iterdir()):
            raise CheckpointError(
                f"{folder} exists already; continue it with --resume {folder} or choose another --out"
            )
        try:
            (run.folder / "checkpoints").mkdir(parents=True)
            (run.folder / "samples").mkdir()
            config.dump(settings, run.folder / "config.json")
            (run.folder / "run.json").write_text(json.dumps(_circumstances(data), indent=1) + "\n")
        except OSError as error:
            raise CheckpointError(f"cannot make the run folder {folder}: {error.strerror}") from None
        return run

    @classmethod
    def open(cls, folder: str | Path) -> tuple[Run, RunConfig, str]:
        """An existing run, its config and its data folder."""
        run = cls(folder)
        if not (run.folder / "config.json").is_file():
            raise CheckpointError(f"{folder} is no run folder: it holds no config.json")
        settings = config.load(RunConfig, run.folder / "config.json")
        try:
            data = json.loads((run.folder / "run.json").read_text())["data"]
        except (OSError, ValueError, KeyError) as error:
            raise CheckpointError(f"{run.folder / 'run.json'} is missing or damaged ({error})") from None
        return run, settings, data

    def record(self, **values: Any) -> None:
        """Append one measurement to metrics.jsonl."""
        with open(self.folder / "metrics.jsonl", "a", encoding="utf8") as file:
            file.write(json.dumps(values) + "\n")

    def log(self, line: str) -> None:
        with open(self.folder / "log.txt", "a", encoding="utf8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")

    def rewind_metrics(self, step: int) -> None:
        """Drop measurements behind a step: they will be made again."""
        path = self.folder / "metrics.jsonl"
        if path.is_file():
            lines = [line for line in path.read_text().splitlines() if json.loads(line).get("step", 0) <= step]
            _write_text(path, "".join(line + "\n" for line in lines))

    def steps(self) -> list[int]:
        """The steps whose checkpoints exist, ascending."""
        names = [path.name for path in (self.folder / "checkpoints").glob("step-*")]
        return sorted(int(name.removeprefix("step-")) for name in names if name[5:].isdigit())

    def _path(self, step: int) -> Path:
        return self.folder / "checkpoints" / f"step-{step:08d}"

    def save(self, step: int, weights: dict[str, Tensor], optimizer: dict[str, Tensor], state: dict[str, Any],
             keep: int) -> None:  # fmt: skip
        """Write a checkpoint whole or not at all, then drop the oldest beyond `keep`."""
        final = self._path(step)
        draft = final.with_name(f".{final.name}.part")
        shutil.rmtree(draft, ignore_errors=True)
        try:
            draft.mkdir()
            _save_tensors(weights, draft / MODEL)
            _save_tensors(optimizer, draft / OPTIMIZER)
            sums = {name: hash_file(draft / name) for name in (MODEL, OPTIMIZER)}
            (draft / STATE).write_text(json.dumps({**state, "step": step, "sha256": sums}, indent=1) + "\n")
            shutil.rmtree(final, ignore_errors=True)
            os.replace(draft, final)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(draft, ignore_errors=True)
            last = self.steps()
            kept = f"the checkpoint of step {last[-1]} is whole" if last else "there is no earlier checkpoint"
            raise CheckpointError(f"cannot save the checkpoint of step {step}: {error}; {kept}") from None
        for old in self.steps()[:-keep]:
            shutil.rmtree(self._path(old), ignore_errors=True)

    def load(self, step: int | None = None) -> Saved:
        """The newest checkpoint, or that of a step, with its checksums verified."""
        steps = self.steps()
        if not steps:
            raise CheckpointError(f"{self.folder} has no checkpoint yet; start the run anew")
        if step is not None and step not in steps:
            raise CheckpointError(f"{self.folder} has no checkpoint of step {step}; it has {steps}")
        path = self._path(steps[-1] if step is None else step)
        earlier = [s for s in steps if s < int(path.name[5:])]
        remedy = f"remove {path.name} to continue from step {earlier[-1]}" if earlier else "start the run anew"
        try:
            state = json.loads((path / STATE).read_text())
            for name, wanted in state["sha256"].items():
                if hash_file(path / name) != wanted:
                    raise CheckpointError(f"{path / name} is damaged: its sha256 is not the one saved; {remedy}")
            return Saved(load_file(path / MODEL), load_file(path / OPTIMIZER), state)
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise CheckpointError(f"{path} is damaged ({error}); {remedy}") from None


def _save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    save_file({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}, path)


def _write_text(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf8")
    os.replace(part, path)


def hash_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _circumstances(data: str) -> dict[str, Any]:
    return {
        "version": __version__,
        "commit": commit(),
        "command": " ".join(["reviser", *sys.argv[1:]]),
        "data": data,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "hardware": hardware(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def commit() -> str | None:
    """The commit of the checkout this package runs from; None outside one."""
    try:
        root = Path(__file__).parents[2]
        found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return found.stdout.strip() or None


def hardware() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{platform.machine()} CPU, {os.cpu_count()} cores"
