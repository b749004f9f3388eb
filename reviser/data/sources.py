"""Files and folders of text to a stream of documents, with what is wrong in them counted and named.

    .txt .md          one document, or several separated by lines that say <|endoftext|>
    .jsonl .json      one JSON object per line, its text in one field
    .parquet .arrow   one document per row; also the files of a dataset folder saved to disk

All but the last row may be compressed as .gz, .xz or .zst. A folder is read recursively, in sorted order; links are
followed. A file that holds nothing at all is counted like a bad record. No file is held in memory: a text of more
than LONGEST_TEXT is cut into several documents, and a line of more than LONGEST_LINE is a bad record.

>>> from pathlib import Path; from tempfile import TemporaryDirectory
>>> with TemporaryDirectory() as folder:
...     _ = Path(folder, "a.jsonl").write_text('{"text": "Hello."}\\n{"title": "no text"}\\n')
...     bad = Complaints()
...     [document.text for document in read_documents([folder], complaints=bad)], bad.counts
(['Hello.'], {"no field 'text'": 1})
"""

from __future__ import annotations

import itertools
import json
import lzma
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

from reviser.data.unpack import PACKINGS, read_column, unpack
from reviser.errors import DataError

KIND_OF_SUFFIX = {
    ".txt": "text",
    ".md": "text",
    ".jsonl": "lines",
    ".json": "lines",
    ".parquet": "column",
    ".arrow": "column",
}
SEPARATOR = b"<|endoftext|>"
NAMED_COMPLAINTS = 5
EMPTY = "empty file"
LONGEST_TEXT = 1 << 22
"""Bytes or characters of one document. Tokenizing takes about 40 times as much memory as the text."""
LONGEST_LINE = 1 << 26
"""Bytes of one line of JSON."""

# A dataset folder saved to disk describes itself in these, beside its .arrow files.
NOT_DOCUMENTS = frozenset({"dataset_info.json", "dataset_dict.json", "state.json"})


class Document(NamedTuple):
    text: str
    file: str
    line: int
    """The line its record stands on, or the row, from 1."""


class Record(NamedTuple):
    """One line, row or text of a source: a document's text, or what is wrong with it, or neither (blank)."""

    line: int
    """From 1; 0 where the file as a whole is meant."""
    text: str | None
    problem: str | None
    num_read: int
    """How many bytes of the file, compressed as it is, have been read."""
    before: str | None = None
    """Of a pair, the text before the edit."""
    group: str = ""
    """What is held out together: where a pair comes from, and the message it was made with."""


@dataclass(frozen=True, slots=True)
class Source:
    path: Path
    kind: str
    packing: str

    @property
    def num_bytes(self) -> int:
        return self.path.stat().st_size


@dataclass(slots=True)
class Complaints:
    """How often each thing was wrong, and the first few in full."""

    counts: dict[str, int] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)

    def add(self, path: Path, line: int, problem: str) -> None:
        self.counts[problem] = self.counts.get(problem, 0) + 1
        if len(self.first) < NAMED_COMPLAINTS:
            self.first.append(f"{path}:{line}: {problem}" if line else f"{path}: {problem}")


def find_sources(paths: Iterable[str | Path]) -> list[Source]:
    """The files to read, in order; each path is a file of a known kind or a folder that holds some."""
    found = [source for path in paths for source in _find(Path(path))]
    if not found:
        raise DataError("no files to read; name files or folders")
    return found


def _find(path: Path) -> list[Source]:
    if path.is_dir():
        sources = [source for source in map(_source, _list_files(path)) if source is not None]
        if not sources:
            raise DataError(f"{path}: this folder holds no text file; kinds are {' '.join(KIND_OF_SUFFIX)}")
        return sources
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    source = _source(path)
    if source is None:
        kinds = f"{' '.join(KIND_OF_SUFFIX)}, the first four also with {' '.join(PACKINGS)}"
        raise DataError(f"{path}: cannot read this kind of file; kinds are {kinds}")
    return [source]


