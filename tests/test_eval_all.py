"""`reviser eval all`: the commands it plans, and what it leaves out."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from make_cli_reference import _leaves

from reviser.canvas import Rules, protect
from reviser.cli import build_parser, main
from reviser.cli.shared.fields import from_args
from reviser.errors import ConfigError
from reviser.evaluation.metrics.editing import cursor_path, insertion_times, move_distances, null_trajectories
from reviser.evaluation.plan import EvalAll, Step, age, plan_everything
from reviser.evaluation.suites import EvalPpl, Likelihood, Listener, Trajectories
from reviser.orders.record import Draft, Trajectory
from reviser.orders.registry import parse_order
from reviser.orders.rng import Random
from reviser.reports.results import format_command, make_result, write_result
from reviser.tokenizer import load


def asked(*words: str) -> EvalAll:
    return from_args(EvalAll, build_parser().parse_args(["eval", "all", "c4.jsonl", "--folder", "out", *words]))


def suites(chosen: EvalAll) -> list[str]:
    return [step.name for step in plan_everything(chosen)]


def test_every_planned_command_gives_the_planned_suite_again() -> None:
    chosen = asked("--system", "ours=a", "--system", "ar=b", "--system", "x=hf:c", "--order", "ours=random-walk")
    cutting = asked("--system", "ours=a,temperature=2", "--system", "ar=b", "--order", "ours=sentences")
    for step in (*plan_everything(chosen), *plan_everything(cutting)):
        args = build_parser().parse_args(list(step.job.words))
        assert from_args(args.kind_of_suite, args) == step.job
        if isinstance(step.job, Trajectories):
            assert step.job.system == (() if "ours=random-walk" in step.job.order else ("ours=a",)), (
                "for its tokenizer"
            )
    assert suites(chosen) == [
        "continuation", "evalppl", "mauve", "arena", "likelihood", "likelihood", "trajectories", "infill", "gaps",
        "flops",
    ]  # fmt: skip


def test_one_system_has_no_arena_and_few_texts_no_mauve() -> None:
    assert "arena" not in suites(asked("--system", "ours=a"))
    assert "mauve" not in suites(asked("--system", "ours=a", "--quick"))
    assert "mauve" not in suites(asked("--system", "ours=a", "--n", "99"))
    assert "mauve" in suites(asked("--system", "ours=a", "--n", "100"))
    assert suites(asked("--system", "x=hf:c", "--quick")) == ["continuation", "evalppl", "infill", "gaps", "flops"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--n", "0"), "--n 0 must be at least 1"),
        (
            ("--order", "runs", "--order", "random-walk"),
            "--order random-walk: runs is already the order of all systems",
        ),
        (("--system", "ours=b"), "--system names ours twice"),
        (
            ("--system", "shipped2"),
            "--system shipped2 is not NAME=MODEL; write shipped, ours=runs/mine or gpt2=hf:gpt2",
        ),
    ],
)
def test_what_cannot_be_planned_is_said(words: tuple[str, ...], text: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}"):
        asked("--system", "ours=a", *words)


def test_systems_whose_orders_are_known_are_measured_together() -> None:
    chosen = asked("--system", "a=x", "--system", "b=y", "--order", "a=random-walk", "--order", "b=runs")
    [likelihood] = [step.job for step in plan_everything(chosen) if isinstance(step.job, Likelihood)]
    assert (likelihood.system, likelihood.order) == (("a=x", "b=y"), ("a=random-walk", "b=runs"))
    [edits] = [step.job for step in plan_everything(chosen) if isinstance(step.job, Trajectories)]
    assert edits.order == ("a=random-walk", "b=runs")


class Notes(Listener):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        self.lines.append(line)


def test_a_step_is_done_by_its_own_command_on_what_is_there_now(tmp_path: Path) -> None:
    texts, out, notes = tmp_path / "g.jsonl", tmp_path / "evalppl.json", Notes()
    suite = EvalPpl(generations=(str(texts),))
    step = Step("evalppl", suite, (texts, tmp_path / "absent"), out)
    assert not step.is_done(notes)
    texts.write_text("")
    write_result(make_result("evalppl", [], {}, suite.words), out)
    os.utime(texts, (1e9, 1e9))
    assert step.is_done(notes)
    assert notes.lines == []
    os.utime(texts, (4e9, 4e9))
    assert not step.is_done(notes)
    assert notes.lines.pop() == f"made again: {out}, older than its input"
    os.utime(texts, (1e9, 1e9))
    assert not replace(step, job=replace(suite, n=3)).is_done(notes)
    assert notes.lines.pop() == f"made again: {out}, left by {format_command(suite.words)}"
    out.write_text("[]")
    assert not step.is_done(notes)
    out.unlink()
    assert not step.is_done(notes)


def test_a_folder_is_as_new_as_its_newest_file(tmp_path: Path) -> None:
    assert age(tmp_path / "absent") == 0
    (tmp_path / "weights").write_text("")
    os.utime(tmp_path / "weights", (4e9, 4e9))
    assert age(tmp_path) == 4e9


def test_where_nothing_is_written_the_rest_is_not_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, folder = tmp_path / "t.jsonl", tmp_path / "out"
    texts.write_text('{"text": "too short"}\n')
    words = ["eval", "all", str(texts), "--system", "ours=none", "--folder", str(folder), "--ruler", "bytes"]
    assert main([*words, "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"folder": str(folder), "results": [], "failed": ["continuation"]}


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, taken = tmp_path / "t.jsonl", tmp_path / "taken"
    texts.write_text('{"text": "too short"}\n')
    taken.write_text("")
    assert main(["eval", "all", str(texts), "--system", "shipped", "--folder", str(taken)]) == 2
    assert capsys.readouterr().err == f"error: --folder {taken} is a file; give another folder\n"
    assert main(["eval", "all", str(texts), "--system", "shipped", "--folder", str(taken / "in")]) == 2
    said = f"error: --folder {taken / 'in'} cannot be made (Not a directory); give another folder\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("suite", ["all", "continuation", "infill", "likelihood"])
def test_missing_texts_are_named_before_a_missing_tokenizer_and_before_a_folder_is_made(
    suite: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost, out = tmp_path / "lost.jsonl", tmp_path / "out"
    words = ["eval", suite, str(lost), "--system", "shipped", "--ruler", "no-such-tokenizer"]
    where = {"all": ["--folder", str(out)], "likelihood": []}.get(suite, ["--generations", str(out / "made.jsonl")])
    assert main([*words, *where]) == 2
    assert capsys.readouterr().err.startswith(f"error: {lost}: no such file or folder; give .jsonl or text files")
    assert not out.exists()


@pytest.mark.parametrize("name", ["bytes", "default"])
def test_null_trajectories_have_the_lengths_of_the_given_ones(name: str) -> None:
    alphabet, order = load(name).alphabet, parse_order("runs:jump=0.2")
    draft = Draft.continuation((), Rules(alphabet))
    targets = [[5] * count for count in (0, 1, 9)]
    given = [order.draw(draft, target, Random.of(1, n)) for n, target in enumerate(targets)]
    drawn = null_trajectories(given, order)
    assert [len(each.final.tokens) for each in drawn] == [0, 1, 9]


def test_insertion_times_by_hand() -> None:
    alphabet = load("bytes").alphabet
    # b, then a before it, then c behind both.
    actions = (98, alphabet.move(-1), 97, alphabet.move(1), 99, alphabet.stop)
    trajectory = Trajectory(Draft.continuation((), Rules(alphabet)), actions, (True,) * 6)
    assert trajectory.final.tokens == (97, 98, 99)
    assert insertion_times(trajectory) == [0.5, 0.0, 1.0]


def test_jumps_and_sentences_are_described_too() -> None:
    alphabet, ends = load("bytes").alphabet, frozenset({46})
    rules, text = Rules(alphabet, frozenset({"jump"}), ends=ends), tuple(b"a.b.c.")
    drawn = parse_order("outline").draw(Draft.continuation((9,), rules), (9, *text), Random.of(0))
    assert insertion_times(drawn) == [0.0, 1 / 6, 5 / 6, 1.0, 2 / 6, 3 / 6]
    (null,) = null_trajectories([drawn], parse_order("sentences"), ends=ends)
    assert null.final.tokens == text
    with pytest.raises(ConfigError, match="no token is known to end one"):
        null_trajectories([drawn], parse_order("sentences"))


def test_insertion_times_follow_deletions_and_replacements() -> None:
    alphabet = load("bytes").alphabet
    # a b c, b deleted, c replaced by d.
    actions = (97, 98, alphabet.delete, 99, alphabet.replace, 100, alphabet.stop)
    rules = Rules(alphabet, frozenset({"delete", "replace"}))
    trajectory = Trajectory(Draft.continuation((), rules), actions, (True,) * 7)
    assert trajectory.final.tokens == (97, 100)
    assert insertion_times(trajectory) == [0.0, 1.0]


def test_insertion_times_and_distances_know_jumps_and_leave_out_what_was_given() -> None:
    alphabet = load("bytes").alphabet
    # xyz with xy protected: a at the end, b after y, c at the end again.
    actions = (97, alphabet.jump(2), 98, alphabet.jump(5), 99, alphabet.move(-2), alphabet.stop)
    draft = Draft.edit(b"xyz", Rules(alphabet, frozenset({"move", "jump"})), protect(3, [(0, 2)], ends=[0]))
    trajectory = Trajectory(draft, actions, (True,) * 7)
    assert bytes(trajectory.final.tokens) == b"xybzac"
    assert insertion_times(trajectory) == [0.5, 0.0, 1.0]
    assert move_distances(trajectory) == [2, 2, 2]
    assert cursor_path(trajectory) == [1.0, 1.0, 0.0, 1 / 3, 1.0, 1.0, 0.5, 0.5]


SUITES = {
    words[2]: parser for words, parser in _leaves(build_parser(), ("reviser",)) if words[1] in ("eval", "bench")
}


@pytest.mark.parametrize("option", ["--out", "--json", "--device", "--dtype", "--generations", "--remote-code"])
def test_an_option_of_several_suites_says_the_same_everywhere(option: str) -> None:
    found = {name: parser._option_string_actions.get(option) for name, parser in SUITES.items()}
    # Those that take one model, as the commands that write do.
    others = ("decode", "serve", "check")
    texts = {(each.help, each.default, each.metavar) for name, each in found.items() if each and name not in others}
    assert len(texts) == 1


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_prints_one_document_and_writes_it_where_the_user_says(name: str) -> None:
    options = SUITES[name]._option_string_actions
    assert "--json" in options
    assert "--out" in options or "--folder" in options
