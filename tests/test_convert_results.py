"""Results of version 1 keep every number under the keys of version 2."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
OLD: dict[str, Any] = {
    "kind": "reproduction",
    "version": "0.1.0",
    "rows": [
        {"table": "In short", "system": "MDLM, 512 steps", "evalPPL": {"value": 64.0, "error": 3.0, "n": 9}},
        {"table": "In short", "system": "our Reviser", "evalPPL": {"value": 36.0, "error": 1.4, "n": 9}},
        {
            "table": "evalPPL (tab:evalppl_vs_ar_baseline, tab:evalppl_vs_diffusion)",
            "system": "left to right",
            "here by smollm2": {"value": 35.1, "error": 1.3, "n": 9},
            "bits/byte": {"value": 1.257, "error": 0.015, "n": 9},
        },
    ],
    "commands": [{"step": "train:ar", "is there": True, "command": "reviser train ar_small"}],
    "config": {"scale": "small"},
}


def test_a_result_of_version_1_is_converted_once_and_keeps_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import convert_results

    path = tmp_path / "old.json"
    path.write_text(json.dumps(OLD), "utf-8")
    monkeypatch.setattr(sys, "argv", ["convert_results", str(path)])
    convert_results.main()
    assert capsys.readouterr().out == f"{path}: 12 numbers, all as before\n"
    first = path.read_bytes()
    new = json.loads(first)
    assert (new["format"], new["version"], new["reviser"]) == ("reviser result", 2, "0.1.0")
    assert [(row["table"], row["system"]) for row in new["rows"]] == [
        ("summary", "mdlm-512"), ("summary", "ours"), ("evalppl", "ar"),
    ]  # fmt: skip
    assert new["rows"][2]["perplexity"]["value"] == 35.1
    assert new["measured_by"] == {"evaluator": "smollm2"}
    assert new["commands"] == [{"step": "train:ar", "is_there": True, "command": "reviser train ar_small"}]
    convert_results.main()
    assert path.read_bytes() == first
    assert capsys.readouterr().out == ""


def test_a_conversion_that_would_lose_a_number_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import convert_results

    path = tmp_path / "old.json"
    path.write_text(json.dumps(OLD), "utf-8")
    monkeypatch.setattr(convert_results, "convert", lambda document: document | {"rows": []})
    monkeypatch.setattr(sys, "argv", ["convert_results", str(path)])
    with pytest.raises(SystemExit, match="values would change"):
        convert_results.main()
    assert json.loads(path.read_text("utf-8")) == OLD