def count_skipped(paths: Iterable[str | Path]) -> dict[str, int]:
    """How many files of each other kind the folders hold, which `find_sources` leaves out; hidden ones apart."""
    files = [file for path in map(Path, paths) if path.is_dir() for file in _list_files(path)]
    return dict(Counter(file.suffix or file.name for file in files if _source(file) is None).most_common())


def _list_files(folder: Path) -> list[Path]:
    """The files in a folder and its folders, sorted; hidden ones and a dataset's own are left out.

    What cannot be followed is an error: part of a corpus must not pass for all of it.
    """
    found = []
    for place, names, files in os.walk(folder, onerror=_refuse_folder, followlinks=True):
        names[:] = [name for name in names if not name.startswith(".")]
        for name in names:
            _check_loop(Path(place, name))
        found += [Path(place, name) for name in files if not name.startswith(".") and name not in NOT_DOCUMENTS]
    for file in found:
        if not file.exists() and _source(file) is not None:
            raise DataError(f"{file}: a link that points at nothing; mend or remove it")
    return sorted(file for file in found if file.is_file())


def _refuse_folder(error: OSError) -> None:
    raise DataError(f"{error.filename}: cannot be read ({error.strerror}); make it readable or remove it")


def _check_loop(folder: Path) -> None:
    if folder.is_symlink() and any(each.resolve().is_relative_to(folder.resolve()) for each in folder.parents):
        raise DataError(f"{folder}: a link to a folder that it lies in; remove it")


def _source(path: Path) -> Source | None:
    packing = path.suffix if path.suffix in PACKINGS else ""
    kind = KIND_OF_SUFFIX.get(path.with_suffix("").suffix if packing else path.suffix)
    if kind is None or (packing and kind == "column"):
        return None
    return Source(path, kind, packing)


def read_documents(
    paths: Iterable[str | Path], field: str = "text", complaints: Complaints | None = None
) -> Iterator[Document]:
    """Every document of the files and folders, one at a time."""
    complaints = Complaints() if complaints is None else complaints
    for source in find_sources(paths):
        for record in read_records(source, field):
            if record.problem is not None:
                complaints.add(source.path, record.line, record.problem)
            elif record.text is not None:
                # Of a pair, the text that is right.
                yield Document(record.text, str(source.path), record.line)


def read_records(source: Source, field: str, skip: int = 0) -> Iterator[Record]:
    """The records of one file behind the first `skip`."""
    try:
        yield from itertools.islice(_read_all(source, field), skip, None)
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise DataError(f"{source.path}: cannot be read to its end ({reason}); get the file again") from error


def _read_all(source: Source, field: str) -> Iterator[Record]:
    read = {"text": _read_text, "lines": _read_lines, "column": _read_values}[source.kind]
    is_empty = True
    for record in read(source, field):
        is_empty = is_empty and record.text is None and record.problem is None
        yield record
    if is_empty:
        yield Record(0, None, EMPTY, source.num_bytes)


