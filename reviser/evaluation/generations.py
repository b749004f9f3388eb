"""Prompts, and what systems wrote into them: one JSON object a line, so that scoring needs no new writing.

A prompt is text, so that systems with different tokenizers get the same one:

    prefix                      reference                       suffix (infilling only)
    "The old lighthouse"        " stood empty until morning."   ""

A system writes `text`, which stands where the reference stood. Any program can write such a file (docs/evaluation.md
lists the fields); `read_generations` checks each line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from reviser.errors import ConfigError, DataError
from reviser.files import drop_half_line, is_intact, locked, stamp


@dataclass(frozen=True, slots=True)
class Prompt:
    """A gap in a real text: what stands before it, what stood in it, what stands behind it."""

    id: str
    prefix: str
    reference: str
    suffix: str = ""
    kind: str = ""
    """Of a gap: word, words, phrase, sentence or paragraph, where that is known (gap_kinds.py)."""


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
    kind: str = ""
    """The prompt's."""

    @property
    def key(self) -> tuple[str, str, int]:
        return self.system, self.prompt_id, self.seed

    @property
    def full_text(self) -> str:
        return self.prefix + self.text + self.suffix


FIELD_TYPES = {
    "system": str, "prompt_id": str, "seed": int, "prefix": str, "text": str, "suffix": str, "reference": str,
    "is_stopped": bool, "num_tokens": int, "num_actions": int, "maker": str,
    "kind": str,
}  # fmt: skip
"""The types of a generation's fields in JSON; what is in a trajectory's record is checked where it is used."""
OPTIONAL = ("maker", "kind")
VERSION = 1
"""Of a line; one that does not say its own is of this version, and one without a checksum is not checked."""


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
        if not is_intact(record):
            raise ValueError("its checksum is not that of its fields: it is damaged or was changed")
        return Generation(**{field.name: record[field.name] for field in fields(Generation) if field.name in record})
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{where}: not a generation ({error}); remove the line or generate again") from None


def _check_fields(record: Any) -> None:
    """Say which fields a record lacks, or has with a value of another type."""
    if not isinstance(record, dict):
        raise TypeError("it is not an object")
    if record.get("version", VERSION) != VERSION:
        raise TypeError(f"it is of version {record['version']!r}, and this program reads version {VERSION}")
    if lacking := [name for name in FIELD_TYPES if name not in record and name not in OPTIONAL]:
        raise TypeError(f"it lacks {', '.join(lacking)}")
    for name, kind in FIELD_TYPES.items():
        # Not isinstance, for which true is a whole number.
        if name in record and type(record[name]) is not kind:
            raise TypeError(f"its {name} is {record[name]!r}, which is not of type {kind.__name__}")
    if not isinstance(record.get("record"), dict | None):
        raise TypeError(f"its record is {record['record']!r}, which is not a JSON object")


def format_generation(generation: Generation) -> str:
    """The line of a generation, without its end."""
    return json.dumps(stamp({"version": VERSION, **asdict(generation)}), ensure_ascii=False)


def as_generations(name: str, given: Sequence[Any], prompts: Sequence[Prompt], seed: int) -> list[Generation]:
    """What a system gave, as generations, in the order of the prompts."""
    if len(given) != len(prompts):
        raise DataError(f"system {name} gave {len(given)} texts for {len(prompts)} prompts; give one for each")
    return [_as_generation(name, each, prompt, seed) for prompt, each in zip(prompts, given, strict=True)]


def _as_generation(name: str, given: Any, prompt: Prompt, seed: int) -> Generation:
    from reviser.decoding.writer import Text

    if isinstance(given, Generation):
        ours = (prompt.id, seed, prompt.prefix, prompt.suffix, prompt.reference)
        if (given.prompt_id, given.seed, given.prefix, given.suffix, given.reference) != ours:
            raise DataError(
                f"system {name} gave a generation of prompt {given.prompt_id} and seed {given.seed} for prompt "
                f"{prompt.id} and seed {seed}; give them in the order of the prompts, with the prompts' own texts"
            )
        return replace(given, system=name)
    if isinstance(given, Text):
        return _generation(name, prompt, seed, given.new)
    if not isinstance(given, str):
        raise DataError(f"system {name} gave {show_value(given)} for prompt {prompt.id}; give a text")
    return _generation(name, prompt, seed, given)


def _generation(name: str, prompt: Prompt, seed: int, text: str) -> Generation:
    """A plain text, counted in words."""
    count = len(text.split())
    return Generation(
        name, prompt.id, seed, prompt.prefix, text, prompt.suffix, prompt.reference, True, count, count,
        kind=prompt.kind,
    )  # fmt: skip


def show_value(value: Any) -> str:
    """A value as an error quotes it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@contextmanager
def open_generations(path: str | os.PathLike[str]) -> Iterator[GenerationFile]:
    """A file of generations, locked against other runs until the block ends; its folder is created if needed."""
    with ExitStack() as stack:
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(path))
        except BlockingIOError:
            raise ConfigError(
                f"{path}: another run writes generations to it; wait for that run, or give another file"
            ) from None
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written ({error.strerror}); give another file") from None
        yield GenerationFile(path)


class GenerationFile:
    """A file that grows by one generation a line and knows what it holds, so that a broken-off run goes on."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        drop_half_line(path)
        self.generations = read_generations(path) if self.path.exists() else []
        self.keys = {each.key for each in self.generations}

    def add(self, generations: Iterable[Generation]) -> None:
        """Write generations behind the others, whole lines at once."""
        new = list(generations)
        lines = "".join(format_generation(each) + "\n" for each in new)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(lines)
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be written ({error.strerror}); give another file") from None
        self.generations += new
        self.keys |= {each.key for each in new}
