"""docs/install.md says what is so: extras, variables, limits, sizes, systems and commands."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
from test_docs_python import blocks

from reviser.cli import main
from reviser.hub.hub_client import FILES
from reviser.hub.pulling import LIMITS
from reviser.model.folder import CARD, CONFIG, TOKENIZER, WEIGHTS
from reviser.plugins import VARIABLE
from reviser.serving.serve_config import TOKEN_VARIABLE

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "install.md").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
SOURCES = {path: path.read_text("utf-8") for path in (ROOT / "reviser").rglob("*.py")}
NOT_ON_WINDOWS = {
    "crypt",
    "curses",
    "fcntl",
    "grp",
    "posix",
    "pty",
    "pwd",
    "readline",
    "resource",
    "syslog",
    "termios",
    "tty",
}
"""Modules of the standard library that other systems have."""
REMOVED = {"asynchat", "asyncore", "audioop", "cgi", "cgitb", "chunk", "crypt", "distutils", "imghdr", "imp",
           "lib2to3", "mailcap", "msilib", "nis", "nntplib", "ossaudiodev", "pipes", "sndhdr", "smtpd", "spwd",
           "sunau", "telnetlib", "uu", "xdrlib"}  # fmt: skip
"""Modules that Python 3.12 or 3.13 does not have any more."""


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def first_cells(text: str) -> list[str]:
    return [name for row in re.findall(r"^\| (`.*?) \|", text, re.M) for name in re.findall(r"`([^`]+)`", row)]


def imported(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


def test_every_extra_is_listed() -> None:
    assert first_cells(section("Extras")) == list(PROJECT["optional-dependencies"])


def test_every_variable_that_the_package_reads_is_listed() -> None:
    own, others = section("Variables").split("| read by its dependencies |")
    read = {
        name
        for text in SOURCES.values()
        for name in re.findall(r'(?:environ\.get\(|environ\[|getenv\()"([A-Z_]+)"', text)
    }
    was_set = {"TOKENIZERS_PARALLELISM", "RUST_BACKTRACE"}
    assert read - was_set | {VARIABLE, TOKEN_VARIABLE, "OPENAI_API_KEY"} == set(first_cells(own))
    assert all(f"`{name}" in others for name in was_set)


def test_the_pythons_are_those_of_the_project() -> None:
    listed = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if "Python :: 3." in each]
    assert PAGE.startswith(f"# Installing\n\nPython {', '.join(listed[:-1])} or {listed[-1]}, on Linux")
    assert PROJECT["requires-python"] == f">={listed[0]}"
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in listed


def test_the_limits_of_a_pull_are_the_true_ones() -> None:
    assert LIMITS == {CONFIG: 1 << 20, CARD: 1 << 20, TOKENIZER: 64 << 20, WEIGHTS: 16 << 30}
    said = "at most 1 MiB for `config.json` and the card, 64 MiB for the tokenizer, 16 GiB for weights"
    assert said in " ".join(PAGE.split())
    assert "the four files" in PAGE
    assert len(FILES) == 4


def test_no_module_is_imported_that_a_named_python_or_system_lacks() -> None:
    asked = re.compile(rf"^\s*(?:import|from) (?:{'|'.join(sorted(NOT_ON_WINDOWS | REMOVED))})\b", re.M)
    found = {path: ast.parse(text) for path, text in SOURCES.items() if asked.search(text)}
    for path, tree in found.items():
        guarded = {name for node in ast.walk(tree) if isinstance(node, ast.Try) for name in imported(node)}
        assert imported(tree) & (NOT_ON_WINDOWS | REMOVED) == {"fcntl"}, path
        assert "fcntl" in guarded, path
    assert [path.name for path in found] == ["files.py"]


def test_what_the_shell_examples_name_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for block in blocks("install.md", "sh") for line in block.splitlines()]
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for line in lines:
        words = line.split()
        assert words[0] in ("make", "pip", "reviser")
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", makefile, re.M)
        if words[0] == "pip":
            assert (ROOT / words[words.index("-c") + 1]).is_file()
    assert main(["info"]) == 0
    assert "reviser-small" in capsys.readouterr().out
