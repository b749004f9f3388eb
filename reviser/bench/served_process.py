"""`reviser serve` in a process of its own, on a free port of this machine, and what it takes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from reviser.errors import ConfigError
from reviser.plugins import plugin_words

START_S, STOP_S = 180.0, 30.0
READY = re.compile(r"^ready: .* at http://\S+:(\d+)$", re.M)
NUMBER = re.compile(r"^(reviser_\w+) (\S+)$", re.M)


class ServedProcess:
    """A server that runs from `with` to its end; `words` are options of `reviser serve`."""

    def __init__(self, words: Sequence[str] = ()) -> None:
        self._words = words

    def __enter__(self) -> ServedProcess:
        self._handler = None
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        ):
            # Whoever ends this process ends the server too.
            self._handler = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        self._log = tempfile.NamedTemporaryFile("w+", encoding="utf-8", suffix=".log")
        root = str(Path(__file__).parents[2])
        place = dict(os.environ)
        place["PYTHONPATH"] = os.pathsep.join(filter(None, [root, place.pop("PYTHONPATH", "")]))
        command = [sys.executable, "-m", "reviser", *plugin_words(), "serve", "--port", "0", *self._words]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=self._log, stdin=subprocess.DEVNULL, env=place,
        )  # fmt: skip
        try:
            self.port = self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._log.close()
        if self._handler is not None:
            signal.signal(signal.SIGTERM, self._handler)

    def _wait(self) -> int:
        end = time.monotonic() + START_S
        while time.monotonic() < end and self._process.poll() is None:
            if found := READY.search(self.log):
                return int(found[1])
            time.sleep(0.05)
        said = self.log.strip().splitlines()
        raise ConfigError(f"the server did not start ({said[-1] if said else 'no word of it'}); run: reviser serve")

    @property
    def log(self) -> str:
        return Path(self._log.name).read_text("utf-8", "replace")

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> int:
        """End it as Ctrl-C does; its exit code."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def memory_mib(pid: int) -> float | None:
    """What a process holds in memory; None where the system does not say."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


def num_descriptors(pid: int) -> int | None:
    """Files and sockets that a process has open; None where the system does not say."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None


def read_meters(port: int) -> dict[str, float]:
    """The server's own numbers, but those with labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return {name: float(value) for name, value in NUMBER.findall(answer.read().decode())}
