"""The reference executor: a canvas, an action, the canvas after it. Plain Python, immutable, no torch.

    Hi , | how are you ?     cursor 2, between tokens 2 and 3
    MOVE +4   ->   Hi , how are you ? |
    DELETE    ->   Hi , how are you |
    INSERT !  ->   Hi , how are you ! |

`Rules` say what generated actions may do; `Canvas` is the state. `apply` returns the next state, or
raises an ActionError that names the action, the state and what is allowed: the old state is a value
and stays as it was. A draft is written by applying under rules that protect nothing (`Rules.for_draft`).

>>> rules = Rules(Alphabet(num_text=257, pad=256))
>>> apply(Canvas((72, 105), cursor=2), 33, rules)
Canvas(tokens=(72, 105, 33), cursor=3, clipboard=(), is_replacing=False, is_stopped=False)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from reviser.actions import (
    INSERT_MOVE,
    NUM_SPECIAL,
    Alphabet,
    check_operators,
)
from reviser.errors import ActionError, ConfigError

UNLIMITED = 1 << 30
"""Actions left when nothing limits them."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What is allowed on a canvas; constant over a trajectory.

    The first `prefix` and the last `suffix` tokens are protected: generated actions neither change
    them nor take the cursor inside them.
    """

    alphabet: Alphabet
    operators: frozenset[str] = INSERT_MOVE
    prefix: int = 0
    suffix: int = 0
    max_length: int = 512

    def __post_init__(self) -> None:
        object.__setattr__(self, "operators", check_operators(self.operators))
        if min(self.prefix, self.suffix) < 0:
            raise ConfigError(f"protected prefix {self.prefix} and suffix {self.suffix} must be 0 or more")

    def for_draft(self) -> Rules:
        """The same alphabet with nothing protected: draft actions may pass through all text."""
        return replace(self, prefix=0, suffix=0, operators=self.operators | INSERT_MOVE)


@dataclass(frozen=True, slots=True)
class Canvas:
    """Tokens, a cursor between them (0 = before the first), a clipboard, a pending REPLACE."""

    tokens: tuple[int, ...] = ()
    cursor: int = 0
    clipboard: tuple[int, ...] = field(default=())
    is_replacing: bool = False
    is_stopped: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.cursor <= len(self.tokens):
            raise ActionError(f"cursor {self.cursor} lies outside a canvas of {len(self.tokens)} tokens")

    def window(self, width: int, none: int) -> tuple[int, ...]:
        """The `width` tokens left and right of the cursor, `none` past an edge."""
        places = range(self.cursor - width, self.cursor + width)
        return tuple(self.tokens[i] if 0 <= i < len(self.tokens) else none for i in places)


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
        return _explain_move(canvas, alphabet.distance(action), rules)
    if operator == "paste":
        return _explain_paste(canvas, rules)
    if operator == "replace" and actions_left < 2:
        return "REPLACE needs an INSERT after it and only one action is left"
    # COPY only reads, so it may reach into the protected prefix.
    reach = canvas.cursor - (0 if operator == "copy" else rules.prefix)
    if reach < alphabet.span(action):
        which = "" if rules.prefix == 0 or operator == "copy" else " and unprotected"
        wanted = "1 token" if alphabet.span(action) == 1 else f"{alphabet.span(action)} tokens"
        return f"it needs {wanted} left of the cursor{which}, there are {max(reach, 0)}"
    return None


def _explain_insert(canvas: Canvas, rules: Rules) -> str | None:
    if canvas.is_replacing or len(canvas.tokens) < rules.max_length:
        return None
    return f"the canvas already holds its maximum of {rules.max_length} tokens"


def _explain_move(canvas: Canvas, distance: int, rules: Rules) -> str | None:
    low, high = rules.prefix, len(canvas.tokens) - rules.suffix
    if low <= canvas.cursor + distance <= high:
        return None
    return f"it leads to {canvas.cursor + distance}, outside {low}..{high}"


def _explain_paste(canvas: Canvas, rules: Rules) -> str | None:
    if not canvas.clipboard:
        return "the clipboard is empty"
    if len(canvas.tokens) + len(canvas.clipboard) > rules.max_length:
        return f"{len(canvas.clipboard)} more tokens would exceed the maximum of {rules.max_length}"
    return None


def is_valid(canvas: Canvas, action: int, rules: Rules, actions_left: int = UNLIMITED) -> bool:
    return explain_invalid(canvas, action, rules, actions_left) is None


def valid_mask(canvas: Canvas, rules: Rules, actions_left: int = UNLIMITED) -> int:
    """All valid actions as bits: bit j for the special id V+j, bit 34 for every INSERT."""
    first = rules.alphabet.num_text
    mask = sum(1 << j for j in range(NUM_SPECIAL) if is_valid(canvas, first + j, rules, actions_left))
    some_text = 0 if rules.alphabet.pad else 1
    return mask | (int(is_valid(canvas, some_text, rules, actions_left)) << NUM_SPECIAL)


def valid_actions(canvas: Canvas, rules: Rules, actions_left: int = UNLIMITED) -> list[int]:
    """Ids of all valid actions, ascending."""
    mask, first = valid_mask(canvas, rules, actions_left), rules.alphabet.num_text
    text = [t for t in range(first) if t != rules.alphabet.pad] if mask >> NUM_SPECIAL & 1 else []
    return text + [first + j for j in range(NUM_SPECIAL) if mask >> j & 1]


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
    return _execute(canvas, action, rules.alphabet)


def _execute(canvas: Canvas, action: int, alphabet: Alphabet) -> Canvas:
    tokens, u, span = canvas.tokens, canvas.cursor, alphabet.span(action)
    if action < alphabet.num_text:
        kept = tokens[: u - 1] if canvas.is_replacing else tokens[:u]
        return Canvas((*kept, action, *tokens[u:]), len(kept) + 1, canvas.clipboard)
    if alphabet.is_move(action):
        return Canvas(tokens, u + alphabet.distance(action), canvas.clipboard)
    match alphabet.operator(action):
        case None:
            return replace(canvas, is_stopped=True)
        case "delete":
            return Canvas(tokens[: u - 1] + tokens[u:], u - 1, canvas.clipboard)
        case "replace":
            return replace(canvas, is_replacing=True)
        case "swap":
            swapped = (*tokens[: u - 2], tokens[u - 1], tokens[u - 2], *tokens[u:])
            return Canvas(swapped, u, canvas.clipboard)
        case "cut":
            return Canvas(tokens[: u - span] + tokens[u:], u - span, tokens[u - span : u])
        case "copy":
            return Canvas(tokens, u, tokens[u - span : u])
        case _:
            return Canvas(tokens[:u] + canvas.clipboard + tokens[u:], u + len(canvas.clipboard), canvas.clipboard)


def replay(canvas: Canvas, actions: Iterable[int], rules: Rules, what: str = "action") -> Canvas:
    """The canvas after all actions; the error of an invalid one says which it was."""
    for index, action in enumerate(actions):
        try:
            canvas = apply(canvas, action, rules)
        except ActionError as error:
            raise ActionError(f"{what} {index}: {error}") from None
    return canvas


def invert(canvas: Canvas, actions: Iterable[int], rules: Rules) -> tuple[int, ...]:
    """The actions that lead back from where `actions` lead, to the same tokens and cursor.

    INSERT and DELETE undo each other, so do MOVE +d and -d, CUT and PASTE; SWAP undoes itself and
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
