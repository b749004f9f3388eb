"""The page at / in Chromium, for tests: a server's page that is opened, typed in, clicked and read."""

from __future__ import annotations

import json
import time

from chromium import Browser
from scripted import ScriptedWriter
from served import Served

from reviser.proofreading.edits import Edit
from reviser.proofreading.proofread import Edited

DRAFT = "I recieve all of teh books. It is very very good."
FIXED = "I receive all of the books. It is very good."


class Proofreader(ScriptedWriter):
    """Corrects what the script knows, and has considered one thing else everywhere."""

    def edit(self, text: str, **options: object) -> Edited:
        return super().edit(text, **options | {"min_probability": 0.0, "reread": False})

    def find_ways(self, text: str, start: int, end: int) -> list[Edit]:
        return [Edit(start, end, text[start:end], "another", 0.2)]


class Opened:
    """The page of a server, with nothing remembered."""

    def __init__(self, browser: Browser, served: Served) -> None:
        self.browser, self.served = browser, served
        browser.resize(1280, 860)
        browser.open(f"{served.url}/docs")
        browser.run("localStorage.clear(); sessionStorage.clear()")
        self.reload()

    def reload(self) -> None:
        self.browser.open(self.served.url)
        self.browser.wait("document.title !== 'reviser'")

    @property
    def value(self) -> str:
        return self.browser.run("document.querySelector('#text').value")

    def all(self, selector: str, what: str = "each.textContent") -> list:
        """Something of all elements that fit."""
        return self.browser.run(f"Array.from(document.querySelectorAll({json.dumps(selector)}), (each) => {what})")

    def shows(self, selector: str) -> bool:
        return any(self.all(selector, "each.checkVisibility()"))

    def wait_for(self, selector: str) -> None:
        self.browser.wait(f"document.querySelector({json.dumps(selector)})?.checkVisibility()")

    def wait_without(self, selector: str) -> None:
        self.browser.wait(f"!document.querySelector({json.dumps(selector)})?.checkVisibility()")

    def type(self, text: str) -> None:
        self.browser.run("document.querySelector('#text').focus()")
        self.browser.type(text)

    def click(self, selector: str) -> None:
        self.wait_for(selector)
        where = f"document.querySelector({json.dumps(selector)})"
        self.browser.run(f"{where}.scrollIntoView({{block: 'nearest'}})")
        box = self._place_at_rest(where)
        self.browser.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    def _place_at_rest(self, where: str) -> dict[str, float]:
        """Where an element is once it has stopped moving, as it may while the page still lays itself out."""
        box: dict[str, float] = {}
        for _ in range(100):
            before, box = box, self.browser.run(f"{where}.getBoundingClientRect().toJSON()")
            if box == before:
                return box
            time.sleep(0.03)
        raise AssertionError(f"{where} does not stop moving")

    def undo(self) -> None:
        self.browser.press("z", 90, "Control")

    @property
    def focused(self) -> str:
        return self.browser.run("document.activeElement.id || document.activeElement.className")

    def settle(self, count: int) -> None:
        """Until so many suggestions are shown."""
        self.browser.wait(f"document.querySelectorAll('#suggestions li').length === {count}")
        assert self.all("#mirror mark[data-id]", "1") == [1] * count

    def check_quiet(self) -> None:
        assert self.browser.complaints(self.served.url) == []
