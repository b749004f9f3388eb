"""Plans: measurements in an order, each done once; what `reviser eval all` and `reviser reproduce` both run.

A step is a job with the files it reads and the result it leaves. It is done when that result was left by the same
command and is no older than what it was made from.

    continuation -> evalppl, mauve, arena, trajectories, likelihood      infill -> gaps      flops      report
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from reviser.errors import ConfigError, ReviserError
from reviser.evaluation.specs import SystemSpec, parse_systems
from reviser.evaluation.suites import (
    SILENT,
    Arena,
    Continuation,
    EvalPpl,
    Flops,
    Gaps,
    Infill,
    Likelihood,
    Listener,
    Mauve,
    Suite,
    Trajectories,
    option,
)
from reviser.evaluation.suites.probability import named_orders
from reviser.evaluation.suites.writing import DEVICE, RULER, SEEDS, SYSTEM, TEXTS
from reviser.evaluation.texts import MIN_TEXTS
from reviser.reports.results import format_command, write_result


class Job(Protocol):
    """Something to do, and the command that does it."""

    @property
    def words(self) -> tuple[str, ...]: ...

    def run(self, listener: Listener = SILENT) -> dict[str, Any] | None:
        """Do it; a result's document is kept by whoever runs the plan."""


@dataclass(frozen=True)
class Step:
    """A job with its name, what it reads and what it leaves."""

    name: str
    job: Job
    inputs: tuple[Path, ...]
    out: Path

    @property
    def kind(self) -> str:
        """What stands before the colon of its name."""
        return self.name.partition(":")[0]

    @property
    def system(self) -> str:
        return self.name.partition(":")[2]

    @property
    def command(self) -> str:
        return format_command(self.job.words)

    def run(self, listener: Listener = SILENT) -> dict[str, Any] | None:
        """Do the job and keep its result."""
        document = self.job.run(listener)
        if document is not None:
            write_result(document, self.out)
        return document

    def is_done(self, listener: Listener = SILENT) -> bool:
        """Whether the result is there, by the same command and no older than what it was made from."""
        if not self.out.exists():
            return False
        try:
            command = json.loads(self.out.read_text("utf-8"))["command"]
        except (OSError, ValueError, KeyError, TypeError):
            command = None
        is_same, is_new = command == self.command, age(self.out) >= max(map(age, self.inputs), default=0.0)
        if not (is_same and is_new):
            why = "older than its input" if is_same else f"left by {command}"
            listener.note(f"made again: {self.out}, {why}")
        return is_same and is_new


def age(path: Path) -> float:
    """When a file, or the newest file of a folder, was written; 0 where there is none."""
    files = [path, *path.iterdir()] if path.is_dir() else [path] if path.exists() else []
    return max((file.stat().st_mtime for file in files), default=0.0)


@dataclass(frozen=True, kw_only=True)
class EvalAll(Suite):
    """Every suite for some systems."""

    name: ClassVar[str] = "all"
    summary: ClassVar[str] = "every suite one after the other, and a report"
    examples: ClassVar[str] = (
        "  reviser eval all c4.jsonl --system shipped --system ar=runs/ar --folder results/mine\n"
        "  reviser eval all c4.jsonl --quick --system ours=runs/mine --order ours=runs:jump=0.05,start=end "
        "--folder results/quick"
    )
    description: ClassVar[str] = (
        "Run continuation, evalPPL, MAUVE, arena (by likelihood), trajectories, likelihood, infill, gaps and FLOPs "
        "into one folder, then write a report. Results of the same commands in the folder are reused."
    )

    texts: tuple[str, ...] = option(positional=True, metavar="TEXTS", help=TEXTS)
    system: tuple[str, ...] = option(metavar="NAME=MODEL", help=SYSTEM)
    folder: str = option(metavar="FOLDER", help="where everything goes")
    order: tuple[str, ...] = option(
        (), metavar="NAME=ORDER", help="the order of a system (default: the order it was trained with); repeatable"
    )
    evaluator: str = option("smollm2", help="model that scores texts and judges the arena (default: smollm2)")
    quick: bool = option(False, help="few prompts: minutes on a CPU, with wide errors")
    n: int | None = option(None, help="maximum number of prompts (default: 300, with --quick 20)")
    ruler: str = option("gpt2", help=RULER)
    prefix: int = option(35, help="tokens of a prompt (default: 35)")
    total: int = option(180, help="tokens of prompt and continuation together (default: 180)")
    device: str = option("auto", help=DEVICE)

    def check(self) -> None:
        self.at_least(1, "n")
        named_orders(self.order, [spec.name for spec in parse_systems(self.system)])

    @property
    def num_prompts(self) -> int:
        return self.n if self.n is not None else 20 if self.quick else 300


