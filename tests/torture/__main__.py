"""`python -m torture`: run trials, print a table, and write results/torture.json."""

from __future__ import annotations

import argparse
import importlib
import math
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from torture.trial import TRIALS, Patience, Tally, Trial

USUAL = 20_000
"""The most that a trial is tried unless all is asked for."""
PARTS = ("kills", "damage", "hostile", "scarcity", "server")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of all random choices (default 0)")
    parser.add_argument("--short", action="store_true", help="a minute or two of everything")
    parser.add_argument("--full", action="store_true", help="everything in full, which takes most of a day")
    parser.add_argument("--share", type=float, default=1.0, help="of the usual or full counts (default 1)")
    parser.add_argument("--count", type=int, help="how often each chosen trial is tried, whatever its full count")
    parser.add_argument(
        "--minutes", type=float, help="end kills and the server's requests after so long, with what was tried by then"
    )
    parser.add_argument("--only", action="append", default=[], help="an area, or area/name; repeatable")
    parser.add_argument(
        "--out", type=Path, help="write the result there; trials that it has and that are not run stay"
    )
    args = parser.parse_args(argv)
    Patience.seconds = math.inf if args.minutes is None else 60 * args.minutes
    for part in PARTS:
        importlib.import_module(f"torture.{part}")
    chosen = [each for each in TRIALS if not args.only or {each.area, f"{each.area}/{each.name}"} & set(args.only)]
    rows = []
    for each in chosen:
        usual = each.full if args.full else min(each.full, USUAL)
        count = args.count or (each.short if args.short else max(1, round(usual * args.share)))
        rows.append(attempt(each, count, args.seed))
        if args.out:
            write(rows, args.out)
    print_table(rows)
    return 1 if any(row["failed"] for row in rows) else 0


def attempt(each: Trial, count: int, seed: int) -> dict[str, Any]:
    """Run one trial; its luck depends on the seed and its own name alone."""
    began = time.monotonic()
    Patience.begin()
    say(f"{each.area}/{each.name}: {count} times, seed {seed}")
    with tempfile.TemporaryDirectory(prefix="torture-") as place:
        try:
            tally = each.run(count, random.Random(f"{seed} {each.area} {each.name}"), Path(place))
        except Exception as error:
            tally = Tally()
            tally.add(f"the trial itself failed: {type(error).__name__}: {error}")
    for line in tally.failures:
        say(f"  FAILED {line}")
    return {
        "area": each.area, "trial": each.name, "what": each.what, "tried": tally.tried, "named": tally.named,
        "failed": tally.num_failed, "full": each.full, "seed": seed, "seconds": round(time.monotonic() - began, 1),
        **tally.notes,
    }  # fmt: skip


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def write(rows: list[dict[str, Any]], out: Path) -> None:
    """Write a result; rows of trials that were not run now are kept, and each says at which commit it was run."""
    from reviser.reports.results import make_result, read_result, write_result

    result = make_result("faults", [], {}, []) | {"command": "make torture"}
    before = read_result(out) if out.is_file() else {"rows": [], "commit": ""}
    found = {(row["area"], row["trial"]): {"commit": before["commit"]} | row for row in before["rows"]}
    found |= {(row["area"], row["trial"]): row | {"commit": result["commit"]} for row in rows}
    together = [found[each.area, each.name] for each in TRIALS if (each.area, each.name) in found]
    write_result(result | {"rows": together}, out)


def print_table(rows: list[dict[str, Any]]) -> None:
    print(f"{'area':10}{'trial':22}{'tried':>8}{'named':>8}{'failed':>8}{'seconds':>9}")
    for row in rows:
        print(f"{row['area']:10}{row['trial']:22}{row['tried']:8}{row['named']:8}{row['failed']:8}{row['seconds']:9}")


if __name__ == "__main__":
    sys.exit(main())
