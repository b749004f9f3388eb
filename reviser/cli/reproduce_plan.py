"""`reviser reproduce --plan`: each step with its operations, hours on a GPU and disk."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from reviser.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from reviser.actions import Alphabet
    from reviser.paper.reproduction import Setup, Step


def show_plan(args: argparse.Namespace, setup: Setup, steps: Sequence[Step]) -> int:
    """Print all steps with what they cost; nothing is made."""
    from reviser.cli.reproduce import is_there
    from reviser.evaluation.records import format_command
    from reviser.paper.costs import cost_of

    peak, alphabet, rows = _peak(args.gpu), _alphabet(setup), list[dict[str, Any]]()
    for step in steps:
        cost = cost_of(setup, step, alphabet)
        rows.append(
            {"step": step.name, "is_there": is_there(setup, step), "flops": cost.flops, "hours": cost.hours(peak),
             "disk_bytes": cost.disk, "command": format_command(step.words)}
        )  # fmt: skip
    if args.json:
        print(json.dumps({"scale": setup.scale.name, "gpu": args.gpu, "peak_flops": peak, "steps": rows}))
    else:
        print("\n".join(_tell_plan(args.gpu, rows)))
    return 0


def _peak(gpu: str) -> float:
    from reviser.training.progress import PEAK_FLOPS

    known = {name.lower().replace(" ", ""): peak for name, peak in PEAK_FLOPS.items()}
    if gpu.lower() not in known:
        raise ConfigError(f"no GPU {gpu!r}; those whose peak is known are {', '.join(known)}")
    return known[gpu.lower()]


def _alphabet(setup: Setup) -> Alphabet:
    """Of the data that is there, or of the tokenizer that it will be made with, GPT-2's installed or not."""
    from reviser.actions import Alphabet
    from reviser.tokenizer import load

    if setup.data_folder.is_dir():
        return load(setup.data_folder).alphabet
    return Alphabet(50257, 50256) if setup.scale.tokenizer == "gpt2" else load(setup.scale.tokenizer).alphabet


def _tell_plan(gpu: str, rows: list[dict[str, Any]]) -> list[str]:
    left = [row for row in rows if not row["is_there"]]
    total = {key: sum(row[key] or 0 for row in left) for key in ("flops", "hours", "disk_bytes")}
    lines = [f"{'step':<20}{'FLOPs':>10}{f'h ({gpu})':>12}{'disk, MB':>12}"]
    for row in [*rows, {"step": "left to do", "is_there": False, **total}]:
        cells = ["?" if row["flops"] is None else f"{row['flops']:.2e}" if row["flops"] else "-"]
        cells += ["?" if row["hours"] is None else f"{row['hours']:,.3f}" if row["hours"] else "-"]
        cells += [f"{row['disk_bytes'] / 1e6:,.1f}"]
        note = "  there" if row["is_there"] else ""
        lines.append(f"{row['step']:<20}{cells[0]:>10}{cells[1]:>12}{cells[2]:>12}{note}")
        if "command" in row:
            lines.append(f"    {row['command']}")
    return lines
