"""Systems that write into prompts: a Reviser (left-to-right ones too), MDLM, SEDD, any `transformers` causal model.

All get the same texts and leave `Generation`s; how a system tokenises is its own business. A generation depends on
(system, prompt, seed) alone, so a run that was broken off goes on where it was.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import torch

from reviser.config import override
from reviser.decoding.gap_filling import NEVER_TOLD, knows_telling
from reviser.decoding.requests import Request, keep_best
from reviser.decoding.sampling import PAPER, Sampling
from reviser.decoding.writer import Text, Writer
from reviser.diffusion import sampler
from reviser.diffusion.denoiser import FAMILIES, Denoiser
from reviser.diffusion.denoiser_folder import family_of, load_model, load_tokenizer
from reviser.errors import CheckpointError, ConfigError, MissingPackageError
from reviser.evaluation.generations import Generation, Prompt
from reviser.evaluation.metrics.flops import Cost, Shape, diffusion_flops, flops
from reviser.evaluation.metrics.likelihood import TextLikelihoods, log_likelihood
from reviser.evaluation.middles import CanvasLimits, Middles, has_learned_gaps
from reviser.evaluation.specs import SystemSpec
from reviser.model.folder import find, read_config
from reviser.orders.policies import LeftToRight, Order
from reviser.orders.record import to_record
from reviser.orders.registry import format_order, parse_order
from reviser.orders.rng import Random
from reviser.tokenizer import Tokenizer

ACTIONS_PER_TOKEN = 256 / 145
"""The paper's budget: 256 actions for a continuation of 145 tokens."""
WITHOUT_REFERENCE = 128
"""Tokens that a text may have whose prompt has no reference."""
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
    tokens of one tokenizer), converted into a system's own tokens by how many of either the text around takes; with
    `is_tokens` it is the system's own tokens already.
    """

    size: int | None = None
    ruler: Count = len
    is_tokens: bool = False

    def tokens(self, prompt: Prompt, count: Count) -> int:
        if self.size is None:
            return max(1, count(prompt.reference)) if prompt.reference else WITHOUT_REFERENCE
        if self.is_tokens:
            return self.size
        around = prompt.prefix + prompt.suffix or prompt.reference
        return max(1, math.ceil(self.size * count(around) / max(self.ruler(around), 1)))


def gap_budget(prompts: Sequence[Prompt]) -> Budget:
    """Room for twice the longest gap, in characters: the same for all, or a gap's length would be given away."""
    return Budget(2 * max(len(prompt.reference) for prompt in prompts))


class System(Protocol):
    """What is evaluated: anything with these verbs. Only `generate` is needed to measure texts."""

    name: str

    @property
    def precision(self) -> str:
        """What its matrix products are computed in."""
        ...

    def generate(self, prompts: Sequence[Prompt], seed: int) -> Iterable[Generation]:
        """What the system writes into each prompt, one for each; `reviser.evaluate` takes plain texts too."""
        ...

    def log_likelihood(self, texts: Sequence[str | Prompt], samples: int = 1, seed: int = 0) -> TextLikelihoods:
        """How probable texts are, or a bound, which it says; of a prompt its reference."""
        ...

    def middles(self, prompts: Sequence[Prompt], samples: int = 1, seed: int = 0) -> Middles:
        """How probable the references of gaps are, with what the system sees of the text around them."""
        ...

    def fill_greedily(self, prompts: Sequence[Prompt]) -> Iterable[Generation]:
        """What the system writes into each prompt if it always takes the most probable choice."""
        ...

    def flops(self, tokens: int, prompt: int = 0) -> Cost:
        """What writing that many tokens behind a prompt costs."""
        ...


