"""Random input for property tests: rules, marks, canvases and valid actions."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from reviser.actions import JUMP, NUM_SPECIAL, OPERATORS, Alphabet
from reviser.canvas import CLOSED, FIXED, Canvas, Rules, valid_landings, valid_mask

ALPHABET = Alphabet(num_text=40, pad=39)
TEXT = st.integers(0, 38)


@st.composite
def rules(draw: st.DrawFn, operators: frozenset[str] | None = None) -> Rules:
    """Any rules over the small alphabet."""
    enabled = draw(st.frozensets(st.sampled_from(OPERATORS))) if operators is None else operators
    return Rules(ALPHABET, enabled, max_length=draw(st.integers(0, 24)))


def random_marks(size: int, chance: random.Random) -> tuple[int, ...]:
    """Any marks that a canvas of `size` tokens may have: a closed boundary has a fixed token on its left, and some
    boundary is open."""
    share = chance.choice([0.1, 0.5, 0.9])
    marks = [CLOSED if chance.random() < share else 0]
    for _ in range(size):
        marks.append(chance.choice([FIXED, FIXED | CLOSED]) if chance.random() < share else 0)
    marks[chance.randrange(size + 1)] &= ~CLOSED
    return tuple(marks)


def random_canvas(tokens: tuple[int, ...], marks: tuple[int, ...], chance: random.Random) -> Canvas:
    """A canvas with its cursor at any open boundary."""
    return Canvas(tokens, chance.choice(Canvas(tokens, marks=marks).open_boundaries()), marks=marks)


@st.composite
def states(draw: st.DrawFn, operators: frozenset[str] | None = None) -> tuple[Canvas, Rules]:
    """A canvas that could arise under some rules, and the rules."""
    given, chance = draw(rules(operators)), random.Random(draw(st.integers(0, 1 << 30)))
    tokens = tuple(draw(st.lists(TEXT, max_size=given.max_length)))
    canvas = random_canvas(tokens, random_marks(len(tokens), chance) if draw(st.booleans()) else (), chance)
    size = draw(st.sampled_from([0, 2, 4, 8]))
    clipboard = tuple(draw(st.lists(TEXT, min_size=size, max_size=size)))
    may_replace = "replace" in given.operators and canvas.cursor > 0 and not canvas.is_fixed(canvas.cursor - 1)
    is_replacing = may_replace and draw(st.booleans())
    return Canvas(tokens, canvas.cursor, clipboard, is_replacing, marks=canvas.marks), given


def pick_valid(canvas: Canvas, given: Rules, number: int, text: int) -> int:
    """One of the valid actions, chosen by two numbers; INSERTs count as one choice, so do JUMPs."""
    mask = valid_mask(canvas, given)
    choices = [j for j in range(NUM_SPECIAL + 1) if mask >> j & 1]
    chosen = choices[number % len(choices)]
    if chosen == JUMP:
        landings = valid_landings(canvas, given)
        return given.alphabet.jump(landings[text % len(landings)])
    return text if chosen == NUM_SPECIAL else given.alphabet.num_text + chosen
