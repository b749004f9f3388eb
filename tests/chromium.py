"""Chromium for tests, driven through a pipe by its DevTools protocol."""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions", "--mute-audio",
         "--disable-dev-shm-usage", "--disable-background-networking", "--hide-scrollbars",
         "--remote-debugging-pipe")  # fmt: skip

HELD = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}


class Browser:
    """Chromium, spoken to through a pipe: requests and answers are JSON objects that end in a zero byte."""

    def __init__(self, folder: Path) -> None:
        theirs_in, self.out = (fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in os.pipe())
        self.answers, theirs_out = (fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in os.pipe())
        self.process = subprocess.Popen(
            [BROWSER, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=lambda: (os.dup2(theirs_in, 3), os.dup2(theirs_out, 4)),
            pass_fds=(3, 4),
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.ids, self.rest, self.events = itertools.count(1), b"", []
        self.session = None
        target = next(each for each in self.send("Target.getTargets")["targetInfos"] if each["type"] == "page")
        found = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self.session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: object) -> dict:
        request = {"id": next(self.ids), "method": method, "params": params}
        os.write(
            self.out, json.dumps(request | ({"sessionId": self.session} if self.session else {})).encode() + b"\0"
        )
        while (answer := self.read()).get("id") != request["id"]:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def read(self) -> dict:
        while b"\0" not in self.rest:
            got = os.read(self.answers, 1 << 20)
            assert got, "the browser has gone"
            self.rest += got
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def open(self, url: str) -> None:
        self.events.clear()
        self.send("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.read())

    def run(self, script: str) -> object:
        """What an expression comes to, waited for where it is a promise."""
        got = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in got, got["exceptionDetails"]
        return got["result"].get("value")

    def press(self, key: str, code: int, *held: str) -> None:
        """A key by its name and number, perhaps with Alt, Control, Meta or Shift held down."""
        text = {"text": {"Enter": "\r"}.get(key, key)} if len(key) == 1 or key == "Enter" else {}
        about = {"key": key, "windowsVirtualKeyCode": code, "modifiers": sum(HELD[each] for each in held)}
        commands = {"commands": ["undo"]} if (key, *held) == ("z", "Control") else {}
        down = {"type": "keyDown", **({} if held and held != ("Shift",) else text), **commands}
        self.send("Input.dispatchKeyEvent", **down, **about)
        self.send("Input.dispatchKeyEvent", type="keyUp", **about)

    def type(self, text: str) -> None:
        """Characters one by one, as from a keyboard."""
        for character in text:
            self.send("Input.dispatchKeyEvent", type="char", text="\r" if character == "\n" else character)

    def wait(self, condition: str, limit_s: float = 30.0) -> None:
        """Until an expression is true."""
        end = time.monotonic() + limit_s
        while not self.run(f"!!({condition})"):
            assert time.monotonic() < end, f"never came true: {condition}"
            time.sleep(0.03)

    def move(self, x: float, y: float) -> None:
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def tap(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def resize(self, width: int, height: int, is_phone: bool = False, scheme: str = "light") -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        self.send("Emulation.setDeviceMetricsOverride", **size, mobile=is_phone)
        self.send("Emulation.setTouchEmulationEnabled", enabled=is_phone)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot")["data"]))

    def complaints(self, home: str | None = None) -> list[dict]:
        """Errors and warnings since the page was opened, and anything it asked for beside itself or beyond `home`."""
        methods = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        asked = [each for each in self.events if each.get("method") == "Network.requestWillBeSent"][1:]
        if home is not None:
            allowed = (home, f"blob:{home}")
            asked = [each for each in asked if not each["params"]["request"]["url"].startswith(allowed)]
        return [each for each in self.events if each.get("method") in methods] + asked

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.answers)
