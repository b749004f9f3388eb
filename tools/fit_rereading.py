"""Fits the numbers of reviser/proofreading/rereading.py to a proofreader, on errors made in held-out text and on text
that has none.

    python tools/fit_rereading.py MODEL DATA [DATA ...] --n 400

MODEL proposes edits for held-out texts of the DATA folders, once with made errors and once as they are. An edit is
right if a reference has it. Logistic regression then says how far the actions' log-odds and the nats that the text
gains can be trusted. JFLEG and people's corrections are not touched.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence

import numpy as np

from reviser.decoding.writer import Writer
from reviser.evaluation.correction.tasks import CorrectionTask, make_errors, read_clean
from reviser.evaluation.correction.words import split_words
from reviser.evaluation.metrics.corrections import find_edits
from reviser.proofreading.choices import Proofreading
from reviser.proofreading.edits import apply_edits
from reviser.proofreading.proofread import proofread
from reviser.proofreading.rereading import MOST, find_gains

Row = tuple[float, float, bool]
"""An edit: the probability of its actions, the nats gained, whether it is right."""


def collect(writer: Writer, task: CorrectionTask) -> Iterator[Row]:
    """Every edit that the model proposes for the texts of a task."""
    how = Proofreading(passes=1, min_probability=0.0, reread=False)
    for number, text in enumerate(task.texts):
        edits = proofread(text, writer.propose, writer.tokenizer, writer.config, how, room=writer.room).edits
        if not edits:
            continue
        [gains] = find_gains([("", text, "", edits)], writer.tokenizer, writer.read)
        words = split_words(text)
        given = task.references[number] if task.references else [words]
        references = [find_edits(words, each) for each in given]
        for edit, gain in zip(edits, gains, strict=True):
            made = find_edits(words, split_words(apply_edits(text, [edit])))
            is_right = bool(made) and any(made <= each for each in references)
            yield edit.probability, max(min(gain, MOST), -MOST), is_right


def fit(rows: list[Row]) -> list[float]:
    """Bias, weight of the actions' log-odds, weight of the nats."""
    p = np.clip([row[0] for row in rows], 1e-9, 1 - 1e-6)
    return fit_logistic([np.log(p / (1 - p)), [row[1] for row in rows]], [row[2] for row in rows])


def fit_logistic(columns: Sequence[Sequence[float] | np.ndarray], is_right: Sequence[bool]) -> list[float]:
    """The bias and the weight of each column: Newton's method on the logistic loss."""
    inputs, wanted = np.stack([np.ones(len(is_right)), *columns], axis=1), np.array(is_right, float)
    weights = np.zeros(inputs.shape[1])
    for _ in range(30):
        chances = 1 / (1 + np.exp(-inputs @ weights))
        slope = inputs.T @ (wanted - chances) - 1e-3 * weights
        curve = (inputs * (chances * (1 - chances))[:, None]).T @ inputs + 1e-3 * np.eye(len(weights))
        weights += np.linalg.solve(curve, slope)
    return [float(each) for each in weights]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("data", nargs="+")
    parser.add_argument("--n", type=int, default=400)
    args = parser.parse_args()
    writer, rows = Writer.from_pretrained(args.model), list[Row]()
    for folder in args.data:
        for task in (make_errors(folder, args.n), read_clean(folder, args.n)):
            found = list(collect(writer, task))
            print(f"{folder}, {task.name}: {len(found)} edits, {sum(row[2] for row in found)} right", flush=True)
            rows += found
    bias, actions, reading = fit(rows)
    print(f"BIAS, ACTIONS, READING = {bias:.2f}, {actions:.2f}, {reading:.2f}")
    odds = [bias + actions * math.log(max(p, 1e-9) / max(1 - p, 1e-6)) + reading * gain for p, gain, _ in rows]
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        some = [row[2] for row, each in zip(rows, odds, strict=True) if low <= 1 / (1 + math.exp(-each)) < low + 0.2]
        share = np.mean(some) if some else math.nan
        print(f"said {low:.1f} to {low + 0.2:.1f}: {len(some)} edits, {share:.2f} right")


if __name__ == "__main__":
    main()
