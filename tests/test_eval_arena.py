"""The arena: pairs, judgments that survive anything, scores checked by hand."""

from __future__ import annotations

import json
import math
import os
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviser.errors import ConfigError, DataError
from reviser.evaluation.generations import Generation
from reviser.evaluation.judges.arena import (
    Judgment,
    JudgmentFile,
    Pair,
    decide_empty,
    hold,
    make_pairs,
    read_judgments,
    refuse_empty,
)
from reviser.evaluation.metrics.win_rates import agreement, fit, pairings, position_bias, score, strengths, wilson
from reviser.files import stamp


def write(system: str, prompt: int, text: str = "some words", seed: int = 0, prefix: str = "Once") -> Generation:
    return Generation(system, f"p{prompt}", seed, prefix, text, "", "", True, 2, 2)


def write_all(systems: str, num_prompts: int, num_seeds: int = 1) -> list[Generation]:
    return [
        write(s, p, f"{s} on {p}, {seed}", seed)
        for s in systems
        for p in range(num_prompts)
        for seed in range(num_seeds)
    ]


class Reader:
    """Prefers the text that comes first in the alphabet, and counts what it was asked."""

    name, sha256 = "reader", None

    def __init__(self, stop_after: int | None = None) -> None:
        self.asked: list[tuple[str, str, str, int]] = []
        self.stop_after = stop_after

    def judge(self, pairs: Iterable[Pair]) -> Iterator[Judgment]:
        for pair in pairs:
            self.asked.append(pair.key)
            yield Judgment.of(pair, "first" if pair.first.text < pair.second.text else "second", "", self.name)
            if len(self.asked) == self.stop_after:
                os.kill(os.getpid(), signal.SIGINT)


def run(judge: Reader, pairs: list[Pair], path: Path) -> bool:
    file = JudgmentFile(path, judge.name)
    return hold(judge, file.missing(pairs), file, lambda done: None, lambda: None)


def say(first: str, second: str, verdict: str, prompt: int = 0, seed: int = 0) -> Judgment:
    return Judgment(first, second, f"p{prompt}", seed, verdict, "", "reader", "")


@given(st.permutations(write_all("abc", 4, 2)), st.integers(0, 99))
def test_every_two_texts_of_a_spot_meet_once_in_an_order_that_files_do_not_change(
    generations: list[Generation], seed: int
) -> None:
    pairs = make_pairs(generations, seed)
    met = Counter((frozenset(pair.key[:2]), *pair.key[2:]) for pair in pairs)
    assert set(met.values()) == {1}
    assert len(met) == 3 * 4 * 2
    assert {pair.key for pair in pairs} == {pair.key for pair in make_pairs(write_all("abc", 4, 2), seed)}
    both = make_pairs(generations, seed, both_orders=True)
    assert {pair.key for pair in both} == {each.key for pair in pairs for each in (pair, pair.swapped)}
    assert len(both) == 2 * len(pairs)


def test_the_coin_is_fair_and_the_seed_turns_it() -> None:
    firsts = [[pair.first.system for pair in make_pairs(write_all("ab", 1000), seed)] for seed in range(2)]
    for each in firsts:
        assert abs(each.count("a") - 500) < 3 * math.sqrt(250)
    assert abs(sum(one == other for one, other in zip(*firsts, strict=True)) - 500) < 3 * math.sqrt(250)


def test_n_keeps_the_first_prompts_with_all_their_seeds() -> None:
    pairs = make_pairs(write_all("ab", 5, 2), limit=2)
    assert {pair.key[2:] for pair in pairs} == {(p, s) for p in ("p0", "p1") for s in (0, 1)}


def test_generations_that_cannot_meet_are_named() -> None:
    with pytest.raises(DataError, match="a and b share no prompt and seed"):
        make_pairs([write("a", 1), write("b", 2)])
    with pytest.raises(DataError, match="share no prompt and seed"):
        make_pairs([write("a", 1, seed=0), write("b", 1, seed=1)])
    with pytest.raises(DataError, match="hold only a; give another"):
        make_pairs([write("a", 1)])
    with pytest.raises(DataError, match="no generation at all"):
        make_pairs([])
    with pytest.raises(DataError, match="system a wrote prompt p1, seed 0 twice"):
        make_pairs([write("a", 1), write("a", 1), write("b", 1)])
    with pytest.raises(DataError, match="prompt p1 of a and of b are two texts"):
        make_pairs([write("a", 1), write("b", 1, prefix="Twice")])


