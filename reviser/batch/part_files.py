"""Answers and failures on their way to the output: whole blocks, in order, from any moment at which a process dies.

    texts.jsonl.part/            beside the output, until it is finished
      answers.jsonl              the blocks so far, end to end
      failures.jsonl
      state.json                 what the run was told, how long both files are, and their sha256
      .lock                      locked while a process works here

A block is added by appending, bringing it to the disk, and then replacing state.json. What a killed process has
appended beyond the lengths in state.json is cut off, and the same bytes follow. At the end the files get their names,
or become a Parquet file, or are sent to where the output lies, and the folder goes away.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from reviser.batch.answer_tables import write_table
from reviser.batch.batch_config import Job
from reviser.batch.block_worker import DoneBlock
from reviser.batch.input_lines import find_file_system
from reviser.config import from_dict
from reviser.errors import ConfigError, DataError
from reviser.files import CHECKSUM, LOCK, is_intact, locked, replacing, stamp, write_json

FORMAT, VERSION = "reviser batch", 1
LINES, TABLE = ".jsonl", ".parquet"
ANSWERS, FAILURES, STATE = "answers.jsonl", "failures.jsonl", "state.json"
REMEDY = "repeat the first command exactly, choose another output, or delete this folder"


class OutputFile:
    """Where the answers go: a local path or a URL that fsspec writes to, and the two names there."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._system, self._path = find_file_system(name)
        path = PurePosixPath(self._path)
        if path.suffix not in (LINES, TABLE):
            raise ConfigError(f"{name}: the output is a file of JSON lines or a table; end it in {LINES} or {TABLE}")
        self.is_table, self.is_local = path.suffix == TABLE, _is_local(self._system)
        self.failures = str(path.with_suffix(".failures.jsonl"))
        # A run elsewhere is kept here until it can be sent.
        self.folder = Path(f"{self._path}.part") if self.is_local else Path(f"{path.name}.part")

    def exists(self) -> str | None:
        """The first of its files that is there."""
        return next((path for path in (self._path, self.failures) if self._system.exists(path)), None)

    def take(self, job: Job, answers: Path, failures: Path) -> None:
        """Give both files their places; doing it again gives the same."""
        if failures.exists() and failures.stat().st_size:
            self._move(failures, self.failures)
        if answers.exists():
            if self.is_table:
                table = answers.with_name("answers.parquet")
                with replacing(table) as file:
                    write_table(job, answers, file)
                self._move(table, self._path)
                answers.unlink()
            else:
                self._move(answers, self._path)

    def _move(self, source: Path, target: str) -> None:
        if self.is_local:
            os.replace(source, target)
        else:
            self._system.put_file(str(source), target)
            source.unlink()


def _is_local(system: Any) -> bool:
    protocols = system.protocol if isinstance(system.protocol, tuple | list) else (system.protocol,)
    return "file" in protocols


@dataclass
class BatchState:
    """How much of the output there is."""

    num_blocks: int = 0
    num_lines: int = 0
    num_failed: int = 0
    num_read: int = 0
    answers_bytes: int = 0
    failures_bytes: int = 0
    answers_sha256: str = ""
    failures_sha256: str = ""
    share: float = 0.0
    is_complete: bool = False


