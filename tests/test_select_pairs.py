"""Which pairs the tool keeps, and what it says of the others."""

from __future__ import annotations

import importlib.util
import json
import lzma
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[1] / "tools" / "select_pairs.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("select_pairs", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LINE = "One two three four five six seven eight nine ten of them go home."


@pytest.mark.parametrize(
    ("after", "message", "kind", "reason"),
    [
        (LINE.replace("go", "goes"), "Fix grammar", None, ""),
        (LINE.replace("go", "goes"), "Update the page", None, "something else"),
        (LINE.replace("go", "goes"), "Update the page", "correction", ""),
        (LINE.replace("One two three", "Ten or more"), "Update the page", "correction", "something else"),
        (LINE.replace("One", "one"), "Fix typo", None, "style"),
        (LINE.replace("six seven", "six-seven"), "Fix typo", None, "style"),
        (LINE.replace("go", "goes"), "Modernise spelling", None, "style"),
        ("Nothing of that is here now, and the whole is said in other words.", "Fix typos", None, "large"),
    ],
)
def test_small_corrections_that_say_so_are_kept(
    tool: ModuleType, after: str, message: str, kind: str | None, reason: str
) -> None:
    assert tool.judge({"before": LINE, "after": after, "message": message, "kind": kind}) == reason


def test_files_are_read_and_written_packed(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [{"before": LINE, "after": LINE.replace("go", "goes"), "message": each} for each in ("typo", "more")]
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl.xz"
    source.write_text("\n".join(map(json.dumps, pairs)))
    tool.main(str(source), str(source), str(target))
    with lzma.open(target, "rt") as lines:
        assert [json.loads(line) for line in lines] == [pairs[0]] * 2
    assert capsys.readouterr().out == "2 kept, 2 something else\n"
    with pytest.raises(SystemExit, match="give files of pairs and, last, the file to write"):
        tool.main(str(source))
