"""The steps of a reproduction that make something of their own: data, prompts, costs and the report."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reviser.errors import DataError
from reviser.evaluation.plan import Step
from reviser.evaluation.suites import SILENT, Listener
from reviser.paper import comparison, writing_costs
from reviser.paper.jobs import Training
from reviser.paper.needs import missing_reason, num_written
from reviser.paper.setup import Setup
from reviser.reports.results import make_result, write_result
from reviser.reports.sections import write_file, write_report

DOCUMENTS_A_PROMPT = 20
"""Held-out documents kept for each prompt wanted: many are too short."""


@dataclass(frozen=True)
class Own:
    """A step that only `reviser reproduce` knows."""

    setup: Setup
    name: str
    told: tuple[Step, ...] = ()
    """What a report tells of."""

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.setup.words, "--only", self.name)

    def run(self, listener: Listener = SILENT) -> dict[str, Any] | None:
        return MAKERS[self.name](self, listener)


def make_data(own: Own, listener: Listener) -> None:
    """Scale debug trains on this package's own source text, as it was at first."""
    from reviser.data.own_source import prepare_own_source

    prepare_own_source(own.setup.data_folder)


def make_prompts(own: Own, listener: Listener) -> None:
    """Held-out documents as JSON lines, as many as prompts may need."""
    from reviser.data.shards import Shards

    setup = own.setup
    shards = Shards.open(setup.data_folder, "heldout")
    shards.verify()
    chosen = shards.plain[: DOCUMENTS_A_PROMPT * setup.num_prompts]
    texts = (shards.tokenizer.decode(shards[i].tolist()) for i in chosen.tolist())
    write_file(setup.prompts_file, "".join(json.dumps({"text": text}) + "\n" for text in texts))


def make_flops(own: Own, listener: Listener) -> dict[str, Any]:
    scale = own.setup.scale
    config = {"prefix": scale.prefix, "total": scale.total, "ruler": scale.ruler}
    unit = "1e9 multiply-accumulates a continuation; operations are twice as many"
    return make_result("continuation_flops", writing_costs.flops_rows(own.setup), config, own.words, unit=unit)


def make_seconds(own: Own, listener: Listener) -> dict[str, Any]:
    rows = writing_costs.seconds_rows(own.setup, lambda name: listener.note(f"  timing {name}"))
    config = {"texts": own.setup.scale.num_timed, "at_once": 1, "seed": own.setup.scale.seeds[0]}
    return make_result("continuation_seconds", rows, config, own.words)


def make_report(own: Own, listener: Listener) -> None:
    """The tables beside the paper's; apart from them everything that was measured."""
    setup, scale, out = own.setup, own.setup.scale, own.setup.result("reproduction")
    if not (rows := comparison.gather(setup)):
        raise DataError(f"nothing is measured yet in {setup.out}; run the steps before the report first")
    by = comparison.measured_by(setup)
    config = {
        "scale": scale.name, "prompts": num_written(setup), "seeds": list(scale.seeds), "temperature": 0.9,
        "top_k": 50, "evaluator": by.get("evaluator", setup.evaluator), "judge": by.get("judge", setup.judge),
    }  # fmt: skip
    itself = Step(own.name, own, (), setup.result(own.name))
    commands = [_describe(setup, step) for step in (*own.told, itself)]
    about = {"measured_by": by, "others": list(setup.others), "commands": commands}
    write_result(make_result("reproduction", rows, config, own.words, **about), out)
    measured = [step.out for step in own.told if step.out.parent == out.parent and step.out.is_file()]
    for name, files in (("report", [out]), ("measurements", measured)):
        report = write_report(files, html=setup.out / f"{name}.html", markdown=setup.out / f"{name}.md")
        for complaint in report.complaints:
            raise DataError(complaint)


def _describe(setup: Setup, step: Step) -> dict[str, Any]:
    """A step and the command that really left its result, on which machine; a result may come from elsewhere."""
    from reviser.model.folder import FORMATS, find, read_config

    has_result = step.out.parent == setup.result("").parent and step.out.is_file() and step.name != "report"
    found = json.loads(step.out.read_text("utf-8")) if has_result else {}
    command = found.get("command") or step.command
    if isinstance(step.job, Training) and step.system in setup.models:
        trained = read_config(find(setup.model(step.system)), FORMATS).trained
        command = f"{setup.model(step.system)}: " + (f"reviser train {trained.recipe}" if trained else "not said")
    is_found = step.out.is_file() or step.name == "report"
    return {
        "step": step.name,
        "is_there": is_found,
        "why_not": None if is_found else missing_reason(setup, step) or None,
        "hardware": found.get("hardware", ""),
        "command": command,
    }


MAKERS: dict[str, Callable[[Own, Listener], dict[str, Any] | None]] = {
    "data": make_data,
    "prompts": make_prompts,
    "flops": make_flops,
    "seconds": make_seconds,
    "report": make_report,
}
