"""evalPPL, MAUVE, gaps, and your own metrics: what is measured of the texts that systems wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from reviser.errors import ConfigError
from reviser.evaluation.generations import Generation, Prompt, as_generations
from reviser.evaluation.specs import parse_systems
from reviser.evaluation.suites.base import SILENT, Listener, Suite, option
from reviser.evaluation.suites.writing import DEVICE, PROMPTS
from reviser.reports.results import hash_files, make_result

NAMED = "smollm2, gemma3-270m, a folder, a GGUF file or a hub id"
GENERATIONS = "files that `reviser eval continuation` or `infill` wrote"
FEATURES = "mean:smollm2"
DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, kw_only=True)
class Scoring(Suite):
    """What all of them have in common."""

    generations: tuple[str, ...] = option(positional=True, metavar="GENERATIONS", help=GENERATIONS)
    n: int | None = option(None, help=PROMPTS)

    def run(self, listener: Listener = SILENT) -> dict[str, Any]:
        from reviser.evaluation.texts import read_texts

        return self.measure(read_texts(self.generations, self.n), listener)

    def measure(self, generations: Sequence[Generation], listener: Listener = SILENT) -> dict[str, Any]:
        """The result's document of generations that are at hand."""
        raise TypeError(f"{type(self).__name__} measures nothing")

    def _result(
        self, kind: str, rows: Sequence[dict[str, Any]], config: dict[str, Any], **about: Any
    ) -> dict[str, Any]:
        config = {"generations": hash_files(self.generations), "n": self.n} | config
        # Generations that were handed over in Python have no command that gives the same.
        return make_result(kind, rows, config, self.words if self.generations else (), **about)


@dataclass(frozen=True, kw_only=True)
class ByModel(Scoring):
    """Those that ask a separate model."""

    device: str = option("auto", help=DEVICE)
    dtype: str = option("float32", choices=DTYPES, help="default: float32")
    remote_code: bool = option(False, help="run the code that comes with a model folder or hub id (Dream needs it)")

    @property
    def _device(self) -> str:
        from reviser.training.distributed import join_team

        return str(join_team(self.device).device)


@dataclass(frozen=True, kw_only=True)
class EvalPpl(ByModel):
    name: ClassVar[str] = "evalppl"
    summary: ClassVar[str] = "perplexity and bits per byte of generations under a separate model, and their diversity"
    examples: ClassVar[str] = (
        "  reviser eval evalppl made.jsonl --evaluator smollm2\n"
        "  reviser eval evalppl ours.jsonl ar.jsonl --evaluator gpt2-large --device cuda --batch 64 --out x.json"
    )
    description: ClassVar[str] = (
        "Score what systems wrote with a separate model, with prefixes as unscored context, and measure how "
        "much they repeat; the references are scored the same way. A masked evaluator gives pseudo-likelihoods."
    )

    evaluator: str = option("smollm2", help=f"{NAMED} (default: smollm2)")
    kind: str = option(
        "auto",
        choices=("auto", "causal", "masked"),
        help="kind of evaluator (default: as its configuration says)",
    )
    batch: int = option(8, help="texts scored at once (default: 8)")
    chunk: int = option(1, help="tokens masked at once by a masked evaluator (default: 1)")

    def check(self) -> None:
        self.at_least(1, "batch", "chunk", "n")

    def measure(self, generations: Sequence[Generation], listener: Listener = SILENT) -> dict[str, Any]:
        from reviser.evaluation.evaluators import load
        from reviser.evaluation.metrics.evalppl import score, summarise
        from reviser.evaluation.texts import lay_out

        note_uneven(generations, listener)
        kind: Any = self.kind
        evaluator = load(self.evaluator, kind, self._device, self.dtype, self.remote_code)
        listener.note(f"evaluator {evaluator.name} ({evaluator.kind}), sha256 {evaluator.sha256}")
        texts = lay_out(generations)
        with listener.count("evalppl", len(texts)) as advance:
            rows = summarise(generations, score(evaluator, texts, self.batch, self.chunk, advance))
        config = {"batch": self.batch} | ({"chunk": self.chunk} if evaluator.kind == "masked" else {})
        return self._result("evalppl", rows, config, evaluator=evaluator.about)


