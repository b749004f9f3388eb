"""The reference executor: a canvas, an action, the canvas after it. Plain Python, immutable, no torch.

    Hi , | how are you ?     cursor 2, between tokens 2 and 3
    MOVE +4   ->   Hi , how are you ? |
    DELETE    ->   Hi , how are you |
    INSERT !  ->   Hi , how are you ! |

`Rules` say what generated actions may do; `Canvas` is the state. `apply` returns the next state, or
raises an ActionError that names the action, the state and what is allowed: the old state is a value
and stays as it was.

Marks protect text. A fixed token is neither deleted nor replaced; at a closed boundary nothing is inserted and no
action ends. A mark belongs to a token and travels with it: CLOSED is about the boundary on the token's right, and the
front has a mark of its own. A draft is written before anything is marked (`Rules.for_draft`).

    [The cat] sat [down .]    brackets around fixed tokens; boundaries inside of them are closed, so are both ends

>>> rules = Rules(Alphabet(num_text=257, pad=256))
>>> apply(Canvas((72, 105), cursor=2), 33, rules)
Canvas(tokens=(72, 105, 33), cursor=3, clipboard=(), is_replacing=False, is_stopped=False, marks=())
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from reviser.actions import (
    INSERT_MOVE,
    JUMP,
    NUM_SPECIAL,
    Alphabet,
    check_operators,
)
from reviser.errors import ActionError, ConfigError

UNLIMITED = 1 << 30
"""Actions left when nothing limits them."""


FIXED, CLOSED = 1, 2
"""Marks: FIXED of a token, CLOSED of the boundary on its right."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What is allowed on a canvas; constant over a trajectory."""

    alphabet: Alphabet
    operators: frozenset[str] = INSERT_MOVE
    max_length: int = 512
    has_jumps: bool | None = None
    """Whether drafts go to their cursor in one JUMP; None: where the operator is enabled. Otherwise they MOVE."""
    ends: frozenset[int] = frozenset()
    """Tokens that end a sentence, for orders that cut there."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "operators", check_operators(self.operators))
        if self.has_jumps is None:
            object.__setattr__(self, "has_jumps", "jump" in self.operators)

    def for_draft(self) -> Rules:
        """The rules under which a draft is written: the cursor may go anywhere."""
        return replace(self, operators=self.operators | {"jump" if self.has_jumps else "move"})


@dataclass(frozen=True, slots=True)
class Canvas:
    """Tokens, a cursor between them (0 = before the first), a clipboard, a pending REPLACE, marks."""

    tokens: tuple[int, ...] = ()
    cursor: int = 0
    clipboard: tuple[int, ...] = field(default=())
    is_replacing: bool = False
    is_stopped: bool = False
    marks: tuple[int, ...] = ()
    """The front's mark, then one for each token; empty where nothing is protected."""

    def __post_init__(self) -> None:
        if not 0 <= self.cursor <= len(self.tokens):
            raise ActionError(f"cursor {self.cursor} lies outside a canvas of {len(self.tokens)} tokens")
        if self.marks and len(self.marks) != len(self.tokens) + 1:
            raise ActionError(f"{len(self.marks)} marks for {len(self.tokens)} tokens and the front")
        if self.marks and not any(self.marks):
            object.__setattr__(self, "marks", ())

    def window(self, width: int, none: int) -> tuple[int, ...]:
        """The `width` tokens left and right of the cursor, `none` past an edge."""
        places = range(self.cursor - width, self.cursor + width)
        return tuple(self.tokens[i] if 0 <= i < len(self.tokens) else none for i in places)

    def is_fixed(self, place: int) -> bool:
        """Whether a token may not be changed; the first is at place 0."""
        return bool(self.marks) and bool(self.marks[place + 1] & FIXED)

    def is_open(self, boundary: int) -> bool:
        """Whether the cursor may stand at a boundary and insert there."""
        return not self.marks or not self.marks[boundary] & CLOSED

    def open_boundaries(self) -> list[int]:
        return [boundary for boundary in range(len(self.tokens) + 1) if self.is_open(boundary)]


def protect(size: int, spans: Iterable[tuple[int, int]], ends: Iterable[int] = ()) -> tuple[int, ...]:
    """Marks for a canvas of `size` tokens: the tokens start..end of each span are fixed, the boundaries inside of a
    span closed, and those named in `ends` too (0 is the front, `size` the end).

    >>> protect(5, [(0, 2), (3, 5)], ends=[0, 5])
    (2, 3, 1, 0, 3, 3)
    """
    marks = [0] * (size + 1)
    for start, end in spans:
        if not 0 <= start < end <= size:
            raise ConfigError(f"a protected span of tokens {start} to {end} does not lie on a canvas of {size}")
        for place in range(start, end):
            marks[place + 1] |= FIXED | (CLOSED if place + 1 < end else 0)
    for boundary in ends:
        marks[boundary] |= CLOSED
    check_marks(marks)
    return tuple(marks) if any(marks) else ()


