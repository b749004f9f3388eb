"""`reviser.evaluate`: systems and prompts in, results out, without the command line.

    results = reviser.evaluate({"ours": reviser.load(), "theirs": mine}, prompts, metrics=["diversity", "evalppl"])
    print(results)                                  every table
    results.value("evalppl", "ours", "perplexity")  one number with its error
    results.save("results/mine")                    documents and generations, for `reviser report`

A system is a `Writer`, a spec such as "shipped" or "runs/mine" (specs.py), the path of a generations file, or any
object with the verbs of `systems.System`.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from reviser import files
from reviser.errors import ConfigError, DataError
from reviser.evaluation.generations import Generation, Prompt, read_generations
from reviser.evaluation.metrics.registered import METRICS
from reviser.evaluation.specs import SystemSpec
from reviser.evaluation.suites import SILENT, EvalPpl, Gaps, Listener, Mauve, Metrics, Trajectories
from reviser.evaluation.suites.scoring import Scoring
from reviser.evaluation.texts import check
from reviser.reports.html import write_html
from reviser.reports.results import make_result, write_result
from reviser.reports.sections import render
from reviser.reports.text import print_tables

LIKELIHOOD = "likelihood"


@dataclass(frozen=True)
class Results:
    """What was measured: a result document for each metric, and the texts it was measured on."""

    documents: dict[str, dict[str, Any]]
    generations: list[Generation] = field(repr=False)

    def rows(self, metric: str) -> list[dict[str, Any]]:
        """A metric's rows, one for each system."""
        if metric not in self.documents:
            raise ConfigError(f"{metric!r} was not measured; measured were {', '.join(self.documents)}")
        return list(self.documents[metric]["rows"])

    def value(self, metric: str, system: str, key: str) -> Any:
        """One number of one system: an object with value, error and n where it has an error."""
        rows = {row["system"]: row for row in self.rows(metric)}
        if system not in rows:
            raise ConfigError(f"no system {system!r} in {metric}; systems are {', '.join(rows)}")
        if key not in rows[system]:
            raise ConfigError(f"{metric} has no {key!r}; it has {', '.join(rows[system])}")
        return rows[system][key]

    def __str__(self) -> str:
        out = io.StringIO()
        for number, document in enumerate(self.documents.values()):
            out.write("\n" if number else "")
            print_tables(document, out)
        return out.getvalue().rstrip("\n")

    def _repr_html_(self) -> str:
        return write_html([render(Path(f"{name}.json"), document)[0] for name, document in self.documents.items()])

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write every document and the generations into a folder, for `reviser report` and other suites."""
        target = Path(folder)
        for name, document in self.documents.items():
            write_result(document, target / f"{name}.json")
        lines = (json.dumps(asdict(each), ensure_ascii=False) + "\n" for each in self.generations)
        try:
            files.write_text(target / "generations.jsonl", "".join(lines), errors="backslashreplace")
        except OSError as error:
            raise ConfigError(f"{folder}: cannot be written ({error.strerror}); give another folder") from None
        return target


def evaluate(
    systems: Mapping[str, Any],
    prompts: Sequence[Prompt | str] = (),
    metrics: Sequence[str | Scoring] = ("diversity",),
    *,
    seeds: Sequence[int] = (123,),
    sampling: Any = None,
    max_tokens: int | None = None,
    evaluator: str = "smollm2",
    device: str = "auto",
    samples: int = 1,
    listener: Listener = SILENT,
) -> Results:
    """Have systems write into prompts and measure the texts.

    `prompts` are texts to continue, or `Prompt`s with a reference and a suffix; systems that are generations files
    bring their own. `metrics` are names (`diversity`, `evalppl`, `mauve`, `gaps`, `trajectories`, `likelihood`, and
    what `register_metric` added) or scoring suites. `max_tokens` limits each text; without it a text may have as many
    tokens as its reference, or 128 where there is none. `samples` are the trajectories of a likelihood bound.
    """
    asked = [_prompt(number, each) for number, each in enumerate(prompts)]
    opened = {name: _open(name, each, sampling, max_tokens, device) for name, each in systems.items()}
    suites = [_find_suite(each, evaluator, device) for each in metrics if each != LIKELIHOOD]
    generations = _write(opened, asked, seeds, listener) if suites else []
    documents = {suite.name: suite.measure(generations, listener) for suite in _joined(suites)}
    if LIKELIHOOD in metrics:
        documents[LIKELIHOOD] = _likelihood(opened, asked, samples, listener)
    return Results(documents, generations)


def _prompt(number: int, given: Prompt | str) -> Prompt:
    return given if isinstance(given, Prompt) else Prompt(f"prompt:{number}", given, "")


def _find_suite(metric: str | Scoring, evaluator: str, device: str) -> Scoring:
    if isinstance(metric, Scoring):
        return metric
    by: dict[str, Any] = {"generations": (), "device": device}
    if metric in ("evalppl", "gaps"):
        return (EvalPpl if metric == "evalppl" else Gaps)(**by, evaluator=evaluator)
    if metric == "mauve":
        return Mauve(**by)
    if metric == "trajectories":
        return Trajectories(generations=())
    METRICS[metric]
    return Metrics(generations=(), metric=(metric,))


def _joined(suites: Iterable[Scoring]) -> list[Scoring]:
    """Metrics of texts alone share one table."""
    chosen = list(suites)
    plain = [each for each in chosen if isinstance(each, Metrics)]
    if len(plain) < 2:
        return chosen
    names = tuple(dict.fromkeys(name for each in plain for name in each.metric))
    return [Metrics(generations=(), metric=names), *(each for each in chosen if not isinstance(each, Metrics))]


def _open(name: str, given: Any, sampling: Any, max_tokens: int | None, device: str) -> Any:
    """A system's object, or the generations of a file."""
    from reviser.decoding.presets import PAPER
    from reviser.decoding.writer import Writer
    from reviser.evaluation.systems import Budget, ReviserSystem, open_system
    from reviser.training.distributed import join_team

    sampling, budget = sampling or PAPER, Budget(max_tokens, is_tokens=True)
    if isinstance(given, Writer):
        return ReviserSystem(name, given, sampling, budget)
    if isinstance(given, str | os.PathLike):
        if str(given).endswith(".jsonl"):
            return [replace(each, system=name) for each in read_generations(given)]
        model, *changes = str(given).split(",")
        spec = SystemSpec(name, model, tuple(changes))
        return open_system(spec, sampling, budget, str(join_team(device).device))
    if not hasattr(given, "generate"):
        raise ConfigError(
            f"system {name} is a {type(given).__name__}; give a Writer, the name of a model, a generations file or "
            "an object with generate(prompts, seed)"
        )
    return given