def open_system(
    spec: SystemSpec | str,
    sampling: Sampling = PAPER,
    budget: Budget | None = None,
    device: str = "cpu",
    weights: Literal["auto", "float32"] = "auto",
) -> System:
    """The system that a spec names (specs.py), loaded.

    With weights "float32" int8 folders are not decoded in int8, which diffusion models cannot be.
    """
    spec = SystemSpec.parse(spec) if isinstance(spec, str) else spec
    try:
        sampling = override(sampling, spec.sampling)
    except ConfigError as error:
        raise ConfigError(f"--system {spec.text}: {error}") from None
    budget = budget or Budget()
    if not spec.is_transformers and family_of(spec.model) in FAMILIES:
        denoiser, tokenizer = load_model(spec.model, device), load_tokenizer(spec.model)
        assert isinstance(denoiser, Denoiser), "the family said so"
        _refuse_view(spec)
        limits = CanvasLimits.of(denoiser.config, _jobs_of(spec))
        return DiffusionSystem(spec.name, denoiser, tokenizer, sampling, budget, spec.steps or STEPS, limits)
    if spec.steps is not None:
        raise ConfigError(f"--system {spec.text}: only a diffusion model has steps, and {spec.model} is not one")
    if spec.is_transformers:
        _refuse_view(spec)
        return CausalSystem(spec.name, str(spec.path), sampling, budget, device)
    writer = Writer.from_pretrained(spec.model, device, NUM_ROWS[torch.device(device).type], weights)
    if spec.out_of_order and not knows_telling(writer.jobs):
        raise ConfigError(f"--system {spec.text}: {spec.model} {NEVER_TOLD}")
    more = spec.sees_suffix, spec.out_of_order, spec.best_of
    return ReviserSystem(spec.name, writer, sampling, budget, None, *more)


def _refuse_view(spec: SystemSpec) -> None:
    setting = "sees" if spec.sees_suffix is not None else spec.of_writing
    if setting:
        raise ConfigError(f"--system {spec.text}: {setting} is for a model that edits, and {spec.model} is not one")


def _jobs_of(spec: SystemSpec) -> str:
    """How the examples of a denoiser's training were cut, where its folder says so."""
    if not spec.is_folder:
        return ""
    trained = read_config(find(spec.model), FAMILIES).trained
    return trained.jobs if trained else ""


def number_of(prompt: Prompt, seed: int) -> int:
    """The number that decides all random choices of one generation."""
    digest = hashlib.sha256(prompt.id.encode()).digest()
    return Random.of(seed, int.from_bytes(digest[:8], "little")).state


def _parts(prompt: Prompt) -> tuple[str, str, str]:
    return prompt.prefix, prompt.reference, prompt.suffix


class ReviserSystem:
    """A model that writes by edit actions."""

    def __init__(
        self,
        name: str,
        writer: Writer,
        sampling: Sampling,
        budget: Budget,
        order: Order | None = None,
        sees_suffix: bool | None = None,
        out_of_order: bool = False,
        best_of: int = 1,
    ) -> None:
        """`order` is the policy of the likelihood bound; by default what the model was trained with.

        `sees_suffix` says whether gaps are filled with both sides in view, or from the prefix alone; by default a
        left-to-right model that was never taught gaps sees the prefix alone. `out_of_order` tells it to write
        continuations so. It writes `best_of` texts for each that is kept; their actions all count.
        """
        self.name, self.writer, self.sampling, self.budget = name, writer, sampling, budget
        self._order, self.out_of_order, self.best_of = order, out_of_order, best_of if sampling.temperature else 1
        self.sees_suffix = has_learned_gaps(writer.order, writer.jobs) if sees_suffix is None else sees_suffix

    @property
    def order(self) -> Order:
        return self._order or parse_order(self.writer.order or "left-to-right")

    @property
    def order_name(self) -> str:
        return format_order(self.order)

    def log_likelihood(self, texts: Sequence[str | Prompt], samples: int = 1, seed: int = 0) -> TextLikelihoods:
        """How probable texts are: exact from left to right, else a bound with `samples` trajectories."""
        return log_likelihood(self.writer.model, self.writer.tokenizer, self.order, texts, samples, seed)

    def middles(self, prompts: Sequence[Prompt], samples: int = 1, seed: int = 0) -> Middles:
        """Exact from left to right, else a bound; without a suffix the middle's tokens alone, appended."""
        encode, longest = self.writer.tokenizer.encode, self.writer.config.max_length
        seen = prompts if self.sees_suffix else [replace(each, suffix="") for each in prompts]
        fitting = [each for each in seen if sum(len(encode(part)) for part in _parts(each)) <= longest]
        order = self.order if self.sees_suffix else LeftToRight()
        found = log_likelihood(self.writer.model, self.writer.tokenizer, order, fitting, samples, seed)
        left_out = len(seen) - len(fitting)
        return Middles.of(fitting, found, self.sees_suffix, left_out, longest if left_out else None)

    def fill_greedily(self, prompts: Sequence[Prompt]) -> Iterator[Generation]:
        sampling = replace(self.sampling, temperature=0)
        system = ReviserSystem(
            self.name, self.writer, sampling, self.budget, self._order, self.sees_suffix, self.out_of_order
        )
        return system.generate(prompts, 0)

    def flops(self, tokens: int, prompt: int = 0) -> Cost:
        """What writing that many tokens costs, an action each."""
        return flops(self.writer.config, tokens, prompt=prompt)

    @property
    def precision(self) -> str:
        return self.writer.precision

    def generate(self, prompts: Sequence[Prompt], seed: int) -> Iterator[Generation]:
        requests = [self.request(prompt, seed, number) for prompt in prompts for number in range(self.best_of)]
        texts = self.writer.write(requests, self.sampling)
        for place, prompt in enumerate(prompts):
            tried = texts[place * self.best_of : (place + 1) * self.best_of]
            is_gap = bool(prompt.suffix) and self.sees_suffix
            [best] = keep_best(self.writer.compare(tried) if is_gap else tried, self.best_of)
            yield replace(self._generation(prompt, seed, best), num_actions=sum(text.num_actions for text in tried))

    def request(self, prompt: Prompt, seed: int, number: int = 0) -> Request:
        """What the writer is asked for a prompt, at first or again."""
        room = self.budget.tokens(prompt, lambda text: len(self.writer.tokenizer.encode(text)))
        suffix = prompt.suffix if self.sees_suffix else ""
        begun = (
            self.writer.continuation(prompt.prefix, room, out_of_order=True)
            if self.out_of_order and not suffix
            else self.writer.gap(prompt.prefix, suffix, room)
        )
        drawn = number_of(prompt, seed)
        return Request(
            begun, math.ceil(ACTIONS_PER_TOKEN * room), Random.of(drawn, number).state if number else drawn
        )

    def _generation(self, prompt: Prompt, seed: int, text: Text) -> Generation:
        return Generation(
            self.name, prompt.id, seed, prompt.prefix, text.new, prompt.suffix, prompt.reference, text.has_stopped,
            text.num_tokens, text.num_actions, to_record(text.trajectory), kind=prompt.kind,
        )  # fmt: skip