def check_marks(marks: Sequence[int]) -> None:
    """A closed boundary needs a fixed token on its left, or deleting that would open it; the front needs none."""
    for place, mark in enumerate(marks[1:]):
        if mark & CLOSED and not mark & FIXED:
            raise ConfigError(f"the boundary behind token {place} is closed and the token is not fixed; fix it too")


def explain_invalid(canvas: Canvas, action: int, rules: Rules, actions_left: int = UNLIMITED) -> str | None:
    """Why an action is not valid in this state; None when it is."""
    alphabet = rules.alphabet
    if canvas.is_stopped:
        return "the trajectory has stopped"
    if actions_left < 1:
        return "no actions are left"
    if alphabet.is_insert(action):
        return _explain_insert(canvas, rules)
    if canvas.is_replacing:
        return "REPLACE is pending, so an INSERT must follow"
    if action == alphabet.stop:
        return None
    operator = alphabet.operator(action)
    if operator is None:
        return "it is never emitted"
    if operator not in rules.operators:
        return f"the operator {operator} is not enabled; enabled: {', '.join(sorted(rules.operators)) or 'none'}"
    if operator == "move":
        return _explain_landing(canvas, canvas.cursor + alphabet.distance(action))
    if operator == "jump":
        place = alphabet.landing(action)
        return "the cursor is there already" if place == canvas.cursor else _explain_landing(canvas, place)
    if operator == "paste":
        return _explain_paste(canvas, rules)
    if operator == "replace" and actions_left < 2:
        return "REPLACE needs an INSERT after it and only one action is left"
    return _explain_reach(canvas, alphabet.span(action), operator)


def _explain_reach(canvas: Canvas, span: int, operator: str) -> str | None:
    """Why an action cannot have the `span` tokens left of the cursor."""
    if canvas.cursor < span:
        wanted = "1 token" if span == 1 else f"{span} tokens"
        return f"it needs {wanted} left of the cursor, there are {canvas.cursor}"
    # COPY only reads, so it may reach into fixed text.
    first = canvas.cursor - span
    if operator == "copy":
        return None
    fixed = [place for place in range(first, canvas.cursor) if canvas.is_fixed(place)]
    if fixed:
        return f"token {fixed[-1]} is fixed"
    if operator in ("delete", "cut") and not canvas.is_open(first):
        return f"it ends at the closed boundary {first}"
    return None


def _explain_insert(canvas: Canvas, rules: Rules) -> str | None:
    if canvas.is_replacing:
        return None
    if not canvas.is_open(canvas.cursor):
        return f"boundary {canvas.cursor} is closed"
    if len(canvas.tokens) < rules.max_length:
        return None
    return f"the canvas already holds its maximum of {rules.max_length} tokens"


def _explain_landing(canvas: Canvas, place: int) -> str | None:
    if not 0 <= place <= len(canvas.tokens):
        return f"it leads to {place}, outside 0..{len(canvas.tokens)}"
    return None if canvas.is_open(place) else f"it leads to the closed boundary {place}"


def _explain_paste(canvas: Canvas, rules: Rules) -> str | None:
    if not canvas.clipboard:
        return "the clipboard is empty"
    if not canvas.is_open(canvas.cursor):
        return f"boundary {canvas.cursor} is closed"
    if len(canvas.tokens) + len(canvas.clipboard) > rules.max_length:
        return f"{len(canvas.clipboard)} more tokens would exceed the maximum of {rules.max_length}"
    return None


def is_valid(canvas: Canvas, action: int, rules: Rules, actions_left: int = UNLIMITED) -> bool:
    return explain_invalid(canvas, action, rules, actions_left) is None


def valid_mask(canvas: Canvas, rules: Rules, actions_left: int = UNLIMITED) -> int:
    """All valid actions as bits: bit j for the special id V+j, bit 33 for some JUMP, bit 34 for every INSERT."""
    first = rules.alphabet.num_text
    mask = sum(1 << j for j in range(JUMP) if is_valid(canvas, first + j, rules, actions_left))
    some_text = 0 if rules.alphabet.pad else 1
    mask |= int(bool(valid_landings(canvas, rules, actions_left))) << JUMP
    return mask | (int(is_valid(canvas, some_text, rules, actions_left)) << NUM_SPECIAL)


def valid_landings(canvas: Canvas, rules: Rules, actions_left: int = UNLIMITED) -> list[int]:
    """The boundaries that a JUMP may go to, ascending."""
    if "jump" not in rules.operators or canvas.is_stopped or canvas.is_replacing or actions_left < 1:
        return []
    return [place for place in canvas.open_boundaries() if place != canvas.cursor]