def _write(
    systems: Mapping[str, Any], prompts: Sequence[Prompt], seeds: Sequence[int], listener: Listener
) -> list[Generation]:
    found: list[Generation] = []
    for name, system in systems.items():
        if isinstance(system, list):
            found += system
            continue
        if not prompts:
            raise ConfigError(f"system {name} has nothing to write into; give prompts")
        with listener.count(name, len(prompts) * len(seeds)) as advance:
            for seed in seeds:
                found += as_generations(name, system.generate(prompts, seed), prompts, seed)
                advance(len(prompts))
    check(found)
    return found


def as_generations(
    name: str, written: Iterable[str | Generation], prompts: Sequence[Prompt], seed: int
) -> list[Generation]:
    """What a system gave, as generations: plain texts come in the order of the prompts."""
    given = list(written)
    if len(given) != len(prompts):
        raise DataError(f"system {name} gave {len(given)} texts for {len(prompts)} prompts; give one for each")
    return [
        replace(each, system=name) if isinstance(each, Generation) else _generation(name, prompt, seed, str(each))
        for prompt, each in zip(prompts, given, strict=True)
    ]


def _generation(name: str, prompt: Prompt, seed: int, text: str) -> Generation:
    """A plain text, counted in words."""
    count = len(text.split())
    return Generation(name, prompt.id, seed, prompt.prefix, text, prompt.suffix, prompt.reference, True, count, count)


def _likelihood(
    systems: Mapping[str, Any], prompts: Sequence[Prompt], samples: int, listener: Listener
) -> dict[str, Any]:
    from reviser.evaluation.metrics.likelihood import beside_first, row_of

    texts = [prompt for prompt in prompts if prompt.reference]
    if not texts:
        raise ConfigError("likelihood scores the references of prompts, and these have none; give Prompts with one")
    rows = []
    for name, system in systems.items():
        if not hasattr(system, "log_likelihood"):
            raise ConfigError(
                f"system {name} has no log_likelihood, so its likelihood cannot be measured; leave it out"
            )
        found = system.log_likelihood(texts, samples=samples)
        rows.append({"system": name} | row_of(found, texts, getattr(system, "order_name", "")))
    return make_result(LIKELIHOOD, beside_first(rows), {"samples": samples, "n": len(texts)})
