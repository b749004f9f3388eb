"""The CPU's step computes what the model computes, whatever the model, the rows and the threads."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine import requests, samplings

from reviser.actions import INSERT_MOVE
from reviser.config import CanvasConfig, ModelConfig
from reviser.decoding.cpu import step_kernels as kernels
from reviser.decoding.cpu.step import CpuStep, steps_of
from reviser.decoding.cpu.threads import RELEASED, KernelThreads
from reviser.decoding.engine import Engine
from reviser.decoding.reference import decode
from reviser.decoding.writer import Writer
from reviser.errors import ConfigError
from reviser.model.cache import Cache
from reviser.model.conditioning import CanvasInput
from reviser.model.quantize import round_rows
from reviser.model.transformer import Transformer
from reviser.tokenizer import load

NUM_TEXT, CONTEXT, WINDOW = 30, 24, 3

configs = st.builds(
    lambda heads, head_width, slot_width, kind, **settings: ModelConfig(
        num_text=NUM_TEXT, pad=NUM_TEXT - 1, num_layers=2, width=heads * head_width, num_heads=heads, context=CONTEXT,
        canvas=CanvasConfig(kind=kind, window=WINDOW, slot_width=slot_width), **settings,
    ),
    heads=st.integers(1, 4), head_width=st.sampled_from([8, 10, 16]), slot_width=st.integers(1, 9),
    kind=st.sampled_from(["none", "window"]), ff_width=st.integers(1, 70), norm=st.sampled_from(["layer", "rms"]),
    qk_norm=st.booleans(), activation=st.sampled_from(["gelu", "relu2", "swiglu"]),
    positions=st.sampled_from(["rope", "absolute"]), tied=st.booleans(),
    operators=st.sampled_from([("move",), ("move", "jump")]), pointer_width=st.integers(1, 19),
    pointer_ahead=st.integers(0, 3),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _same_threads_afterwards() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@torch.no_grad()
def rounded(model: Transformer) -> Transformer:
    """A copy that multiplies by what the int8 weights stand for; activations are not rounded.

    Its head is its own, since the embedding that a tied head shares is looked up unrounded.
    """
    copy = Transformer(replace(model.config, tied=False)).to(model.head_weight)
    copy.load_state_dict(model.state_dict() | {"head.weight": model.head_weight})
    for module in copy.modules():
        if isinstance(module, torch.nn.Linear):
            whole, scales = round_rows(module.weight)
            module.weight.copy_(whole * scales[:, None])
    return copy.train(model.training)


def make_model(config: ModelConfig, seed: int = 0) -> Transformer:
    torch.manual_seed(seed)
    model = Transformer(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def random_input(config: ModelConfig, rows: int, steps: int) -> tuple[torch.Tensor, CanvasInput]:
    # JUMPs have ids behind the rows of the embedding.
    actions = torch.randint(0, config.alphabet.size + (60 if config.has_jumps else 0), (rows, steps))
    windows = torch.randint(0, config.num_text + 1, (rows, steps, 2 * config.canvas.window))
    return actions, CanvasInput(windows=windows if config.canvas.kind == "window" else None)


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    size = max([1.0, *expected.abs().flatten().tolist()])
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-4 * size)


@settings(max_examples=30)
@given(configs, st.integers(1, 6), st.integers(1, 3), st.data())
def test_steps_and_logits_are_the_models_after_any_history(config, num_rows, threads, data):
    torch.set_num_threads(threads)
    model = make_model(config, data.draw(st.integers(0, 99)))
    steps, caches = CpuStep(model), [Cache.empty(config, num_rows) for _ in range(2)]
    lengths = torch.tensor(data.draw(st.lists(st.integers(1, 9), min_size=num_rows, max_size=num_rows)))
    history, canvas = random_input(config, num_rows, 9)
    for cache in caches:
        model.step(history, canvas, cache, lengths)
    for _ in range(4):
        counts = torch.tensor(data.draw(st.lists(st.integers(0, 1), min_size=num_rows, max_size=num_rows)))
        actions, canvas = random_input(config, num_rows, 1)
        expected = model.step(actions, canvas, caches[0], counts)
        found, is_real = steps.step(actions, canvas, caches[1], counts), counts > 0
        assert_close(found[is_real], expected[is_real])
        assert not found[~is_real].any()
        assert_close(steps.logits(found), model.logits(found))
        assert caches[0].lengths.tolist() == caches[1].lengths.tolist()
    for kept, written in zip(caches[0].keys + caches[0].values, caches[1].keys + caches[1].values, strict=True):
        for row, length in enumerate(caches[0].lengths.tolist()):
            assert_close(written[row, :, :length], kept[row, :, :length])
    if config.has_jumps:
        for row, length in enumerate(caches[0].lengths.tolist()):
            assert_close(caches[1].pointers[row, :length], caches[0].pointers[row, :length])


@settings(max_examples=20)
@given(configs, st.integers(1, 3))
def test_a_whole_history_step_by_step_is_the_models_forward_pass(config, num_rows):
    model, (actions, canvas) = make_model(config), random_input(config, num_rows, CONTEXT)
    assert_close(CpuStep(model).hidden(actions, canvas), model.hidden(actions, canvas))


@settings(max_examples=25)
@given(configs, samplings, st.integers(1, 3), st.data())
def test_the_engine_writes_what_the_plain_decoder_writes_with_any_model(config, sampling, num_rows, data):
    config = replace(config, context=48, max_length=24)
    model = make_model(config)
    asked = data.draw(st.lists(requests(INSERT_MOVE), min_size=1, max_size=4))
    for request, written in zip(asked, Engine(model, sampling, num_rows, CpuStep(model)).write(asked), strict=True):
        plain = decode(model, request.draft, sampling, request.max_actions, request.number)
        assert written.actions == plain.actions
        assert written.log_probabilities == pytest.approx(plain.log_probabilities, abs=1e-3)


WINDOWED = ModelConfig(
    num_text=256, pad=255, num_layers=2, width=64, num_heads=4, ff_width=96, context=40, max_length=30,
    canvas=CanvasConfig(kind="window", slot_width=8),
)  # fmt: skip


def test_only_few_rows_on_a_cpu_in_float32_take_the_kernels():
    model = make_model(WINDOWED)
    few, steps = steps_of(model), CpuStep(model)
    assert isinstance(few, CpuStep)
    assert few.most_rows is not None
    num_rows = few.most_rows + 1
    actions, canvas = random_input(WINDOWED, num_rows, 1)
    # What the kernels give is not bit for bit what torch gives, which shows who took the step.
    caches = [Cache.empty(WINDOWED, num_rows) for _ in range(3)]
    by_model, by_few, by_kernel = (
        each.step(actions, canvas, cache) for each, cache in zip((model, few, steps), caches, strict=True)
    )
    assert torch.equal(by_model, by_few)
    assert not torch.equal(by_model, by_kernel)
    assert_close(by_kernel, by_model)
    pooled = Transformer(replace(WINDOWED, canvas=CanvasConfig(kind="pool")))
    assert steps_of(pooled) is pooled
    halved = Transformer(WINDOWED).to(torch.bfloat16)
    assert steps_of(halved) is halved
    with pytest.raises(ConfigError, match="on cpu with canvas pool; they need float32 on a CPU"):
        CpuStep(pooled, "int8")


def test_weights_are_read_where_they_are():
    model, (actions, _) = make_model(replace(WINDOWED, canvas=CanvasConfig())), random_input(WINDOWED, 1, 1)
    steps = CpuStep(model)
    with torch.no_grad():
        model.blocks[0].mlp.up.weight.mul_(2)
    caches = [Cache.empty(model.config, 1) for _ in range(2)]
    pairs = zip((steps, model), caches, strict=True)
    found, expected = (each.step(actions, CanvasInput(), cache) for each, cache in pairs)
    assert_close(found, expected)


@given(st.integers(1, 9), st.integers(1, 60), st.floats(1e-6, 1e6), st.integers(0, 99))
def test_a_rounded_weight_is_within_half_a_step_and_the_largest_of_a_row_is_kept(rows, columns, size, seed):
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * size
    weight[0] = 0
    whole, scales = round_rows(weight)
    assert whole.dtype == torch.int8
    assert (weight - whole * scales[:, None]).abs().le(scales[:, None] * 0.5001).all()
    assert whole.abs().amax(dim=1).tolist() == [0] + [127] * (rows - 1)


def test_int8_logits_of_whole_numbers_are_those_of_the_rounded_head():
    model = make_model(WINDOWED)
    hidden = torch.randint(-127, 128, (3, 64)).float()
    hidden[:, 5] = 127
    assert_close(CpuStep(model, "int8").logits(hidden), rounded(model).logits(hidden))


@settings(max_examples=20)
@given(configs, st.integers(1, 3))
def test_int8_steps_are_close_to_those_of_the_rounded_model(config, threads):
    torch.set_num_threads(threads)
    model, (actions, canvas) = make_model(config), random_input(config, 3, 12)
    steps, near = CpuStep(model, "int8"), rounded(model)
    found, expected = steps.logits(steps.hidden(actions, canvas)), near.logits(near.hidden(actions, canvas))
    # Vectors are rounded in 255 steps each, and errors add up over layers; a wrong scale would be off by far more.
    assert (found - expected).pow(2).mean() < 0.05 * expected.pow(2).mean()


def test_a_rounded_model_keeps_its_tables_and_rounds_every_matrix():
    model = make_model(WINDOWED)
    near = rounded(model)
    assert torch.equal(near.embedding.weight, model.embedding.weight)
    matrices = [module.weight for module in near.modules() if isinstance(module, torch.nn.Linear)]
    assert len(matrices) == 4 * WINDOWED.num_layers + 2
    for weight in matrices:
        whole, scales = round_rows(weight)
        assert torch.allclose(whole * scales[:, None], weight, rtol=1e-5)


def test_a_writer_with_int8_weights_writes_and_repeats_itself():
    config = replace(WINDOWED, num_text=257, pad=256)
    writer = Writer(make_model(config), load("bytes"), weights="int8")
    [first], [again] = (writer.generate("ab", max_actions=9, seed=4) for _ in range(2))
    assert first.decoded == again.decoded
    assert [event.action for event in writer.stream("ab", max_actions=9, seed=4)] == list(first.decoded.actions)
    with pytest.raises(ConfigError, match="weights='int4' must be 'auto', 'int8' or 'float32'"):
        Writer(make_model(config), load("bytes"), weights="int4")  # type: ignore[arg-type]


def test_exp_and_erf_are_right():
    for value in np.linspace(-80, 80, 3001, dtype=np.float32):
        assert kernels._exp(value) == pytest.approx(math.exp(value), rel=1e-5)
    for value in np.linspace(-6, 6, 3001, dtype=np.float32):
        assert kernels._erf(value) == pytest.approx(math.erf(value), abs=5e-7)


def test_threads_that_step_at_once_do_not_disturb_one_another():
    torch.set_num_threads(2)
    model = make_model(WINDOWED)
    steps, (actions, canvas) = CpuStep(model), random_input(WINDOWED, 2, CONTEXT)
    expected, found = model.hidden(actions, canvas), [torch.empty(0)] * 4

    def decode_alone(place: int) -> None:
        for _ in range(2):
            found[place] = steps.hidden(actions, canvas)

    threads = [threading.Thread(target=decode_alone, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in found:
        assert_close(each, expected)


def test_an_interrupted_caller_releases_the_others():
    team, seen = KernelThreads(2), []

    def kernel(member: int, size: int, arrivals: np.ndarray, is_interrupted: bool, done: threading.Event) -> None:
        if member == 0:
            if is_interrupted:
                raise KeyboardInterrupt
            done.wait(60)
            return
        while is_interrupted and arrivals[0] < RELEASED:
            pass
        seen.append(is_interrupted)
        done.set()

    for is_interrupted in (True, False):
        done = threading.Event()
        if is_interrupted:
            with pytest.raises(KeyboardInterrupt):
                team.run(kernel, is_interrupted, done)
        else:
            team.run(kernel, is_interrupted, done)
    assert seen == [True, False]


def test_a_helper_that_fails_is_not_waited_for():
    team, threads_before = KernelThreads(2), threading.active_count()

    def kernel(member: int, size: int, arrivals: np.ndarray, fails: bool) -> None:
        if member == 1 and fails:
            raise MemoryError("no room for a kernel")
        until = time.monotonic() + 60
        while member == 0 and fails and arrivals[0] < RELEASED:
            assert time.monotonic() < until

    with pytest.raises(MemoryError, match="no room for a kernel"):
        team.run(kernel, True)
    team.run(kernel, False)
    assert threading.active_count() == threads_before


FORK = """
import os, torch
from test_cpu_step import WINDOWED, CpuStep, make_model, random_input
torch.set_num_threads(2)
steps, given = CpuStep(make_model(WINDOWED)), random_input(WINDOWED, 1, 5)
before = steps.hidden(*given)
child = os.fork()
if child == 0:
    os._exit(0 if torch.equal(steps.hidden(*given), before) else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_steps_on():
    command = [sys.executable, "-W", "ignore", "-c", FORK]
    assert subprocess.run(command, cwd=Path(__file__).parent, check=False, timeout=120).returncode == 0
