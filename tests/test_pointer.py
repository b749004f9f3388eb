"""The pointer: what a JUMP costs in packed rows is what plain decoding would give it, and all actions sum to one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scored import plain_keys

from reviser.actions import Alphabet
from reviser.canvas import Canvas, Rules, apply, valid_actions, valid_landings, valid_mask
from reviser.config import CanvasConfig, ModelConfig
from reviser.data.examples import Examples
from reviser.data.packing import Packer
from reviser.errors import ConfigError
from reviser.model.cache import Cache
from reviser.model.conditioning import CanvasInput
from reviser.model.loss import allowed
from reviser.model.pointer import score_landings
from reviser.model.transformer import Transformer, num_parameters
from reviser.orders.history import follow_births
from reviser.orders.policies import Runs
from reviser.orders.rng import Random
from reviser.training.objective import Objective, find_jumps, jump_nats, label_nats, to_inputs

ALPHABET = Alphabet(num_text=30, pad=29)
CPU = torch.device("cpu")


def _model(kind="window", operators=("jump",), ahead=0):
    torch.manual_seed(5)
    config = ModelConfig(
        num_text=30, pad=29, num_layers=2, width=32, num_heads=2, ff_width=64, context=96, max_length=40,
        operators=operators, pointer_width=8, pointer_ahead=ahead,
        canvas=CanvasConfig(kind=kind, window=2, slot_width=8),
    )  # fmt: skip
    model = Transformer(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def _examples(count, seed=0):
    rng = Random.of(seed)
    sizes = [(rng.below(4), 3 + rng.below(9), rng.below(4)) for _ in range(count)]
    totals = np.array([sum(size) for size in sizes])
    columns = np.array(sizes, np.int64).T
    return Examples(
        np.array([rng.below(29) for _ in range(totals.sum())], np.int32), np.cumsum(totals) - totals, *columns,
        np.array([Random.of(seed, i).state for i in range(count)], np.uint64), np.arange(count),
    )  # fmt: skip


def _plain_nats(model, draft, actions):
    """The nats of each generated action, one forward pass for each history."""
    rules, alphabet = draft.rules, draft.rules.alphabet
    canvas, births, history, states, nats = Canvas(), (), [alphabet.start], [Canvas()], []
    for step, action in enumerate((*draft.actions, *actions)):
        if step == len(draft.actions):
            canvas = states[-1] = draft.canvas
        if step >= len(draft.actions):
            windows = torch.tensor([[state.window(2, alphabet.none) for state in states]])
            hidden = model.hidden(torch.tensor([history]), CanvasInput(windows))
            scores = _log_probabilities(model, hidden, canvas, births, rules)
            nats.append(-scores[action])
        births = follow_births(births, canvas, action, step + 1, alphabet)
        canvas = apply(canvas, action, rules if step >= len(draft.actions) else rules.for_draft())
        history.append(action)
        states.append(canvas)
    return nats


def _log_probabilities(model, hidden, canvas, births, rules):
    """log p of every valid action, by its id."""
    alphabet = rules.alphabet
    mask = torch.tensor(valid_mask(canvas, rules))
    rows = model.logits(hidden[0, -1]).masked_fill(~allowed(mask, alphabet), -torch.inf).log_softmax(-1)
    found = {row: rows[row].item() for row in range(alphabet.size - 1) if rows[row] > -torch.inf}
    if not (landings := valid_landings(canvas, rules)):
        return found
    steps = torch.tensor([[births[place - 1] if place else 0 for place in landings]])
    where = score_landings(model.pointer.query(hidden[:, -1]), plain_keys(model, hidden[0])[None], steps)[0]
    return found | {alphabet.jump(p): (rows[-1] + where[k]).item() for k, p in enumerate(landings)}


@torch.no_grad()
@pytest.mark.parametrize("ahead", [0, 2])
def test_packed_rows_cost_what_each_history_costs_alone(ahead):
    model, rules = _model(ahead=ahead).double(), Rules(ALPHABET, frozenset({"jump"}), max_length=40)
    order, examples = Runs(jump=0.4, start="uniform", by="pointer"), _examples(12)
    drawn = Packer(order, rules, model.config.canvas, row=96).pack(examples)
    nats = label_nats(model, to_inputs(drawn, 96, CPU))
    num_jumps = 0
    for i, (row, col, size) in enumerate(drawn.places.tolist()):
        draft = examples.draft(i, rules)
        actions = drawn.labels[row, col : col + size][len(draft.actions) :].tolist()
        wanted = _plain_nats(model, draft, actions)
        got = nats[row, col + len(draft.actions) : col + size].tolist()
        assert got == pytest.approx(wanted, abs=1e-5)
        num_jumps += sum(map(ALPHABET.is_jump, actions))
    assert num_jumps > 20


@torch.no_grad()
@pytest.mark.parametrize(("operators", "ahead"), [(("jump",), 1), (("move", "delete", "replace", "jump"), 0)])
def test_the_probabilities_of_all_valid_actions_sum_to_one(operators, ahead):
    rules, rng = Rules(ALPHABET, frozenset(operators), max_length=40), Random.of(3)
    model = _model("none", operators, ahead)
    canvas, births, history = Canvas(), (), [ALPHABET.start]
    for step in range(60):
        hidden = model.hidden(torch.tensor([history]))
        scores = _log_probabilities(model, hidden, canvas, births, rules)
        assert sum(np.exp(list(scores.values()))) == pytest.approx(1, abs=1e-5)
        assert sorted(scores) == valid_actions(canvas, rules)
        choices = [action for action in scores if action != ALPHABET.stop]
        action = choices[rng.below(len(choices))]
        births = follow_births(births, canvas, action, step + 1, ALPHABET)
        canvas = apply(canvas, action, rules)
        history.append(action)


def test_the_loss_is_the_sum_of_the_nats_and_reaches_the_pointer():
    model, rules = _model(ahead=1), Rules(ALPHABET, frozenset({"jump"}), max_length=40)
    drawn = Packer(Runs(jump=0.4, start="uniform", by="pointer"), rules, model.config.canvas, row=96).pack(
        _examples(9)
    )
    inputs = to_inputs(drawn, 96, CPU)
    total = Objective(model, fuse=False)(inputs)
    assert total.item() == pytest.approx(label_nats(model, inputs).sum().item(), rel=1e-5)
    total.backward()
    for matrix in (model.pointer.query_matrix, model.pointer.key_matrix, model.pointer.ahead_matrix):
        assert matrix.weight.grad.abs().sum() > 0


def test_rows_without_a_jump_still_give_the_pointer_a_gradient_of_zero():
    model, rules = _model(ahead=1), Rules(ALPHABET, frozenset({"jump"}), max_length=40)
    drawn = Packer(Runs(jump=0.0, start="end", by="pointer"), rules, model.config.canvas, row=96).pack(_examples(4))
    assert find_jumps(drawn) is None
    Objective(model, fuse=False)(to_inputs(drawn, 96, CPU)).backward()
    for parameter in model.pointer.parameters():
        assert parameter.grad.abs().sum() == 0


MODELS_AHEAD = [_model("none", ahead=ahead) for ahead in range(4)]


@torch.no_grad()
@settings(max_examples=30)
@given(
    st.integers(0, 3),
    st.lists(st.lists(st.integers(0, 5), min_size=3, max_size=3).filter(any), min_size=1, max_size=6),
    st.integers(0, 99),
)
def test_cached_keys_are_what_the_last_step_sees_of_them(ahead, chunks, seed):
    """However many steps come at once, for rows that go on or stand still as they like."""
    model, rng, histories = MODELS_AHEAD[ahead], Random.of(seed), [[], [], []]
    cache = Cache.empty(model.config, 3, context=30)
    for counts in chunks:
        actions = torch.tensor([[rng.below(29) for _ in range(max(counts))] for _ in counts])
        model.step(actions, CanvasInput(), cache, torch.tensor(counts))
        for history, row, count in zip(histories, actions.tolist(), counts, strict=True):
            history.extend(row[:count])
    filled = torch.tensor([history + [7] * (30 - len(history)) for history in histories])
    at_once = model.pointer.keys(model.hidden(filled), cache.lengths)
    for row, history in enumerate(histories):
        if history:
            wanted = plain_keys(model, model.hidden(torch.tensor([history]))[0])
            for keys in (cache.pointers, at_once):
                torch.testing.assert_close(keys[row, : len(history)], wanted, atol=2e-5, rtol=1e-5)


@torch.no_grad()
@settings(max_examples=20)
@given(st.integers(0, 94), st.integers(0, 99))
def test_where_a_jump_goes_does_not_depend_on_what_comes_later(column, seed):
    model, rules = MODELS_AHEAD[3], Rules(ALPHABET, frozenset({"jump"}), max_length=40)
    order = Runs(jump=0.4, start="uniform", by="pointer")
    inputs = to_inputs(Packer(order, rules, model.config.canvas, row=96).pack(_examples(9)), 96, CPU)
    later = inputs.actions.clone()
    later[:, column + 1 :] = torch.randint(0, 29, later[:, column + 1 :].shape, generator=torch.manual_seed(seed))
    before, after = (
        jump_nats(model, model.hidden(actions, inputs.canvas, inputs.layout), inputs)
        for actions in (inputs.actions, later)
    )
    is_earlier = inputs.jumps[..., 0] <= column
    torch.testing.assert_close(before[is_earlier], after[is_earlier], atol=1e-5, rtol=1e-5)


def test_only_a_pointer_that_looks_ahead_has_a_matrix_for_that():
    plain, ahead = (dict(model.pointer.named_parameters()) for model in (_model(), _model(ahead=3)))
    assert list(plain) == ["query_matrix.weight", "key_matrix.weight"]
    assert ahead.pop("ahead_matrix.weight").shape == (3 * 8, 32)
    assert {name: each.shape for name, each in ahead.items()} == {name: each.shape for name, each in plain.items()}
    without = replace(_model().config, operators=("move",), pointer_ahead=3)
    assert Transformer(without).pointer is None
    assert num_parameters(replace(_model().config, pointer_ahead=3)) == num_parameters(_model().config) + 3 * 8 * 32


def test_jump_and_paste_do_not_go_together():
    with pytest.raises(ConfigError, match="operators jump and paste do not go together"):
        _model(operators=("jump", "cut", "paste"))
