"""The program as a whole: what a user can cause is one line and a code; plugins run before the command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reviser.cli import build_parser, main
from reviser.errors import ConfigError
from reviser.model.folder import FORMATS, SHIPPED, find, read_config
from reviser.orders.registry import ORDERS
from reviser.plugins import VARIABLE

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = """
import errno, os
from dataclasses import dataclass
from reviser.orders.policies import LeftToRight
from reviser.orders.registry import register_order

def nest(depth):
    return nest(depth + 1)

def fail(error):
    raise error

RAISES = {{
    "none": lambda: None,
    "full": lambda: fail(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))),
    "folder": lambda: open({folder!r}),
    "nameless": lambda: fail(OSError("something\\nodd")),
    "memory": lambda: bytearray(1 << 60),
    "deep": lambda: nest(0),
}}

@dataclass(frozen=True)
class {name}(LeftToRight):
    raises: str = "none"

    def draw(self, draft, target, rng):
        RAISES[self.raises]()
        return LeftToRight().draw(draft, target, rng)

register_order({word!r}, {name})
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that registers the order `mine`, and everything as before afterwards."""
    monkeypatch.setenv(VARIABLE, "")
    before = dict(ORDERS._entries)
    yield write_plugin(tmp_path / "mine.py", "mine")
    ORDERS._entries.clear()
    ORDERS._entries.update(before)


def write_plugin(path: Path, word: str) -> Path:
    path.write_text(PLUGIN.format(name=word.capitalize(), word=word, folder=str(path.parent)))
    return path


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    capsys.readouterr()
    try:
        code = main([str(word) for word in words])
    except SystemExit as ended:
        code = int(ended.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def started(*words: object, **streams: object) -> subprocess.CompletedProcess[str]:
    """The program in a process of its own, from another folder than the project's."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
    command = [sys.executable, "-m", "reviser", *map(str, words)]
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    return subprocess.run(command, env=environment, text=True, check=False, **given)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["generate", "The", "old", "lighthouse"],
            "unexpected words: old lighthouse; quote a text of several words: 'The old lighthouse'; "
            "see reviser generate --help",
        ),
        (
            ["trajectory", "make", "the", "the"],
            "unexpected words: the; quote a text of several words: 'the the'; see reviser trajectory make --help",
        ),
        (
            ["generate", "--seed", "3", "The", "old"],
            "unexpected words: old; quote a text of several words: 'The old'; see reviser generate --help",
        ),
        (
            ["generate", "The", "--seed", "3", "old"],
            "unexpected words: old; quote a text of several words: 'like this'; see reviser generate --help",
        ),
        (["info", "a", "--fast", "b"], "no such option here: --fast; see reviser info --help"),
        (["info", "--debug"], "--debug goes before the command: reviser --debug ...; see reviser info --help"),
        (
            ["info", "--plugin=a"],
            "--plugin=a goes before the command: reviser --plugin=a ...; see reviser info --help",
        ),
        (["--plugin"], "argument --plugin: expected one argument; see reviser --help"),
        (
            ["--plugin", "nowhere.py", "info"],
            "plugin nowhere.py: no such Python file; give a .py file",
        ),
    ],
)
def test_words_in_the_wrong_place_are_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    assert run(capsys, *words) == (2, "", f"error: {text}\n")


@pytest.mark.parametrize("position", ["first", "second"])
def test_a_plugin_adds_an_order(
    capsys: pytest.CaptureFixture[str], plugin: Path, tmp_path: Path, position: str
) -> None:
    other = write_plugin(tmp_path / "other.py", "other")
    files = [plugin, other] if position == "first" else [other, plugin]
    words = ["trajectory", "make", "some text", "--order", "mine"]
    assert "no order 'mine'" in run(capsys, *words)[2]
    code, out, err = run(capsys, "--plugin", files[0], "--plugin", files[1], *words)
    assert (code, err) == (0, "")
    assert json.loads(out)["order"] == "mine"
    assert os.environ[VARIABLE].split(os.pathsep) == [str(file) for file in files]


def test_a_process_that_is_started_inherits_plugins(plugin: Path) -> None:
    words = ["trajectory", "make", "some text", "--order", "mine"]
    assert started(*words).returncode == 2
    os.environ[VARIABLE] = str(plugin)
    assert json.loads(started(*words).stdout)["order"] == "mine"


def test_a_plugin_that_does_not_run_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("1 / 0\n")
    wanted = f"error: plugin {path} does not run (ZeroDivisionError: division by zero); fix it\n"
    assert run(capsys, "--plugin", path, "info") == (2, "", wanted)


