"""The second opinion on edits: what a text gains by each, and what follows from that."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_proofread import LIVELY, random_writer

from reviser.decoding.cpu.step import CpuStep
from reviser.decoding.reading import score_tokens
from reviser.decoding.reference import draft_history, show
from reviser.decoding.writer import Writer
from reviser.orders.record import Draft
from reviser.proofreading.choices import CORRECTING, Proofreading
from reviser.proofreading.edits import Edit, apply_edits
from reviser.proofreading.rereading import MOST, find_gains, judge, scan_for, weigh

TEXT = "The cat sat on the mat. It slept there."
EDITS = [Edit(4, 7, "cat", "dog", 0.6), Edit(12, 14, "on", "under", 0.7), Edit(33, 39, " there", "", 0.8)]


def read_plainly(writer: Writer, tokens: Sequence[int]) -> list[float]:
    """Log-probabilities among tokens, by one forward pass over the history that inserts them."""
    model = writer.model
    draft = Draft.continuation(list(tokens), writer._rules(len(tokens)))
    history, states = draft_history(draft)
    with torch.no_grad():
        hidden = model.hidden(torch.tensor([history]), show([states], model))
        logits = model.logits(hidden)[0, : len(tokens), : model.config.num_text].float()
    logits[:, model.config.pad] = -torch.inf
    return logits.log_softmax(-1)[range(len(tokens)), list(tokens)].tolist()


@settings(max_examples=20)
@given(st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=30), min_size=1, max_size=20), st.data())
def test_texts_are_read_as_one_forward_pass_reads_them(texts: list[list[int]], data: st.DataObject) -> None:
    writer = random_writer()
    begins = [data.draw(st.integers(0, len(tokens))) for tokens in texts]
    wanted = [read_plainly(writer, tokens)[begin:] for tokens, begin in zip(texts, begins, strict=True)]
    for steps in (None, CpuStep(writer.model)):
        got = score_tokens(writer.model, steps, texts, begins)
        assert [len(each) for each in got] == [len(each) for each in wanted]
        for some, others in zip(got, wanted, strict=True):
            assert some == pytest.approx(others, abs=1e-3)


def test_what_a_text_is_too_long_for_is_not_read() -> None:
    writer = random_writer()
    long, short = [1] * (writer.config.max_length + 1), [1, 2]
    assert writer.read([long, short])[0] == []
    assert writer.read([long, short])[1] == pytest.approx(read_plainly(writer, short), abs=1e-3)
    assert find_gains([("", TEXT, "", EDITS)], writer.tokenizer, lambda texts, _: [[]] * len(texts)) == [[0.0] * 3]


@pytest.mark.parametrize("context", [("", ""), ("Once. ", " More.")])
def test_gains_of_all_edits_add_up_to_what_the_text_gains(context: tuple[str, str]) -> None:
    writer, (left, right) = random_writer(), context
    [gains] = find_gains([(left, TEXT, right, EDITS)], writer.tokenizer, writer.read)
    old, new = (sum(read_plainly(writer, writer.tokenizer.encode(left + text + right))) for text in
                (TEXT, apply_edits(TEXT, EDITS)))  # fmt: skip
    assert sum(gains) == pytest.approx(new - old, abs=1e-2)
    alone = find_gains([(left, TEXT, right, [edit]) for edit in EDITS[-1:]], writer.tokenizer, writer.read)
    assert len(alone) == 1
    assert len(alone[0]) == 1


@given(st.floats(1e-6, 1 - 1e-6), st.floats(-MOST, MOST), st.floats(0.0, 0.3), st.floats(0.0, 3.0))
def test_an_edit_is_more_probable_the_surer_its_actions_and_the_more_the_text_gains(p, gain, more, nats) -> None:
    assert 0 < judge(p, gain) < 1
    assert judge(min(p + more, 1.0), gain) >= judge(p, gain)
    assert judge(p, gain + nats) >= judge(p, gain)


@given(st.floats(0, 1), st.booleans(), st.floats(0.001, 0.999), st.floats(-MOST, MOST))
def test_what_a_model_passes_over_could_not_have_been_kept(least, reread, p, gain) -> None:
    how = Proofreading(min_probability=least, reread=reread)
    scan = scan_for(how)
    assert CORRECTING.least_scan <= scan <= 1
    if CORRECTING.least_scan < p < scan * (1 - 1e-9):
        assert (judge(p, gain) if reread else p) < least + 1e-9


def test_texts_without_edits_are_not_read_and_others_keep_their_places() -> None:
    asked: list[int] = []

    def read(texts: Sequence[Sequence[int]], begins: Sequence[int]) -> list[list[float]]:
        asked.append(len(texts))
        return [[-1.0] * (len(tokens) - begin) for tokens, begin in zip(texts, begins, strict=True)]

    tokenizer = random_writer().tokenizer
    none, some = weigh([("", TEXT, "", []), ("", TEXT, "", EDITS)], tokenizer, read)
    assert asked == [2]
    assert none == []
    assert [(edit.start, edit.after) for edit in some] == [(edit.start, edit.after) for edit in EDITS]
    # A token less is a nat more.
    [gains] = find_gains([("", TEXT, "", EDITS)], tokenizer, read)
    assert [edit.probability for edit in some] == [judge(e.probability, g) for e, g in zip(EDITS, gains, strict=True)]


def test_rereading_can_be_left_out() -> None:
    writer = random_writer()
    given = {"sampling": LIVELY, "passes": 1, "min_probability": 0.0}
    plain, reread = (writer.edit(TEXT, reread=each, **given).edits for each in (False, True))
    assert plain
    assert len(plain) == len(reread)
    assert [edit.probability for edit in plain] != [edit.probability for edit in reread]
