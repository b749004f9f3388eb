"""What a continuation cost those who wrote it: its multiply-accumulates, and seconds on this machine.

Both are means over texts with their errors, and per byte written, for texts differ in length. Multiply-accumulates
follow from the actions, or passes, that a text really took; seconds are those of one text at a time, after one that
is not counted, for about a minute a system, with float32 weights where int8 ones would do.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from reviser.decoding.sampling import PAPER
from reviser.diffusion.denoiser import FAMILIES
from reviser.diffusion.denoiser_folder import load_tokenizer
from reviser.evaluation.generations import Generation, Prompt
from reviser.evaluation.measures import Measure, quotient
from reviser.evaluation.metrics.flops import diffusion_flops, flops
from reviser.evaluation.specs import SystemSpec
from reviser.evaluation.systems import Budget, System, open_system
from reviser.evaluation.texts import read_texts
from reviser.model.folder import FORMATS, find, read_config
from reviser.paper.setup import Setup, writers
from reviser.tokenizer import load
from reviser.training.distributed import join_team

PATIENCE = 60.0
"""Seconds after which no further text of a system is timed, so that a thousand steps on a CPU do not take an hour."""
FEWEST_TIMED = 3
"""Texts that are timed all the same."""


def flops_rows(setup: Setup) -> list[dict[str, Any]]:
    """Of every system whose shape is known."""
    rows = []
    for name, spec in writers(setup).items():
        if spec.is_folder:
            generations = read_texts([setup.written("continuation", name)], setup.num_prompts)
            prompts = [each.prompt_id for each in generations]
            costs = list(_gmacs(setup, spec, generations))
            sizes = [float(len(each.text.encode())) for each in generations]
            rows.append(
                {
                    "system": name,
                    "gmacs": _measure(quotient(prompts, costs)),
                    "gmacs_per_byte": _measure(quotient(prompts, costs, sizes)),
                }
            )
    return rows


def _gmacs(setup: Setup, spec: SystemSpec, generations: list[Generation]) -> Iterator[float]:
    """Of each text; an empty one took an action or a pass as well."""
    folder, budget = spec.model, _budget(setup)
    found = read_config(find(folder), FORMATS)
    model, is_denoiser = found.model, found.format in FAMILIES
    tokenizer = load_tokenizer(folder)

    def count(text: str) -> int:
        return len(tokenizer.encode(text))

    for each in generations:
        # What is kept of several texts has the actions of all, each of which began with the prompt.
        prompt, asked = count(each.prefix), max(math.ceil(each.num_actions / spec.best_of), 1)
        if is_denoiser:
            room = min(budget.tokens(_prompt(each), count), model.context - prompt)
            yield diffusion_flops(model, room, steps=asked, prompt=prompt).macs / 1e9
        else:
            each_cost = flops(model, min(max(each.num_tokens, 1), asked), actions=asked, prompt=prompt)
            yield spec.best_of * each_cost.macs / 1e9


def seconds_rows(setup: Setup, report: Callable[[str], None]) -> list[dict[str, Any]]:
    """Of every system, for the first few prompts."""
    device, rows = join_team(setup.device).device, []
    for name, spec in writers(setup).items():
        report(name)
        system = open_system(spec, PAPER, _budget(setup), str(device), "float32")
        generations = read_texts([setup.written("continuation", name)], setup.num_prompts)
        prompts = list({each.prompt_id: _prompt(each) for each in generations}.values())[: setup.scale.num_timed]
        timed = time_system(system, prompts, setup.scale.seeds[0], device)
        rows.append({"system": name, "precision": system.precision} | timed)
    return rows


def time_system(
    system: System, prompts: list[Prompt], seed: int, device: torch.device, patience: float = PATIENCE
) -> dict[str, Any]:
    """Seconds a continuation and a byte of it, one text at a time; a slow system is given fewer texts."""
    list(system.generate(prompts[:1], seed))
    spent, sizes = list[float](), list[float]()
    for prompt in prompts:
        if sum(spent) > patience and len(spent) >= FEWEST_TIMED:
            break
        began = _now(device)
        [written] = system.generate([prompt], seed)
        spent.append(_now(device) - began)
        sizes.append(float(len(written.text.encode())))
    ids = [prompt.id for prompt in prompts[: len(spent)]]
    return {"seconds": _measure(Measure.of(spent)), "seconds_per_byte": _measure(quotient(ids, spent, sizes))}


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _prompt(each: Generation) -> Prompt:
    return Prompt(each.prompt_id, each.prefix, each.reference, each.suffix)


def _budget(setup: Setup) -> Budget:
    """The room of `reviser eval continuation`."""
    ruler = load(setup.scale.ruler)
    return Budget(setup.scale.total - setup.scale.prefix, lambda text: len(ruler.encode(text)))


def _measure(measure: Measure | None) -> dict[str, Any] | None:
    if measure is None:
        return None
    return {"value": measure.value, "error": measure.error, "n": measure.n}