@pytest.mark.parametrize(
    ("raises", "text"),
    [
        ("full", "No space left on device; free some space and run it again"),
        ("folder", "{folder}: Is a directory; see where it happened with: reviser --debug ..."),
        ("nameless", "something odd; see where it happened with: reviser --debug ..."),
        ("memory", "out of memory; use a smaller model, batch, canvas or number of workers, or a machine with more"),
        ("deep", "something that was read is nested too deeply; flatten it, or see which with: reviser --debug ..."),
    ],
)
def test_what_the_system_refuses_is_one_line_or_a_traceback(
    capsys: pytest.CaptureFixture[str], plugin: Path, raises: str, text: str
) -> None:
    words = ["--plugin", plugin, "trajectory", "make", "text", "--order", f"mine:raises={raises}"]
    assert run(capsys, *words) == (2, "", f"error: {text.format(folder=plugin.parent)}\n")
    with pytest.raises((OSError, MemoryError, RuntimeError)):
        main(["--debug", *map(str, words)])


def test_what_a_file_says_has_no_power_over_the_terminal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(SHIPPED, folder)
    described = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(described | {"notes": "two\x1b[2J\nlines\u202e"}))
    code, out, _ = run(capsys, "info", folder)
    assert (code, out.endswith("\n\ntwo\\x1b[2J\nlines\\u202e\n")) == (0, True)
    monkeypatch.setattr("reviser.tokenizer.load", raising(ConfigError("tensor a\x1b]0;b\x07\nand more")))
    assert run(capsys, "trajectory", "make", "text") == (2, "", "error: tensor a\\x1b]0;b\\x07 and more\n")


def test_json_for_a_terminal_is_escaped_and_means_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    text = "caf\u00e9\x9b2J\u202e\U000e0001 x"
    code, out, _ = run(capsys, "trajectory", "make", text, "--tokenizer", "bytes", "--json")
    assert (code, out[:-1].isprintable(), "\\u202e" in out, "é" in out) == (0, True, True, True)
    assert json.loads(out)[0]["text"] == text


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object) -> Any:
        raise error

    return fail


def test_memory_that_torch_does_not_get_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")
    monkeypatch.setattr("reviser.tokenizer.load", raising(error))
    code, out, err = run(capsys, "trajectory", "make", "text")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: out of memory; use a smaller model, ")
    with pytest.raises(RuntimeError, match="allocate memory"):
        main(["--debug", "trajectory", "make", "text"])


class PanicException(BaseException):
    """What a package in Rust raises that cannot go on."""


def test_a_panic_in_rust_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reviser.tokenizer.load", raising(PanicException("no thread\npool")))
    code, out, err = run(capsys, "trajectory", "make", "text")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: a package written in Rust gave up (no thread pool); there may be too little memory")
    with pytest.raises(PanicException):
        main(["--debug", "trajectory", "make", "text"])


@pytest.mark.parametrize(("words", "value"), [(["info"], "0"), (["--debug", "info"], "1")])
def test_packages_in_rust_print_their_traces_with_debug_alone(
    words: list[str], value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUST_BACKTRACE", "1")
    assert main(words) == 0
    assert os.environ["RUST_BACKTRACE"] == value


def test_a_mistake_of_the_program_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reviser.tokenizer.load", raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["trajectory", "make", "text"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full, a disk without room")
@pytest.mark.parametrize("words", [["--version"], ["trajectory", "make", "text"]])
def test_a_full_output_is_one_line(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = started(*words, stdout=full)
    text = "error: standard output: No space left on device; free some space and run it again\n"
    assert (done.returncode, done.stderr) == (2, text)


def test_a_closed_pipe_is_silent_and_a_closed_output_is_named() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as pipe:
        done = started("trajectory", "make", "text", stdout=pipe)
    assert (done.returncode, done.stderr) == (1, "")
    closed = started("trajectory", "make", "text", stdout=None, preexec_fn=lambda: os.close(1))
    text = "error: standard output is closed; send it to a file or to /dev/null\n"
    assert (closed.returncode, closed.stderr) == (2, text)


def test_info_and_the_card_of_the_shipped_model_agree(capsys: pytest.CaptureFixture[str]) -> None:
    folder = find(SHIPPED)
    notes = read_config(folder, FORMATS).notes
    assert notes
    assert (folder / "README.md").read_text("utf8").endswith(f"\n\n{notes}\n")
    assert run(capsys, "info")[1].endswith(f"\n\n{notes}\n")


def test_global_options_are_in_the_help() -> None:
    text = build_parser().format_help()
    assert all(option in text for option in ("--debug", "--plugin FILE", "--version"))
