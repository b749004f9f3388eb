"""Every command of docs/tutorials/ runs, in order, and prints what the page says; docs/index.md is true."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_docs_extending import RULES

import reviser
from reviser.cli import main
from reviser.orders.policies import Order
from reviser.orders.record import Draft
from reviser.orders.registry import parse_order
from reviser.orders.rng import Random

ROOT = Path(__file__).parents[1]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
SHORTER = {
    "train.steps=240": "train.steps=4 --set train.eval_examples=4 --set train.eval_every=4",
    "train.steps=300": "train.steps=6",
    "--out reproduction/debug": "--out reproduction/debug --only data,prompts",  # all of it: tests/test_reproduce.py
}
"""What would take minutes is done for a few steps."""


def prepare(folder: Path, page: str) -> dict[str, str]:
    """A folder like a clone, with the command on the path; the page's Python is a file there."""
    (folder / "bin").mkdir()
    command = folder / "bin" / "reviser"
    command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m reviser "$@"\n')
    command.chmod(0o755)
    for name in ("docs", "results", "README.md"):
        (folder / name).symlink_to(ROOT / name)
    for name, code in re.findall(r"Save this as `(\w+\.py)`:\n\n```python\n(.*?)^```", page, re.M | re.S):
        (folder / name).write_text(code, "utf-8")
    return os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}


def make_script(page: str) -> tuple[str, list[str]]:
    """All blocks as one script that prints a line between them, and what each should print ("": anything)."""
    found = [(match[1], match[2]) for match in BLOCK.finditer(page)]
    blocks = [(text, after[1] if after[0] == "text" else "") for (kind, text), after in pairwise([*found, ("", "")])
              if kind == "sh"]  # fmt: skip
    script = "".join(f"{text}echo @@@\n" for text, _ in blocks)
    for long, short in SHORTER.items():
        script = script.replace(long, short)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return script.replace("8000", str(free.getsockname()[1])), [wanted for _, wanted in blocks]


@pytest.mark.slow
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_every_command_of_a_tutorial_runs(path: Path, tmp_path: Path) -> None:
    page = path.read_text("utf-8")
    environment = prepare(tmp_path, page)
    script, wanted = make_script(page)
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    printed = ran.stdout.split("@@@\n")
    assert len(printed) == len(wanted) + 1
    for number, (out, text) in enumerate(zip(printed, wanted, strict=False)):
        assert not text or out == text, f"block {number}"


def test_tutorials_are_short_and_five() -> None:
    assert len(TUTORIALS) == 5
    for path in TUTORIALS:
        assert path.read_text("utf-8").count("\n") <= 80, path.name


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> Order:
    """The order of the tutorial, from its page."""
    page = (ROOT / "docs" / "tutorials" / "add-an-order.md").read_text("utf-8")
    [code] = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    file = tmp_path_factory.mktemp("plugins") / "halves.py"
    file.write_text(code, "utf-8")
    reviser.load_plugin(file)
    return parse_order("halves")


@given(st.binary(max_size=9), st.integers(0, 99), st.binary(max_size=2))
def test_the_order_of_the_tutorial_writes_its_text_and_knows_its_probability(
    halves: Order, target: bytes, number: int, prefix: bytes
) -> None:
    drawn = halves.draw(Draft.continuation(prefix, RULES), [*prefix, *target], Random.of(number))
    assert drawn.final.tokens == (*prefix, *target)
    assert halves.log_q(drawn) == drawn.log_q


def test_the_front_page_shows_what_the_command_prints_and_is_no_second_readme(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page, readme = (path.read_text("utf-8") for path in (ROOT / "docs" / "index.md", ROOT / "README.md"))
    [(text, shown)] = re.findall(r"^\$ reviser edit '(.*)' --check\n(.*?)^```", page, re.M | re.S)
    assert main(["edit", text, "--check"]) == 1
    # Without the probabilities, which may differ in their last digit.
    assert re.sub(r" \(0\.\d+\)", "", capsys.readouterr().out) == re.sub(r" \(0\.\d+\)", "", shown)
    assert page.count("\n") < 60
    sentences = [each for each in re.split(r"(?<=[.:])\s+", page) if len(each) > 60 and "](" not in each]
    assert not [each for each in sentences if each in readme]
