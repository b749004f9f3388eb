"""`reviser eval`: measure systems, each suite a command of its own."""

from __future__ import annotations

import argparse
import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser

SUITES = (
    "eval_generate", "eval_texts", "eval_arena", "eval_trajectories", "eval_likelihood", "eval_frontier",
    "eval_flops", "eval_all",
)  # fmt: skip
"""Modules beside this one; each registers its suites with `add`."""


def add(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = commands.add_parser("eval", help="measure what systems write, what it costs and how probable text is")
    suites = parser.add_subparsers(title="suites", required=True, metavar="SUITE")
    for name in SUITES:
        importlib.import_module(f"reviser.cli.{name}").add(suites)