def plan_everything(chosen: EvalAll) -> list[Step]:
    """The steps in their order; what a suite cannot do with these systems is left out."""
    folder, specs = Path(chosen.folder), parse_systems(chosen.system)
    orders = named_orders(chosen.order, [spec.name for spec in specs])
    made, gaps = folder / "continuation.jsonl", folder / "infill.jsonl"
    read = (*map(Path, chosen.texts), *(spec.path for spec in specs))
    shared: dict[str, Any] = {
        "texts": chosen.texts, "system": chosen.system, "n": chosen.num_prompts, "ruler": chosen.ruler,
        "seeds": SEEDS[:1] if chosen.quick else SEEDS, "device": chosen.device,
    }  # fmt: skip
    by: dict[str, Any] = {"evaluator": chosen.evaluator, "device": chosen.device}

    def step(suite: Suite, inputs: Sequence[Path], name: str = "") -> Step:
        return Step(suite.name, suite, tuple(inputs), folder / f"{name or suite.name}.json")

    lengths: dict[str, Any] = {"prefix": chosen.prefix, "total": chosen.total}
    steps = [
        step(Continuation(**shared, **lengths, cut=True, generations=str(made)), read),
        step(EvalPpl(generations=(str(made),), **by), [made]),
    ]
    if chosen.num_prompts >= MIN_TEXTS:
        steps.append(step(Mauve(generations=(str(made),), device=chosen.device), [made]))
    if len(specs) > 1:
        arena = Arena(
            generations=(str(made),), judge="likelihood", model=chosen.evaluator, empty="lose", device=chosen.device,
            judgments=str(folder / "judgments.jsonl"),
        )  # fmt: skip
        steps.append(step(arena, [made]))
    steps += _plan_orders(chosen, [spec for spec in specs if not spec.is_transformers], orders, read, made, step)
    return [
        *steps,
        step(Infill(**shared, generations=str(gaps)), read),
        step(Gaps(generations=(str(gaps),), system=chosen.system, **by), [gaps]),
        step(Flops(), []),
    ]


def _plan_orders(
    chosen: EvalAll, ours: Sequence[SystemSpec], orders: dict[str, str], read: Sequence[Path], made: Path,
    step: Callable[..., Step],
) -> list[Step]:  # fmt: skip
    """Likelihood and trajectories, which need to know what models were trained with."""
    known = {spec.name: orders.get(spec.name) or _trained_order(spec) for spec in ours}
    shared: dict[str, Any] = {
        "texts": chosen.texts, "n": chosen.num_prompts, "ruler": chosen.ruler, "device": chosen.device,
        "prefix": chosen.prefix, "length": chosen.total - chosen.prefix,
    }  # fmt: skip
    together = [spec for spec in ours if known[spec.name]]
    named = tuple(f"{spec.name}={known[spec.name]}" for spec in together)
    steps = []
    if together:
        systems = tuple(SystemSpec(spec.name, spec.model).text for spec in together)
        steps.append(step(Likelihood(**shared, system=systems, order=named), read))
    # A diffusion model needs no order; another that does not say its own fails by itself, with a hint.
    for spec in ours:
        if spec not in together:
            alone = Likelihood(**shared, system=(SystemSpec(spec.name, spec.model).text,))
            steps.append(step(alone, read, f"likelihood_{spec.name}"))
    if together:
        written = {spec.name: _told_order(spec) or known[spec.name] for spec in together}
        cutting = tuple(SystemSpec(spec.name, spec.model).text for spec in together if cuts_text(written[spec.name]))
        named = tuple(f"{name}={order}" for name, order in written.items())
        steps.append(step(Trajectories(generations=(str(made),), order=named, system=cutting), [made]))
    return steps


def cuts_text(order: str | None) -> bool:
    """Whether an order cuts texts at the ends of sentences, so that drawing by it needs a tokenizer."""
    from reviser.orders.policies import needs_ends
    from reviser.orders.registry import parse_order

    try:
        return order is not None and needs_ends(parse_order(order))
    except ConfigError:
        return False  # whoever draws by it says what is wrong


def _trained_order(spec: SystemSpec) -> str | None:
    """The order a model says it was trained with, where it does; a diffusion model has none."""
    from reviser.diffusion.denoiser import FAMILIES
    from reviser.diffusion.denoiser_folder import family_of
    from reviser.evaluation.metrics.likelihood import trained_order

    try:
        return None if family_of(spec.model) in FAMILIES else trained_order(spec.model)
    except ReviserError:
        return None


def _told_order(spec: SystemSpec) -> str | None:
    """The order that a model is told to write in, where it is."""
    from reviser.model.folder import find, read_config

    if not spec.out_of_order:
        return None
    trained = read_config(find(spec.model)).trained
    settings = dict(each.partition("=")[::2] for each in (trained.jobs if trained else "").split())
    return settings.get("told_order")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = "is a file" if folder.is_file() else f"cannot be made ({error.strerror})"
        raise ConfigError(f"--folder {folder} {problem}; give another folder") from None


def run_everything(
    chosen: EvalAll, listener: Listener = SILENT, show: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """Do what is not done, and report; what is in the folder then, and which suites failed."""
    # Both load numpy, which --help does without.
    from reviser.evaluation.prompts import check_there
    from reviser.reports.sections import write_report

    check_there(chosen.texts)
    folder = Path(chosen.folder)
    _make_folder(folder)
    failed = []
    for step in plan_everything(chosen):
        if step.is_done(listener):
            listener.note(f"already there: {step.out}")
            continue
        listener.note(step.command)
        try:
            document = step.run(listener)
        except ReviserError as error:
            listener.note(f"error: {error}")
            failed.append(step.name)
            if step.name in ("continuation", "infill"):
                break
        else:
            if show is not None and document is not None:
                show(document)
    results = sorted(str(file) for file in folder.glob("*.json"))
    if results:
        write_report(results, html=folder / "report.html", markdown=folder / "report.md")
        listener.note(f"report: {folder / 'report.html'}")
    return {"folder": str(folder), "results": results, "failed": failed}
