"""Requests and results: what ends a text, and what needs no torch."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st
from laws import ALPHABET

from reviser.canvas import Canvas, Rules
from reviser.decoding.requests import CUT_SHORT, Decoded, Request, find_end
from reviser.orders.record import Draft

texts = st.lists(st.integers(0, 38), max_size=6)


@given(texts, st.integers(0, 6), st.integers(1, 30), st.integers(9, 40), st.booleans(), st.data())
def test_every_end_has_one_cause(given_text, room, max_actions, context, is_stopped, data):
    rules = Rules(ALPHABET, max_length=len(given_text) + room)
    request = Request(Draft.continuation(given_text, rules), max_actions)
    budget = request.budget(context)
    assert budget == min(max_actions, context - 1 - len(given_text)) >= 1
    grown, num_actions = data.draw(st.integers(0, room)), data.draw(st.integers(0, budget))
    canvas = Canvas((*given_text, *[1] * grown), is_stopped=is_stopped)
    end = find_end(request, canvas, num_actions, context)
    assert (end == "model") == (is_stopped and grown < room)
    assert (end == "length") == (is_stopped and grown == room)
    assert (end == "interrupt") == (not is_stopped and num_actions < budget)
    assert (end in CUT_SHORT) == (not is_stopped)
    if end in ("actions", "context"):
        assert end == ("actions" if num_actions == max_actions else "context")
    assert Decoded((), (), canvas, end).has_stopped == (end == "model")


def test_requests_need_neither_torch_nor_numba():
    code = (
        "import sys, reviser.decoding.requests, reviser.decoding.presets; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'numba')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
