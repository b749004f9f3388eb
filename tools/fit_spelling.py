"""Fits the probability of a spelling (reviser/proofreading/spelling.py) to a model.

    python tools/fit_spelling.py MODEL DATA --n 600

MODEL proofreads sentences of the DATA folder: held-out ones with made errors, held-out ones as they are, and people's
corrections that it has learned from. What it leaves is looked through for misspelled words; one is right if the
correction has that word more often than the text. Sentences are drawn with another seed than evaluation's, and JFLEG,
C4 and held-out corrections are not touched.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import numpy as np
from fit_rereading import fit_logistic

from reviser.data.shards import Shards
from reviser.decoding.writer import Writer
from reviser.evaluation.correction.tasks import make_errors, read_clean
from reviser.evaluation.correction.words import split_words
from reviser.proofreading import spelling

SEED = 1
Row = tuple[float, bool]
"""The nats that a text gains by a word, and whether that is right."""


def read_corrections(folder: str, n: int) -> tuple[list[str], list[Sequence[str]]]:
    """Corrections of the training split, and the words that people made of each."""
    shards = Shards.open(folder, "train")
    chosen = np.random.default_rng(SEED).permutation(np.flatnonzero(shards.cuts))[:n]
    texts, references = list[str](), list[Sequence[str]]()
    for document in chosen.tolist():
        ids, cut = shards[document].tolist(), int(shards.cuts[document])
        texts.append(shards.tokenizer.decode(ids[:cut]))
        references.append(split_words(shards.tokenizer.decode(ids[cut:])))
    return texts, references


def collect(writer: Writer, texts: Sequence[str], references: Sequence[Sequence[str]]) -> Iterator[Row]:
    """Every word that may be misspelled in what the model leaves."""
    words = spelling.find_words(writer.tokenizer)
    if words is None:
        raise SystemExit("there is no list of words for this model's tokenizer")
    for text, reference in zip(texts, references, strict=True):
        left = writer.edit(text, spelling=False).text
        [found] = spelling.spell([("", left, "")], words, writer.tokenizer, writer.read, [lambda _: True])
        for edit in found:
            odds = np.log(edit.probability / (1 - edit.probability))
            gain = float((odds - spelling.BIAS) / spelling.READING)
            new = edit.after.split()
            yield gain, all(reference.count(word) > split_words(left).count(word) for word in new)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--n", type=int, default=600)
    args = parser.parse_args()
    writer, rows = Writer.from_pretrained(args.model), list[Row]()
    errors, clean = make_errors(args.data, args.n, SEED), read_clean(args.data, args.n, SEED)
    for name, texts, references in (
        ("made errors", errors.texts, [each[0] for each in errors.references]),
        ("clean text", clean.texts, [split_words(text) for text in clean.texts]),
        ("corrections", *read_corrections(args.data, args.n)),
    ):
        found = list(collect(writer, texts, references))
        print(f"{name}: {len(texts)} texts, {len(found)} words, {sum(right for _, right in found)} right", flush=True)
        rows += found
    bias, reading = fit_logistic([[gain for gain, _ in rows]], [right for _, right in rows])
    print(f"BIAS, READING = {bias:.2f}, {reading:.2f}")
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        said = [(1 / (1 + np.exp(-(bias + reading * gain))), right) for gain, right in rows]
        some = [right for chance, right in said if low <= chance < low + 0.2]
        print(f"said {low:.1f} to {low + 0.2:.1f}: {len(some)} words, {np.mean(some) if some else np.nan:.2f} right")


if __name__ == "__main__":
    main()
