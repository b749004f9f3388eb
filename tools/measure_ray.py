"""What Ray costs: `reviser batch generate` in one process against a local cluster with actors, in alternating pairs.

    python tools/measure_ray.py prompts.jsonl --pairs 5 --actors 2

Prints a line of JSON for each run, and one with the ratios of the medians. Counted are CPU and wall seconds between
two moments at which all rows are busy, a few blocks from either end, so without starting and compiling. CPU is that
of three groups: the command, the processes with a model, and Ray's own. After its last block a run on Ray waits a
while: what Ray's own processes use then, they use by the clock and not for the work.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psutil

BLOCK, LEFT_OUT, IDLE_S = 16, 5, 10.0
Groups = dict[str, float]


def read_cpu() -> Groups:
    """CPU seconds of this process and all below it, by what they are."""
    groups = {"command": 0.0, "models": 0.0, "ray": 0.0}
    here = psutil.Process()
    for process in [here, *here.children(recursive=True)]:
        try:
            times, words = process.cpu_times(), process.cmdline()
        except psutil.Error:
            continue
        name = "command" if process == here else "models" if words and words[0].startswith("ray::_Process") else "ray"
        groups[name] += times.user + times.system
    return groups


def run_once(prompts: Path, num_actors: int) -> dict[str, Any]:
    """One run in this process; 0 actors are none of Ray's."""
    from reviser.batch.batch_config import BatchConfig
    from reviser.batch.batch_run import BatchProgress, run_batch
    from reviser.cluster import Actors, connected

    began, marks = time.monotonic(), list[tuple[int, float, Groups]]()
    total = len(prompts.read_bytes().splitlines())
    places = [BLOCK * LEFT_OUT, total - BLOCK * LEFT_OUT]

    def report(progress: BatchProgress) -> None:
        if len(marks) < len(places) and progress.num_lines >= places[len(marks)]:
            marks.append((progress.num_lines, time.monotonic(), read_cpu()))

    config = BatchConfig("generate", max_actions=32, block_lines=BLOCK)
    with tempfile.TemporaryDirectory() as place, connected("local") if num_actors else nullcontext():
        cluster: dict[str, Any] = {"ray": "local", "actors": Actors(num_actors)} if num_actors else {}
        run_batch(config, str(prompts), str(Path(place, "out.jsonl")), report=report, **cluster)
        idle = read_cpu()
        if num_actors:
            time.sleep(IDLE_S)
        idle_s = read_cpu()["ray"] - idle["ray"]
    (lines, first_s, first), (last_lines, last_s, last) = marks
    count = last_lines - lines
    ms = {name: 1e3 * (last[name] - first[name]) / count for name in last}
    return {
        "actors": num_actors, "lines": count, "start_s": round(first_s - began, 1),
        "wall_ms_per_line": round(1e3 * (last_s - first_s) / count, 2),
        "cpu_ms_per_line": round(sum(ms.values()), 2), **{f"{name}_cpu_ms": round(ms[name], 2) for name in ms},
        "ray_core_share": round((last["ray"] - first["ray"]) / (last_s - first_s), 4),
        "ray_core_share_idle": round(idle_s / IDLE_S, 4), "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prompts", type=Path, help="a file of JSON lines with prompts")
    parser.add_argument("--pairs", type=int, default=5, help="how often each is run (default 5)")
    parser.add_argument("--actors", type=int, default=2, help="processes with a model (default 2)")
    parser.add_argument("--once", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.once is not None:
        print(json.dumps(run_once(args.prompts, args.once)))
        return
    runs: dict[int, list[dict[str, Any]]] = {0: [], args.actors: []}
    for _ in range(args.pairs):
        for number, made in runs.items():
            words = [sys.executable, __file__, str(args.prompts), "--once", str(number)]
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            made.append(json.loads(subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE).stdout))
            print(json.dumps(made[-1]), flush=True)
    here, there = runs[0], runs[args.actors]
    for each in there:
        each["work_cpu_ms"] = each["command_cpu_ms"] + each["models_cpu_ms"]

    def median(made: list[dict[str, Any]], name: str) -> float:
        return statistics.median(each[name] for each in made)

    cpu = median(here, "cpu_ms_per_line")
    print(json.dumps({
        "pairs": args.pairs,
        "cpu_ratio": round(median(there, "cpu_ms_per_line") / cpu, 3),
        "cpu_ratio_without_rays_own": round(median(there, "work_cpu_ms") / cpu, 3),
        "wall_ratio": round(median(there, "wall_ms_per_line") / median(here, "wall_ms_per_line"), 3),
        "ray_core_share": median(there, "ray_core_share"),
        "ray_core_share_idle": median(there, "ray_core_share_idle"),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
