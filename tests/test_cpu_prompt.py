"""Prompts read by the kernels are what the model reads, whatever the model, the seeds, the rows and the threads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cpu_step import WINDOWED, assert_close, configs, make_model, random_input

from reviser import compiled, machine_code
from reviser.canvas import Rules
from reviser.config import ModelConfig
from reviser.decoding.backends import Reads
from reviser.decoding.cpu import prompt_kernels, prompt_tiles
from reviser.decoding.cpu import step_kernels as kernels
from reviser.decoding.cpu.step import CpuStep
from reviser.decoding.drafts import DraftInputs, draft_inputs
from reviser.model.cache import Cache
from reviser.model.conditioning import CanvasInput
from reviser.orders.record import Draft

counts_of_seeds = st.lists(st.integers(1, 24), min_size=1, max_size=5)


@pytest.fixture(autouse=True)
def _same_threads_afterwards() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def random_seeds(config: ModelConfig, counts: list[int]) -> DraftInputs:
    actions, canvas = random_input(config, len(counts), max(counts))
    return DraftInputs(actions, torch.tensor(counts), canvas)


def used_cache(config: ModelConfig, num_rows: int) -> Cache:
    """One that others have written to."""
    cache = Cache.empty(config, num_rows)
    for tensor in (*cache.keys, *cache.values, *points_of(cache)):
        tensor.normal_()
    cache.lengths.fill_(7)
    return cache


def points_of(cache: Cache) -> tuple[torch.Tensor, ...]:
    """The pointer's keys as if they were those of one head of attention."""
    return () if cache.pointers is None else (cache.pointers[:, None],)


def copied(cache: Cache) -> Cache:
    keys, values = (tuple(each.clone() for each in part) for part in (cache.keys, cache.values))
    pointers = None if cache.pointers is None else cache.pointers.clone()
    return Cache(keys, values, cache.lengths.clone(), pointers)


def parts_of(cache: Cache) -> tuple[torch.Tensor, ...]:
    return cache.keys + cache.values + points_of(cache)


@settings(max_examples=36)
@given(configs, counts_of_seeds, st.integers(1, 3), st.data())
def test_what_is_read_is_what_the_model_reads(config, counts, threads, data):
    torch.set_num_threads(threads)
    model, seeds = make_model(config, data.draw(st.integers(0, 99))), random_seeds(config, counts)
    plain, cache = Cache.empty(config, len(counts)), used_cache(config, len(counts) + 2)
    before = copied(cache)
    rows = data.draw(st.permutations(range(len(counts) + 2)))[: len(counts)]
    wanted = model.step(seeds.actions, seeds.canvas, plain, seeds.counts)
    found = CpuStep(model).read(seeds, torch.tensor(rows), cache)
    for number, (row, count) in enumerate(zip(rows, counts, strict=True)):
        assert_close(found[number], wanted[number, count - 1])
        assert cache.lengths[row] == count
        for kept, written in zip(parts_of(plain), parts_of(cache), strict=True):
            assert_close(written[row, :, :count], kept[number, :, :count])
    others = [row for row in range(len(counts) + 2) if row not in rows]
    assert torch.equal(cache.lengths[others], before.lengths[others])
    for old, new in zip(parts_of(before), parts_of(cache), strict=True):
        assert torch.equal(new[others], old[others])


@settings(max_examples=24)
@given(configs, counts_of_seeds, st.integers(1, 3))
def test_int8_prompts_are_read_as_int8_steps_take_them(config, counts, threads):
    torch.set_num_threads(threads)
    model, seeds = make_model(config), random_seeds(config, counts)
    steps, cache = CpuStep(model, "int8"), used_cache(config, len(counts))
    wanted = steps.hidden(seeds.actions, seeds.canvas)
    found = steps.read(seeds, torch.arange(len(counts)), cache)
    for number, count in enumerate(counts):
        expected = wanted[number, count - 1]
        # Sums of bytes are exact; a vector between two of them may be rounded the other way now and then.
        assert (found[number] - expected).pow(2).mean() < 1e-3 * expected.pow(2).mean()


@settings(max_examples=24)
@given(configs, counts_of_seeds, st.sampled_from(["float32", "int8"]), st.integers(1, 3))
def test_a_prompt_is_read_the_same_whatever_stands_beside_it(config, counts, weights, threads):
    torch.set_num_threads(threads)
    steps, seeds = CpuStep(make_model(config), weights), random_seeds(config, counts)
    together, row = Cache.empty(config, len(counts)), torch.tensor([0])
    found = steps.read(seeds, torch.arange(len(counts)), together)
    for number, count in enumerate(counts):
        windows = seeds.canvas.windows
        canvas = CanvasInput(None if windows is None else windows[number : number + 1, :count])
        alone = Cache.empty(config, 1)
        one = DraftInputs(seeds.actions[number : number + 1, :count], torch.tensor([count]), canvas)
        assert torch.equal(steps.read(one, row, alone)[0], found[number])
        for here, there in zip(parts_of(alone), parts_of(together), strict=True):
            assert torch.equal(here[0, :, :count], there[number, :, :count])


