"""The run folder: what a run was asked, what it measured, and the states it can continue from.

    config.json  run.json            the resolved config; version, commit, command, data, hardware
    metrics.jsonl  log.txt           one JSON object a measurement; what was printed
    tensorboard/  samples/           event files; texts the model wrote on the way
    checkpoints/step-00001000/       a model folder, and optimizer.safetensors and state.json with checksums
    model/                           the finished model folder
    data/                            the text, where the run prepared its own
    .lock                            locked while a process trains here

Checkpoints are written beside and renamed, so one that has its name is complete; no other run is overwritten.

>>> run = Run("runs/mine")  # doctest: +SKIP
>>> run.step, run.is_done, run.metrics[-1]["loss_nats"]  # doctest: +SKIP
(240, True, 1.94)
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
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from reviser import __version__, config
from reviser.errors import CheckpointError, ReviserError
from reviser.files import LOCK, hash_file, is_intact, locked, stamp, write_json, write_text
from reviser.model.folder import CHECKPOINTS, CONFIG, RUN, WEIGHTS, FolderConfig, checkpoint_steps, find
from reviser.tokenizer import Tokenizer
from reviser.training.settings import RunConfig, load_settings

if TYPE_CHECKING:
    from reviser.training.heldout import Bound

MODEL, OPTIMIZER, STATE = WEIGHTS, "optimizer.safetensors", "state.json"
METRICS = "metrics.jsonl"
PART = ".step-*.part"
"""A checkpoint while it is written or removed."""
OWN = {CONFIG, RUN, METRICS, CHECKPOINTS, LOCK, "log.txt", "tensorboard", "samples", "data"}
"""What lies in the folder of a run that is not finished."""
FORMAT, VERSION = "reviser run", 2
"""Of run.json; files of version 1 have no format, and the program's version as theirs."""
SETTINGS_ABOUT = {"format": "reviser run settings", "version": 1}
"""What a run's config.json says of itself."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was read: weights, optimizer tensors by name, and the numbers of state.json."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]


class Run:
    """One run folder, and what `train` found in it when it ended."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.bounds: dict[str, Bound] = {}
        """The last held-out bound of each job; only the `train` that measured them knows them."""
        self.was_stopped = False
        """Whether a signal ended the `train` that returned this."""
        self._made: list[Path] = []

    def __repr__(self) -> str:
        try:
            state = f"step={self.step}, is_done={self.is_done}"
        except (ReviserError, OSError):
            state = "unreadable"
        return f"Run({str(self.folder)!r}, {state})"

    @property
    def step(self) -> int:
        """The step of the newest checkpoint; 0 where there is none."""
        return max(self.steps(), default=0)

    @property
    def settings(self) -> RunConfig:
        """The resolved config."""
        return read_settings(self.folder)

    @property
    def is_done(self) -> bool:
        """Whether all of its steps are made and the model folder is written."""
        return (self.folder / "model").is_dir() and self.step >= self.settings.train.steps

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Every measurement so far, as metrics.jsonl has them."""
        return [json.loads(line) for line in self._metric_lines() if _step_of(line) < math.inf]

    @property
    def model_folder(self) -> Path:
        """The finished model, or the newest checkpoint, which can be loaded like one."""
        return find(self.folder)

    @classmethod
    def create(cls, folder: str | Path, settings: RunConfig, data: str) -> Run:
        """A new folder; one that exists already is refused."""
        run = cls(folder)
        run.check_free()
        run.write_settings(settings, data)
        return run

    def write_settings(self, settings: RunConfig, data: str) -> None:
        """What a new run begins with."""
        try:
            (self.folder / CHECKPOINTS).mkdir(parents=True)
            (self.folder / "samples").mkdir()
            config.dump(settings, self.folder / CONFIG, **SETTINGS_ABOUT)
            write_json(self.folder / RUN, stamp(_circumstances(data)))
        except OSError as error:
            raise CheckpointError(f"cannot make the run folder {self.folder}: {error.strerror}") from None

    def check_free(self) -> None:
        """Refuse a folder that holds anything."""
        if self.folder.is_dir() and {path.name for path in self.folder.iterdir()} <= {LOCK}:
            return
        if self.folder.exists():
            remedy = f"continue it with --resume {self.folder}" if self.steps() else "remove it"
            raise CheckpointError(f"{self.folder} already exists; {remedy} or choose another --out")

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Make the folder of a new run, for this process alone."""
        self.check_free()
        self._made = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot make the run folder {self.folder}: {error.strerror}") from None
        with self.owned():
            self.check_free()
            yield

    def discard(self) -> None:
        """Remove a new run that never made a step, with the folders that were made for it."""
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in self._made:
            with suppress(OSError):
                path.rmdir()

    def clear_begun(self) -> None:
        """Empty the folder of a run that was killed before its first checkpoint; anything else stays."""
        names = {path.name for path in self.folder.iterdir()} if self.folder.is_dir() else set()
        if self.steps() or not names - {LOCK} or not names <= OWN:
            return
        with self.owned():
            for path in self.folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    @classmethod
    def open(cls, folder: str | Path) -> tuple[Run, RunConfig, str]:
        """An existing run, its config and its data folder."""
        run = cls(folder)
        if not (run.folder / CONFIG).is_file():
            raise CheckpointError(f"{folder} is not a run folder: it holds no {CONFIG}")
        settings = run.settings
        return run, settings, _read_data(run.folder / RUN)

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
        self._append(METRICS, json.dumps(values))

    def log(self, line: str) -> None:
        self._append("log.txt", f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")

    def keep_samples(self, step: int, text: str, kind: str = "") -> None:
        """samples/step-00000100.txt, or step-00000100-KIND.txt"""
        path = self.folder / "samples" / f"step-{step:08d}{'-' if kind else ''}{kind}.txt"
        with self.writing(path):
            path.write_text(text, encoding="utf8")

    def _append(self, name: str, line: str) -> None:
        with self.writing(self.folder / name), open(self.folder / name, "a", encoding="utf8") as file:
            file.write(line + "\n")

    def change(self, settings: RunConfig, assignments: Sequence[str]) -> None:
        """Keep settings that were changed when the run was resumed, and a line about them in the log."""
        with self.writing(self.folder / CONFIG):
            config.dump(settings, self.folder / CONFIG, **SETTINGS_ABOUT)
        self.log(f"settings changed: {' '.join(assignments)}")

    def rewind_metrics(self, step: int) -> None:
        """Drop measurements after a step, which will be made again, and lines that are cut short or damaged."""
        path = self.folder / METRICS
        if path.is_file():
            with self.writing(path):
                lines = [line for line in self._metric_lines() if _step_of(line) <= step]
                write_text(path, "".join(line + "\n" for line in lines))

    def _metric_lines(self) -> list[str]:
        path = self.folder / METRICS
        return path.read_text(encoding="utf8", errors="replace").splitlines() if path.is_file() else []

    def steps(self) -> list[int]:
        """The steps whose checkpoints exist, ascending."""
        return checkpoint_steps(self.folder)

    @contextmanager
    def writing(self, path: Path) -> Iterator[None]:
        """Name a file of the folder that cannot be written: the system's own error often does not."""
        try:
            yield
        except (OSError, SafetensorError) as error:
            raise self.explain(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None

    def explain(self, problem: str) -> CheckpointError:
        """The error when the system refuses something during a run: what is left, and how to resume."""
        return CheckpointError(
            f"{problem}; {self.last_good()}; fix that and "
            + (f"resume with --resume {self.folder}" if self.steps() else "start the run again")
        )

    def last_good(self) -> str:
        """Which checkpoint there is to go back to, for error texts."""
        steps = self.steps()
        return f"the checkpoint of step {steps[-1]} is intact" if steps else "there is no checkpoint yet"

    def _path(self, step: int) -> Path:
        return self.folder / CHECKPOINTS / f"step-{step:08d}"

    def _part(self, step: int) -> Path:
        return self.folder / CHECKPOINTS / PART.replace("*", f"{step:08d}")

    def save(
        self,
        saved: Saved,
        keep: int,
        folder_config: FolderConfig | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        """Write a complete checkpoint or none, then drop the oldest beyond `keep`.

        `folder_config` and `tokenizer` make it a model folder, so that an unfinished run can write.
        """
        step = int(saved.state["step"])
        final = self._path(step)
        part = self._part(step)
        shutil.rmtree(part, ignore_errors=True)
        try:
            part.mkdir()
            _save_tensors(saved.weights, part / MODEL)
            _save_tensors(saved.optimizer, part / OPTIMIZER)
            sums = {name: hash_file(part / name) for name in (MODEL, OPTIMIZER)}
            if folder_config is not None:
                config.dump(replace(folder_config, weights_sha256=sums[MODEL]), part / CONFIG)
            if tokenizer is not None:
                tokenizer.save(part)
            state = saved.state | {"sha256": {**sums, STATE: _hash_state(saved.state)}}
            (part / STATE).write_text(json.dumps(state, indent=1) + "\n")
            for path in part.iterdir():
                _flush(path)
            shutil.rmtree(final, ignore_errors=True)
            os.replace(part, final)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"cannot save the checkpoint of step {step}: {error}; {self.last_good()}") from None
        finally:
            shutil.rmtree(part, ignore_errors=True)
        self.drop_old(keep)

    def drop_old(self, keep: int) -> None:
        """Keep the newest checkpoints, and nothing of those that a killed run was writing or removing."""
        for step in self.steps()[:-keep]:
            # A name of its own first, so that no half of it passes for a checkpoint.
            shutil.rmtree(self._part(step), ignore_errors=True)
            with suppress(OSError):
                os.replace(self._path(step), self._part(step))
        for part in (self.folder / CHECKPOINTS).glob(PART):
            shutil.rmtree(part, ignore_errors=True)

    def load(self, step: int | None = None) -> Saved:
        """The newest checkpoint, or that of a step, with its checksums verified."""
        steps = self.steps()
        if not steps:
            raise CheckpointError(f"{self.folder} has no checkpoint yet; remove it and start the run again")
        if step is not None and step not in steps:
            raise CheckpointError(f"{self.folder} has no checkpoint of step {step}; it has {steps}")
        path = self._path(steps[-1] if step is None else step)
        earlier = [s for s in steps if s < int(path.name[5:])]
        remedy = f"remove {path.name} to continue from step {earlier[-1]}" if earlier else "start the run again"
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


def read_settings(folder: Path) -> RunConfig:
    """The resolved config of a run folder."""
    return load_settings(folder / CONFIG, **SETTINGS_ABOUT)


def _read_data(path: Path) -> str:
    """The data folder that a run.json names."""
    try:
        about = json.loads(path.read_text(encoding="utf8"))
        data, form, version = about["data"], about.get("format"), about.get("version")
        if not isinstance(data, str):
            raise TypeError(f"its data is {data!r}, not a path")
        if not is_intact(about):
            raise ValueError("its checksum is not that of what it says")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path} is missing or damaged ({error}); copy the run folder again") from None
    if (form, version) != (FORMAT, VERSION) and not (form is None and isinstance(version, str | None)):
        raise CheckpointError(
            f"{path} has the format {form} {version}; this version reads {FORMAT} {VERSION}; resume the run with the "
            "version that began it"
        )
    return data


def _save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    save_file({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}, path)


def _step_of(line: str) -> float:
    """The step of a line of metrics; infinite where the line is cut short or damaged."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return math.inf


def _hash_state(state: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _flush(path: Path) -> None:
    """Bring a file to the disk before its folder gets its name: a power cut must not leave a damaged checkpoint."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _circumstances(data: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "reviser": __version__,
        "commit": commit(),
        "command": _command(),
        "data": data,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "hardware": hardware(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _command() -> str:
    """The command line of this process; that of `python -m reviser` reads as reviser's."""
    program = Path(sys.argv[0])
    is_own = program.name == "reviser" or (program.parent.name, program.name) == ("reviser", "__main__.py")
    return shlex.join(["reviser", *sys.argv[1:]] if is_own else ["python", *sys.argv])


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