@dataclass(frozen=True, kw_only=True)
class Mauve(ByModel):
    name: ClassVar[str] = "mauve"
    summary: ClassVar[str] = "how similar generations and references are as sets of texts"
    examples: ClassVar[str] = (
        "  reviser eval mauve ours.jsonl ar.jsonl\n"
        "  reviser eval mauve ours.jsonl --features bert:bert-base-uncased --device cuda --batch 256 --json"
    )
    description: ClassVar[str] = (
        "Turn generations and references into features, cluster both together and compare the two histograms "
        "(MAUVE), once for each clustering seed; at least 100 texts for each seed and system. Features are the mean "
        "of a model's states over a text (mean:NAME, or NAME alone), its state at the last token (last:NAME), the "
        "tokens' log-likelihoods by a causal model (logp:NAME), or their pseudo-log-likelihoods by a masked one "
        "(bert:NAME)."
    )

    features: str = option(FEATURES, metavar="[WAY:]NAME", help=f"NAME is minilm, {NAMED} (default: {FEATURES})")
    batch: int = option(32, help="texts read at once (default: 32)")
    tokens: int = option(100, help="tokens of each text that the model reads (default: 100)")
    clusterings: int = option(5, help="number of clustering seeds (default: 5)")
    seed: int = option(25, help="first clustering seed (default: 25)")
    clusters: int | None = option(None, help="number of clusters (default: a tenth of the texts)")

    def check(self) -> None:
        self.at_least(1, "batch", "tokens", "clusterings", "clusters", "n")

    def measure(self, generations: Sequence[Generation], listener: Listener = SILENT) -> dict[str, Any]:
        from reviser.evaluation.evaluators import require
        from reviser.evaluation.metrics.features import embed, load_features, parse
        from reviser.evaluation.metrics.mauve import check_counts, summarise
        from reviser.evaluation.texts import by_system

        check_counts(generations)
        note_uneven(generations, listener)
        require("mauve")
        way, _ = parse(self.features)
        encoder = load_features(self.features, self._device, self.dtype, self.remote_code)
        listener.note(f"features {way}:{encoder.name}, sha256 {encoder.sha256}")
        systems = by_system(generations)
        with listener.count("mauve", sum(map(len, systems.values()))) as advance:
            features = {
                name: embed(encoder, [each.text for each in own], way, self.tokens, self.batch, advance)
                for name, own in systems.items()
            }
        seeds = list(range(self.seed, self.seed + self.clusterings))
        rows = summarise(generations, features, seeds, self.clusters)
        config = {"features": way, "tokens": self.tokens, "clustering_seeds": seeds}
        return self._result("mauve", rows, config, evaluator=encoder.about)


