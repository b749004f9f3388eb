"""Continuation and infilling: systems write into prompts, and what they wrote is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from reviser.errors import ConfigError
from reviser.evaluation.gap_kinds import GAP_KINDS
from reviser.evaluation.generations import GenerationFile, Prompt, open_generations
from reviser.evaluation.specs import SystemSpec, parse_systems
from reviser.evaluation.suites.base import SILENT, Listener, Suite, option
from reviser.reports.results import hash_files, make_result

if TYPE_CHECKING:
    from reviser.evaluation.systems import Budget, System

SEEDS = (123, 124, 125)
AT_ONCE = {"cpu": 64, "cuda": 256}
"""Generations between two writes to the file, by device."""
TEXTS = "files or folders of documents (jsonl, txt, ...), or a data folder, for its held-out documents"
SYSTEM = "shipped, or NAME= a model folder, hf:MODEL of transformers, published:MODEL of MDLM or SEDD; repeatable"
PROMPTS = "maximum number of prompts (default: all)"
DEVICE = "auto, cpu or cuda (default: auto)"
RULER = "tokenizer that counts lengths (default: gpt2)"


@dataclass(frozen=True, kw_only=True)
class Writing(Suite):
    """What both have in common."""

    texts: tuple[str, ...] = option(positional=True, metavar="TEXTS", help=TEXTS)
    system: tuple[str, ...] = option(metavar="NAME=MODEL", help=SYSTEM)
    generations: str = option(metavar="FILE", help="where generations are kept, as JSON lines; resumed if it exists")
    n: int | None = option(None, help=PROMPTS)
    seeds: tuple[int, ...] = option(SEEDS, commas=-1, help="random seeds, comma-separated (default: 123,124,125)")
    ruler: str = option("gpt2", help=RULER)
    temperature: float = option(0.9, help="default: 0.9")
    top_k: int = option(50, help="default: 50; 0 is all")
    device: str = option("auto", help=DEVICE)

    def check(self) -> None:
        self.at_least(1, "n")
        parse_systems(self.system)

    def _write(
        self, prompts: Sequence[Prompt], budget: Budget, config: dict[str, Any], listener: Listener
    ) -> dict[str, Any]:
        """Have all systems write what the file lacks, and sum up."""
        chosen = prompts[: self.n]
        with open_generations(self.generations) as file:
            rows = [self._row(spec, budget, chosen, file, listener) for spec in parse_systems(self.system)]
        config |= {"n": len(chosen), "seeds": list(self.seeds), "ruler": self.ruler, "temperature": self.temperature}
        about = {"texts": list(self.texts), "generations": hash_files([self.generations])}
        return make_result("generations", rows, config | {"top_k": self.top_k}, self.words, **about)

    def _row(
        self, spec: SystemSpec, budget: Budget, prompts: Sequence[Prompt], file: GenerationFile, listener: Listener
    ) -> dict[str, Any]:
        from reviser.decoding.presets import Sampling
        from reviser.evaluation.systems import open_system
        from reviser.training.distributed import join_team

        device = join_team(self.device).device
        sampling = Sampling(temperature=self.temperature, top_k=self.top_k)
        system = open_system(spec, sampling, budget, str(device))
        maker = name_maker(spec, [self.temperature, self.top_k, budget.size])
        refuse_others(system.name, maker, prompts, file)
        write_missing(system, maker, prompts, self.seeds, file, AT_ONCE[device.type], listener)
        model = ",".join([spec.model, *spec.changes])
        return {"system": system.name, "model": model, "maker": maker} | summarise(
            system.name, prompts, self.seeds, file
        )


@dataclass(frozen=True, kw_only=True)
class Continuation(Writing):
    """The paper's benchmark."""

    name: ClassVar[str] = "continuation"
    summary: ClassVar[str] = "the paper's benchmark: continue the beginnings of documents"
    examples: ClassVar[str] = (
        "  reviser eval continuation c4.jsonl --system shipped --generations made.jsonl\n"
        "  reviser eval continuation c4.jsonl --cut --n 200 --system ar=runs/ar --system gpt2=hf:gpt2 "
        "--generations both.jsonl --out results/both.json"
    )
    description: ClassVar[str] = (
        "Take documents of 144 to 216 GPT-2 tokens, give each system the first 35 and let it write up to a "
        "total of 180, with at most 256 actions, once for each seed. Generations are kept as JSON lines for the "
        "other suites; an existing file is resumed."
    )

    prefix: int = option(35, help="tokens of the prompt (default: 35)")
    total: int = option(180, help="tokens of prompt and continuation together (default: 180)")
    cut: bool = option(False, help="also take the beginnings of longer documents")

    def run(self, listener: Listener = SILENT) -> dict[str, Any]:
        from reviser.evaluation.prompts import Lengths, check_there, continuation_prompts, read_named
        from reviser.evaluation.systems import Budget
        from reviser.tokenizer import load

        check_there(self.texts)
        lengths, ruler = Lengths(prefix=self.prefix, total=self.total), load(self.ruler)
        prompts = continuation_prompts(read_named(self.texts), ruler, lengths, self.cut)
        budget = Budget(self.total - self.prefix, lambda text: len(ruler.encode(text)))
        config = {"prefix": self.prefix, "total": self.total, "cut": self.cut}
        return self._write(prompts, budget, config, listener)