def test_an_empty_text_is_refused_or_loses() -> None:
    pairs = make_pairs([write("a", 1, " \n"), write("b", 1), write("a", 2), write("b", 2), write("c", 1, "")])
    with pytest.raises(DataError, match=r"2 empty generation.*by [ac] for prompt p1, seed 0; .*--empty lose"):
        refuse_empty(pairs)
    points = {frozenset((each.first, each.second)): each for each in decide_empty(pairs, "reader")}
    assert len(points) == 3
    for system in "ac":
        judgment = points[frozenset((system, "b"))]
        assert getattr(judgment, judgment.verdict) == "b"
    assert points[frozenset("ac")].verdict == "tie"
    refuse_empty(make_pairs(write_all("ab", 2)))


@given(st.data())
def test_a_run_killed_at_any_byte_goes_on_and_asks_no_pair_twice(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("arena") / "judgments.jsonl"
    generations = [replace(each, text=each.text + "\u2028é") for each in write_all("ab", 3)]
    pairs = make_pairs(generations, both_orders=data.draw(st.booleans()))
    assert run(Reader(), pairs, path)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    kept = [each.key for each in read_judgments(path)]
    judge = Reader()
    assert run(judge, pairs, path)
    assert path.read_bytes() == whole
    assert sorted(kept + judge.asked) == sorted(pair.key for pair in pairs)


def test_ctrl_c_keeps_what_was_judged_and_the_next_run_does_the_rest(tmp_path: Path) -> None:
    path, pairs = tmp_path / "judgments.jsonl", make_pairs(write_all("ab", 9))
    first, second, before = Reader(stop_after=4), Reader(), signal.getsignal(signal.SIGINT)
    assert not run(first, pairs, path)
    assert signal.getsignal(signal.SIGINT) is before
    assert [each.key for each in read_judgments(path)] == first.asked == [pair.key for pair in pairs[:4]]
    assert run(second, pairs, path)
    assert first.asked + second.asked == [pair.key for pair in pairs]


def test_a_pair_judged_in_the_other_order_is_not_asked_again_unless_both_are_wanted(tmp_path: Path) -> None:
    path, pairs = tmp_path / "judgments.jsonl", make_pairs(write_all("ab", 3))
    run(Reader(), [pair.swapped for pair in pairs], path)
    file = JudgmentFile(path, "reader")
    assert file.missing(pairs) == []
    assert file.missing([each for pair in pairs for each in (pair, pair.swapped)]) == pairs


def test_an_unanswered_pair_is_asked_again_and_a_failed_one_is_not(tmp_path: Path) -> None:
    path, pairs = tmp_path / "judgments.jsonl", make_pairs(write_all("ab", 2))
    file = JudgmentFile(path, "reader")
    file.add(Judgment.of(pairs[0], "failed", "well, well", "reader"))
    file.add(Judgment.of(pairs[1], "unanswered", "503", "reader"))
    judge = Reader()
    run(judge, pairs, path)
    assert judge.asked == [pairs[1].key]
    assert sorted(each.verdict for each in read_judgments(path))[0] == "failed"
    assert len(read_judgments(path)) == 2


def test_judgments_of_other_texts_or_another_judge_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "judgments.jsonl"
    run(Reader(), make_pairs(write_all("ab", 2)), path)
    changed = make_pairs([replace(each, text="changed " + each.system) for each in write_all("ab", 2)])
    with pytest.raises(DataError, match="were judged on other texts for prompt p0, seed 0"):
        JudgmentFile(path, "reader").missing(changed)
    with pytest.raises(ConfigError, match="holds judgments of reader, not of writer"):
        JudgmentFile(path, "writer")
    with path.open("a") as file:
        file.write(json.dumps(asdict(replace(say("a", "b", "tie"), judge="writer"))) + "\n")
    with pytest.raises(DataError, match="judgments of reader and of writer"):
        read_judgments(path)


def test_a_line_that_is_no_judgment_is_named(tmp_path: Path) -> None:
    path = tmp_path / "judgments.jsonl"
    for line, reason in (
        ("{", "line 2: not a judgment"),
        ("[]", "line 2: not a judgment"),
        ('{"first": "a"}', "no second, prompt_id, seed"),
        (json.dumps(asdict(say("a", "b", "draw"))), "verdict 'draw' is none of first, tie, second"),
    ):
        path.write_text(json.dumps(asdict(say("a", "b", "tie"))) + f"\n{line}\n")
        with pytest.raises(DataError, match=reason):
            read_judgments(path)
    with pytest.raises(DataError, match="cannot be read"):
        read_judgments(tmp_path / "none.jsonl")


def test_wilson_by_hand() -> None:
    z2 = 3.841458820694124
    assert wilson(0.0, 10) == pytest.approx((0.0, z2 / (10 + z2)))
    assert wilson(1.0, 10) == pytest.approx((10 / (10 + z2), 1.0))
    assert wilson(0.5, 4) == pytest.approx(
        (0.5 - 0.5 * math.sqrt(z2 / (4 + z2)), 0.5 + 0.5 * math.sqrt(z2 / (4 + z2)))
    )


@given(st.floats(0, 1), st.integers(1, 10_000))
def test_wilson_holds_the_share_and_mirrors(share: float, n: int) -> None:
    low, high = wilson(share, n)
    assert 0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1
    assert wilson(1 - share, n) == pytest.approx((1 - high, 1 - low), abs=1e-9)


def test_a_win_rate_counts_ties_half_and_prompts_once() -> None:
    # p0: a won, tied -> 0.75; p1: lost -> 0; p2: failed, not counted. The mean is 0.375 over two prompts.
    judgments = [
        say("a", "b", "first", 0), say("b", "a", "tie", 0), say("b", "a", "first", 1), say("a", "b", "failed", 2),
        say("a", "b", "unanswered", 3),
    ]  # fmt: skip
    [row] = pairings(judgments)
    assert (row.system, row.opponent, row.wins, row.ties, row.losses) == ("a", "b", 1, 1, 1)
    assert (row.failed, row.unanswered) == (1, 1)
    assert row.win_rate is not None
    assert (row.win_rate.value, row.win_rate.n) == (0.375, 2)
    assert (row.win_rate.low, row.win_rate.high) == wilson(0.375, 2)
    assert row.win_rate.error == pytest.approx(0.375)  # deviations of 0.375 either way, over sqrt(2 * 1)


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["first", "second", "tie"])), min_size=1))
def test_swapping_what_was_shown_keeps_win_rates_and_mirrors_the_bias(said: list[tuple[int, str]]) -> None:
    other = {"first": "second", "second": "first", "tie": "tie"}
    straight = [say("a", "b", verdict, prompt, seed) for seed, (prompt, verdict) in enumerate(said)]
    swapped = [say("b", "a", other[verdict], prompt, seed) for seed, (prompt, verdict) in enumerate(said)]
    assert pairings(straight) == pairings(swapped)
    one, two = position_bias(straight), position_bias(swapped)
    if one is None or two is None:
        assert one is two is None
    else:
        assert one.value == pytest.approx(1 - two.value)
    both = agreement(straight + swapped)
    assert both is not None
    assert both.value == 1


