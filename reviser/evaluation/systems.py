"""Systems that write into prompts: a Reviser (left-to-right ones too), MDLM, SEDD, any `transformers` causal model.

All get the same texts and leave `Generation`s; how a system tokenises is its own business. A generation depends on
(system, prompt, seed) alone, so a run that was broken off goes on where it was.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch

from reviser.config import override
from reviser.decoding.engine import Request
from reviser.decoding.sampling import PAPER, Sampling
from reviser.decoding.writer import Text, Writer
from reviser.diffusion import sampler
from reviser.diffusion.denoiser import FAMILIES, Denoiser
from reviser.diffusion.denoiser_folder import family_of, load_model, load_tokenizer
from reviser.errors import CheckpointError, ConfigError, MissingPackageError
from reviser.evaluation.metrics.flops import Cost, diffusion_flops
from reviser.evaluation.metrics.likelihood import Likelihood, log_likelihood
from reviser.evaluation.records import Generation, Prompt
from reviser.orders.record import to_record
from reviser.orders.rng import Random
from reviser.tokenizer import Tokenizer

ACTIONS_PER_TOKEN = 256 / 145
"""The paper's budget: 256 actions for a continuation of 145 tokens."""
STEPS = 128
"""Of a diffusion model, as many as the paper gives them."""
NUM_ROWS = {"cpu": 16, "cuda": 256}
"""Texts that a system writes at once, by device."""

Count = Callable[[str], int]
"""How many of a system's own tokens a text has."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a system may write: as many tokens as the reference has, or the same for all prompts.

    The same for all does not give the reference's length away. It is `size` of what `ruler` counts (characters,
    tokens of one tokenizer), turned into a system's own tokens by how many of either the text around takes.
    """

    size: int | None = None
    ruler: Count = len

    def tokens(self, prompt: Prompt, count: Count) -> int:
        if self.size is None:
            return max(1, count(prompt.reference))
        around = prompt.prefix + prompt.suffix or prompt.reference
        return max(1, math.ceil(self.size * count(around) / max(self.ruler(around), 1)))


class System(Protocol):
    name: str

    @property
    def precision(self) -> str:
        """What its matrix products are computed in."""
        ...

    def generate(self, prompts: Sequence[Prompt], seed: int) -> Iterator[Generation]:
        """What the system writes into each prompt, in any order."""
        ...


def open_system(
    spec: str,
    sampling: Sampling = PAPER,
    budget: Budget | None = None,
    device: str = "cpu",
    weights: Literal["auto", "float32"] = "auto",
) -> System:
    """NAME=FOLDER for a model folder, NAME=hf:MODEL for a `transformers` causal model.

    NAME=published:MODEL is the published MDLM or SEDD (baselines/published.py).
    Settings may follow: those of sampling for all (ours=runs/mine/model,jump_bias=1.5), and for a diffusion model the
    number of its steps (mdlm=runs/mdlm/model,steps=32). With weights "float32" int8 folders are not decoded in int8,
    which diffusion models cannot be.
    """
    name, is_given, model = spec.partition("=")
    if not (name and is_given and model):
        raise ConfigError(f"--system {spec} is no NAME=MODEL; write ours=runs/mine/model or gpt2=hf:gpt2")
    folder, *changes = model.split(",")
    steps = [change.removeprefix("steps=") for change in changes if change.startswith("steps=")]
    try:
        sampling = override(sampling, [change for change in changes if not change.startswith("steps=")])
    except ConfigError as error:
        raise ConfigError(f"--system {spec}: {error}") from None
    budget = budget or Budget()
    if not folder.startswith("hf:") and family_of(folder) in FAMILIES:
        if steps and not (steps[-1].isdecimal() and int(steps[-1]) > 0):
            raise ConfigError(f"--system {spec}: steps={steps[-1]} must be a whole number of at least 1")
        denoiser, tokenizer = load_model(folder, device), load_tokenizer(folder)
        assert isinstance(denoiser, Denoiser), "the family said so"
        return DiffusionSystem(name, denoiser, tokenizer, sampling, budget, int(steps[-1]) if steps else STEPS)
    if steps:
        raise ConfigError(f"--system {spec}: steps are a diffusion model's, and {folder} is none")
    if folder.startswith("hf:"):
        return CausalSystem(name, folder.removeprefix("hf:"), sampling, budget, device)
    writer = Writer.from_pretrained(folder, device, NUM_ROWS[torch.device(device).type], weights)
    return ReviserSystem(name, writer, sampling, budget)


