"""The examples of docs/serving.md run against a real server, and the page lists what there is."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import Served, make_writer, serving

from reviser.serving.protocols.edit_rules import RULES
from reviser.serving.serve_config import ServeConfig

PAGE = (Path(__file__).parents[1] / "docs" / "serving.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    writer = make_writer("jump", "delete", "replace", context=200)
    writer.name = "reviser-small"
    with serving(writer) as running:
        yield running


def test_the_shell_examples_run(served: Served) -> None:
    outputs = [
        subprocess.run(
            ["bash", "-c", block.replace("http://127.0.0.1:8000", served.url)],
            capture_output=True, check=True, text=True,
        ).stdout
        for block in blocks("sh")
    ]  # fmt: skip
    completed, filled, checked = map(json.loads, outputs[:3])
    assert len(completed["choices"]) == 2
    assert filled["stop"] is True
    assert checked["language"]["code"] == "en-US"
    assert outputs[3].startswith("event: draft\ndata: {")
    assert "event: done" in outputs[3]
    edited, ways, fillings = map(json.loads, outputs[4:])
    assert {edit["end"] <= 11 for edit in edited["edits"]} <= {True}
    assert isinstance(ways["ways"], list)
    assert all(len(each["gaps"]) == 2 for each in fillings["fillings"])


def test_the_python_examples_run(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for block in blocks("python"):
        exec(compile(block.replace("http://127.0.0.1:8000", served.url), "docs/serving.md", "exec"), names)
    names["client"].close()
    [text] = served.service.writer.infill("The old lighthouse", " until morning.", seed=2)
    assert capsys.readouterr().out == f"{text.new}\n"
    assert isinstance(names["matches"], list)


def test_the_page_lists_every_rule_and_the_true_limits() -> None:
    for rule in RULES:
        assert f"| `{rule.id}` | `{rule.category[0]}` |" in PAGE
    default = ServeConfig()
    assert f"{default.max_characters:,}" in PAGE
    assert f"| {default.concurrency} requests in work, {default.queue} waiting |" in PAGE
    assert f"| `--timeout-s` | {default.timeout_s:g} | 504 |" in PAGE
    assert f"| `--max-texts` in a request | {default.max_texts} | 400 |" in PAGE
    assert default.max_body_bytes == 1 << 20
    assert f"| `--max-connections` open at once | {default.max_connections} |" in PAGE
    for name in ("head", "body", "send"):
        seconds = getattr(default, f"{name}_timeout_s")
        assert re.search(rf"`--{name}-timeout-s` [^|]+ \| {seconds:g} \|", PAGE)
