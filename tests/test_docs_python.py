"""The examples of docs/python.md and docs/extending.md run, and importing the package is quick."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import reviser

DOCS = Path(__file__).parents[1] / "docs"


def blocks(name: str, language: str = "python") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / name).read_text("utf-8"), re.M | re.S)


def test_the_example_of_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    [example] = blocks("../README.md")
    exec(compile(example, "README.md", "exec"), {})
    out, readme = capsys.readouterr().out, (DOCS.parent / "README.md").read_text("utf-8")
    assert f"\n{out.split('.')[0]}.\n" in readme  # what the command with the same seed prints there


def test_the_examples_of_the_python_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks("python.md"):
        exec(compile(block, "docs/python.md", "exec"), names)
    assert names["text"].text.startswith("The old lighthouse")
    assert names["same"].text == names["text"].text
    assert names["edited"].text == "I receive the mail."
    assert names["filled"].text.endswith(" until morning.")
    assert len(names["two"]) == 2
    assert names["run"].is_done
    assert len(names["losses"]) >= 1
    rows = {row["system"]: row for row in names["results"].rows("metrics")}
    assert list(rows) == ["(reference)", "ours", "parrot"]
    out = capsys.readouterr().out
    assert "parrot" in out
    assert "no/such/folder/here" in out


def test_importing_the_package_loads_neither_torch_nor_numba() -> None:
    code = "import sys, reviser; sys.exit(any(name in sys.modules for name in ('torch', 'numba', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_everything_that_the_package_lists_is_there() -> None:
    for name in reviser.__all__:
        assert getattr(reviser, name) is not None
    assert set(reviser.__all__) <= set(dir(reviser))
    with pytest.raises(AttributeError, match="module 'reviser' has no attribute 'nothing'"):
        reviser.nothing  # noqa: B018
