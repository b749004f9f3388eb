"""SIGKILL at random moments, then the same command again, until it comes to its end: the end is that of a run that
nothing disturbed, bit by bit, and no file is left over. A command more is a `Case` more in `CASES`."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reviser.model.folder import checkpoint_steps
from reviser.tokenizer import load
from torture.forked import Forked
from torture.trial import TRIALS, Patience, Tally, Trial, environment, files_of, find_leftovers, hang_s
from torture.world import world

LONGEST_CHAIN = 6
"""Kills before a command may come to its end."""
UNEQUAL = ("seconds",)
"""Fields that two runs may have differently."""


@dataclass(frozen=True)
class Case:
    """A command that can be killed: `words(folder)` begins or resumes it, and is nothing where it has come to its end
    unnoticed; `content(folder)` is what it ends with."""

    name: str
    what: str
    full: int
    words: Callable[[Path], list[str] | None]
    content: Callable[[Path], dict[str, object]]
    short: int = 2
    num_processes: int = 1
    codes: tuple[int, ...] = (0,)
    """Exit codes of its end."""


def begin_or_resume(folder: Path) -> list[str]:
    """Training: resumed where it has a checkpoint, and begun anew where it was killed before the first."""
    return resume_words(folder) or world().train_words(folder / "run")


def learn_from_own_states(folder: Path) -> list[str]:
    """The same, with DAgger."""
    return resume_words(folder) or world().dagger_words(folder / "run")


def resume_words(folder: Path) -> list[str] | None:
    """Nothing for a run that must begin, whose place is then free."""
    out = folder / "run"
    if checkpoint_steps(out):
        return ["train", "--resume", str(out)]
    shutil.rmtree(out, ignore_errors=True)
    return None


def training_content(folder: Path) -> dict[str, object]:
    """Weights, optimizer, state, rollouts, and every measurement but the times."""
    files = files_of(folder / "run")
    kept = {name: data for name, data in files.items() if name.endswith((".safetensors", "tokenizer.json", ".npz"))}
    names = sorted(name for name in files if not name.startswith("tensorboard"))
    lines = map(json.loads, files["metrics.jsonl"].splitlines())
    metrics = [{name: value for name, value in line.items() if not name.endswith(("_s", "_share"))} for line in lines]
    return {**kept, "names": names, "metrics": metrics}


def prepare_words(workers: int) -> Callable[[Path], list[str]]:
    return lambda folder: ["prepare-often", str(world().corpus), str(folder / "data"), str(workers)]


def tokenizer_words(folder: Path) -> list[str]:
    made = folder / "tokenizer" / "tokenizer.json"
    if made.exists():  # then it is whole, and would not be overwritten
        load(made)
        made.unlink()
    return ["data", "tokenizer", str(world().corpus), "--size", "300", "--out", str(folder / "tokenizer")]


def eval_words(folder: Path) -> list[str]:
    return world().eval_words(folder / "made.jsonl", folder / "result.json")


def eval_content(folder: Path) -> dict[str, object]:
    """Every generation, in any order, and the result's rows."""
    lines = sorted((folder / "made.jsonl").read_text().splitlines())
    rows = [
        {name: value for name, value in row.items() if name not in UNEQUAL}
        for row in json.loads((folder / "result.json").read_text())["rows"]
    ]
    return {"generations": lines, "rows": rows}


def generate_words(folder: Path) -> list[str]:
    out = str(folder / "texts.jsonl")
    return ["generate", "The old", "--model", str(world().model), "--seed", "3", "--max-actions", "40", "--out", out]


def batch_words(name: str) -> Callable[[Path], list[str] | None]:
    def words(folder: Path) -> list[str] | None:
        out = folder / name
        if out.exists() and not out.with_name(f"{name}.part").exists():
            return None
        limits = ["--max-actions", "8", "--rows", "4", "--block", "4", "--seed", "1", "--device", "cpu"]
        return ["batch", "generate", str(world().prompts), str(out), "--model", str(world().editor), *limits]

    return words


def batch_content(folder: Path) -> dict[str, object]:
    """Both files, and nothing else."""
    files = files_of(folder)
    assert len(files) == 2, f"not both files, but {', '.join(files)}"
    return {**files}


CASES = [
    Case("training", "train", 100, begin_or_resume, training_content),
    Case("training by two", "train in two gloo processes", 100, begin_or_resume, training_content, 1, 2),
    Case("training by DAgger", "train --dagger", 100, learn_from_own_states, training_content, 1),
    Case("prepare", "data prepare", 100, prepare_words(1), files_of),
    Case("prepare by two", "data prepare with two workers", 50, prepare_words(2), files_of, 1),
    Case("eval", "eval continuation", 50, eval_words, eval_content),
    Case("tokenizer", "data tokenizer", 50, tokenizer_words, files_of, 1),
    Case("generate", "generate --out", 50, generate_words, files_of, 1),
    Case("batch", "batch generate", 50, batch_words("out.jsonl"), batch_content, 1, codes=(1, 2)),
    Case(
        "batch to a table",
        "batch generate OUT.parquet",
        50,
        batch_words("out.parquet"),
        batch_content,
        1,
        codes=(1, 2),
    ),
]


def try_case(case: Case, count: int, chance: random.Random, place: Path) -> Tally:
    """Kill a command count times, in chains of a few kills; each chain comes to its end and is compared."""
    tally = Tally()
    wanted = finish(case, place / "warm", tally)  # the first one imports and compiles
    began = time.monotonic()
    again = finish(case, place / "whole", tally)
    length_s = time.monotonic() - began
    if again != wanted:
        tally.add(f"{case.name}: two undisturbed runs end differently")
        return tally
    num_chains = 0
    while wanted is not None and tally.tried < count and not Patience.is_over():
        folder = place / f"chain-{num_chains}"
        folder.mkdir()
        num_chains += 1
        for _ in range(min(chance.randint(1, LONGEST_CHAIN), count - tally.tried)):
            words = case.words(folder)
            if words is None:
                break
            process = Forked(words, environment(), case.num_processes)
            time.sleep(chance.random() * length_s)
            if process.kill():
                tally.add(None)
        found = finish(case, folder, tally)
        if found is not None and found != wanted:
            names = [name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)]
            tally.add(f"{case.name}: another end: {', '.join(sorted(names))}")
        shutil.rmtree(folder)
    tally.notes["ends compared"] = num_chains
    return tally


def finish(case: Case, folder: Path, tally: Tally) -> dict[str, object] | None:
    """What the command leaves when nobody disturbs it."""
    folder.mkdir(exist_ok=True)
    words = case.words(folder)
    if words is not None:
        done = Forked(words, environment(), case.num_processes).finish(hang_s())
        if done.problem or done.code not in case.codes:
            tally.add(f"{case.name}: {done.problem or done.err.strip()[-300:]}")
            return None
    if left := find_leftovers(folder):
        tally.add(f"{case.name}: left over: {', '.join(left)}")
    return case.content(folder)


def add_cases() -> None:
    for case in CASES:
        TRIALS.append(
            Trial(
                "kills",
                case.name,
                case.what,
                case.full,
                case.short,
                lambda count, chance, place, case=case: try_case(case, count, chance, place),
            )
        )


add_cases()