@dataclass(frozen=True, kw_only=True)
class Infill(Writing):
    """Gaps whose length is not given."""

    name: ClassVar[str] = "infill"
    summary: ClassVar[str] = "fill gaps of unknown length in documents"
    examples: ClassVar[str] = (
        "  reviser eval infill heldout.jsonl --system shipped --generations gaps.jsonl\n"
        "  reviser eval infill texts/ --n 50 --kinds word,words --system ar=runs/ar --generations gaps.jsonl --json"
    )
    description: ClassVar[str] = (
        "Cut a gap out of each document, a word to a paragraph at its own boundaries, and have each system fill it. "
        "A left-to-right model that was never taught gaps sees the prefix alone. Generations are kept as JSON lines "
        "for the other suites; an existing file is resumed."
    )

    context: int = option(48, help="tokens shown on either side (default: 48)")
    longest: int = option(96, help="tokens of the longest gap (default: 96)")
    kinds: tuple[str, ...] = option(
        GAP_KINDS, commas=-1, help=f"kinds of gaps, comma-separated (default: {','.join(GAP_KINDS)})"
    )
    gap_seed: int = option(0, help="random seed that places the gaps (default: 0)")

    def run(self, listener: Listener = SILENT) -> dict[str, Any]:
        from reviser.evaluation.prompts import check_there, infill_prompts, read_named
        from reviser.evaluation.systems import gap_budget
        from reviser.tokenizer import load

        check_there(self.texts)
        cut = self.context, self.longest, self.kinds, self.gap_seed
        prompts = infill_prompts(read_named(self.texts), load(self.ruler), *cut)
        budget = gap_budget(prompts)
        config = {"context": self.context, "longest": self.longest, "kinds": list(self.kinds)}
        config |= {"gap_seed": self.gap_seed, "characters": budget.size}
        return self._write(prompts, budget, config, listener)


def name_maker(spec: SystemSpec, settings: Sequence[Any]) -> str:
    """What a text depends on besides prompt and seed, as a short hash."""
    from reviser.evaluation.evaluator import hash_weights
    from reviser.model.folder import find

    model = ",".join([spec.model, *spec.changes])
    weights = model
    if spec.is_folder and (spec.path.is_dir() or spec.model == "shipped"):
        weights = hash_weights(find(spec.model))
    elif spec.path.is_dir():
        weights = hash_weights(spec.path)
    return hashlib.sha256(json.dumps([weights, *settings, *spec.changes]).encode()).hexdigest()[:16]


def refuse_others(name: str, maker: str, prompts: Sequence[Prompt], file: GenerationFile) -> None:
    """A file can be resumed only if its texts came about as the new ones will."""
    known = {prompt.id: prompt for prompt in prompts}
    # Whoever reads the file takes its first prompts; later ones are left over from a larger --n.
    first = list(dict.fromkeys(each.prompt_id for each in file.generations if each.system == name))[: len(prompts)]
    if others := [each for each in first if each not in known]:
        raise ConfigError(
            f"{file.path}: its texts of system {name} continue other prompts, such as {others[0]}; give another file"
        )
    for each in file.generations:
        if each.system == name and each.maker != maker:
            raise ConfigError(
                f"{file.path}: its texts of system {name} were written with other weights or settings; "
                "give another file, or give the system another name"
            )
        asked = known.get(each.prompt_id)
        if asked and (asked.prefix, asked.reference, asked.suffix) != (each.prefix, each.reference, each.suffix):
            raise ConfigError(f"{file.path}: its prompt {each.prompt_id} was cut differently; give another file")


def write_missing(
    system: System,
    maker: str,
    prompts: Sequence[Prompt],
    seeds: Sequence[int],
    file: GenerationFile,
    at_once: int,
    listener: Listener = SILENT,
) -> None:
    """Write what the file lacks, a part at a time, so that little is lost when a run is interrupted."""
    with listener.count(system.name, len(prompts) * len(seeds)) as advance:
        for seed in seeds:
            missing = [prompt for prompt in prompts if (system.name, prompt.id, seed) not in file.keys]
            advance(len(prompts) - len(missing))
            for start in range(0, len(missing), at_once):
                part = missing[start : start + at_once]
                file.add(replace(each, maker=maker) for each in system.generate(part, seed))
                advance(len(part))


def summarise(name: str, prompts: Sequence[Prompt], seeds: Sequence[int], file: GenerationFile) -> dict[str, Any]:
    keys = {(name, prompt.id, seed) for prompt in prompts for seed in seeds}
    own = [each for each in file.generations if each.key in keys]
    return {
        "generations": len(own),
        "empty": sum(not each.text.strip() for each in own),
        "stopped_share": sum(each.is_stopped for each in own) / len(own),
        "mean_characters": sum(len(each.text) for each in own) / len(own),
        "mean_reference_characters": sum(len(each.reference) for each in own) / len(own),
        "mean_actions": sum(each.num_actions for each in own) / len(own),
    }