@dataclass(frozen=True, kw_only=True)
class Gaps(ByModel):
    name: ClassVar[str] = "gaps"
    summary: ClassVar[str] = "how well gaps were filled: the true middle, what follows, guesses and lengths"
    examples: ClassVar[str] = (
        "  reviser eval gaps infill.jsonl --system shipped --samples 8\n"
        "  reviser eval gaps ours.jsonl ar.jsonl --system ours=runs/mine --system ar=runs/ar --evaluator gpt2-large"
    )
    description: ClassVar[str] = (
        "Measure filled gaps: bits per byte of the true middle to each --system itself, bits per byte of the suffix "
        "after each filling to a separate causal model, exact matches of gaps of one to three words filled greedily, "
        "and lengths beside the originals'; all by kind of gap too, with differences on the same gaps to the first "
        "system. For comparison also the references, and an empty gap."
    )

    evaluator: str = option("smollm2", help=f"{NAMED} (default: smollm2)")
    system: tuple[str, ...] = option(
        (), metavar="NAME=MODEL", help="model of a system, for true middles and exact matches; repeatable"
    )
    samples: int = option(8, metavar="K", help="trajectories or noise levels of a bound (default: 8)")
    seed: int = option(0, help="random seed of the bounds (default: 0)")
    batch: int = option(8, help="texts scored at once (default: 8)")

    def check(self) -> None:
        self.at_least(1, "batch", "n", "samples")
        parse_systems(self.system)

    def measure(
        self,
        generations: Sequence[Generation],
        listener: Listener = SILENT,
        systems: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """`systems` are opened already, those of --system are opened here."""
        from reviser.evaluation.evaluators import load
        from reviser.evaluation.metrics.gaps import gap_prompts, is_short, lay_out_gaps, measure_gaps

        texts, prompts = lay_out_gaps(generations), gap_prompts(generations)
        opened = {**(systems or {}), **self._open(texts, prompts)}
        short = [each for each in prompts if is_short(each)]
        middles, greedy = {}, {}
        for name, system in opened.items():
            if hasattr(system, "middles"):
                listener.note(f"{name}: the true middles of {len(prompts)} gaps")
                middles[name] = system.middles(prompts, self.samples, self.seed)
            if hasattr(system, "fill_greedily") and short:
                listener.note(f"{name}: {len(short)} gaps of one to three words, filled greedily")
                greedy[name] = as_generations(name, list(system.fill_greedily(short)), short, 0)
        evaluator = load(self.evaluator, "auto", self._device, self.dtype, self.remote_code)
        listener.note(f"evaluator {evaluator.name} ({evaluator.kind}), sha256 {evaluator.sha256}")
        with listener.count("gaps", sum(map(len, texts.values()))) as advance:
            rows = measure_gaps(evaluator, generations, self.batch, advance, middles, greedy)
        config = {"batch": self.batch, "samples": self.samples, "seed": self.seed, "short_gaps": len(short)}
        return self._result("gaps", rows, config, evaluator=evaluator.about)

    def _open(self, texts: Mapping[str, Any], prompts: Sequence[Prompt]) -> dict[str, Any]:
        """The systems whose models are named, with the room that they had to write."""
        from reviser.evaluation.systems import gap_budget, open_system

        specs = parse_systems(self.system)
        for spec in specs:
            if spec.name not in texts:
                raise ConfigError(
                    f"--system {spec.text}: no text in the generations is by {spec.name}; they are by "
                    f"{', '.join(name for name in texts if not name.startswith('('))}"
                )
        budget = gap_budget(prompts)
        return {spec.name: open_system(spec, budget=budget, device=self._device) for spec in specs}


@dataclass(frozen=True, kw_only=True)
class Metrics(Scoring):
    name: ClassVar[str] = "metrics"
    summary: ClassVar[str] = "metrics of texts alone, by name: diversity, and those that you register"
    examples: ClassVar[str] = (
        "  reviser eval metrics made.jsonl --metric diversity\n"
        "  reviser --plugin mine.py eval metrics made.jsonl --metric mine --out results/mine.json"
    )
    description: ClassVar[str] = (
        "Measure what systems wrote, and the references, with metrics that need only the texts. "
        "`reviser.register_metric` adds your own; see docs/extending.md."
    )

    metric: tuple[str, ...] = option(
        ("diversity",), metavar="NAME", help="metric to compute (default: diversity); repeatable"
    )

    def check(self) -> None:
        from reviser.evaluation.metrics.registered import METRICS

        self.at_least(1, "n")
        for name in self.metric:
            METRICS[name]

    def measure(self, generations: Sequence[Generation], listener: Listener = SILENT) -> dict[str, Any]:
        from reviser.evaluation.metrics.registered import METRICS, measure_systems

        note_uneven(generations, listener)
        chosen = {name: METRICS[name] for name in self.metric}
        rows = measure_systems(generations, chosen.values())
        headings = {key: heading for each in chosen.values() for key, heading in each.columns.items()}
        return self._result("metrics", rows, {"metrics": list(self.metric)}, columns=headings)


def note_uneven(generations: Sequence[Generation], listener: Listener) -> None:
    """Rows over different prompts do not compare; say so."""
    prompts: dict[str, set[str]] = {}
    for each in generations:
        prompts.setdefault(each.system, set()).add(each.prompt_id)
    if len({frozenset(ids) for ids in prompts.values()}) > 1:
        counts = ", ".join(f"{name} {len(ids)}" for name, ids in prompts.items())
        listener.note(f"note: systems have different prompts ({counts}), so their rows are not fully comparable")