def _read_text(source: Source, field: str) -> Iterator[Record]:
    with open(source.path, "rb") as packed:
        lines: list[bytes] = []
        start, number, size = 1, 1, 0
        for line in _pieces(unpack(packed, source.packing)):
            is_end = line.strip() == SEPARATOR
            if is_end or size + len(line) > LONGEST_TEXT:
                yield _text_record(start, lines, packed.tell())
                lines, start, size = [], number + is_end, 0
            if not is_end:
                lines.append(line)
                size += len(line)
            number += line.endswith(b"\n")
        yield _text_record(start, lines, packed.tell())


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    """Lines; those longer than LONGEST_TEXT in several pieces, cut behind a space or at least behind a character."""
    rest = b""
    while line := rest + file.readline(LONGEST_TEXT - len(rest)):
        end = len(line)
        if end == LONGEST_TEXT and not line.endswith(b"\n"):
            end = line.rfind(b" ", end // 2) + 1
            # Without a space, behind the last byte that is no continuation of a character.
            end = end or next((i for i in range(len(line) - 1, len(line) - 5, -1) if line[i] & 0xC0 != 0x80), end)
        end = end or len(line)
        rest = line[end:]
        yield line[:end]


def _text_record(start: int, lines: list[bytes], num_read: int) -> Record:
    if not any(line.strip() for line in lines):
        return Record(start, None, None, num_read)
    try:
        text = b"".join(lines).decode("utf-8-sig" if start == 1 else "utf-8")
    except UnicodeDecodeError as error:
        return Record(start + error.object[: error.start].count(b"\n"), None, "not UTF-8", num_read)
    return Record(start, text.removesuffix("\n").removesuffix("\r"), None, num_read)


def _read_lines(source: Source, field: str) -> Iterator[Record]:
    with open(source.path, "rb") as packed:
        file = unpack(packed, source.packing)
        for number in itertools.count(1):
            line = file.readline(LONGEST_LINE)
            if not line:
                return
            if len(line) < LONGEST_LINE or line.endswith(b"\n"):
                yield from _cut_record(_line_record(number, line, field, packed.tell()))
            else:
                while line and not line.endswith(b"\n"):
                    line = file.readline(1 << 20)
                yield Record(number, None, f"a line of more than {LONGEST_LINE >> 20} MiB", packed.tell())


def _cut_record(record: Record) -> Iterator[Record]:
    """A document, or the several into which one that is too long is cut, behind line ends where it has some."""
    text = record.text
    if text is None or record.before is not None or len(text) <= LONGEST_TEXT:
        yield record
        return
    start = 0
    while start < len(text):
        last = start + LONGEST_TEXT
        middle = start + LONGEST_TEXT // 2
        breaks = (text.rfind(mark, middle, last) + 1 for mark in "\n ")
        end = len(text) if last >= len(text) else next(filter(None, breaks), last)
        if text[start:end].strip():
            yield record._replace(text=text[start:end])
        start = end


def _line_record(number: int, line: bytes, field: str, num_read: int) -> Record:
    if not line.strip():
        return Record(number, None, None, num_read)
    try:
        value = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError:
        return Record(number, None, "not UTF-8", num_read)
    except (ValueError, RecursionError):
        return Record(number, None, "not JSON", num_read)
    if isinstance(value, dict) and field not in value and {"before", "after"} <= value.keys():
        return _pair_record(number, value, num_read)
    if not isinstance(value, dict) or field not in value:
        return Record(number, None, f"no field {field!r}", num_read)
    return _value_record(number, value[field], field, num_read)


def _pair_record(number: int, value: dict[str, Any], num_read: int) -> Record:
    """A text before and after an edit; `source` and `message`, where there are any, say which belong together."""
    before, after = (_value_record(number, value[name], name, num_read) for name in ("before", "after"))
    if before.problem or after.problem:
        return before if before.problem else after
    if before.text == after.text:
        return Record(number, None, "before and after are the same", num_read)
    group = "\0".join(str(value.get(name, "")) for name in ("source", "message"))
    return after._replace(before=before.text, group=group.strip("\0"))


def _value_record(number: int, value: Any, field: str, num_read: int) -> Record:
    problem = None
    if not isinstance(value, str):
        problem = f"field {field!r} is {'null' if value is None else type(value).__name__}, not text"
    elif not value.strip():
        problem = "empty"
    elif not is_unicode(value):
        problem = "a lone surrogate, which is not valid Unicode"
    return Record(number, None if problem else value, problem, num_read)


def _read_values(source: Source, field: str) -> Iterator[Record]:
    for number, (value, num_read) in enumerate(read_column(source.path, field), start=1):
        yield from _cut_record(_value_record(number, value, field, num_read))


def is_unicode(text: str) -> bool:
    """Whether it has no half of a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
