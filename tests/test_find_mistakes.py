"""A loss on drafts: whether something is edited at each of their places."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_slots import EDITING, JOBS, PACKER, RULES, folder, open_slots  # noqa: F401 - a fixture
from tiny import make_trainer, random_model, settings

from reviser.canvas import apply
from reviser.data.examples import Examples
from reviser.data.packing import Packed
from reviser.errors import ConfigError
from reviser.own_states.ppo_settings import PpoRunConfig
from reviser.training.objective import Objective, finding_nats, to_inputs

AHEAD = 3


def mark_plainly(packed: Packed, examples: Examples) -> np.ndarray[tuple[int, int], np.dtype[np.int8]]:
    """The places of drafts that scripts edit, by following births on the plain executor."""
    from reviser.orders.history import follow_births

    marks = np.full(packed.labels.shape, -1, np.int8)
    alphabet = RULES.alphabet
    for i, (row, col, size) in enumerate(packed.places.tolist()):
        draft = examples.draft(i, RULES)
        if not examples.drafted[i]:
            continue
        count, prefix = len(draft.actions), int(examples.prefix[i])
        last = min(prefix + int(examples.drafted[i]), count - AHEAD)
        marks[row, col + prefix : col + last + 1] = 0
        canvas, births, is_editing = draft.canvas, tuple(range(1, len(draft.tokens) + 1)), False
        for step, action in enumerate(packed.labels[row, col + count : col + size].tolist()):
            if alphabet.is_jump(action):
                is_editing = False
            elif action != alphabet.stop and not is_editing:
                # The first edit behind a JUMP, or without one, is made where the cursor stands.
                is_editing = True
                place = births[canvas.cursor - 1] if canvas.cursor else 0
                if prefix <= place <= last:
                    marks[row, col + place] = 1
            births = follow_births(births, canvas, action, count + step + 1, alphabet)
            canvas = apply(canvas, action, draft.rules)
    return marks


@pytest.mark.parametrize("seed", range(6))
def test_places_are_marked_where_scripts_edit(folder: Path, seed: int) -> None:  # noqa: F811
    slots = open_slots(folder, replace(JOBS, corrected=0.3))
    examples = slots.examples(slots.shuffle(seed, 0)[:80], seed, 0)
    packed = replace(PACKER, marks_mistakes=AHEAD).pack(examples)
    wanted = mark_plainly(packed, examples)
    assert packed.mistakes is not None
    assert np.array_equal(packed.mistakes, wanted)
    assert (wanted == 1).sum() > 20
    assert (wanted == 0).sum() > 200
    plain = PACKER.pack(slots.examples(slots.shuffle(seed, 0)[:80], seed, 0))
    assert plain.mistakes is None
    assert np.array_equal(plain.labels, packed.labels)


def test_the_loss_of_finding_is_the_sum_over_places_of_drafts(folder: Path) -> None:  # noqa: F811
    slots = open_slots(folder, JOBS)
    trainer = make_trainer(
        folder, *EDITING, "model.max_length=400", "model.context=1024", "data.row=1024", "model.pointer_ahead=2"
    )
    packed = replace(PACKER, marks_mistakes=2, canvas=trainer.settings.model.canvas).pack(
        slots.examples(slots.shuffle(0, 0)[:40], 0, 0)
    )
    model = random_model(trainer.settings.model)
    assert model.pointer is not None
    inputs = to_inputs(packed, 1024, torch.device("cpu"))
    assert inputs.mistakes is not None
    hidden = model.hidden(inputs.actions, inputs.canvas, inputs.layout)
    suspicions = model.pointer.suspicions(hidden)
    assert torch.allclose(suspicions, model.pointer.keys(hidden)[..., 0], atol=1e-4)
    total = 0.0
    for row, column in zip(*np.nonzero(packed.mistakes >= 0), strict=True):
        chance = torch.sigmoid(suspicions[row, column].double()).item()
        total -= np.log(chance if packed.mistakes[row, column] else 1 - chance)
    assert finding_nats(model.pointer, hidden, inputs.mistakes).item() == pytest.approx(total, rel=1e-4)
    without, with_it = (Objective(model, False, weight)(inputs).item() for weight in (0.0, 2.5))
    assert with_it - without == pytest.approx(2.5 * total, rel=1e-3)


def test_who_learns_to_find_mistakes_finds_more(folder: Path) -> None:  # noqa: F811
    """With nothing else to learn, the places of mistakes become more suspicious than the others."""
    slots = open_slots(folder, replace(JOBS, edit=1.0, pairs=0.0))
    trainer = make_trainer(
        folder, *EDITING, "model.max_length=400", "model.context=1024", "data.row=1024", "model.pointer_ahead=3"
    )
    packed = replace(PACKER, marks_mistakes=3, canvas=trainer.settings.model.canvas).pack(
        slots.examples(slots.shuffle(0, 0)[:20], 0, 0)
    )
    model = trainer.model
    inputs = to_inputs(packed, 1024, torch.device("cpu"))
    assert inputs.mistakes is not None
    assert model.pointer is not None
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    costs = []
    for _ in range(30):
        cost = finding_nats(
            model.pointer, model.hidden(inputs.actions, inputs.canvas, inputs.layout), inputs.mistakes
        )
        optimizer.zero_grad()
        cost.backward()
        optimizer.step()
        costs.append(cost.item())
    assert costs[-1] < 0.8 * min(costs[:3])


@pytest.mark.parametrize("changes", [["train.find_mistakes=1"], ["train.find_mistakes=-1", *EDITING]])
def test_where_there_are_no_drafts_nothing_is_found(data: Path, changes: list[str]) -> None:
    with pytest.raises(
        ConfigError, match=r"^train.find_mistakes=-?1.0 (needs drafts to edit; set|must be 0 or more)"
    ):
        make_trainer(data, *changes)


def test_nobody_else_finds_mistakes(folder: Path) -> None:  # noqa: F811
    drafts = *EDITING, "model.max_length=256", "train.find_mistakes=1"
    with pytest.raises(ConfigError, match=r"^train.find_mistakes=1.0 and dagger.rounds=2 do not go together: "):
        make_trainer(folder, *drafts, "dagger.rounds=2")
    plain = settings(*drafts)
    with pytest.raises(ConfigError, match=r"^ppo does not read train.find_mistakes=1.0; set it to 0$"):
        PpoRunConfig(**{each.name: getattr(plain, each.name) for each in fields(plain)})


def test_a_training_passes_its_weight_on(folder: Path) -> None:  # noqa: F811
    trainer = make_trainer(folder, *EDITING, "model.max_length=256", "train.find_mistakes=1", "train.steps=2")
    assert trainer.packer.marks_mistakes == trainer.settings.model.pointer_ahead
    assert trainer.objective.find_mistakes == 1.0