def test_a_judge_that_looks_at_the_place_alone_is_found_out() -> None:
    judgments = [say(*two, "first", prompt) for prompt in range(50) for two in (("a", "b"), ("b", "a"))]
    bias, same = position_bias(judgments), agreement(judgments)
    assert bias is not None
    assert same is not None
    assert (bias.value, same.value) == (1.0, 0.0)
    assert bias.low > 0.9
    [row] = pairings(judgments)
    assert row.win_rate is not None
    assert row.win_rate.value == 0.5


def test_two_systems_strengths_by_hand() -> None:
    # 3 to 1: the difference is ln 3; its variance is 1 / (4 * 3/4 * 1/4) = 4/3, times 4/3 for four prompts, so the
    # error of the difference is 4/3 and that of each half is 2/3.
    verdicts = ["first", "first", "first", "second"]
    one, two = strengths([say("a", "b", verdict, prompt) for prompt, verdict in enumerate(verdicts)])
    assert (one.system, two.system) == ("a", "b")
    assert one.strength == pytest.approx(math.log(3) / 2)
    assert two.strength == pytest.approx(-math.log(3) / 2)
    assert one.error == pytest.approx(2 / 3)
    assert two.error == pytest.approx(2 / 3)


def test_three_systems_strengths_by_hand() -> None:
    # Strengths 1, 2 and 4: 1 to 2 in three games, 1 to 2 in three games, 1 to 4 in five games, exactly as expected.
    table = np.array([[0.0, 1.0, 1.0], [2.0, 0.0, 1.0], [4.0, 2.0, 0.0]])
    assert fit(table) == pytest.approx([-math.log(2), 0.0, math.log(2)], abs=1e-8)
    assert fit(1e6 * table) == pytest.approx([-math.log(2), 0.0, math.log(2)], abs=1e-8)


