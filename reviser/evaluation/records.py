"""What evaluation reads and writes: prompts, generations as JSON lines, numbers with errors, results.

A prompt is text, so that systems with different tokenizers get the same one:

    prefix                      reference                       suffix (infilling only)
    "The old lighthouse"        " stood empty until morning."   ""

A system writes `text`, which stands where the reference stood. Generations are kept, one JSON object a line, so that
scoring can be done again without generating; a result says how it came about.

>>> Measure.of([1.0, 2.0, 3.0])
Measure(value=2.0, error=0.5773502691896257, n=3)
"""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from reviser import __version__, files
from reviser.errors import ConfigError, DataError
from reviser.files import hash_file

COMMAND: ContextVar[Sequence[str] | None] = ContextVar("COMMAND", default=None)
"""The words of the command that runs inside another one; None where it is the process's own."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A gap in a real text: what stands before it, what stood in it, what stands behind it."""

    id: str
    prefix: str
    reference: str
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Generation:
    """What a system wrote into a prompt's gap."""

    system: str
    prompt_id: str
    seed: int
    prefix: str
    text: str
    suffix: str
    reference: str
    is_stopped: bool
    """Whether the system ended the text itself, or was ended by a budget."""
    num_tokens: int
    """New tokens, by the system's own tokenizer."""
    num_actions: int
    """Actions or forward steps it took."""
    record: dict[str, Any] | None = None
    """The trajectory's record, where the system edits."""
    maker: str = ""
    """A hash of the weights and settings it was written with."""

    @property
    def key(self) -> tuple[str, str, int]:
        return self.system, self.prompt_id, self.seed

    @property
    def whole(self) -> str:
        return self.prefix + self.text + self.suffix


@dataclass(frozen=True, slots=True)
class Measure:
    """A number, its standard error (None where there is none) and how many things it was taken over."""

    value: float
    error: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Measure:
        """The mean of values; the error of a single one is None."""
        count = len(values)
        if not count:
            raise DataError("a mean of nothing was asked for; generate something first")
        mean = math.fsum(values) / count
        if count == 1:
            return cls(mean, None, 1)
        variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
        return cls(mean, math.sqrt(variance / count), count)


KINDS = {
    "system": str, "prompt_id": str, "seed": int, "prefix": str, "text": str, "suffix": str, "reference": str,
    "is_stopped": bool, "num_tokens": int, "num_actions": int, "maker": str,
}  # fmt: skip
"""The types of a generation's fields in JSON; a trajectory's record is checked where it is read."""


def read_generations(path: str | os.PathLike[str]) -> list[Generation]:
    """All generations of a file; a line that is none of them is named."""
    try:
        # Not by splitlines(), which also splits at marks that texts may hold.
        lines = Path(path).read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}: cannot be read ({error}); give a file that `reviser eval continuation` wrote"
        ) from None
    return [_read_line(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]


def _read_line(line: str, where: str) -> Generation:
    try:
        record = json.loads(line)
        _check_fields(record)
        return Generation(**{field.name: record[field.name] for field in fields(Generation) if field.name in record})
    except (ValueError, TypeError) as error:
        raise DataError(f"{where}: no generation ({error}); remove the line or generate again") from None


def _check_fields(record: Any) -> None:
    """Say which fields a record lacks, or has with a value of another type."""
    if not isinstance(record, dict):
        raise TypeError("it is no object")
    if lacking := [name for name in KINDS if name not in record and name != "maker"]:
        raise TypeError(f"it lacks {', '.join(lacking)}")
    for name, kind in KINDS.items():
        if name in record and not isinstance(record[name], kind):
            raise TypeError(f"its {name} is {record[name]!r}, which is no {kind.__name__}")


class GenerationFile:
    """A file that grows by one generation a line and knows what it holds, so that a broken-off run goes on."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._drop_half_line()
        self.generations = read_generations(path) if self.path.exists() else []
        self.keys = {each.key for each in self.generations}

    def _drop_half_line(self) -> None:
        """A run that was killed while it wrote leaves a line without its end; that generation is made again."""
        if not self.path.exists():
            return
        whole = self.path.read_bytes()
        end = whole.rfind(b"\n") + 1
        if end < len(whole):
            with self.path.open("rb+") as file:
                file.truncate(end)

    def add(self, generations: Iterable[Generation]) -> None:
        """Write generations behind the others, whole lines at once."""
        new = list(generations)
        lines = "".join(json.dumps(asdict(each), ensure_ascii=False) + "\n" for each in new)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(lines)
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be written ({error.strerror}); give another file") from None
        self.generations += new
        self.keys |= {each.key for each in new}


@contextmanager
def run_as(words: Sequence[str]) -> Iterator[None]:
    """Results made inside say that `reviser WORDS` made them."""
    token = COMMAND.set(words)
    try:
        yield
    finally:
        COMMAND.reset(token)


def format_command(words: Sequence[str]) -> str:
    """
    >>> format_command(["eval", "mauve", "my texts.jsonl"])
    "reviser eval mauve 'my texts.jsonl'"
    """
    return shlex.join(["reviser", *words])


def make_result(kind: str, rows: Sequence[dict[str, Any]], config: dict[str, Any], **about: Any) -> dict[str, Any]:
    """The JSON document of a result: its rows, and how they came about."""
    from reviser.training.runs import commit, hardware

    words = COMMAND.get()
    return {
        "kind": kind,
        "rows": list(rows),
        "config": config,
        **about,
        "command": format_command(sys.argv[1:] if words is None else words),
        "version": __version__,
        "commit": commit(),
        "hardware": hardware(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def hash_files(paths: Iterable[str | os.PathLike[str]]) -> dict[str, str]:
    """Files by name, each with its sha256: which generations a result is about."""
    return {str(path): hash_file(Path(path)) for path in paths}


def write_result(result: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a result in one piece."""
    write_text(path, json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file in one piece."""
    try:
        files.write_text(path, text, errors="backslashreplace")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); give another file") from None
