"""Random input for property tests: rules, canvases and valid actions."""

from __future__ import annotations

from hypothesis import strategies as st

from reviser.actions import OPERATORS, Alphabet
from reviser.canvas import Canvas, Rules, valid_mask

ALPHABET = Alphabet(num_text=40, pad=39)
TEXT = st.integers(0, 38)


@st.composite
def rules(draw: st.DrawFn, operators: frozenset[str] | None = None) -> Rules:
    """Any rules over the small alphabet."""
    enabled = draw(st.frozensets(st.sampled_from(OPERATORS))) if operators is None else operators
    prefix, suffix = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    return Rules(ALPHABET, enabled, prefix, suffix, max_length=draw(st.integers(prefix + suffix, 24)))


@st.composite
def states(draw: st.DrawFn, operators: frozenset[str] | None = None) -> tuple[Canvas, Rules]:
    """A canvas that could arise under some rules, and the rules."""
    given = draw(rules(operators))
    middle = draw(st.lists(TEXT, max_size=given.max_length - given.prefix - given.suffix))
    tokens = tuple(draw(st.lists(TEXT, min_size=given.prefix, max_size=given.prefix)))
    tokens += tuple(middle) + tuple(draw(st.lists(TEXT, min_size=given.suffix, max_size=given.suffix)))
    cursor = draw(st.integers(given.prefix, len(tokens) - given.suffix))
    size = draw(st.sampled_from([0, 2, 4, 8]))
    clipboard = tuple(draw(st.lists(TEXT, min_size=size, max_size=size)))
    is_replacing = cursor > given.prefix and "replace" in given.operators and draw(st.booleans())
    return Canvas(tokens, cursor, clipboard, is_replacing), given


def pick_valid(canvas: Canvas, given: Rules, number: int, text: int) -> int:
    """One of the valid actions, chosen by two numbers; INSERTs count as one choice."""
    mask = valid_mask(canvas, given)
    choices = [j for j in range(35) if mask >> j & 1]
    chosen = choices[number % len(choices)]
    return text if chosen == 34 else given.alphabet.num_text + chosen
