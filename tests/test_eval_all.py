"""`reviser eval all`: the commands it plans, and what it leaves out."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from reviser.canvas import Rules
from reviser.cli import build_parser
from reviser.cli.eval_all import plan
from reviser.errors import ConfigError
from reviser.evaluation.trajectories import insertion_times, null_trajectories
from reviser.tokenizer import load
from reviser.trajectory.names import parse_order
from reviser.trajectory.record import Seed, Trajectory
from reviser.trajectory.rng import Random


def asked(*words: str) -> argparse.Namespace:
    return build_parser().parse_args(["eval", "all", "c4.jsonl", "--folder", "out", *words])


def suites(args: argparse.Namespace) -> list[str]:
    return [step.words[1] for step in plan(args, Path("out"))]


def test_every_planned_command_is_one_that_the_command_line_takes() -> None:
    args = asked("--system", "ours=a", "--system", "ar=b", "--system", "x=hf:c", "--order", "ours=random-walk")
    for step in plan(args, Path("out")):
        assert build_parser().parse_args(list(step.words)).run
    assert suites(args) == [
        "continuation", "evalppl", "mauve", "arena", "likelihood", "likelihood", "trajectories", "infill", "gaps",
        "flops",
    ]  # fmt: skip


def test_one_system_has_no_arena_and_few_texts_no_mauve() -> None:
    assert "arena" not in suites(asked("--system", "ours=a"))
    assert "mauve" not in suites(asked("--system", "ours=a", "--quick"))
    assert suites(asked("--system", "x=hf:c", "--quick")) == ["continuation", "evalppl", "infill", "gaps", "flops"]


@pytest.mark.parametrize("words", [("--n", "0"), ("--order", "ours")])
def test_what_cannot_be_planned_is_said(words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        plan(asked("--system", "ours=a", *words), Path("out"))


@pytest.mark.parametrize("name", ["bytes", "default"])
def test_null_trajectories_have_the_lengths_of_the_given_ones(name: str) -> None:
    alphabet, order = load(name).alphabet, parse_order("runs:jump=0.2")
    seed = Seed.continuation((), Rules(alphabet))
    targets = [[5] * count for count in (0, 1, 9)]
    given = [order.draw(seed, target, Random.of(1, n)) for n, target in enumerate(targets)]
    drawn = null_trajectories(given, order)
    assert [len(each.final.tokens) for each in drawn] == [0, 1, 9]


def test_insertion_times_by_hand() -> None:
    alphabet = load("bytes").alphabet
    # b, then a before it, then c behind both.
    actions = (98, alphabet.move(-1), 97, alphabet.move(1), 99, alphabet.stop)
    trajectory = Trajectory(Seed.continuation((), Rules(alphabet)), actions, (True,) * 6)
    assert trajectory.final.tokens == (97, 98, 99)
    assert insertion_times(trajectory) == [0.5, 0.0, 1.0]