@settings(max_examples=12)
@given(configs, st.sampled_from(["float32", "int8"]), st.integers(1, 12), st.integers(1, 6))
def test_a_prompt_and_steps_behind_it_are_a_longer_prompt(config, weights, count, more):
    model = make_model(config)
    steps, longer = CpuStep(model, weights), random_seeds(config, [count + more])
    caches, row = [Cache.empty(config, 1) for _ in range(2)], torch.tensor([0])
    windows = longer.canvas.windows

    def shown(places: slice) -> CanvasInput:
        return CanvasInput() if windows is None else CanvasInput(windows[:, places])

    beginning = DraftInputs(longer.actions[:, :count], torch.tensor([count]), shown(slice(count)))
    found = steps.read(beginning, row, caches[0])
    for t in range(count, count + more):
        found = steps.step(longer.actions[:, t : t + 1], shown(slice(t, t + 1)), caches[0])[:, 0]
    expected = steps.read(longer, row, caches[1])
    assert (found - expected).pow(2).mean() < 1e-3 * expected.pow(2).mean()
    assert torch.equal(caches[0].lengths, caches[1].lengths)
    for here, there in zip(*(points_of(cache) for cache in caches), strict=True):
        assert (here - there).pow(2).mean() < 1e-2 * there.pow(2).mean()


@pytest.mark.parametrize("num_seeds", [1, 3, 70])
def test_real_seeds_of_many_rows_are_read(num_seeds):
    model, rules = make_model(WINDOWED), Rules(WINDOWED.alphabet, max_length=WINDOWED.max_length)
    some = [Draft.infill([1, 2, 3], [4, 5], rules), Draft.continuation([6], rules), Draft.continuation([], rules)]
    seeds = draft_inputs(list(itertools.islice(itertools.cycle(some), num_seeds)), WINDOWED)
    plain, cache = (Cache.empty(WINDOWED, num_seeds) for _ in range(2))
    wanted = model.step(seeds.actions, seeds.canvas, plain, seeds.counts)
    steps, rows = CpuStep(model), torch.arange(num_seeds)
    assert isinstance(steps, Reads)
    assert_close(steps.read(seeds, rows, cache), wanted[rows, seeds.counts - 1])
    assert torch.equal(cache.lengths, plain.lengths)


def test_a_matrix_with_more_columns_than_a_block_is_multiplied_whole():
    config = replace(WINDOWED, ff_width=2 * prompt_tiles.BLOCK + 37, num_layers=1)
    model, seeds = make_model(config), random_seeds(config, [13, 9])
    wanted = model.step(seeds.actions, seeds.canvas, Cache.empty(config, 2), seeds.counts)
    found = CpuStep(model).read(seeds, torch.arange(2), Cache.empty(config, 2))
    assert_close(found, torch.stack([wanted[0, 12], wanted[1, 8]]))


@given(st.integers(1, 2000))
def test_panels_hold_every_position_and_no_panel_is_empty(num_positions):
    count, width = prompt_tiles.panels_for(num_positions)
    assert (count - 1) * width < num_positions <= count * width
    assert width % prompt_tiles.LANES == 0
    assert width <= prompt_tiles.MOST_STRIPS * prompt_tiles.LANES


@pytest.mark.parametrize("module", [prompt_kernels, kernels, prompt_tiles, machine_code])
def test_a_changed_callee_changes_the_stamp_of_the_kernel(module, monkeypatch):
    before, hashed = compiled.stamp_of(prompt_kernels.read.py_func), compiled._hash_source
    monkeypatch.setattr(
        compiled, "_hash_source", lambda path: b"changed" if path == module.__file__ else hashed(path)
    )
    assert compiled.stamp_of(prompt_kernels.read.py_func) != before


def test_no_prompt_is_so_short_that_it_takes_a_kernel_of_its_own():
    for counts in ([1], [1, 1], [3], [2, 5]):
        CpuStep(make_model(WINDOWED)).read(
            random_seeds(WINDOWED, counts), torch.arange(len(counts)), Cache.empty(WINDOWED, len(counts))
        )
    assert len(prompt_kernels.read.signatures) == 1


def test_windows_are_asked_for():
    model = make_model(WINDOWED)
    seeds = DraftInputs(torch.zeros(1, 2, dtype=torch.int64), torch.tensor([2]), CanvasInput())
    with pytest.raises(ValueError, match=r"needs CanvasInput\.windows"):
        CpuStep(model).read(seeds, torch.tensor([0]), Cache.empty(WINDOWED, 1))


def test_numbers_of_any_layout_are_read():
    model, seeds = make_model(WINDOWED), random_seeds(WINDOWED, [5, 5])
    turned = DraftInputs(seeds.actions.t().contiguous().t(), seeds.counts.int().long(), seeds.canvas)
    first, second = (
        CpuStep(model).read(each, torch.arange(2), Cache.empty(WINDOWED, 2)).numpy() for each in (seeds, turned)
    )
    assert np.array_equal(first, second)
