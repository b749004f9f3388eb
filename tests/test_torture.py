"""The trials themselves: what should fail fails, and a short form of each area finds nothing."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from torture.__main__ import write
from torture.damage import Format, _read_damaged, damages
from torture.trial import Done, Tally, Trial, find_leftovers

from reviser.errors import DataError
from reviser.files import stamp

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("code", "err", "problem"),
    [
        (0, "", None),
        (2, "error: no such file\n", None),
        (1, "", None),
        (None, "", "hangs"),
        (1, "Traceback (most recent call last):\nKeyError: 'x'\n", "a traceback: KeyError: 'x'"),
        (-11, "", "ends with -11"),
        (2, "error: one\nerror: two\n", "2 lines of error"),
        (2, "", "0 lines of error"),
    ],
)
def test_how_a_command_ended_is_judged(code: int | None, err: str, problem: str | None) -> None:
    found = Done(("data", "info"), code, "", err).problem
    assert found is None if problem is None else problem in str(found)


def read_length(path: Path) -> int:
    data = path.read_bytes()
    if len(data) < 3:
        raise DataError("too short")
    return data[0]


def test_damage_that_changes_a_result_or_is_told_badly_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    format = Format("letters", lambda: path, "", read_length)
    assert _read_damaged(format, path, ord("a"), "nothing") == (None, False)
    assert _read_damaged(format, path, ord("b"), "nothing") == ("another result", False)
    path.write_bytes(b"")
    assert _read_damaged(format, path, ord("a"), "empty") == (None, True)
    broken = Format("broken", lambda: path, "", lambda path: {}[path])
    problem, _ = _read_damaged(broken, path, None, "nothing")
    assert str(problem).startswith("KeyError")
    kinds = [how.split()[0] for how, _ in damages(format, b"abcdefgh", 8, random.Random(0))]
    assert kinds == ["bit"] * 8 + ["cut"] * 2 + ["empty"]
    assert all(data != b"abcdefgh" for _, data in damages(format, b"abcdefgh", 8, random.Random(0)))


def test_a_tally_keeps_all_counts_and_the_first_failures() -> None:
    tally = Tally()
    for number in range(50):
        tally.add(f"failure {number}" if number % 2 else None, is_named=number % 5 == 0)
    assert (tally.tried, tally.num_failed, tally.named, len(tally.failures)) == (50, 25, 10, 20)


def test_rows_that_were_not_run_now_keep_the_commit_at_which_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = [Trial("area", name, "", 1, 1, lambda *_: Tally()) for name in ("first", "second")]
    monkeypatch.setattr("torture.__main__.TRIALS", trials)
    first, second = ({"area": "area", "trial": each.name, "tried": 1} for each in trials)
    write([first], tmp_path / "out.json")
    old = json.loads((tmp_path / "out.json").read_text())
    old["rows"][0]["commit"] = "before"
    (tmp_path / "out.json").write_text(json.dumps(stamp(old)))
    write([second], tmp_path / "out.json")
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [row["trial"] for row in rows] == ["first", "second"]
    assert (rows[0]["commit"], rows[1]["commit"] == old["commit"]) == ("before", True)


def test_what_is_unfinished_is_left_over(tmp_path: Path) -> None:
    for name in (".note.txt.12.part", ".model.9.new", "model.old", "fine.txt", "kernel.nbi.tmp.1f"):
        (tmp_path / name).touch()
    assert sorted(find_leftovers(tmp_path)) == [".model.9.new", ".note.txt.12.part", "kernel.nbi.tmp.1f", "model.old"]


@pytest.mark.slow
@pytest.mark.parametrize("area", ["kills", "damage", "hostile", "scarcity", "server"])
def test_the_short_form_finds_nothing(area: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "torture", "--short", "--only", area, "--out", str(tmp_path / "faults.json")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "faults.json").read_text())["rows"]
    assert all(row["tried"] and not row["failed"] for row in rows)
