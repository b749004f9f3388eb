"""A terminal's screen, as far as commands here use one: what was written in, what stands there out."""

from __future__ import annotations

import re
import unicodedata

from rich.cells import cell_len

COLOUR = re.compile(r"\x1b\[[\d;]*m")
_PART = re.compile(r"\x1b\[(\??)([\d;]*)([A-Za-z])|(.)", re.S)


class Screen:
    """Lines that scroll up for ever; whatever it does not know is an error."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.lines: list[list[str]] = [[]]
        self.row = self.column = 0
        self.has_cursor, self.widest = True, 0

    def feed(self, text: str) -> Screen:
        for private, number, final, character in _PART.findall(text):
            if final:
                self._command(private, number, final)
            else:
                self._put(character)
        return self

    @property
    def text(self) -> str:
        return "\n".join("".join(line).rstrip() for line in self.lines).rstrip("\n")

    def _command(self, private: str, number: str, final: str) -> None:
        if final == "m":
            return
        if private:
            assert number == "25"
            self.has_cursor = final == "h"
        elif final == "A":
            # A terminal cannot go back to what has left its screen.
            assert len(self.lines) - (self.row - int(number)) <= self.height, "above the screen"
            self.row -= int(number)
        else:
            assert (number, final) == ("2", "K"), (number, final)
            self.lines[self.row] = []

    def _put(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.row += 1
            self.lines += [[]] * (self.row == len(self.lines))
            self.lines[self.row] = list(self.lines[self.row])
        else:
            # Code points that nobody has assigned yet do nothing to a terminal.
            assert character.isprintable() or unicodedata.category(character) == "Cn", repr(character)
            line = self.lines[self.row]
            line += " " * (self.column - len(line))
            line[self.column : self.column + 1] = [character]
            self.column += 1
            self.widest = max(self.widest, cell_len("".join(line)))
