"""Judgments, and the file that holds them: one JSON object a line, written as soon as it is made.

    {"first": "a", "second": "b", "prompt_id": "p1", "seed": 0, "verdict": "second", "reply": "... [[B]]",
     "judge": "http some-model at ...", "texts": "0f3b..."}

A file belongs to one judge. A killed run may leave half a line at the end; the next run drops it and continues.
"""

from __future__ import annotations

import json
import os
import reprlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from reviser.errors import ConfigError, DataError, make_visible
from reviser.evaluation.judges.pairs import Key, Pair
from reviser.files import is_intact, locked, stamp

POINTS = {"first": 1.0, "tie": 0.5, "second": 0.0}
"""What the system shown first gets for each verdict that decides."""
FAILED, UNANSWERED = "failed", "unanswered"
"""The judge named no winner (not asked again), or gave no reply (asked again by the next run)."""
VERDICTS = (*POINTS, FAILED, UNANSWERED)
VERSION = 1
"""Of a line; one that does not say its own is of this version, and one without a checksum is not checked."""
_START = b'{"first": '
"""How every line begins."""


@dataclass(frozen=True, slots=True)
class Judgment:
    """What a judge said about a pair."""

    first: str
    second: str
    prompt_id: str
    seed: int
    verdict: str
    reply: str
    judge: str
    texts: str
    """The pair's digest."""

    @classmethod
    def of(cls, pair: Pair, verdict: str, reply: str, judge: str) -> Judgment:
        return cls(*pair.key, verdict, reply, judge, pair.digest)

    @property
    def key(self) -> Key:
        return self.first, self.second, self.prompt_id, self.seed


_FIELDS = tuple(field.name for field in fields(Judgment))


