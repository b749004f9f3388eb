"""Rollouts: what the present weights do, and what a guide does instead of them."""

import pytest
import torch
from tiny import random_model, show

from reviser.canvas import Canvas, Rules, apply, replay, valid_mask
from reviser.config import CanvasConfig, ModelConfig
from reviser.decoding.engine import Engine, Request
from reviser.model.conditioning import CanvasInput
from reviser.model.pointer import score_landings
from reviser.orders.history import follow_births
from reviser.orders.record import Draft
from reviser.orders.rng import Random
from reviser.own_states.rollouts import NOBODY, OWN, Roller

CONFIG = ModelConfig(
    num_text=257, pad=256, num_layers=2, width=32, num_heads=2, ff_width=64, context=64, max_length=48,
    operators=("jump", "delete", "replace"), canvas=CanvasConfig(kind="window", slot_width=8), pointer_ahead=2,
)  # fmt: skip
RULES = Rules(CONFIG.alphabet, frozenset(CONFIG.operators), max_length=CONFIG.max_length)
DRAFTS = [
    *(Draft.revision(b"ab", bytes(range(60, 64 + size)), b"yz", RULES) for size in range(5)),
    Draft.gaps([b"ab", b"cd", b"ef"], RULES),
    Draft.edit(b"plain", RULES),
]


class Even:
    """A guide that decides every other action: it goes to the first open boundary or, being there, inserts."""

    def is_asked(self, numbers, steps):
        return (numbers + steps) % 2 == 0

    def choose(self, numbers, steps, canvases):
        return [self.decide(canvas) for canvas in canvases]

    def decide(self, canvas):
        place = canvas.open_boundaries()[0]
        if canvas.is_replacing or canvas.cursor == place:
            return 65 if len(canvas.tokens) < RULES.max_length else NOBODY
        return RULES.alphabet.jump(place)


@pytest.fixture(scope="module")
def model():
    return random_model(CONFIG)


def roll(model, guide=None, num_rows=3, seed=5):
    roller = Roller(CONFIG, num_rows=num_rows, max_actions=12)
    roller.take(model)
    return roller.roll(DRAFTS, seed, guide)


def test_a_rollout_is_what_an_engine_writes_and_its_actions_lead_to_its_canvas(model):
    requests = [Request(draft, 12, Random.of(5, number).state) for number, draft in enumerate(DRAFTS)]
    written = Engine(model, OWN, 3).write(requests)
    for rollout, expected, draft in zip(roll(model), written, DRAFTS, strict=True):
        assert (rollout.actions, rollout.log_probabilities) == (expected.actions, expected.log_probabilities)
        assert rollout.canvas == replay(draft.canvas, rollout.actions, RULES)
        assert rollout.has_stopped == (rollout.actions[-1] == RULES.alphabet.stop)
        assert not any(rollout.is_guided)


def test_a_roller_acts_with_the_weights_it_took_last(model):
    roller, other = Roller(CONFIG, num_rows=3, max_actions=12), random_model(CONFIG, seed=1)
    for weights in (model, other, model):
        roller.take(weights)
        assert roller.roll(DRAFTS, 5) == roll(weights)
    assert roll(model) != roll(other)


def test_weights_change_only_when_they_are_taken(model):
    trained = random_model(CONFIG)
    roller = Roller(CONFIG, num_rows=3, max_actions=12)
    roller.take(trained)
    with torch.no_grad():
        trained.embedding.weight.mul_(-1)
    assert roller.roll(DRAFTS, 5) == roll(model)


def test_the_same_seed_rolls_out_the_same_whatever_the_rows(model):
    few, many = roll(model, num_rows=1), roll(model, num_rows=8)
    assert [each.actions for each in few] == [each.actions for each in many]
    assert [each.actions for each in roll(model, seed=6)] != [each.actions for each in few]


def test_a_guide_acts_where_it_asks_to_and_nowhere_else(model):
    for number, rollout in enumerate(roll(model, Even())):
        canvas = rollout.draft.canvas
        for step, (action, is_guided) in enumerate(zip(rollout.actions, rollout.is_guided, strict=True)):
            wanted = Even().decide(canvas) if (number + step) % 2 == 0 else NOBODY
            assert is_guided == (wanted != NOBODY)
            assert wanted in (action, NOBODY)
            canvas = replay(canvas, [action], RULES)
        assert canvas == rollout.canvas


def test_a_guided_action_has_the_log_probability_that_the_model_gives_it(model):
    for rollout in roll(model, Even()):
        assert rollout.log_probabilities == pytest.approx(score(model, rollout), abs=1e-4)
        assert any(rollout.is_guided)


@torch.no_grad()
def score(model, rollout):
    """The log-probability of each action, by one forward pass over the whole history."""
    draft, alphabet = rollout.draft, RULES.alphabet
    history, states, born = (*draft.actions, *rollout.actions), [Canvas()], [()]
    for step, action in enumerate(history):
        if step == len(draft.actions):
            states[-1] = draft.canvas
        born.append(follow_births(born[-1], states[-1], action, step + 1, alphabet))
        states.append(apply(states[-1], action, RULES if step >= len(draft.actions) else RULES.for_draft()))
    windows = CanvasInput(windows=show(states[:-1], CONFIG).windows)
    hidden = model.hidden(torch.tensor([[alphabet.start, *history[:-1]]]), windows)
    steps = range(len(draft.actions), len(history))
    left = range(12, 0, -1)
    return [
        score_step(model, hidden[:, : step + 1], states[step], born[step], history[step], count)
        for step, count in zip(steps, left, strict=False)
    ]


def score_step(model, hidden, state, births, action, actions_left):
    alphabet, mask = RULES.alphabet, valid_mask(state, RULES, actions_left)
    is_valid = [bool(mask >> 34 & 1)] * 256 + [False] + [bool(mask >> offset & 1) for offset in range(34)]
    scores = model.logits(hidden[0, -1]).masked_fill(~torch.tensor(is_valid), -torch.inf).log_softmax(0)
    total = float(scores[min(action, alphabet.size - 1)])
    if not alphabet.is_jump(action):
        return total
    landings = [
        (0, *births)[place] if place != state.cursor and state.is_open(place) else -1
        for place in range(len(state.tokens) + 1)
    ]
    query = model.pointer.query(hidden[:, -1])
    found = score_landings(query, model.pointer.keys(hidden), torch.tensor([landings]))
    return total + float(found[0, alphabet.landing(action)])