class PartFiles:
    """The folder of an unfinished run; `settings` are all that decides its bytes."""

    def __init__(self, output: OutputFile, settings: dict[str, Any]) -> None:
        self._output, self._settings = output, settings
        self._folder = output.folder
        self.state = BatchState()
        self._answers: _PartFile | None = None
        self._failures: _PartFile | None = None

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Own the folder, at the state that a run before has come to."""
        if not (self._folder / STATE).exists():
            self._check_free()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with locked(self._folder):
                try:
                    self._open()
                    yield
                finally:
                    self._close()
        except BlockingIOError:
            raise DataError(
                f"another process is writing {self._output.name}; wait for it or choose another output"
            ) from None

    def _check_free(self) -> None:
        """Refuse to write over anything."""
        if self._folder.is_dir():
            with suppress(OSError):  # a process that was killed as it removed the folder left it empty
                self._folder.rmdir()
        if self._folder.is_dir():
            others = {path.name for path in self._folder.iterdir()} - {LOCK, ANSWERS, FAILURES}
            if any(not name.endswith(".part") for name in others):
                raise DataError(f"{self._folder} is not an unfinished batch; move it away or choose another output")
        elif self._folder.exists():
            raise DataError(f"{self._folder} is a file, but the run keeps its state there; move it away")
        if found := self._output.exists():
            raise DataError(f"{found} already exists; choose another output or delete it")

    def _open(self) -> None:
        if (self._folder / STATE).exists():
            self.state = self._read_state()
        else:
            # Another process may have finished since this one looked.
            self._check_free()
            self._save()
        if self.state.is_complete:
            return
        if found := self._output.exists():
            raise DataError(f"{found} appeared while this batch was under way; move it away and run it again")
        state = self.state
        self._answers = _PartFile(self._folder / ANSWERS, state.answers_bytes, state.answers_sha256)
        self._failures = _PartFile(self._folder / FAILURES, state.failures_bytes, state.failures_sha256)

    def _close(self) -> None:
        for file in (self._answers, self._failures):
            if file is not None:
                file.close()

    def _read_state(self) -> BatchState:
        path = self._folder / STATE
        try:
            parts = json.loads(path.read_text("utf-8"))
            if (parts["format"], parts["version"]) != (FORMAT, VERSION):
                raise ValueError(f"{parts['format']!r} of version {parts['version']}, not {FORMAT!r} of {VERSION}")
            if CHECKSUM not in parts or not is_intact(parts):
                raise ValueError("its checksum is another one")
            before, state = dict(parts["settings"]), from_dict(BatchState, parts["state"])
            if min(state.num_blocks, state.answers_bytes, state.failures_bytes) < 0:
                raise ValueError("a count below 0")
        except (OSError, ValueError, KeyError, TypeError, ConfigError) as error:
            raise DataError(f"{path}: damaged ({error}); delete the folder and start again") from None
        for name, now in self._settings.items():
            if before.get(name) != now:
                raise DataError(
                    f"{self._folder}: begun with another {_find_change(name, before.get(name), now)}; {REMEDY}"
                )
        return state

    def _save(self) -> None:
        parts = {"format": FORMAT, "version": VERSION, "settings": self._settings, "state": asdict(self.state)}
        write_json(self._folder / STATE, stamp(parts))

    def add(self, block: DoneBlock) -> None:
        """Append a block, the next in order."""
        assert self._answers is not None
        assert self._failures is not None
        self._answers.append(block.answers)
        self._failures.append(block.failures)
        state = self.state
        state.num_blocks += 1
        state.num_lines += block.num_lines
        state.num_failed += block.num_failed
        state.num_read += block.num_read
        state.answers_bytes, state.answers_sha256 = self._answers.describe()
        state.failures_bytes, state.failures_sha256 = self._failures.describe()
        state.share = block.share
        self._save()

    def finish(self, job: Job) -> None:
        """Give the output its name, and remove the folder."""
        self._close()
        if not self.state.is_complete:
            self.state.is_complete = True
            self._save()
        self._output.take(job, self._folder / ANSWERS, self._folder / FAILURES)
        self._remove()

    def discard(self) -> None:
        """Remove a run that has made nothing."""
        self._close()
        self._remove()

    def _remove(self) -> None:
        """The state goes last: as long as it is there, the same command goes on."""
        for path in sorted(self._folder.iterdir(), key=lambda path: path.name == STATE):
            path.unlink()
        self._folder.rmdir()


class _PartFile:
    """A file to append to, cut back to a length; what is there must have been written."""

    def __init__(self, path: Path, length: int, sha256: str) -> None:
        self._file, self._length = open(path, "ab+"), length  # noqa: SIM115, its owner closes it
        found = os.fstat(self._file.fileno()).st_size
        if found < length:
            self._refuse(path, f"{found} bytes, but {length} were written")
        self._file.truncate(length)
        self._file.seek(0)
        self._hash = hashlib.file_digest(self._file, "sha256")
        if sha256 and self._hash.hexdigest() != sha256:
            self._refuse(path, "not what was written")

    def _refuse(self, path: Path, problem: str) -> NoReturn:
        self.close()
        raise DataError(f"{path}: {problem}; delete the folder and start again")

    def append(self, data: bytes) -> None:
        """Bring it to the disk."""
        if data:
            self._file.write(data)
            self._file.flush()
            os.fsync(self._file.fileno())
            self._length += len(data)
            self._hash.update(data)

    def describe(self) -> tuple[int, str]:
        """Its length and its sha256."""
        return self._length, self._hash.hexdigest()

    def close(self) -> None:
        self._file.close()


def _find_change(name: str, before: Any, now: Any) -> str:
    """Which setting is another one, by its dotted name."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({*before, *now}):
            if before.get(key) != now.get(key):
                return _find_change(f"{name}.{key}", before.get(key), now.get(key))
    return f"{name}: {before}, now {now}"