def valid_actions(canvas: Canvas, rules: Rules, actions_left: int = UNLIMITED) -> list[int]:
    """Ids of all valid actions, ascending."""
    mask, first = valid_mask(canvas, rules, actions_left), rules.alphabet.num_text
    text = [t for t in range(first) if t != rules.alphabet.pad] if mask >> NUM_SPECIAL & 1 else []
    jumps = [rules.alphabet.jump(place) for place in valid_landings(canvas, rules, actions_left)]
    return text + [first + j for j in range(JUMP) if mask >> j & 1] + jumps


def describe_valid(canvas: Canvas, rules: Rules, actions_left: int = UNLIMITED) -> str:
    """What is valid, for error texts: `INSERT, STOP, MOVE -1, DELETE`."""
    mask, alphabet = valid_mask(canvas, rules, actions_left), rules.alphabet
    names = ["INSERT"] if mask >> NUM_SPECIAL & 1 else []
    return ", ".join(names + [alphabet.name(alphabet.num_text + j) for j in range(NUM_SPECIAL) if mask >> j & 1])


def apply(canvas: Canvas, action: int, rules: Rules, actions_left: int = UNLIMITED) -> Canvas:
    """The canvas after a valid action; an invalid one raises and changes nothing."""
    reason = explain_invalid(canvas, action, rules, actions_left)
    if reason is not None:
        place = f"cursor {canvas.cursor} of {len(canvas.tokens)} tokens"
        allowed = describe_valid(canvas, rules, actions_left) or "nothing"
        raise ActionError(f"{rules.alphabet.name(action)} at {place}: {reason}; valid there: {allowed}")
    return apply_unchecked(canvas, action, rules.alphabet)


def apply_unchecked(canvas: Canvas, action: int, alphabet: Alphabet) -> Canvas:
    """The canvas after an action that is known to be valid."""
    u, span = canvas.cursor, alphabet.span(action)
    if action < alphabet.num_text:
        return _splice(canvas, u - canvas.is_replacing, (action,))
    match alphabet.operator(action):
        case "move":
            return replace(canvas, cursor=u + alphabet.distance(action))
        case "jump":
            return replace(canvas, cursor=alphabet.landing(action))
        case None:
            return replace(canvas, is_stopped=True)
        case "delete":
            return _splice(canvas, u - 1, ())
        case "replace":
            return replace(canvas, is_replacing=True)
        case "swap":
            return _splice(canvas, u - 2, (canvas.tokens[u - 1], canvas.tokens[u - 2]))
        case "cut":
            return replace(_splice(canvas, u - span, ()), clipboard=canvas.tokens[u - span : u])
        case "copy":
            return replace(canvas, clipboard=canvas.tokens[u - span : u])
        case _:
            return _splice(canvas, u, canvas.clipboard)


def _splice(canvas: Canvas, start: int, tokens: tuple[int, ...]) -> Canvas:
    """The tokens from `start` to the cursor give way to others, unmarked; the cursor is behind them."""
    u, marks = canvas.cursor, canvas.marks
    if marks:
        marks = (*marks[: start + 1], *([0] * len(tokens)), *marks[u + 1 :])
    changed = (*canvas.tokens[:start], *tokens, *canvas.tokens[u:])
    return Canvas(changed, start + len(tokens), canvas.clipboard, marks=marks)


def replay(canvas: Canvas, actions: Iterable[int], rules: Rules, what: str = "action") -> Canvas:
    """The canvas after all actions; the error of an invalid one says which it was.

    The same as `apply` one after the other, which copies the canvas each time; here an action costs no more on a long
    canvas than on a short one, for files may hold any number of them.
    """
    tape = _Tape(canvas, rules)
    for index, action in enumerate(actions):
        if not tape.apply(action):
            try:
                tape = _Tape(apply(tape.canvas, action, rules), rules)
            except ActionError as error:
                raise ActionError(f"{what} {index}: {error}") from None
    return tape.canvas


