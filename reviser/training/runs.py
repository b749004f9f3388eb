"""The run folder: what a run was asked, what it measured, and the states it can continue from.

    config.json  run.json            the resolved config; version, commit, command, data, hardware
    metrics.jsonl  log.txt           one JSON object a measurement; what was printed
    tensorboard/  samples/           event files; texts the model wrote on the way
    checkpoints/step-00001000/       model.safetensors, optimizer.safetensors, state.json with their sha256
    model/                           the finished model folder
    .lock                            locked while a process trains here

Checkpoints are written beside and renamed, so one that has its name is whole; no other run is overwritten.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from reviser import __version__, config
from reviser.errors import CheckpointError
from reviser.files import LOCK, hash_file, locked, write_text
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
        run.check_free()
        try:
            (run.folder / "checkpoints").mkdir(parents=True)
            (run.folder / "samples").mkdir()
            config.dump(settings, run.folder / "config.json")
            (run.folder / "run.json").write_text(json.dumps(_circumstances(data), indent=1) + "\n")
        except OSError as error:
            raise CheckpointError(f"cannot make the run folder {folder}: {error.strerror}") from None
        return run

    def check_free(self) -> None:
        """Refuse a folder that holds anything."""
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            return
        if self.folder.exists():
            remedy = f"continue it with --resume {self.folder}" if self.steps() else "remove it"
            raise CheckpointError(f"{self.folder} exists already; {remedy} or choose another --out")

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

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Keep every other process from training in this folder."""
        with ExitStack() as held:
            with self.writing(self.folder / LOCK):
                try:
                    held.enter_context(locked(self.folder))
                except BlockingIOError:
                    raise CheckpointError(
                        f"another process is training in {self.folder}; wait for it or stop it, or start another run"
                    ) from None
            yield

    def record(self, **values: Any) -> None:
        """Append one measurement to metrics.jsonl."""
        self._append("metrics.jsonl", json.dumps(values))

    def log(self, line: str) -> None:
        self._append("log.txt", f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")

    def keep_samples(self, step: int, text: str) -> None:
        """samples/step-00000100.txt"""
        path = self.folder / "samples" / f"step-{step:08d}.txt"
        with self.writing(path):
            path.write_text(text, encoding="utf8")

    def _append(self, name: str, line: str) -> None:
        with self.writing(self.folder / name), open(self.folder / name, "a", encoding="utf8") as file:
            file.write(line + "\n")

    def change(self, settings: RunConfig, assignments: Sequence[str]) -> None:
        """Keep settings that were changed on the way, and a line about them in the log."""
        with self.writing(self.folder / "config.json"):
            config.dump(settings, self.folder / "config.json")
        self.log(f"settings changed: {' '.join(assignments)}")

    def rewind_metrics(self, step: int) -> None:
        """Drop measurements behind a step, which will be made again, and what a kill left of a line."""
        path = self.folder / "metrics.jsonl"
        if path.is_file():
            with self.writing(path):
                lines = [line for line in path.read_text(encoding="utf8").splitlines() if _step_of(line) <= step]
                write_text(path, "".join(line + "\n" for line in lines))

    def steps(self) -> list[int]:
        """The steps whose checkpoints exist, ascending."""
        names = [path.name for path in (self.folder / "checkpoints").glob("step-*")]
        return sorted(int(name.removeprefix("step-")) for name in names if name[5:].isdigit())

    @contextmanager
    def writing(self, path: Path) -> Iterator[None]:
        """Name a file of the folder that cannot be written: the system's own error often does not."""
        try:
            yield
        except (OSError, SafetensorError) as error:
            raise self.explain(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None

    def explain(self, problem: str) -> CheckpointError:
        """What the user reads when the system refuses something on the way: what is left, and how to go on."""
        return CheckpointError(
            f"{problem}; {self.last_good()}; mend that and "
            + (f"go on with --resume {self.folder}" if self.steps() else "start the run anew")
        )

    def last_good(self) -> str:
        """Which checkpoint there is to go back to, for error texts."""
        steps = self.steps()
        return f"the checkpoint of step {steps[-1]} is whole" if steps else "there is no checkpoint yet"

    def _path(self, step: int) -> Path:
        return self.folder / "checkpoints" / f"step-{step:08d}"

    def save(self, step: int, weights: dict[str, Tensor], optimizer: dict[str, Tensor], state: dict[str, Any],
             keep: int) -> None:  # fmt: skip
        """Write a checkpoint whole or not at all, then drop the oldest beyond `keep`."""
        final = self._path(step)
        part = final.with_name(f".{final.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        try:
            part.mkdir()
            _save_tensors(weights, part / MODEL)
            _save_tensors(optimizer, part / OPTIMIZER)
            sums = {name: hash_file(part / name) for name in (MODEL, OPTIMIZER)}
            state = {**state, "step": step}
            state["sha256"] = {**sums, STATE: _hash_state(state)}
            (part / STATE).write_text(json.dumps(state, indent=1) + "\n")
            for path in part.iterdir():
                _flush(path)
            shutil.rmtree(final, ignore_errors=True)
            os.replace(part, final)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(part, ignore_errors=True)
            raise CheckpointError(f"cannot save the checkpoint of step {step}: {error}; {self.last_good()}") from None
        for old in self.steps()[:-keep]:
            shutil.rmtree(self._path(old), ignore_errors=True)

    def load(self, step: int | None = None) -> Saved:
        """The newest checkpoint, or that of a step, with its checksums verified."""
        steps = self.steps()
        if not steps:
            raise CheckpointError(f"{self.folder} has no checkpoint yet; remove it and start the run anew")
        if step is not None and step not in steps:
            raise CheckpointError(f"{self.folder} has no checkpoint of step {step}; it has {steps}")
        path = self._path(steps[-1] if step is None else step)
        earlier = [s for s in steps if s < int(path.name[5:])]
        remedy = f"remove {path.name} to continue from step {earlier[-1]}" if earlier else "start the run anew"
        try:
            state = json.loads((path / STATE).read_text())
            wanted = state.pop("sha256")
            found = {name: hash_file(path / name) for name in (MODEL, OPTIMIZER)} | {STATE: _hash_state(state)}
            for name, sha256 in found.items():
                if sha256 != wanted[name]:
                    raise CheckpointError(f"{path / name} is damaged: its sha256 is not the one saved; {remedy}")
            return Saved(load_file(path / MODEL), load_file(path / OPTIMIZER), state)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
            raise CheckpointError(f"{path} is damaged ({error}); {remedy}") from None


def _save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    save_file({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}, path)


def _step_of(line: str) -> float:
    """The step of a line of metrics; infinite where it is no whole line."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf


def _hash_state(state: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _flush(path: Path) -> None:
    """Bring a file to the disk before its folder gets its name: a power cut must not leave a named ruin."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _circumstances(data: str) -> dict[str, Any]:
    return {
        "version": __version__,
        "commit": commit(),
        "command": shlex.join(["reviser", *sys.argv[1:]]),
        "data": data,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "hardware": hardware(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def commit() -> str | None:
    """The commit of the checkout this package runs from, and whether it was changed since; None outside one."""
    head, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--untracked-files=no")
    return f"{head} with changes" if head and changes else head


def _git(*words: str) -> str | None:
    """What git says of the folder this package is in; None where it is no checkout."""
    try:
        root = Path(__file__).parents[2]
        found = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return found.stdout.strip() if found.returncode == 0 else None


def hardware() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{platform.machine()} CPU, {os.cpu_count()} cores"
