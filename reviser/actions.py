"""The action alphabet: one table of id, name, operands and effect, placed behind V text tokens.

    0 .. V-1     INSERT token            V+4+2i  MOVE +2^i   (i = 0..9)
    V            CURSOR, never emitted   V+5+2i  MOVE -2^i
    V+1          START, position 0       V+24    REPLACE     V+25  SWAP
    V+2          DELETE                  V+26..  CUT 2, 4, 8
    V+3          STOP                    V+29..  COPY 2, 4, 8
                                         V+32    PASTE
    V+33         the row all JUMPs share     V+34+i  JUMP i, to boundary i

The first V + 34 are the ids of the published checkpoints (V = 50,257), whose ten reserved ids hold REPLACE and
what follows. A canvas of any length has JUMPs to all of its boundaries, so JUMP i has no row of its own in a model's
matrices: all share V+33, and a pointer says which boundary is meant. The tokenizer's end-of-text token pads batches
and is never inserted.

>>> alphabet = Alphabet(num_text=257, pad=256)
>>> alphabet.name(257 + 4), alphabet.name(alphabet.jump(7))
('MOVE +1', 'JUMP 7')
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reviser.errors import ConfigError

MAX_MOVE_EXPONENT = 9
MAX_MOVE = 1 << MAX_MOVE_EXPONENT
SPAN_SIZES = (2, 4, 8)
NUM_SPECIAL = 34
EVERYTHING = (1 << (NUM_SPECIAL + 1)) - 1
"""The mask under which all actions are valid: a bit for each special row, and one for INSERTs."""

# Offsets behind V; the kernels use the same constants.
CURSOR, START, DELETE, STOP, MOVES, REPLACE, SWAP, CUT, COPY, PASTE, JUMP, JUMPS = (
    0,
    1,
    2,
    3,
    4,
    24,
    25,
    26,
    29,
    32,
    33,
    34,
)

OPERATORS = ("move", "delete", "replace", "swap", "cut", "copy", "paste", "jump")
"""What a model may be allowed beside INSERT and STOP, which are always allowed."""

INSERT_MOVE = frozenset({"move"})
"""The paper's primary action set: INSERT, MOVE, STOP."""

_OPERATOR_OF_OFFSET = {DELETE: "delete", REPLACE: "replace", SWAP: "swap", PASTE: "paste"}
_OPERATOR_OF_OFFSET |= dict.fromkeys(range(MOVES, REPLACE), "move")
_OPERATOR_OF_OFFSET |= {CUT + i: "cut" for i in range(3)} | {COPY + i: "copy" for i in range(3)}


def check_operators(names: Iterable[str]) -> frozenset[str]:
    """The names as a set; an unknown one is an error that lists those that exist."""
    chosen = frozenset(names)
    unknown = sorted(chosen - set(OPERATORS))
    if unknown:
        raise ConfigError(f"unknown operator {unknown[0]!r}; operators are {', '.join(OPERATORS)}")
    return chosen


