"""Pairs of which the better text is known, for tests of judges."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from reviser.evaluation.generations import Generation
from reviser.evaluation.judges.arena import Pair, make_pairs


def write(system: str, prompt: int, text: str, suffix: str = "") -> Generation:
    return Generation(system, f"p{prompt}", 0, f"Prompt {prompt}:", text, suffix, "", True, 2, 2)


def make_many(count: int, both_orders: bool = False) -> list[Pair]:
    """Pairs of which the text that says `better` is the better one."""
    texts = [write("a", p, f" better {p}" if p % 3 else f" worse {p}") for p in range(count)]
    texts += [write("b", p, f" worse, {p}" if p % 3 else f" better, {p}") for p in range(count)]
    return make_pairs(texts, both_orders=both_orders)


def right_verdict(pair: Pair) -> str:
    return "first" if "better" in pair.first.text else "second"


def save(path: Path, pairs: list[Pair], system: str) -> Path:
    own = [each for pair in pairs for each in (pair.first, pair.second) if each.system == system]
    path.write_text("".join(json.dumps(asdict(each)) + "\n" for each in own))
    return path


def arena_command(tmp_path: Path, pairs: list[Pair], *words: object) -> list[str]:
    files = [str(save(tmp_path / f"{name}.jsonl", pairs, name)) for name in "ab"]
    return ["eval", "arena", *files, "--judgments", str(tmp_path / "judgments.jsonl"), *map(str, words)]
