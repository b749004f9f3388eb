"""--live as a user sees it: in a terminal of some size, with and without colours, and when it is interrupted."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading

import pytest
from screen import COLOUR, Screen
from test_cli_write import COMMANDS, PROMPT, document, make_folder, run

from reviser.cli import main
from reviser.viewer.live import printable


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_folder(tmp_path_factory.mktemp("models"))


def test_live_without_a_terminal_is_the_text_alone(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["generate", PROMPT, "--model", model, "--seed", 3]
    assert run(capsys, *asked, "--live")[0] == run(capsys, *asked)[0]


class Terminal:
    """Standard output as a terminal of a size, and all that was written to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._master, slave = pty.openpty()
        self.stream = os.fdopen(slave, "w", encoding="utf-8")
        self._parts: list[bytes] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        monkeypatch.setattr("sys.stdout", self.stream)
        for name, value in (("COLUMNS", width), ("LINES", height), ("TERM", "xterm-256color")):
            monkeypatch.setenv(name, str(value))

    def _read(self) -> None:
        try:
            while part := os.read(self._master, 65536):
                self._parts.append(part)
        except OSError:
            pass  # how Linux says that the other side is closed

    def close(self) -> str:
        self.stream.close()
        self._reader.join()
        os.close(self._master)
        return b"".join(self._parts).decode()

    def screen(self, written: str) -> Screen:
        return Screen(self.width, self.height).feed(written)


def flat(text: str) -> str:
    """Without what wrapping changes."""
    return "".join(text.split())


@pytest.mark.slow
@pytest.mark.parametrize("no_colour", ["", "1"])
@pytest.mark.parametrize(("command", "text"), COMMANDS)
def test_live_draws_and_leaves_the_text_that_generate_gives(
    command: str, text: str, no_colour: str, model: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    asked = [command, text, "--model", model, "--seed", 11, "--n", 2, "--max-actions", 60]
    wanted = [entry["text"] for entry in document(capsys, *asked, "--best-of", 1)["texts"]]
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setattr("reviser.viewer.live.FRAMES_PER_S", 1e9)
    terminal = Terminal(monkeypatch, width=40, height=8)
    assert main([*map(str, asked), "--live", "--pace", "0"]) == 0
    written = terminal.close()
    screen = terminal.screen(written)
    # Without --live, the best filling comes first.
    assert sorted(flat(screen.text).split("---")) == sorted(flat(printable(each)) for each in wanted)
    assert screen.has_cursor
    assert screen.widest <= 40
    assert written.count("actions/s") > 20
    assert bool(COLOUR.search(written)) == (not no_colour)


def test_a_terminal_gets_no_control_characters_and_the_prompt_is_dim(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    asked = ["generate", "a\x1b[2Jb", "--model", model, "--seed", "2"]
    [entry] = document(capsys, *asked)["texts"]
    terminal = Terminal(monkeypatch, width=400, height=24)
    assert main(asked) == 0
    written = terminal.close()
    assert written.startswith("\x1b[2ma␛[2Jb\x1b[0m")
    assert flat(terminal.screen(written).text) == flat(printable(entry["text"]))


def start_in_terminal(words: list[str], width: int, height: int) -> tuple[subprocess.Popen[bytes], int]:
    """A process whose terminal has a size, and the side that a person would sit at."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    # A session with this terminal, or Ctrl-C would reach nobody; and jobs in the background are born deaf to it.
    code = "import fcntl, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); " \
           "signal.signal(signal.SIGINT, signal.default_int_handler); " \
           "from reviser.cli import main; sys.exit(main(sys.argv[1:]))"  # fmt: skip
    names = ("COLUMNS", "LINES", "NO_COLOR")
    environment = {name: value for name, value in os.environ.items() if name not in names} | {"TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env=environment,
    )  # fmt: skip
    os.close(slave)
    return process, master


@pytest.mark.slow
def test_ctrl_c_leaves_what_was_written_and_a_clean_terminal(model: str) -> None:
    words = ["generate", PROMPT, "--model", model, "--live", "--min-tokens", "60", "--pace", "3"]
    process, master = start_in_terminal(words, width=50, height=12)
    written, is_asked = b"", False
    try:
        while part := os.read(master, 65536):
            written += part
            if not is_asked and written.count(b"actions/s") >= 4:
                os.write(master, b"\x03")
                is_asked = True
    except OSError:
        pass  # how Linux says that the other side is closed
    os.close(master)
    assert process.wait() == 130
    screen = Screen(50, 12).feed(written.decode().replace("^C", ""))
    *text, status, stopped = screen.text.split("\n")
    assert text[0].startswith(PROMPT)
    said = "".join([*text, status])
    assert "actions for " in said
    assert "interrupted" in said
    assert (stopped, screen.has_cursor) == ("stopped", True)
