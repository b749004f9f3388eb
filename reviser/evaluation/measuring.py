"""`reviser.evaluate`: systems and prompts in, results out, without the command line.

    results = reviser.evaluate({"ours": reviser.load(), "theirs": mine}, prompts, metrics=["diversity", "evalppl"])
    print(results)                                  every table
    results.value("evalppl", "ours", "perplexity")  one number with its error
    results.save("results/mine")                    documents and generations, for `reviser report`

A system is a `Writer`, a spec such as "shipped" or "runs/mine" (specs.py), the path of a generations file, or any
object with the verbs of `systems.System`.
"""

from __future__ import annotations

import difflib
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from reviser import files
from reviser.errors import ConfigError, DataError, ReviserError
from reviser.evaluation.generations import Generation, Prompt, as_generations, read_generations, show_value
from reviser.evaluation.metrics.registered import METRICS, RESERVED
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
        """A metric's rows, one for each system; metrics of texts alone share those of `metrics`."""
        if metric not in self.documents and metric in self._shared:
            metric = "metrics"
        if metric not in self.documents:
            raise ConfigError(f"{metric!r} was not measured; measured were {', '.join(self.documents)}")
        return list(self.documents[metric]["rows"])

    @property
    def _shared(self) -> list[str]:
        """The metrics that `metrics` holds."""
        return list(self.documents["metrics"]["config"]["metrics"]) if "metrics" in self.documents else []

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
        lines = [json.dumps(asdict(each), ensure_ascii=False) + "\n" for each in self.generations]
        for name, document in self.documents.items():
            write_result(document, target / f"{name}.json")
        if not lines:
            return target
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
    bring their own. A system's `generate(prompts, seed)` gives one text for each prompt, without the prompt itself:
    a string, a writer's `Text` or a `Generation`.

    metrics     names (`diversity`, `evalppl`, `mauve`, `gaps`, `trajectories`, `likelihood`, and what
                `register_metric` added) or scoring suites
    seeds       each system writes once for each
    sampling    how models sample; by default as in the paper, temperature 0.9 and top-k 50
    max_tokens  limits each text; by default as many tokens as its reference has, or 128 where there is none
    evaluator   the model behind evalppl and gaps
    device      where models that are given by name run, and the evaluator: auto, cpu, cuda
    samples     trajectories of a likelihood bound
    listener    hears of progress
    """
    chosen = _check(systems, prompts, metrics, seeds)
    asked = [each if isinstance(each, Prompt) else Prompt(f"prompt:{i}", each, "") for i, each in enumerate(prompts)]
    suites = _joined(_find_suite(each, evaluator, device) for each in chosen if each != LIKELIHOOD)
    opened = {name: _open(name, each, sampling, max_tokens, device) for name, each in systems.items()}
    if LIKELIHOOD in chosen:
        _check_likelihood(opened, asked)
    generations = _write(opened, asked, [int(seed) for seed in seeds], listener) if suites else []
    documents = {suite.name: _measure(suite, generations, opened, listener) for suite in suites}
    if LIKELIHOOD in chosen:
        documents[LIKELIHOOD] = _likelihood(opened, asked, samples, listener)
    config = {"systems": list(systems), "prompts": len(asked), "seeds": [int(seed) for seed in seeds]}
    settings = {"sampling": sampling and asdict(sampling), "max_tokens": max_tokens}
    for document in documents.values():
        document["config"] = config | settings | document["config"]
    return Results(documents, generations)


def _measure(
    suite: Scoring, generations: Sequence[Generation], systems: Mapping[str, Any], listener: Listener
) -> dict[str, Any]:
    """A suite's document; gaps also ask the systems themselves."""
    if isinstance(suite, Gaps):
        return suite.measure(
            generations, listener, {k: each for k, each in systems.items() if not isinstance(each, list)}
        )
    return suite.measure(generations, listener)