@given(st.integers(2, 6), st.data())
def test_at_the_fit_every_system_has_the_points_it_was_expected_to_have(count: int, data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.integers(0, 50), min_size=count**2, max_size=count**2))
    table = np.array(weights, dtype=float).reshape(count, count)
    np.fill_diagonal(table, 0.0)
    for at in range(count):  # a ring of half wins makes one group of them
        table[at, (at + 1) % count] += 0.5
    theta = fit(table)
    expected = (table + table.T) / (1 + np.exp(theta[None, :] - theta[:, None]))
    assert expected.sum(1) == pytest.approx(table.sum(1), abs=1e-5)
    assert theta.sum() == pytest.approx(0.0, abs=1e-6)
    order = data.draw(st.permutations(range(count)))
    assert fit(table[np.ix_(order, order)]) == pytest.approx(theta[order], abs=1e-5)


def test_a_tie_is_half_a_win_and_saying_all_twice_does_not_make_it_surer() -> None:
    ties = [
        say("a", "b", verdict, prompt) for prompt, verdict in enumerate(["tie", "tie", "first", "second", "first"])
    ]
    halves = [
        say("a", "b", verdict, prompt)
        for prompt, verdict in enumerate(["first", "second", "first", "second", "first"])
    ]
    assert [each.strength for each in strengths(ties)] == pytest.approx([each.strength for each in strengths(halves)])
    once, twice = strengths(ties), strengths(ties + [replace(each, seed=1) for each in ties])
    assert [each.strength for each in twice] == pytest.approx([each.strength for each in once])
    assert [each.error for each in twice] == pytest.approx([each.error for each in once])


def test_systems_that_never_met_or_never_lost_are_kept_apart() -> None:
    judgments = [say("b", "c", verdict, prompt) for prompt, verdict in enumerate(["first", "second", "tie"])]
    judgments += [say("a", "b", "first", prompt) for prompt in range(3)]
    judgments += [say("x", "y", "tie", prompt) for prompt in range(3)]
    found = {each.system: each.group for each in strengths(judgments)}
    assert found["a"] < found["b"] == found["c"]
    assert found["x"] == found["y"] not in (found["a"], found["b"])
    alone = next(each for each in strengths(judgments) if each.system == "a")
    assert (alone.strength, alone.error) == (0.0, None)
    never = {frozenset(two) for two in score(judgments)["never_met"]}
    assert never == {frozenset(two) for two in combinations("abcxy", 2)} - {
        frozenset(two) for two in ("bc", "ab", "xy")
    }