class _Tape:
    """A canvas that is edited in place: cells, each a token and its mark, left and right of the last edit."""

    def __init__(self, canvas: Canvas, rules: Rules) -> None:
        marks = canvas.marks or (0,) * (len(canvas.tokens) + 1)
        self.rules, self.front, self.cursor = rules, marks[0], canvas.cursor
        self.left = list(zip(canvas.tokens, marks[1:], strict=True))
        self.right: list[tuple[int, int]] = []
        """Backwards, so that the next cell is the last."""
        self.clipboard, self.is_replacing, self.is_stopped = canvas.clipboard, canvas.is_replacing, canvas.is_stopped

    @property
    def canvas(self) -> Canvas:
        cells = self.left + self.right[::-1]
        tokens, marks = (tuple(cell[side] for cell in cells) for side in (0, 1))
        return Canvas(tokens, self.cursor, self.clipboard, self.is_replacing, self.is_stopped, (self.front, *marks))

    def apply(self, action: int) -> bool:
        """Do an action; an invalid one is not done."""
        alphabet = self.rules.alphabet
        if self.is_stopped:
            return False
        if alphabet.is_insert(action):
            return self._replace(action) if self.is_replacing else self._insert((action,))
        if self.is_replacing:
            return False
        if action == alphabet.stop:
            self.is_stopped = True
            return True
        operator = alphabet.operator(action)
        if operator not in self.rules.operators:
            return False
        if operator == "move":
            return self._go(self.cursor + alphabet.distance(action))
        if operator == "jump":
            return alphabet.landing(action) != self.cursor and self._go(alphabet.landing(action))
        if operator == "paste":
            return bool(self.clipboard) and self._insert(self.clipboard)
        return self._take(operator, alphabet.span(action))

    def _is_open(self, boundary: int) -> bool:
        behind = boundary - len(self.left)
        mark = self.front if not boundary else (self.right[-behind] if behind > 0 else self.left[boundary - 1])[1]
        return not mark & CLOSED

    def _go(self, place: int) -> bool:
        is_valid = 0 <= place <= len(self.left) + len(self.right) and self._is_open(place)
        self.cursor = place if is_valid else self.cursor
        return is_valid

    def _carry(self) -> None:
        """Part the cells at the cursor; only before an edit, so that moves cost nothing."""
        if (ahead := self.cursor - len(self.left)) > 0:
            self.left += self.right[: -ahead - 1 : -1]
            del self.right[-ahead:]
        elif ahead:
            self.right += self.left[: ahead - 1 : -1]
            del self.left[ahead:]

    def _insert(self, tokens: tuple[int, ...]) -> bool:
        has_room = len(self.left) + len(self.right) + len(tokens) <= self.rules.max_length
        if not has_room or not self._is_open(self.cursor):
            return False
        self._carry()
        self.left += ((token, 0) for token in tokens)
        self.cursor += len(tokens)
        return True

    def _replace(self, token: int) -> bool:
        self._carry()
        self.left[-1], self.is_replacing = (token, 0), False
        return True

    def _take(self, operator: str, span: int) -> bool:
        """DELETE, REPLACE, SWAP, CUT and COPY, which need the tokens left of the cursor."""
        if self.cursor < span:
            return False
        self._carry()
        cells = self.left[-span:]
        tokens = tuple(token for token, _ in cells)
        if operator == "copy":
            self.clipboard = tokens
            return True
        if any(mark & FIXED for _, mark in cells):
            return False
        if operator == "replace":
            self.is_replacing = True
        elif operator == "swap":
            self.left[-2:] = [(tokens[1], 0), (tokens[0], 0)]
        elif not self._is_open(self.cursor - span):
            return False
        else:
            del self.left[-span:]
            self.cursor -= span
            self.clipboard = tokens if operator == "cut" else self.clipboard
        return True


def invert(canvas: Canvas, actions: Iterable[int], rules: Rules) -> tuple[int, ...]:
    """The actions that lead back from where `actions` lead, to the same tokens and cursor.

    INSERT and DELETE undo each other, so do MOVE +d and -d, CUT and PASTE; SWAP undoes itself, JUMP goes back and
    REPLACE is undone by a REPLACE with the old token. COPY and STOP leave nothing to undo. Where the
    clipboard no longer holds what a CUT took, INSERTs bring it back.
    """
    steps = []
    for action in actions:
        steps.append((canvas, action))
        canvas = apply(canvas, action, rules)
    if canvas.is_replacing:
        raise ActionError("a REPLACE without its INSERT has no inverse; add the INSERT or leave it out")
    back: list[int] = []
    clipboard = canvas.clipboard
    for before, action in reversed(steps):
        undo, clipboard = _invert_one(before, action, rules.alphabet, clipboard)
        back += undo
    return tuple(back)


def _invert_one(
    before: Canvas, action: int, alphabet: Alphabet, clipboard: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What undoes one action, given the clipboard on the way back; and the clipboard after that."""
    u = before.cursor
    if action < alphabet.num_text:
        is_replaced = before.is_replacing
        return ((alphabet.replace, before.tokens[u - 1]) if is_replaced else (alphabet.delete,)), clipboard
    match alphabet.operator(action):
        case "move":
            return (alphabet.move(-alphabet.distance(action)),), clipboard
        case "jump":
            return (alphabet.jump(u),), clipboard
        case "delete":
            return before.tokens[u - 1 : u], clipboard
        case "swap":
            return (alphabet.swap,), clipboard
        case "cut":
            span = before.tokens[u - alphabet.span(action) : u]
            return ((alphabet.paste,) if span == clipboard else span), clipboard
        case "paste":
            return (alphabet.cut(len(before.clipboard)),), before.clipboard
        case _:
            return (), clipboard