def _check(systems: Any, prompts: Any, metrics: Any, seeds: Any) -> list[str | Scoring]:
    """The metrics as a list; what cannot be meant is refused before anything is loaded."""
    if not isinstance(systems, Mapping) or not systems or not all(isinstance(name, str) for name in systems):
        raise ConfigError(f"systems must be a dictionary from name to system, not {show_value(systems)}")
    for what, given, kinds in (("prompts", prompts, (str, Prompt)), ("metrics", metrics, (str, Scoring))):
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise ConfigError(f"{what} must be a list, not {show_value(given)}; write [{show_value(given)}]")
        if wrong := [each for each in given if not isinstance(each, kinds)]:
            names = " or ".join(kind.__name__ for kind in kinds)
            raise ConfigError(f"{what} hold {show_value(wrong[0])}; give {names}")
    if not metrics:
        raise ConfigError("metrics are empty; name at least one, such as diversity")
    if isinstance(seeds, str) or (not isinstance(seeds, Sequence | range) and not hasattr(seeds, "__len__")):
        raise ConfigError(f"seeds must be a list of whole numbers, not {show_value(seeds)}")
    if not len(seeds) or not all(hasattr(seed, "__index__") for seed in seeds):
        raise ConfigError(f"seeds must be a list of whole numbers, at least one, not {show_value(seeds)}")
    return list(metrics)


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
    if metric not in METRICS:
        known = [*METRICS, *RESERVED]
        near = difflib.get_close_matches(metric, known, 1)
        hint = f"; did you mean {near[0]}?" if near else "; load the file that registers it with reviser.load_plugin"
        raise ConfigError(f"no metric {metric!r}; metrics are {', '.join(known)}{hint}")
    return Metrics(generations=(), metric=(metric,))


def _joined(suites: Iterable[Scoring]) -> list[Scoring]:
    """Metrics of texts alone share one table; two of one name would be one document."""
    chosen = list(suites)
    for each in chosen:
        if each.generations or each.n is not None:
            raise ConfigError(
                f"suite {each.name} has generations or n of its own, which only its own run() reads; leave them out"
            )
        if sum(other.name == each.name for other in chosen) > 1 and not isinstance(each, Metrics):
            raise ConfigError(f"metrics hold {each.name} twice; measure them in two calls")
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
            return _read(name, given)
        model, *changes = str(given).split(",")
        spec = SystemSpec(name, model, tuple(changes))
        spec.check(f"system {name}")
        return open_system(spec, sampling, budget, str(join_team(device).device))
    if isinstance(given, type) or not hasattr(given, "generate"):
        raise ConfigError(
            f"system {name} is a {type(given).__name__}; give a Writer, the name of a model, a generations file or "
            "an object with generate(prompts, seed)"
        )
    return given


def _read(name: str, path: str | os.PathLike[str]) -> list[Generation]:
    """The generations of a file, which are one system's."""
    found = read_generations(path)
    writers = sorted({each.system for each in found})
    if len(writers) != 1:
        held = f"the systems {', '.join(writers)}" if writers else "no generation"
        raise DataError(f"{path}: holds {held}; give a file of one system's texts as {name}")
    return [replace(each, system=name) for each in found]


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
                found += as_generations(name, _generate(name, system, prompts, seed), prompts, seed)
                advance(len(prompts))
    check(found)
    return found


def _generate(name: str, system: Any, prompts: Sequence[Prompt], seed: int) -> list[Any]:
    try:
        written = system.generate(prompts, seed)
        if isinstance(written, str) or not isinstance(written, Iterable):
            raise DataError(f"system {name} gave {show_value(written)}; give a list with one text for each prompt")
        return list(written)
    except ReviserError:
        raise
    except Exception as error:
        raise DataError(
            f"system {name} failed in generate(prompts, seed) ({type(error).__name__}: {error}); fix it"
        ) from error


def _check_likelihood(systems: Mapping[str, Any], prompts: Sequence[Prompt]) -> None:
    if not any(prompt.reference for prompt in prompts):
        raise ConfigError("likelihood scores the references of prompts, and these have none; give Prompts with one")
    for name, system in systems.items():
        if not hasattr(system, "log_likelihood"):
            raise ConfigError(
                f"system {name} has no log_likelihood, so its likelihood cannot be measured; leave it out"
            )


def _likelihood(
    systems: Mapping[str, Any], prompts: Sequence[Prompt], samples: int, listener: Listener
) -> dict[str, Any]:
    from reviser.evaluation.metrics.likelihood import beside_first, row_of

    texts = [prompt for prompt in prompts if prompt.reference]
    rows = []
    for name, system in systems.items():
        found = system.log_likelihood(texts, samples=samples)
        rows.append({"system": name} | row_of(found, texts, getattr(system, "order_name", "")))
    return make_result(LIKELIHOOD, beside_first(rows), {"samples": samples, "n": len(texts)})