def test_strengths_find_what_drew_the_games_within_their_errors() -> None:
    truth, rng = {"a": 0.8, "b": 0.0, "c": -0.8}, np.random.default_rng(5)
    judgments = []
    for prompt in range(600):
        for one, other in combinations(truth, 2):
            chance = 1 / (1 + math.exp(truth[other] - truth[one]))
            judgments.append(say(one, other, "first" if rng.random() < chance else "second", prompt))
    for each in strengths(judgments):
        assert each.error is not None
        assert 0.02 < each.error < 0.08
        assert abs(each.strength - truth[each.system]) < 3 * each.error


def test_pairs_decided_by_an_empty_text_count_as_wins_but_say_nothing_of_the_judge() -> None:
    pairs = make_pairs([write(s, p, "" if s == "b" else "words") for s in "ab" for p in range(9)], both_orders=True)
    found = score(list(decide_empty(pairs, "reader")))
    assert found["empty"] == 18
    assert found["rows"][0]["wins"] == 18
    assert found["position_bias"] is found["agreement"] is None


def test_nothing_decided_is_one_line() -> None:
    with pytest.raises(DataError, match="of 1 judgments none names a winner"):
        score([say("a", "b", "failed")])


def save(path: Path, generations: list[Generation]) -> Path:
    path.write_text("".join(json.dumps(asdict(each)) + "\n" for each in generations), "utf-8")
    return path


def arena(*words: object) -> int:
    from reviser.cli import main

    return main(["eval", "arena", *map(str, words)])


def test_scoring_again_needs_judgments_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "judgments.jsonl", tmp_path / "results" / "arena.json"
    run(Reader(), make_pairs(write_all("abc", 4), both_orders=True), path)
    assert arena("--judgments", path, "--json", "--out", out) == 0
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert stamp(printed) == json.loads(out.read_text("utf-8"))
    assert printed["kind"] == "arena"
    assert printed["config"]["judge"] == "reader"
    assert [(row["system"], row["opponent"], row["wins"]) for row in printed["rows"]] == [
        ("a", "b", 8), ("a", "c", 8), ("b", "c", 8),
    ]  # fmt: skip
    assert printed["position_bias"]["value"] == 0.5
    assert printed["agreement"]["value"] == 1.0
    assert arena("--judgments", path) == 0
    table = capsys.readouterr().out
    assert "measured by judge reader" in table
    assert " ".join(table.splitlines()[2].split()) == "a b 8 0 0 100.0 ± 0% 51.0% to 100.0% 4"
    assert "strengths of two groups do not compare" in table


def test_only_what_is_asked_for_is_scored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reviser.evaluation.suites.preference.Arena._open_judge", lambda suite: Reader())
    path, made = tmp_path / "judgments.jsonl", save(tmp_path / "g.jsonl", write_all("abc", 4))
    words = (made, "--judge", "likelihood", "--model", "x", "--judgments", path, "--json")
    for n, wins in ((4, 4), (2, 2), (4, 4)):
        assert arena(*words, "--n", n) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert [(row["system"], row["opponent"], row["wins"]) for row in rows] == [
            ("a", "b", wins), ("a", "c", wins), ("b", "c", wins),
        ]  # fmt: skip


@pytest.mark.parametrize(
    "words, text",
    [
        (["--judge", "likelihood"], "generations and --judge go together"),
        (["a.jsonl"], "generations and --judge go together"),
        (["{a}", "--judge", "http", "--model", "m", "--url", "http://x"], "hold only a"),
        (["{a}", "{b}", "--judge", "http", "--model", "m"], "--judge http needs --url"),
        (["{a}", "{b}", "--judge", "http", "--url", "http://x"], "--judge http needs --model"),
        (["{a}", "{b}", "--judge", "http", "--model", "m", "--n", "0"], "--n 0 must be at least 1"),
        (["{a}", "{b}", "--judge", "critic", "--model", "/no/where"], "no such folder or file"),
        ([], "cannot be read"),
    ],
)
def test_what_a_user_can_do_wrong_is_one_line(
    words: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "ab":
        save(tmp_path / name, write_all(name, 2))
    filled = [word.format(a=tmp_path / "a", b=tmp_path / "b") for word in words]
    assert arena(*filled, "--judgments", tmp_path / "judgments.jsonl") == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert text in printed.err
