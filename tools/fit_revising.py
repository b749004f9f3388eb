"""Fits how a model's changes to its own drafts are weighed (`REVISING` in reviser/proofreading/choices.py).

    python tools/fit_revising.py MODEL TEXTS [TEXTS ...] --n 400

MODEL fills spans of texts, as `reviser data drafts` does, and is asked what it would change, in them and in the
originals. A change is right if it touches a span that the model wrote. Logistic regression then says how far the
log-odds of the way to a change and the nats that the text gains can be trusted.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from fit_rereading import Row, fit

from reviser.decoding.presets import SCAN
from reviser.decoding.writer import Writer
from reviser.drafting.draft_pairs import Drafting, make_pairs, plan_texts, read_sources
from reviser.proofreading.choices import REVISE_ACTIONS, REVISING, Proofreading
from reviser.proofreading.proofread import proofread_all
from reviser.proofreading.rereading import MOST, find_gains

Spans = Sequence[tuple[int, int]]


def collect(writer: Writer, texts: Sequence[str], spans: Sequence[Spans]) -> Iterator[Row]:
    """Every change that the model proposes: the probability of its way, the nats gained, whether it is in a span."""
    how = Proofreading(min_probability=0.0, passes=1, reread=False, weighing=REVISING)
    propose = partial(writer.propose, sampling=replace(SCAN, scan=REVISING.least_scan), max_actions=REVISE_ACTIONS)
    edited = proofread_all(texts, propose, writer.tokenizer, writer.config, how, room=writer.room)
    for each, own in zip(edited, spans, strict=True):
        if not each.edits:
            continue
        [gains] = find_gains([("", each.original, "", each.edits)], writer.tokenizer, writer.read, True)
        for edit, gain in zip(each.edits, gains, strict=True):
            is_right = any(edit.start < end and edit.end > start for start, end in own)
            yield edit.probability, max(min(gain, MOST), -MOST), is_right


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--n", type=int, default=400, help="texts with spans; as many originals are read too")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=1000, help="another than that of the training pairs")
    args = parser.parse_args()
    writer, how = Writer.from_pretrained(args.model, args.device), Drafting(seed=args.seed)
    plans = (plan for plan in plan_texts(read_sources(args.texts), writer.tokenizer, how) if plan.spans)
    pairs = make_pairs(writer, list(islice(plans, args.n)), how)
    spans = [[(span["start"], span["end"]) for span in pair["spans"]] for pair in pairs]
    rows = list(collect(writer, [pair["before"] for pair in pairs], spans))
    print(f"{len(pairs)} drafts: {len(rows)} changes, {sum(row[2] for row in rows)} in a span", flush=True)
    clean = list(collect(writer, [pair["after"] for pair in pairs], [[] for _ in pairs]))
    print(f"{len(pairs)} originals: {len(clean)} changes", flush=True)
    if not any(row[2] for row in rows):
        raise SystemExit("no change is in a span, so there is nothing to fit; train the model on its own drafts")
    bias, actions, reading = fit([*rows, *clean])
    print(f"REVISING = Weighing({bias:.2f}, {actions:.2f}, {reading:.2f}, rewrites=True, least_scan=0.02)")


if __name__ == "__main__":
    main()
