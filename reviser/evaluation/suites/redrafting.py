"""Revision: does a model's going over its own drafts make them better, at what cost, and which part of it fails?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from reviser.errors import ConfigError
from reviser.evaluation.generations import Generation, GenerationFile, Prompt, open_generations
from reviser.evaluation.specs import SystemSpec
from reviser.evaluation.suites.base import SILENT, Listener, Suite, option
from reviser.evaluation.suites.scoring import DTYPES, NAMED, Mauve
from reviser.evaluation.suites.writing import (
    AT_ONCE,
    DEVICE,
    PROMPTS,
    RULER,
    SEEDS,
    TEXTS,
    name_maker,
    refuse_others,
    write_missing,
)
from reviser.reports.results import hash_files, make_result

if TYPE_CHECKING:
    from reviser.decoding.presets import Sampling
    from reviser.evaluation.systems import Budget, ReviserSystem
    from reviser.proofreading.choices import Proofreading

DRAFT, REVISED, BEST = "draft", "revised", "best of several drafts"


@dataclass(frozen=True, kw_only=True)
class Redrafting(Suite):
    name: ClassVar[str] = "revision"
    summary: ClassVar[str] = "drafts that a model has revised itself, beside what else the same actions can buy"
    examples: ClassVar[str] = (
        "  reviser eval revision c4.jsonl --model runs/own --generations drafts.jsonl --n 100 --evaluator smollm2\n"
        "  reviser eval revision c4.jsonl --cut --model runs/own --generations drafts.jsonl --threshold 0.5 "
        "--threshold 0.2 --cooler 0.8 --cooler 0.7 --features mean:smollm2 --evaluator smollm2 --out results/own.json"
    )
    description: ClassVar[str] = (
        "Write drafts, revise each, and compare evalPPL, diversity and which of the two an evaluator prefers, text "
        "by text. Beside them: the most probable of several drafts for as many actions, and drafts at lower "
        "temperatures. Then fill one gap in each text and ask whether the model finds what it wrote, writes it "
        "better, and leaves the rest alone. Texts are kept as JSON lines; without --evaluator nothing is scored."
    )

    texts: tuple[str, ...] = option(positional=True, metavar="TEXTS", help=TEXTS)
    model: str = option(metavar="SPEC", help="a model folder or run folder that was trained on edits")
    generations: str = option(metavar="FILE", help="where generations are kept, as JSON lines; resumed if it exists")
    n: int | None = option(None, help=PROMPTS)
    seeds: tuple[int, ...] = option(SEEDS, commas=-1, help="random seeds, comma-separated (default: 123,124,125)")
    passes: int = option(1, help="how often a draft is gone over at most (default: 1)")
    by: str = option(
        "reading", choices=("reading", "scan"), help="what finds places and writes them anew (default: reading)"
    )
    threshold: tuple[str, ...] = option(
        ("0.75",), metavar="P", help="leave out less probable changes (default: 0.75); repeatable, a row for each"
    )
    cooler: tuple[str, ...] = option(
        (), metavar="T", help="a lower temperature of drafts to compare with; repeatable"
    )
    evaluator: tuple[str, ...] = option((), metavar="NAME", help=f"{NAMED}; repeatable")
    features: str | None = option(None, metavar="[WAY:]NAME", help="features of MAUVE (default: no MAUVE)")
    spans: int = option(100, help="texts with one known span, for the parts of revising (default: 100; 0: none)")
    prefix: int = option(35, help="tokens of the prompt (default: 35)")
    total: int = option(180, help="tokens of prompt and continuation together (default: 180)")
    cut: bool = option(False, help="also take the beginnings of longer documents")
    ruler: str = option("gpt2", help=RULER)
    temperature: float = option(0.9, help="of drafts (default: 0.9)")
    top_k: int = option(50, help="default: 50; 0 is all")
    batch: int = option(8, help="texts scored at once (default: 8)")
    device: str = option("auto", help=DEVICE)
    dtype: str = option("float32", choices=DTYPES, help="default: float32")

    def check(self) -> None:
        self.at_least(1, "n", "passes", "batch")
        self.at_least(0, "spans", "temperature")
        if not self.threshold:
            raise ConfigError("--threshold is missing; give at least one, such as --threshold 0.75")
        for flag, numbers in (("--threshold", self._thresholds()), ("--cooler", self._coolers())):
            if twice := next((each for each in numbers if numbers.count(each) > 1), None):
                raise ConfigError(f"{flag} {twice:g} is given twice; drop one")

    def _thresholds(self) -> list[float]:
        return [_number("--threshold", each, 1.0) for each in self.threshold]

    def _coolers(self) -> list[float]:
        return [_number("--cooler", each, self.temperature) for each in self.cooler]

    def run(self, listener: Listener = SILENT) -> dict[str, Any]:
        from reviser.evaluation.prompts import Lengths, check_there, continuation_prompts, read_named
        from reviser.evaluation.systems import Budget
        from reviser.model.folder import find, read_config
        from reviser.proofreading.proofread import check_can_edit
        from reviser.tokenizer import load

        check_there(self.texts)
        check_can_edit(read_config(find(self.model)).model, self.model)
        lengths, ruler = Lengths(prefix=self.prefix, total=self.total), load(self.ruler)
        prompts = continuation_prompts(read_named(self.texts), ruler, lengths, self.cut)[: self.n]
        self._check_mauve(len(prompts))
        budget = Budget(self.total - self.prefix, lambda text: len(ruler.encode(text)))
        system = self._open(budget)
        with open_generations(self.generations) as file:
            names = self._write(system, prompts, file, listener)
            keys = {(name, prompt.id, seed) for name in names for prompt in prompts for seed in self.seeds}
            made = [each for each in file.generations if each.key in keys]
        rows = self._score(made, names, listener)
        more = self._try_spans(system, listener)
        kept = ("passes", "by", "threshold", "cooler", "temperature", "top_k", "prefix", "total", "cut", "ruler")
        config = {name: getattr(self, name) for name in kept} | {"model": self.model, "n": len(prompts)}
        measured_by = [each.about for each in self._evaluators(SILENT).values()]
        about: dict[str, Any] = {"texts": list(self.texts), "generations": hash_files([self.generations])}
        about |= {"evaluator": measured_by[0]} if measured_by else {}
        config |= {"other_evaluators": measured_by[1:]} if measured_by[1:] else {}
        return make_result(
            "revision", [*rows, *more.pop("rows", [])], config | {"seeds": list(self.seeds)}, self.words,
            parts=more.get("parts"), **about,
        )  # fmt: skip

    def _check_mauve(self, num_prompts: int) -> None:
        """Refuse too few prompts before anything is written and scored."""
        from reviser.evaluation.texts import MIN_TEXTS

        if self.features is not None and num_prompts < MIN_TEXTS:
            raise ConfigError(
                f"--features {self.features}: MAUVE needs {MIN_TEXTS} prompts or more, and there are {num_prompts}; "
                "give more texts, a larger --n, or leave it out"
            )

    def _open(self, budget: Budget) -> ReviserSystem:
        from reviser.evaluation.systems import ReviserSystem, open_system
        from reviser.training.distributed import join_team

        device = str(join_team(self.device).device)
        system = open_system(SystemSpec(DRAFT, self.model), self._sampling(self.temperature), budget, device)
        assert isinstance(system, ReviserSystem), "models of other kinds have no operators"
        return system

    def _sampling(self, temperature: float) -> Sampling:
        from reviser.decoding.presets import Sampling

        return Sampling(temperature=temperature, top_k=self.top_k)

    def _how(self, probability: float) -> Proofreading:
        from reviser.proofreading.choices import revising

        how = revising(self.passes, probability, self.by)
        assert how is not None, "there is at least one pass"
        return how

    def _write(
        self, system: ReviserSystem, prompts: Sequence[Prompt], file: GenerationFile, listener: Listener
    ) -> list[str]:
        """Have every row written that the file lacks; the names of the rows, the draft's first."""
        from reviser.evaluation.revisions.redrafts import BestDrafts, RevisedDrafts, action_ratio, drafts_of
        from reviser.evaluation.systems import ReviserSystem

        at_once = AT_ONCE["cuda" if "cuda" in system.writer.device else "cpu"]
        names: list[str] = []

        def write(row: Any, *settings: Any) -> None:
            sign = [self.temperature, self.top_k, system.budget.size, *settings]
            maker = name_maker(SystemSpec(DRAFT, self.model), sign)
            refuse_others(row.name, maker, prompts, file)
            write_missing(row, maker, prompts, self.seeds, file, at_once, listener)
            names.append(row.name)

        write(system)
        drafts = drafts_of(file.generations, DRAFT)
        for text, probability in zip(self.threshold, self._thresholds(), strict=True):
            name = REVISED if text == self.threshold[0] else f"{REVISED}, {text}"
            how = self._how(probability)
            settings = self.passes, probability, self.by, *astuple(how.weighing)
            write(RevisedDrafts(name, system.writer, drafts, how), *settings)
        ratio = action_ratio(file.generations, REVISED, DRAFT)
        write(BestDrafts(BEST, system, drafts, ratio), self.passes, self._thresholds()[0], self.by, round(ratio, 2))
        for temperature in self._coolers():
            sampling = replace(system.sampling, temperature=temperature)
            write(ReviserSystem(f"temperature {temperature:g}", system.writer, sampling, system.budget), temperature)
        return names

    def _score(self, made: Sequence[Generation], names: Sequence[str], listener: Listener) -> list[dict[str, Any]]:
        """A row for each way to spend actions, and the references'."""
        from reviser.evaluation.metrics.corrections import tell
        from reviser.evaluation.metrics.diversity import measure
        from reviser.evaluation.revisions.draft_scores import DIVERSITY, count_changes, score_drafts
        from reviser.evaluation.texts import REFERENCE, references_of

        scored = {}
        for name, evaluator in self._evaluators(listener).items():
            with listener.count(f"evalppl, {name}", len(made)) as advance:
                scored[name] = score_drafts(evaluator, made, DRAFT, self.batch, advance)
        mauve = self._mauve(made, listener)
        rows = []
        for name in (REFERENCE, *names):
            own = references_of(made) if name == REFERENCE else [each for each in made if each.system == name]
            if not own:
                continue
            row: dict[str, Any] = {"part": "drafts", "system": name}
            row |= {} if name == REFERENCE else count_changes(made, name, DRAFT)
            row |= {key: tell(value) for key, value in measure(own).items() if key in DIVERSITY}
            row["mauve"] = mauve.get(name)
            row["evaluators"] = {each: numbers[name] for each, numbers in scored.items()}
            rows.append(row)
        return mark_nearest(rows)

    def _evaluators(self, listener: Listener) -> dict[str, Any]:
        from reviser.evaluation.evaluators import load
        from reviser.training.distributed import join_team

        device = str(join_team(self.device).device)
        loaded = {name: load(name, "causal", device, self.dtype) for name in self.evaluator}
        for each in loaded.values():
            listener.note(f"evaluator {each.name} ({each.kind}), sha256 {each.sha256}")
        return loaded

    def _mauve(self, made: Sequence[Generation], listener: Listener) -> dict[str, Any]:
        if self.features is None:
            return {}
        suite = Mauve(generations=(), features=self.features, device=self.device, dtype=self.dtype)
        return {row["system"]: row["mauve"] for row in suite.measure(made, listener)["rows"]}

    def _try_spans(self, system: ReviserSystem, listener: Listener) -> dict[str, Any]:
        """The rows of texts with one known span, and the parts of revising in numbers."""
        from reviser.evaluation.prompts import infill_prompts, read_named
        from reviser.evaluation.revisions.known_spans import fill_known, measure_known, measure_parts, try_known
        from reviser.evaluation.systems import gap_budget
        from reviser.tokenizer import load

        if not self.spans:
            return {}
        prompts = infill_prompts(read_named(self.texts), load(self.ruler))[: self.spans]
        system.budget = gap_budget(prompts)
        known = fill_known(system, prompts, self.seeds[0])
        listener.note(f"known spans: {len(known)} of {len(prompts)} gaps were filled with something else")
        if not known:
            return {}
        tried = try_known(system.writer, known, self._how(self._thresholds()[0]), self.seeds[0])
        rows = measure_known(tried, list(self._evaluators(SILENT).values()), self.batch)
        return {"rows": rows, "parts": measure_parts(tried)}


def _number(flag: str, text: str, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:
        raise ConfigError(f"{flag} {text} must be a number between 0 and {most:g}")
    return value


def mark_nearest(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Say which of the cooler drafts are as varied as the revised ones, as nearly as any."""
    wanted = next((row["distinct_2"] for row in rows if row["system"] == REVISED), None)
    cool = [row for row in rows if row["system"].startswith("temperature ") and row["distinct_2"]]
    if wanted and cool:
        nearest = min(cool, key=lambda row: abs(row["distinct_2"]["value"] - wanted["value"]))
        nearest["is_nearest"] = True
    return rows