class DiffusionSystem:
    """MDLM or SEDD: a room as large as the budget, written in some steps; what stands before its end is the text.

    Temperature and truncation shape the denoiser's distribution of the token a place shows. `num_actions` of a
    generation counts how often the model was asked.
    """

    def __init__(
        self,
        name: str,
        model: Denoiser,
        tokenizer: Tokenizer,
        sampling: Sampling,
        budget: Budget,
        steps: int = STEPS,
        limits: CanvasLimits | None = None,
    ) -> None:
        self.name, self.model, self.tokenizer, self.steps = name, model, tokenizer, steps
        self.sampling, self.budget = sampling, budget
        self.limits = limits or CanvasLimits.of(model.config, "")

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
                prompt.reference, each.has_stopped, len(each.text), each.num_passes, kind=prompt.kind,
            )  # fmt: skip

    def log_likelihood(self, texts: Sequence[str | Prompt], samples: int = 1, seed: int = 0) -> TextLikelihoods:
        """How probable texts are at least, in expectation."""
        return log_likelihood(self.model, self.tokenizer, None, texts, samples, seed)

    def middles(self, prompts: Sequence[Prompt], samples: int = 1, seed: int = 0) -> Middles:
        """A bound on canvases of one room, none longer than those of its training."""
        encode, limits = self.tokenizer.encode, self.limits
        sizes = [[len(encode(part)) for part in _parts(prompt)] for prompt in prompts]
        room = min(max((size for _, size, _ in sizes), default=0) + 1, limits.room)
        fits = [size < room and before + room + behind <= limits.canvas for before, size, behind in sizes]
        fitting = [prompt for prompt, is_fitting in zip(prompts, fits, strict=True) if is_fitting]
        left_out = len(prompts) - len(fitting)
        longest = limits.canvas if left_out else None
        if not fitting:
            return Middles({}, {}, False, samples, True, True, left_out, longest)
        found = self.log_likelihood(fitting, samples, seed)
        return Middles.of(fitting, found, left_out=left_out, longest=longest)

    def fill_greedily(self, prompts: Sequence[Prompt]) -> Iterator[Generation]:
        sampling = replace(self.sampling, temperature=0)
        shape = self.tokenizer, sampling, self.budget, self.steps, self.limits
        return DiffusionSystem(self.name, self.model, *shape).generate(prompts, 0)

    def flops(self, tokens: int, prompt: int = 0) -> Cost:
        """What writing this many tokens costs, with the model run at every step."""
        return diffusion_flops(self.model.config, tokens, steps=self.steps, prompt=prompt)

    def _request(self, prompt: Prompt, seed: int) -> sampler.RoomRequest:
        encode, context = self.tokenizer.encode, self.model.config.context
        if prompt.suffix:
            context = self.limits.canvas
        before, behind = encode(prompt.prefix), encode(prompt.suffix)
        given = len(before) + len(behind)
        if given >= context:
            raise ConfigError(
                f"system {self.name}: prompt {prompt.id} has {given} tokens, but the model was trained with canvases "
                f"of {context} at most; give shorter prompts"
            )
        room = min(self.budget.tokens(prompt, lambda text: len(encode(text))), context - given)
        if prompt.suffix:
            room = min(room, self.limits.room)
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

    @torch.no_grad()
    def fill_greedily(self, prompts: Sequence[Prompt]) -> Iterator[Generation]:
        for prompt in prompts:
            yield self._continue(prompt, 0, is_greedy=True)

    def middles(self, prompts: Sequence[Prompt], samples: int = 1, seed: int = 0) -> Middles:
        """Exact, after the prefix alone."""
        alone = [replace(each, suffix="") for each in prompts]
        return Middles.of(alone, self.log_likelihood(alone), sees_suffix=False)

    @torch.no_grad()
    def log_likelihood(self, texts: Sequence[str | Prompt], samples: int = 1, seed: int = 0) -> TextLikelihoods:
        """How probable texts are, exactly; a text must follow something, and nothing may follow it."""
        log_p, counts = [], []
        for each in texts:
            prompt = Prompt("", "", each) if isinstance(each, str) else each
            if prompt.suffix:
                raise ConfigError(f"system {self.name} reads from left to right; it has no likelihood of a gap")
            before = self._encode(prompt.prefix) or [self._start]
            ids = self._encode(prompt.reference)
            given = torch.tensor([[*before, *ids]], device=self.device)
            scores = self.model(given).logits[0, len(before) - 1 : -1].float().log_softmax(-1)
            log_p.append(float(scores.gather(1, given[0, len(before) :, None]).sum()))
            counts.append(len(ids))
        return TextLikelihoods(log_p, [0.0] * len(log_p), counts, 1, True)

    def flops(self, tokens: int, prompt: int = 0) -> Cost:
        """What writing that many tokens costs with cached keys, from the shape in its configuration."""
        config = self.model.config
        ff_width = (
            getattr(config, "intermediate_size", None) or getattr(config, "n_inner", None) or 4 * config.hidden_size
        )
        shape = Shape(config.num_hidden_layers, config.hidden_size, ff_width, config.vocab_size)
        positions = prompt + tokens
        pairs = shape.pairs(positions * (positions + 1) / 2)
        return Cost(shape.dense(positions), pairs, 0.0, shape.head(tokens))

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    @property
    def _start(self) -> int:
        """What stands before a text that nothing stands before."""
        found = self.tokenizer.bos_token_id
        return int(self.tokenizer.eos_token_id if found is None else found)

    @property
    def _drawn(self) -> dict[str, Any]:
        """How tokens are drawn, in the words of `transformers`."""
        sampling = self.sampling
        return {
            "do_sample": True, "temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p,
            "min_p": sampling.min_p or None,
        }  # fmt: skip

    def _continue(self, prompt: Prompt, seed: int, is_greedy: bool = False) -> Generation:
        tokenizer = self.tokenizer
        room = self.budget.tokens(prompt, lambda text: len(tokenizer.encode(text, add_special_tokens=False)))
        given = tokenizer(prompt.prefix, return_tensors="pt").to(self.device)
        # One at a time: a batch would make a text depend on its neighbours.
        torch.manual_seed(number_of(prompt, seed) >> 1)
        ids = self.model.generate(
            **given, max_new_tokens=room, **({"do_sample": False} if is_greedy else self._drawn),
            pad_token_id=tokenizer.pad_token_id or tokenizer.eos_token_id,
        )[0, given["input_ids"].shape[1] :]  # fmt: skip
        has_stopped = bool(len(ids)) and int(ids[-1]) == tokenizer.eos_token_id
        count = len(ids) - has_stopped
        text = tokenizer.decode(ids[:count], skip_special_tokens=True)
        return Generation(
            self.name, prompt.id, seed, prompt.prefix, text, prompt.suffix, prompt.reference, has_stopped, count,
            len(ids), kind=prompt.kind,
        )  # fmt: skip
