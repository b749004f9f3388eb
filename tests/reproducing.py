"""What tests of reproduction share: models of a scale's shape, the line of an error, a listener that keeps notes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from reviser.cli import main
from reviser.diffusion.denoiser import FAMILIES
from reviser.diffusion.denoiser_folder import save_denoiser
from reviser.evaluation.suites import Listener
from reviser.model.checkpoint import save_pretrained
from reviser.model.transformer import Transformer
from reviser.paper.setup import Setup
from reviser.tokenizer import load

BYTES = load("bytes")


class Notes(Listener):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        self.lines.append(line)


def save_model(setup: Setup, system: str, folder: Path | None = None) -> Path:
    """A model of the scale's shape with fresh weights."""
    torch.manual_seed(0)
    settings = setup.scale.settings(system, BYTES.alphabet)
    folder = folder or setup.model(system)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if settings.family in FAMILIES:
        return save_denoiser(FAMILIES[settings.family](settings.model), folder, BYTES)
    return save_pretrained(Transformer(settings.model), folder, BYTES)


def one_line(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    capsys.readouterr()
    assert main(["reproduce", *map(str, words)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    [line] = [line for line in err.splitlines() if line.startswith("error: ")]
    return line.removeprefix("error: ")