@dataclass(frozen=True, slots=True)
class Alphabet:
    """Ids of all actions for a tokenizer with `num_text` tokens, `pad` among them."""

    num_text: int
    pad: int

    def __post_init__(self) -> None:
        if not 0 <= self.pad < self.num_text:
            raise ConfigError(f"pad id {self.pad} is not one of the {self.num_text} text tokens")

    @property
    def size(self) -> int:
        """Rows of a model's matrices: every action but the JUMPs, and one row for all of those."""
        return self.num_text + NUM_SPECIAL

    def row(self, action: int) -> int:
        """The row of a model's matrices that stands for an action."""
        return min(action, self.num_text + JUMP)

    @property
    def none(self) -> int:
        """The id that stands for "no token there" in a cursor window; it is CURSOR's."""
        return self.num_text + CURSOR

    @property
    def start(self) -> int:
        return self.num_text + START

    @property
    def delete(self) -> int:
        return self.num_text + DELETE

    @property
    def stop(self) -> int:
        return self.num_text + STOP

    @property
    def replace(self) -> int:
        return self.num_text + REPLACE

    @property
    def swap(self) -> int:
        return self.num_text + SWAP

    @property
    def paste(self) -> int:
        return self.num_text + PASTE

    def cut(self, size: int) -> int:
        return self.num_text + CUT + _span_index(size)

    def copy(self, size: int) -> int:
        return self.num_text + COPY + _span_index(size)

    def move(self, distance: int) -> int:
        """The id of one MOVE; its distance is a power of two up to 512, either way."""
        length = abs(distance)
        if length == 0 or length & (length - 1) or length > MAX_MOVE:
            raise ConfigError(f"no action moves by {distance}; moves are powers of two up to {MAX_MOVE}, either way")
        return self.num_text + MOVES + 2 * (length.bit_length() - 1) + (distance < 0)

    def spell(self, distance: int) -> tuple[int, ...]:
        """A move by any distance as single MOVEs, largest first: +7 is +4 +2 +1."""
        sign, left, moves = (1 if distance > 0 else -1), abs(distance), []
        while left:
            step = min(1 << (left.bit_length() - 1), MAX_MOVE)
            moves.append(self.move(sign * step))
            left -= step
        return tuple(moves)

    def jump(self, boundary: int) -> int:
        """The id of the JUMP to a boundary; 0 is before the first token."""
        if boundary < 0:
            raise ConfigError(f"no action jumps to boundary {boundary}; boundaries are 0 and up")
        return self.num_text + JUMPS + boundary

    def is_jump(self, action: int) -> bool:
        return action >= self.num_text + JUMPS

    def landing(self, action: int) -> int:
        """The boundary that a JUMP goes to."""
        return action - self.num_text - JUMPS

    def way(self, start: int, end: int, has_jumps: bool) -> tuple[int, ...]:
        """From one boundary to another: one JUMP, or spelled in MOVEs; nothing where they are the same."""
        if start == end:
            return ()
        return (self.jump(end),) if has_jumps else self.spell(end - start)

    def is_insert(self, action: int) -> bool:
        return 0 <= action < self.num_text and action != self.pad

    def is_move(self, action: int) -> bool:
        return MOVES <= action - self.num_text < REPLACE

    def distance(self, action: int) -> int:
        """How far a MOVE goes; 0 for any other action."""
        if not self.is_move(action):
            return 0
        exponent, is_back = divmod(action - self.num_text - MOVES, 2)
        return -(1 << exponent) if is_back else 1 << exponent

    def span(self, action: int) -> int:
        """How many tokens left of the cursor an action reads, removes or changes."""
        offset = action - self.num_text
        if CUT <= offset < PASTE:
            return SPAN_SIZES[(offset - CUT) % 3]
        return {DELETE: 1, REPLACE: 1, SWAP: 2}.get(offset, 0)

    def operator(self, action: int) -> str | None:
        """The operator an action belongs to; None for INSERT, STOP and what is never emitted."""
        return "jump" if self.is_jump(action) else _OPERATOR_OF_OFFSET.get(action - self.num_text)

    def name(self, action: int) -> str:
        """`INSERT 17`, `MOVE -4`, `CUT 2`, `JUMP 9`, ...; any integer has a name."""
        offset = action - self.num_text
        if offset >= JUMPS:
            return f"JUMP {self.landing(action)}"
        if offset < 0:
            return f"INSERT {action}" if self.is_insert(action) else f"unknown action {action}"
        if self.is_move(action):
            return f"MOVE {self.distance(action):+d}"
        if CUT <= offset < PASTE:
            return f"{'CUT' if offset < COPY else 'COPY'} {self.span(action)}"
        names = {CURSOR: "CURSOR", START: "START", DELETE: "DELETE", STOP: "STOP"}
        return (names | {REPLACE: "REPLACE", SWAP: "SWAP", PASTE: "PASTE", JUMP: "JUMP"})[offset]


def _span_index(size: int) -> int:
    if size not in SPAN_SIZES:
        raise ConfigError(f"no action cuts or copies {size} tokens; sizes are {', '.join(map(str, SPAN_SIZES))}")
    return SPAN_SIZES.index(size)
