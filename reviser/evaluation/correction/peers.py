"""Programs that correct text and that we did not write.

codespell (PyPI) looks words up in a list of common misspellings. Alone it writes a correction only where it knows a
single one; `codespell-first` takes the first of several too. Harper (npm, `harper.js`) checks spelling and grammar by
rules, and the first suggestion of each finding is taken; one node process runs for as long as the system is used.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, files, version
from pathlib import Path
from typing import Any

from reviser.errors import ConfigError, MissingPackageError
from reviser.evaluation.correction.correction import Correction

DICTIONARIES = ("dictionary.txt", "dictionary_rare.txt")
"""Those that codespell uses unless told otherwise."""
CODESPELL_WORD = re.compile(r"[\w\-'’]+")
"""What codespell takes for a word."""
SCRIPT = Path(__file__).with_name("harper.mjs")
TextEdit = tuple[int, int, str]
"""Which characters, from and to, and what takes their place."""


def apply_edits(text: str, edits: Iterable[TextEdit]) -> tuple[str, int]:
    """The text after the edits, and how many were made; one that overlaps an earlier one is skipped.

    >>> apply_edits("teh cat sat", [(0, 3, "the"), (2, 5, "x"), (11, 11, "."), (4, 7, "dog")])
    ('the dog sat.', 3)
    """
    parts, end, count = [], 0, 0
    for first, last, new in sorted(edits, key=lambda edit: edit[:2]):
        if first >= end:
            parts += [text[end:first], new]
            end, count = last, count + 1
    return "".join([*parts, text[end:]]), count


class Codespell:
    """Words of codespell's dictionaries, each replaced by its one correction or, with `takes_first`, its first."""

    def __init__(self, name: str = "codespell", takes_first: bool = False) -> None:
        self.name = name
        try:
            self.version = f"codespell {version('codespell')}"
            found = [file for file in files("codespell") or () if file.name in DICTIONARIES]
            texts = [Path(str(file.locate())).read_text("utf-8") for file in found]
        except (PackageNotFoundError, OSError):
            raise MissingPackageError("codespell", f"system {name}", "pip install 'reviser[errors]'") from None
        self.corrections = dict(read_misspellings("\n".join(texts), takes_first))

    def correct(self, texts: Sequence[str]) -> list[Correction]:
        return [timed(self._correct, text) for text in texts]

    def close(self) -> None:
        """Nothing runs."""

    def _correct(self, text: str) -> tuple[str, int]:
        found = [
            (each.span(), self.corrections.get(each[0].lower()), each[0]) for each in CODESPELL_WORD.finditer(text)
        ]
        return apply_edits(text, [(*span, match_case(old, new)) for span, new, old in found if new])


def read_misspellings(text: str, takes_first: bool = False) -> Iterator[tuple[str, str]]:
    """Each misspelling of a codespell dictionary with its one correction, or with the first of several.

    >>> list(read_misspellings("teh->the\\nlastes->lasts, latest,\\n"))
    [('teh', 'the')]
    >>> list(read_misspellings("teh->the\\nlastes->lasts, latest,\\n", takes_first=True))
    [('teh', 'the'), ('lastes', 'lasts')]
    """
    for line in text.splitlines():
        wrong, is_given, right = line.partition("->")
        if is_given and (takes_first or "," not in right):
            yield wrong.lower(), right.split(",")[0].strip()


def match_case(old: str, new: str) -> str:
    """
    >>> match_case("Teh", "the"), match_case("TEH", "the"), match_case("teh", "the")
    ('The', 'THE', 'the')
    """
    if old == old.capitalize():
        return new.capitalize()
    return new.upper() if old == old.upper() else new


def timed(correct: Callable[[str], tuple[str, int]], text: str) -> Correction:
    """What a function makes of a text and how many edits it made, with the time that took."""
    begun = time.perf_counter()
    new, count = correct(text)
    return Correction(new, count, time.perf_counter() - begun)


class Harper:
    """Harper's lints, each by its first suggestion, out of one node process."""

    def __init__(self, name: str = "harper", folder: str | Path = ".") -> None:
        self.name = name
        node = shutil.which("node")
        if node is None:
            raise MissingPackageError("Node.js", f"system {name}", "apt install nodejs npm (or see nodejs.org)")
        if not (Path(folder) / "node_modules" / "harper.js" / "package.json").is_file():
            install = f"npm install --prefix {folder} harper.js (--harper names the folder)"
            raise MissingPackageError("harper.js", f"system {name}", install)
        # A pipe that nobody reads would fill up and stop the process. It is closed with the process.
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            [node, str(SCRIPT), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            text=True, encoding="utf-8",
        )  # fmt: skip
        self.version = f"harper.js {self._read()['ready']}"

    def correct(self, texts: Sequence[str]) -> list[Correction]:
        return [timed(self._correct, text) for text in texts]

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            # What was not sent cannot be sent any more.
            with suppress(OSError):
                assert pipe
                pipe.close()
        self._errors.close()

    def _correct(self, text: str) -> tuple[str, int]:
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps({"text": text}) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._ended() from None
        return apply_edits(text, [(first, last, new) for first, last, new in self._read()["edits"]])

    def _read(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        return json.loads(line)

    def _ended(self) -> ConfigError:
        """What to say when the process is gone, by the last words of its own that name an error."""
        self._process.wait()
        self._errors.seek(0)
        said = [line.strip() for line in self._errors if "Error" in line]
        self.close()
        reason = f" ({said[-1]})" if said else ""
        return ConfigError(
            f"system {self.name}: the node process of Harper ended{reason}; install harper.js anew, or "
            "leave the system out"
        )