def number_of(prompt: Prompt, seed: int) -> int:
    """The number that decides all random choices of one generation."""
    digest = hashlib.sha256(prompt.id.encode()).digest()
    return Random.of(seed, int.from_bytes(digest[:8], "little")).state


class ReviserSystem:
    """A model that writes by edit actions."""

    def __init__(self, name: str, writer: Writer, sampling: Sampling, budget: Budget) -> None:
        self.name, self.writer, self.sampling, self.budget = name, writer, sampling, budget

    @property
    def precision(self) -> str:
        return self.writer.precision

    def generate(self, prompts: Sequence[Prompt], seed: int) -> Iterator[Generation]:
        requests = [self._request(prompt, seed) for prompt in prompts]
        for prompt, text in zip(prompts, self.writer.write(requests, self.sampling), strict=True):
            yield self._generation(prompt, seed, text)

    def _request(self, prompt: Prompt, seed: int) -> Request:
        room = self.budget.tokens(prompt, lambda text: len(self.writer.tokenizer.encode(text)))
        begun = self.writer.gap(prompt.prefix, prompt.suffix, room)
        return Request(begun, math.ceil(ACTIONS_PER_TOKEN * room), number_of(prompt, seed))

    def _generation(self, prompt: Prompt, seed: int, text: Text) -> Generation:
        rules, canvas = text.draft.rules, text.decoded.canvas
        return Generation(
            self.name, prompt.id, seed, prompt.prefix, text.new, prompt.suffix, prompt.reference, text.has_stopped,
            len(canvas.tokens) - rules.prefix - rules.suffix, text.num_actions, to_record(text.trajectory),
        )  # fmt: skip


class DiffusionSystem:
    """MDLM or SEDD: a room as large as the budget, written in some steps; what stands before its end is the text.

    Temperature and truncation shape the denoiser's distribution of the token a place shows. `num_actions` of a
    generation counts how often the model was asked.
    """

    def __init__(
        self, name: str, model: Denoiser, tokenizer: Tokenizer, sampling: Sampling, budget: Budget, steps: int = STEPS
    ) -> None:
        self.name, self.model, self.tokenizer, self.steps = name, model, tokenizer, steps
        self.sampling, self.budget = sampling, budget

    @property
    def precision(self) -> str:
        # As it was trained there.
        return "bfloat16" if self.model.head_weight.is_cuda else "float32"

    def generate(self, prompts: Sequence[Prompt], seed: int) -> Iterator[Generation]:
        requests = [self._request(prompt, seed) for prompt in prompts]
        device = self.model.head_weight.device
        with torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bfloat16"):
            filled = sampler.fill(self.model, requests, self.steps, self.sampling, device, NUM_ROWS[device.type])
        for prompt, each in zip(prompts, filled, strict=True):
            yield Generation(
                self.name, prompt.id, seed, prompt.prefix, self.tokenizer.decode(each.text), prompt.suffix,
                prompt.reference, each.has_stopped, len(each.text), each.num_passes,
            )  # fmt: skip

    def log_likelihood(self, texts: Sequence[str | Prompt], samples: int = 1, seed: int = 0) -> Likelihood:
        """How probable texts are at least, in expectation."""
        return log_likelihood(self.model, self.tokenizer, None, texts, samples, seed)

    def flops(self, tokens: int, prompt: int = 0) -> Cost:
        """What writing so many tokens costs, the model asked at every step."""
        return diffusion_flops(self.model.config, tokens, steps=self.steps, prompt=prompt)

    def _request(self, prompt: Prompt, seed: int) -> sampler.RoomRequest:
        encode, context = self.tokenizer.encode, self.model.config.context
        before, behind = encode(prompt.prefix), encode(prompt.suffix)
        given = len(before) + len(behind)
        if given >= context:
            raise ConfigError(
                f"system {self.name}: prompt {prompt.id} has {given} tokens, but the model was trained with canvases "
                f"of {context} at most; give shorter prompts"
            )
        room = min(self.budget.tokens(prompt, lambda text: len(encode(text))), context - given)
        return sampler.RoomRequest(room, number_of(prompt, seed), before, behind)


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

    @property
    def precision(self) -> str:
        return str(self.model.dtype).removeprefix("torch.")

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