def read_judgments(path: str | os.PathLike[str]) -> list[Judgment]:
    """The last judgment of every pair; an incomplete line at the end of the file is left out."""
    *lines, tail = _read(Path(path)).split(b"\n")
    if not _is_broken_off(tail):
        lines.append(tail)
    judgments = [_parse(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    names = list(dict.fromkeys(each.judge for each in judgments))
    if len(names) > 1:
        one, other = map(make_visible, names[:2])
        raise DataError(f"{path} holds judgments of {one} and of {other}; keep each judge's in a separate file")
    return list({each.key: each for each in judgments}.values())


def _read(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise DataError(f"{path} is not a regular file; give a file that `reviser eval arena` wrote")
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); give a file that `reviser eval arena` wrote"
        ) from None


def _is_broken_off(tail: bytes) -> bool:
    """Whether the file's last line, which has no newline, is a judgment that was not written to its end."""
    if not tail.startswith(_START[: len(tail)]):
        return False  # not written here, so not to be dropped
    try:
        json.loads(tail)
    except ValueError:
        return True
    except RecursionError:
        return False
    return False


def _parse(line: bytes, where: str) -> Judgment:
    record: Any = None
    try:
        record = json.loads(line.decode("utf-8"))
        problem = _find_problem(record)
    except RecursionError:
        problem = "nested too deeply"
    except UnicodeDecodeError:
        problem = "not UTF-8"
    except json.JSONDecodeError as error:
        problem = f"not JSON: {error}"
    except ValueError:
        problem = "a number of too many digits"
    if problem is not None:
        raise DataError(f"{where}: not a judgment ({problem}); remove the line")
    return Judgment(**{name: record[name] for name in _FIELDS})


def _find_problem(record: Any) -> str | None:
    """What keeps a JSON value from being a judgment."""
    if not isinstance(record, dict):
        return "not a JSON object"
    if missing := [name for name in _FIELDS if name not in record]:
        return f"no {', '.join(missing)}"
    for name in _FIELDS:
        kind, words = (int, "an integer") if name == "seed" else (str, "a string")
        if type(record[name]) is not kind:
            return f"{name} {reprlib.repr(record[name])} is not {words}"
    if record["verdict"] not in VERDICTS:
        return f"verdict {reprlib.repr(record['verdict'])} is none of {', '.join(VERDICTS)}"
    if record.get("version", VERSION) != VERSION:
        return f"version {reprlib.repr(record['version'])}, and this program reads version {VERSION}"
    if not is_intact(record):
        return "its checksum is not that of its fields: it is damaged or was changed"
    if record["first"] == record["second"]:
        return f"first and second are both {reprlib.repr(record['first'])}"
    return None


class JudgmentFile:
    """A file that grows by one judgment a line and knows which pairs it still lacks."""

    def __init__(self, path: str | os.PathLike[str], judge: str) -> None:
        self.path, self.judge = Path(path), judge
        self.judgments: dict[Key, Judgment] = {}
        try:
            if self.path.exists():
                self.judgments = {each.key: each for each in read_judgments(path)}
                _end_with_newline(self.path)
        except OSError as error:
            raise _unwritable(self.path, error) from None
        other = next((each.judge for each in self.judgments.values() if each.judge != judge), None)
        if other is not None:
            raise ConfigError(
                f"{path} holds judgments of {make_visible(other)}, not of {make_visible(judge)}; "
                "give this judge a separate file"
            )

    def missing(self, pairs: Sequence[Pair]) -> list[Pair]:
        """The pairs without a judgment; one made in the other order counts, unless both orders are asked for."""
        wanted = {pair.key for pair in pairs}
        return [pair for pair in pairs if not self._is_judged(pair, wanted)]

    def _is_judged(self, pair: Pair, wanted: set[Key]) -> bool:
        shown = [pair] if pair.swapped.key in wanted else [pair, pair.swapped]
        return any(self._has(each) for each in shown)

    def _has(self, pair: Pair) -> bool:
        known = self.judgments.get(pair.key)
        if known is not None and known.texts != pair.digest:
            raise DataError(
                f"{self.path}: {pair.first.system} and {pair.second.system} were judged on other texts for prompt "
                f"{pair.first.prompt_id}, seed {pair.first.seed}; give these generations a new file of judgments"
            )
        return known is not None and known.verdict != UNANSWERED

    def add(self, judgment: Judgment) -> None:
        """Append a judgment: a whole line, or nothing if the disk is full."""
        line = json.dumps(stamp(asdict(judgment) | {"version": VERSION}), ensure_ascii=False) + "\n"
        try:
            # Half of a surrogate pair, which UTF-8 cannot encode, becomes the escape that JSON has for it.
            _append(self.path, line.encode("utf-8", "backslashreplace"))
        except OSError as error:
            raise _unwritable(self.path, error) from None
        self.judgments[judgment.key] = judgment


@contextmanager
def open_judgments(path: str | os.PathLike[str], judge: str) -> Iterator[JudgmentFile]:
    """A judge's file, locked against other runs until the block ends; its folder is created if needed."""
    target = Path(path)
    with ExitStack() as stack:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(target))
        except BlockingIOError:
            raise ConfigError(
                f"{path}: another run writes judgments to it; wait for that run, or give another file"
            ) from None
        except OSError as error:
            raise _unwritable(target, error) from None
        yield JudgmentFile(target, judge)


def _append(path: Path, data: bytes) -> None:
    # Unbuffered: a buffer would write its rest when the file is closed, behind what was taken back.
    with path.open("ab", buffering=0) as file:
        end, rest = file.tell(), memoryview(data)
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            with suppress(OSError):
                file.truncate(end)
            raise


def _end_with_newline(path: Path) -> None:
    """Remove what a killed run left of a line, or add the newline that a whole one lacks."""
    data = path.read_bytes()
    begin = data.rfind(b"\n") + 1
    if begin == len(data):
        return
    if _is_broken_off(data[begin:]):
        with path.open("r+b") as file:
            file.truncate(begin)
    else:
        _append(path, b"\n")


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{path}: cannot be written ({error.strerror or error}); earlier judgments are kept, "
        "free some space or give another file and run again"
    )
