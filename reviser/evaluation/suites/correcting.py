"""Edits: how well systems correct texts, and how much they change where nothing is wrong."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from reviser.errors import ConfigError, MissingPackageError
from reviser.evaluation.correction.correctors import PEERS, parse_correctors
from reviser.evaluation.suites.base import SILENT, Listener, Suite, option
from reviser.evaluation.suites.writing import DEVICE
from reviser.reports.results import hash_files, make_result

if TYPE_CHECKING:
    from reviser.evaluation.correction.correction import Correction
    from reviser.evaluation.correction.correctors import Corrector
    from reviser.evaluation.correction.tasks import CorrectionTask
    from reviser.evaluation.metrics.corrections import Corrected

AT_ONCE = 64
"""Texts that a system is given together, between two signs of progress."""
WARM_UP = "It were a dark and stormy night."


@dataclass(frozen=True, kw_only=True)
class Corrections(Suite):
    name: ClassVar[str] = "edits"
    summary: ClassVar[str] = "how well systems correct texts: GLEU, F0.5, and what they change in clean text"
    examples: ClassVar[str] = (
        "  reviser eval edits --pairs heldout.jsonl --clean c4.jsonl --system source --system codespell "
        "--system ours=runs/proof\n"
        "  reviser eval edits --jfleg jfleg/ --system harper --harper node/ --system ours=runs/mine,stop_bias=1 "
        "--system twin=runs/twin,rewrites=true --threads 1 --out results/edits.json"
    )
    description: ClassVar[str] = (
        "Have systems correct texts and compare what they make of them with what people made: GLEU, and precision, "
        "recall and F0.5 of word edits, with jackknife errors over texts and differences to the first system. In "
        "clean text, count false edits per 1,000 words. Give at least one of --jfleg, --pairs, --errors and --clean. "
        "Seconds are those of one text at a time."
    )

    system: tuple[str, ...] = option(
        metavar="NAME=MODEL",
        help=f"{', '.join(PEERS)}, shipped, or NAME= a model folder, with ,rewrites=true for one that writes a text "
        "anew; repeatable",
    )
    jfleg: tuple[str, ...] = option((), metavar="FOLDER", help="NAME.src and NAME.ref0, NAME.ref1, ...; repeatable")
    pairs: tuple[str, ...] = option(
        (),
        metavar="FILE|DATA",
        help="JSON lines with before and after, and perhaps kind, or the held-out pairs of a data folder; repeatable",
    )
    errors: tuple[str, ...] = option(
        (), metavar="DATA", help="a data folder: held-out sentences with mistakes made by its errors.npz; repeatable"
    )
    clean: tuple[str, ...] = option(
        (), metavar="TEXTS", help="files, folders or a data folder of documents without mistakes; repeatable"
    )
    n: int | None = option(None, help="maximum number of texts of each --jfleg and --pairs (default: all)")
    sentences: int = option(600, help="sentences cut out of each --errors and --clean (default: 600)")
    seed: int = option(0, help="random seed of which texts, and of the references that GLEU draws (default: 0)")
    timed: int = option(50, help="texts of each set that are corrected one at a time, to time it (default: 50)")
    threads: int | None = option(None, help="CPU threads of models (default: as many as torch takes)")
    harper: str = option(".", metavar="FOLDER", help="where `npm install harper.js` was run (default: here)")
    device: str = option("auto", help=DEVICE)

    def check(self) -> None:
        self.at_least(1, "n", "sentences", "threads")
        self.at_least(0, "timed")
        parse_correctors(self.system)
        if not (self.jfleg or self.pairs or self.errors or self.clean):
            raise ConfigError(
                "there is nothing to correct; give at least one of --jfleg, --pairs, --errors and --clean"
            )

    def run(self, listener: Listener = SILENT) -> dict[str, Any]:
        import torch

        if self.threads is not None:
            torch.set_num_threads(self.threads)
        tasks = self._tasks()
        rows, versions, left_out = [], {}, {}
        firsts: dict[str, Corrected] = {}
        for spec in parse_correctors(self.system):
            try:
                corrector = self._open(spec)
            except MissingPackageError as error:
                if spec.model not in PEERS:
                    raise
                listener.note(f"left out: {error}")
                left_out[spec.name] = str(error)
                continue
            versions[spec.name] = corrector.version
            try:
                rows += [self._row(corrector, spec.name, task, firsts, listener) for task in tasks]
            finally:
                corrector.close()
        if not rows:
            raise ConfigError(f"no system is left to measure: {'; '.join(left_out.values())}")
        rows.sort(key=lambda row: [task.name for task in tasks].index(row["data"]))
        config = {name: getattr(self, name) for name in ("n", "sentences", "timed")}
        config |= {"threads": torch.get_num_threads(), "systems": versions}
        about = {"texts": hash_files(self._files()), "left_out": left_out, "seed": self.seed}
        return make_result("edits", rows, config, self.words, **about)

    def _files(self) -> list[Path]:
        """The files that were read, but for those of folders of clean texts."""
        sides = [sorted(Path(folder).glob(pattern)) for folder in self.jfleg for pattern in ("*.src", "*.ref*")]
        others = [Path(each) for each in (*self.pairs, *self.clean)]
        return [file for side in sides for file in side] + [file for file in others if file.is_file()]

    def _tasks(self) -> list[CorrectionTask]:
        from reviser.evaluation.correction.tasks import make_errors, read_clean, read_jfleg, read_pairs

        tasks = [task for folder in self.jfleg for task in read_jfleg(folder, self.n, self.seed)]
        tasks += [read_pairs(file, self.n, self.seed) for file in self.pairs]
        tasks += [make_errors(folder, self.sentences, self.seed) for folder in self.errors]
        tasks += [read_clean(path, self.sentences, self.seed) for path in self.clean]
        names = [task.name for task in tasks]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ConfigError(f"two sets of texts are called {twice}; rename one of the files")
        return tasks

    def _open(self, spec: Any) -> Corrector:
        from reviser.evaluation.correction.correctors import open_corrector
        from reviser.training.distributed import join_team

        device = "cpu" if spec.model in PEERS else str(join_team(self.device).device)
        return open_corrector(spec, device, self.harper)

    def _row(
        self, corrector: Corrector, name: str, task: CorrectionTask, firsts: dict[str, Corrected], listener: Listener
    ) -> dict[str, Any]:
        from reviser.evaluation.metrics.corrections import measure_clean

        done, costs = self._correct(corrector, task, listener)
        row: dict[str, Any] = {"data": task.name, "is_clean": task.is_clean, "system": name}
        if task.is_clean:
            return row | measure_clean(task.texts, [each.text for each in done]) | costs
        return row | self._measure(task, done, firsts) | self._follow(corrector, task, done) | costs

    def _follow(self, corrector: Corrector, task: CorrectionTask, done: Sequence[Correction]) -> dict[str, Any]:
        """Of a model's first pass over texts: edits that led away from the reference, and how many were undone."""
        from reviser.evaluation.correction.correctors import ModelCorrector
        from reviser.evaluation.correction.undoing import count_wrong

        if not isinstance(corrector, ModelCorrector) or not task.targets:
            return {}
        targets = corrector.writer.tokenizer.encode_many(task.targets)
        followed = [
            count_wrong(*each.first, target) for each, target in zip(done, targets, strict=True) if each.first
        ]
        found = [each for each in followed if each is not None]
        wrong, undone = sum(each.wrong for each in found), sum(each.undone for each in found)
        return {"wrong_edits": wrong, "undone_edits": undone, "followed_texts": len(found)}

    def _measure(
        self, task: CorrectionTask, done: Sequence[Correction], firsts: dict[str, Corrected]
    ) -> dict[str, Any]:
        from reviser.evaluation.correction.words import split_words
        from reviser.evaluation.metrics.corrections import Corrected

        sources = [split_words(text) for text in task.texts]
        made = Corrected(sources, [split_words(each.text) for each in done], task.references, self.seed)
        first = firsts.setdefault(task.name, made)
        row = made.row(first if first is not made else None)
        kinds = task.by_kind()
        return row | ({"by_kind": {kind: made.only(places).row() for kind, places in kinds.items()}} if kinds else {})

    def _correct(
        self, corrector: Corrector, task: CorrectionTask, listener: Listener
    ) -> tuple[list[Correction], dict[str, Any]]:
        """All texts, the last ones one at a time and those before together, and what that cost."""
        from reviser.evaluation.measures import Measure
        from reviser.evaluation.metrics.corrections import tell

        texts, many = task.texts, max(0, len(task.texts) - self.timed)
        done: list[Correction] = []
        with listener.count(f"{corrector.name}, {task.name}", len(texts)) as advance:
            begun = time.perf_counter()
            for start in range(0, many, AT_ONCE):
                part = texts[start : min(start + AT_ONCE, many)]
                done += corrector.correct(part)
                advance(len(part))
            together = time.perf_counter() - begun
            # What is compiled for a batch of one is not timed, and no text is given twice, for some keep answers.
            corrector.correct([WARM_UP])
            for text in texts[many:]:
                done += corrector.correct([text])
                advance(1)
        return done, {
            "actions": tell(Measure.of([float(each.num_actions) for each in done])),
            "seconds": tell(Measure.of([each.seconds for each in done[many:]])) if self.timed else None,
            "seconds_together": together / many if many else None,
            "unfinished": sum(not each.is_finished for each in done),
        }
