"""Every line and document that is written carries a version and a checksum: damage of any value is noticed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviser.errors import ConfigError, DataError
from reviser.evaluation.generations import Generation, format_generation, read_generations
from reviser.evaluation.judges.judgments import Judgment, JudgmentFile, read_judgments
from reviser.files import is_intact, stamp
from reviser.reports.results import make_result, read_result, write_result

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
MADE = Generation("ours", "p1", 3, "The", " cat", ".", " dog", True, 2, 4)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_what_is_stamped_comes_back_intact(record: dict[str, Any]) -> None:
    stamped = stamp({name: value for name, value in record.items() if name not in ("checksum", "new")})
    assert is_intact(json.loads(json.dumps(stamped)))
    assert not is_intact(stamped | {"new": 1})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"text": " cow"}, "its checksum is not that of its fields: it is damaged or was changed"),
        ({"version": 2}, "it is of version 2, and this program reads version 1"),
    ],
)
def test_a_changed_generation_is_named(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    path, line = tmp_path / "made.jsonl", format_generation(MADE)
    path.write_text(line)
    assert read_generations(path) == [MADE]
    path.write_text(f"{line}\n{json.dumps(json.loads(line) | change)}\n")
    with pytest.raises(DataError, match=rf"made\.jsonl, line 2: not a generation \({text}\); remove the line or"):
        read_generations(path)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"verdict": "tie"}, "its checksum is not that of its fields: it is damaged or was changed"),
        ({"version": 2}, "version 2, and this program reads version 1"),
    ],
)
def test_a_changed_judgment_is_named(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    path, judgment = tmp_path / "judged.jsonl", Judgment("a", "b", "p1", 0, "first", "[[A]]", "reader", "0f3b")
    JudgmentFile(path, "reader").add(judgment)
    assert read_judgments(path) == [judgment]
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=rf"judged\.jsonl, line 1: not a judgment \({text}\); remove the line"):
        read_judgments(path)


def test_a_changed_result_is_named(tmp_path: Path) -> None:
    path, result = tmp_path / "mauve.json", make_result("mauve", [{"system": "ours", "mauve": 0.8}], {})
    write_result(result, path)
    assert read_result(path) == stamp(result)
    path.write_text(path.read_text().replace("0.8", "0.9"))
    with pytest.raises(DataError, match=r"mauve\.json: its checksum is not that of its numbers, so it is damaged"):
        read_result(path)


def test_a_report_says_nothing_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from reviser.cli import main

    path, evil = tmp_path / "x.json", "\x1b[2J\x9b\u202e"
    write_result(make_result("mauve", [{"system": evil, "mauve": {"value": 0.8, "n": 3}}], {"note": evil}), path)
    assert main(["report", str(path)]) == 0
    assert main(["report", str(tmp_path / evil)]) == 1
    said = "".join(capsys.readouterr())
    assert not {"\x1b", "\x9b", "\u202e"} & set(said)
    assert "\\x1b[2J\\x9b\\u202e" in said


def test_a_number_that_no_float_holds_is_refused() -> None:
    from reviser.config import from_dict
    from reviser.training.runs import _step_of
    from reviser.training.settings import OptimizerConfig

    with pytest.raises(ConfigError, match=r"^lr is 1000.*; it must be a number$"):
        from_dict(OptimizerConfig, {"lr": 10**400})
    assert _step_of(json.dumps({"step": 10**400})) == float("inf")


def test_torch_without_memory_is_told_in_one_line() -> None:
    from reviser.cli import _explain

    said = "[enforce fail at alloc_cpu.cpp:113] data. DefaultCPUAllocator: not enough memory: ..."
    assert str(_explain(RuntimeError(said))).startswith("out of memory; use a smaller model")
