"""Systems that write into prompts: a Reviser (left-to-right ones too) and any `transformers` causal model.

Both get the same texts and leave `Generation`s; how a system tokenises is its own business. A generation depends on
(system, prompt, seed) alone, so a run that was broken off goes on where it was.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from reviser.decoding.engine import Request
from reviser.decoding.sampling import PAPER, Sampling
from reviser.decoding.writer import Text, Writer
from reviser.errors import CheckpointError, ConfigError, MissingPackageError
from reviser.evaluation.records import Generation, Prompt
from reviser.trajectory.record import to_record
from reviser.trajectory.rng import Random

ACTIONS_PER_TOKEN = 256 / 145
"""The paper's budget: 256 actions for a continuation of 145 tokens."""


Count = Callable[[str], int]
"""How many of a system's own tokens a text has."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a system may write into a gap: as many tokens as the reference has, or so many characters for all.

    A budget in characters does not give the gap's length away; it is turned into a system's tokens by how many of
    them the text around the gap takes.
    """

    characters: int | None = None

    def tokens(self, prompt: Prompt, count: Count) -> int:
        if self.characters is None:
            return max(1, count(prompt.reference))
        around = prompt.prefix + prompt.suffix
        return max(1, math.ceil(self.characters * count(around) / max(len(around), 1)))


class System(Protocol):
    name: str

    def generate(self, prompts: Sequence[Prompt], seed: int) -> Iterator[Generation]:
        """What the system writes into each prompt, in any order."""
        ...


def open_system(spec: str, sampling: Sampling = PAPER, budget: Budget | None = None, device: str = "cpu") -> System:
    """NAME=FOLDER for a Reviser's model folder, NAME=hf:MODEL for a `transformers` causal model."""
    name, is_given, model = spec.partition("=")
    if not (name and is_given and model):
        raise ConfigError(f"--system {spec} is no NAME=MODEL; write ours=runs/mine/model or gpt2=hf:gpt2")
    budget = budget or Budget()
    if model.startswith("hf:"):
        return CausalSystem(name, model.removeprefix("hf:"), sampling, budget, device)
    return ReviserSystem(name, Writer.from_pretrained(model, device), sampling, budget)


def number_of(prompt: Prompt, seed: int) -> int:
    """The number that decides all random choices of one generation."""
    digest = hashlib.sha256(prompt.id.encode()).digest()
    return Random.of(seed, int.from_bytes(digest[:8], "little")).state


class ReviserSystem:
    """A model that writes by edit actions."""

    def __init__(self, name: str, writer: Writer, sampling: Sampling, budget: Budget) -> None:
        self.name, self.writer, self.sampling, self.budget = name, writer, sampling, budget

    def generate(self, prompts: Sequence[Prompt], seed: int) -> Iterator[Generation]:
        requests = [self._request(prompt, seed) for prompt in prompts]
        for prompt, text in zip(prompts, self.writer.write(requests, self.sampling), strict=True):
            yield self._generation(prompt, seed, text)

    def _request(self, prompt: Prompt, seed: int) -> Request:
        room = self.budget.tokens(prompt, lambda text: len(self.writer.tokenizer.encode(text)))
        begun = self.writer.gap(prompt.prefix, prompt.suffix, room)
        return Request(begun, math.ceil(ACTIONS_PER_TOKEN * room), number_of(prompt, seed))

    def _generation(self, prompt: Prompt, seed: int, text: Text) -> Generation:
        rules, canvas = text.seed.rules, text.written.canvas
        return Generation(
            self.name, prompt.id, seed, prompt.prefix, text.new, prompt.suffix, prompt.reference, text.has_stopped,
            len(canvas.tokens) - rules.prefix - rules.suffix, text.num_actions, to_record(text.trajectory),
        )  # fmt: skip


class CausalSystem:
    """A `transformers` causal model, which continues the prefix and never sees a suffix."""

    def __init__(self, name: str, model: str, sampling: Sampling, budget: Budget, device: str) -> None:
        try:
            import transformers
        except ImportError:
            raise MissingPackageError("transformers", f"system {name}", "pip install 'reviser[eval]'") from None
        if sampling.temperature == 0 or sampling.has_guards:
            raise ConfigError(f"system {name}: a transformers model takes temperature, top_k, top_p and min_p alone")
        auto: Any = transformers
        try:
            self.tokenizer = auto.AutoTokenizer.from_pretrained(model)
            self.model = auto.AutoModelForCausalLM.from_pretrained(model).to(device).eval()
        except (OSError, ValueError) as error:
            reason = str(error).strip().split("\n")[0]
            raise CheckpointError(
                f"system {name}: no causal model {model} ({reason}); give a folder or a hub id"
            ) from None
        self.name, self.sampling, self.budget, self.device = name, sampling, budget, device

    @torch.no_grad()
    def generate(self, prompts: Sequence[Prompt], seed: int) -> Iterator[Generation]:
        for prompt in prompts:
            yield self._continue(prompt, seed)

    def _continue(self, prompt: Prompt, seed: int) -> Generation:
        sampling, tokenizer = self.sampling, self.tokenizer
        room = self.budget.tokens(prompt, lambda text: len(tokenizer.encode(text, add_special_tokens=False)))
        given = tokenizer(prompt.prefix, return_tensors="pt").to(self.device)
        # One at a time: a batch would make a text depend on its neighbours.
        torch.manual_seed(number_of(prompt, seed) >> 1)
        ids = self.model.generate(
            **given, max_new_tokens=room, do_sample=True, temperature=sampling.temperature, top_k=sampling.top_k,
            top_p=sampling.top_p, min_p=sampling.min_p or None,
            pad_token_id=tokenizer.pad_token_id or tokenizer.eos_token_id,
        )[0, given["input_ids"].shape[1] :]  # fmt: skip
        has_stopped = bool(len(ids)) and int(ids[-1]) == tokenizer.eos_token_id
        count = len(ids) - has_stopped
        text = tokenizer.decode(ids[:count], skip_special_tokens=True)
        return Generation(
            self.name, prompt.id, seed, prompt.prefix, text, prompt.suffix, prompt.reference, has_stopped, count,
            len(ids),
        )  # fmt: skip
