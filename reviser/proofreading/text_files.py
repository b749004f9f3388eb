"""A text file as it was found: its bytes, encoding, mark and line ends; and written back whole or not at all."""

from __future__ import annotations

import codecs
import os
from dataclasses import dataclass
from pathlib import Path

from reviser.errors import ConfigError, DataError
from reviser.files import replacing

BOMS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
"""Byte order marks and what follows them."""


@dataclass(frozen=True, slots=True)
class TextFile:
    path: str
    data: bytes
    """All of it, as it was read."""
    bom: bytes
    encoding: str
    text: str

    def check_writable(self) -> None:
        """Refuse before any work is done for it."""
        folder = Path(os.path.realpath(self.path)).parent
        if not os.access(self.path, os.W_OK) or not os.access(folder, os.W_OK):
            raise DataError(f"{self.path} cannot be written here; check the permissions of the file and its folder")

    def write(self, text: str) -> None:
        """Put another text in its place, unless the file has changed since it was read."""
        try:
            data = self.bom + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise DataError(
                f"{self.path}: {self.encoding} has no {error.object[error.start]!r}, which an edit needs; the file "
                "is as it was; convert it to UTF-8"
            ) from None
        try:
            if Path(self.path).read_bytes() != self.data:
                raise DataError(f"{self.path} has changed since it was read; nothing was written, run it again")
            with replacing(self.path) as file:
                file.write(data)
        except OSError as error:
            raise DataError(f"cannot write {self.path}: {error.strerror}; the file is as it was") from None


def read_text_file(path: str, encoding: str | None = None) -> TextFile:
    """The file, in UTF-8, in what its byte order mark says, or in `encoding`."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; give a text file") from None
    bom = next((mark for mark in BOMS if data.startswith(mark)), b"")
    chosen = _check_encoding(encoding) if encoding else BOMS.get(bom, "utf-8")
    if encoding and BOMS.get(bom) != chosen:
        bom = b""
    body = data[len(bom) :]
    if not chosen.startswith(("utf-16", "utf-32")) and b"\0" in body:
        raise DataError(f"{path} is a binary file (it holds zero bytes); give a text file")
    try:
        text = body.decode(chosen)
        is_same = text.encode(chosen) == body
    except UnicodeError as error:
        place = f" at byte {len(bom) + error.start}" if isinstance(error, UnicodeDecodeError) else ""
        advice = "check --encoding" if encoding else "name its encoding, such as --encoding latin-1"
        raise DataError(f"{path} is not {chosen} text{place}; {advice}") from None
    if not is_same:
        raise DataError(f"{path} would not be written back as it is in {chosen}; check --encoding")
    return TextFile(path, data, bom, chosen, text)


def _check_encoding(name: str) -> str:
    try:
        return codecs.lookup(name).name
    except LookupError:
        raise ConfigError(f"no encoding {name!r}; give one that Python knows, such as utf-8") from None
