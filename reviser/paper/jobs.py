"""What a reproduction does beside evaluation's suites and its own files: prepare data, and train."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reviser.evaluation.suites import SILENT, Listener


@dataclass(frozen=True)
class Prepare:
    """Text files to a data folder."""

    paths: tuple[str, ...]
    out: Path
    tokenizer: str

    @property
    def words(self) -> tuple[str, ...]:
        return ("data", "prepare", *self.paths, str(self.out), "--tokenizer", self.tokenizer)

    def run(self, listener: Listener = SILENT) -> None:
        from reviser.data.corpus import prepare
        from reviser.tokenizer import load

        with listener.count("prepare", 100, "percent of the text") as advance:
            done = 0

            def report(progress: Any) -> None:
                nonlocal done
                share = int(100 * progress.num_read / max(progress.num_to_read, 1))
                advance(share - done)
                done = share

            prepare(self.paths, self.out, load(self.tokenizer), report=report)


@dataclass(frozen=True)
class Given:
    """A data folder that is there already."""

    folder: Path

    @property
    def words(self) -> tuple[str, ...]:
        return ("data", "info", str(self.folder))

    def run(self, listener: Listener = SILENT) -> None:
        from reviser.data.shards import read_header

        read_header(self.folder)


@dataclass(frozen=True)
class Training:
    """A recipe trained into a run folder, or a run resumed."""

    recipe: str
    changes: tuple[str, ...]
    data: Path
    out: Path
    device: str = "auto"
    is_resuming: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        data, device = ("--data", str(self.data)), ("--device", self.device)
        if self.is_resuming:
            return ("train", "--resume", str(self.out), *data, *device)
        changes = (word for change in self.changes for word in ("--set", change))
        return ("train", self.recipe, *changes, *data, "--out", str(self.out), *device)

    def resumed(self) -> Training:
        return replace(self, is_resuming=True)

    def run(self, listener: Listener = SILENT) -> None:
        from reviser.training.api import train

        changes = dict(change.split("=", 1) for change in self.changes)
        given: dict[str, Any] = {"resume": self.out} if self.is_resuming else {"out": self.out, "settings": changes}
        recipe = None if self.is_resuming else self.recipe
        run = train(
            recipe,
            data=self.data,
            device=self.device,
            progress="rich" if sys.stderr.isatty() else "lines",
            handle_signals=True,
            **given,
        )
        if not run.is_done:
            raise KeyboardInterrupt
