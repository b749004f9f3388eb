"""Systems that correct texts: anything with a name and `correct`.

    source                     changes nothing, which is what every other must beat
    codespell, codespell-first, harper
                               peers (peers.py)
    ours=runs/mine,passes=1    a model of ours that edits the text on its canvas, as `reviser edit` does
    twin=runs/twin,rewrites=true
                               a left-to-right model that reads the text and a separator and writes all of it anew

>>> [each.text for each in Unchanged().correct(["Thsi is it."])]
['Thsi is it.']
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from reviser.errors import ConfigError
from reviser.evaluation.correction.correction import Correction
from reviser.evaluation.specs import SystemSpec
from reviser.proofreading.choices import MIN_PROBABILITY, PASSES, Proofreading

if TYPE_CHECKING:
    from reviser.decoding.presets import Sampling
    from reviser.decoding.requests import Decoded
    from reviser.decoding.writer import Text, Writer
    from reviser.orders.record import Draft

SOURCE, CODESPELL, CODESPELL_FIRST, HARPER = PEERS = ("source", "codespell", "codespell-first", "harper")
"""Systems that need no model; their names mean nothing else."""
REWRITES = "rewrites=true"
EDIT_SETTINGS = ("min_probability", "passes", "reread", "spelling")
"""Settings of a system that edits which are not of sampling."""
WAY = 24
"""Positions that a model needs behind the text: the way to its front, and some actions."""
ROOM = 2
"""A rewriting may be this many times as long as its source, and 32 tokens more."""


class Corrector(Protocol):
    """What is measured."""

    name: str
    version: str
    """Which program or model it is."""

    def correct(self, texts: Sequence[str]) -> list[Correction]:
        """Each text corrected, in their order; one at a time or all together."""
        ...

    def close(self) -> None:
        """Let go of processes and the like."""
        ...


class Unchanged:
    """The texts as they are."""

    name = SOURCE
    version = "the texts as they are"

    def correct(self, texts: Sequence[str]) -> list[Correction]:
        return [Correction(text, 0, 0.0) for text in texts]

    def close(self) -> None:
        """Nothing is held."""


class ModelCorrector:
    """One of our models, by its edits or by writing all of the text anew, greedily unless told otherwise."""

    def __init__(
        self,
        name: str,
        writer: Writer,
        sampling: Sampling,
        rewrites: bool = False,
        how: Proofreading = Proofreading(),  # noqa: B008, it is frozen
    ) -> None:
        from reviser.data.slots import SEPARATOR

        self.name, self.writer, self.sampling, self.rewrites, self.how = name, writer, sampling, rewrites, how
        self.version = f"{writer.name}, {writer.precision}, {'rewriting' if rewrites else 'editing'}"
        if rewrites and len(writer.tokenizer.encode(SEPARATOR)) != 1:
            raise ConfigError(
                f"system {name}: its tokenizer has no token for the byte 0x1E, which separates a text from its "
                "rewriting; leave out rewrites=true"
            )

    def correct(self, texts: Sequence[str]) -> list[Correction]:
        return self._rewrite(texts) if self.rewrites else [self._edit(text) for text in texts]

    def close(self) -> None:
        """The writer holds no process."""

    def _edit(self, text: str) -> Correction:
        """As `Writer.edit` does, with its actions counted."""
        from reviser.proofreading.proofread import proofread

        begun = time.perf_counter()
        done: list[Decoded] = []
        given: list[Draft] = []

        def propose(drafts: Sequence[Draft]) -> list[Decoded]:
            given.extend(() if done else drafts)
            done.extend(made := self.writer.propose(drafts, sampling=self.sampling))
            return made

        model, room = (self.writer.tokenizer, self.writer.config), self.writer.room
        edited = proofread(text, propose, *model, self.how, room=room, read=self.writer.read)
        num_actions, is_finished = (
            sum(len(each.actions) for each in done),
            all(each.ended_by == "model" for each in done),
        )
        first = (given[0], done[0].actions) if len(given) == 1 else None
        return Correction(edited.text, num_actions, time.perf_counter() - begun, is_finished, first)

    def _rewrite(self, texts: Sequence[str]) -> list[Correction]:
        begun = time.perf_counter()
        fits = [self._fits(text) for text in texts]
        written = iter(
            rewrite(self.writer, [text for text, fit in zip(texts, fits, strict=True) if fit], self.sampling)
        )
        made = [next(written) if fit else None for fit in fits]
        share = (time.perf_counter() - begun) / max(len(texts), 1)
        return [self._read(text, each, share) for text, each in zip(texts, made, strict=True)]

    def _fits(self, text: str) -> bool:
        """Whether the model can read a text and has an action left; one too long is left as it is."""
        config, count = self.writer.config, len(self.writer.tokenizer.encode(text))
        return 0 < count < min(config.max_length, config.context - WAY)

    def _read(self, source: str, text: Text | None, seconds: float) -> Correction:
        if text is None:
            return Correction(source, 0, seconds, is_finished=not source)
        return Correction(text.new if text.has_stopped else source, text.num_actions, seconds, text.has_stopped)


def rewrite(writer: Writer, texts: Sequence[str], sampling: Sampling) -> list[Text]:
    """Each text written anew behind itself and the separator."""
    from reviser.canvas import Rules
    from reviser.data.slots import SEPARATOR
    from reviser.decoding.requests import Request
    from reviser.orders.record import Draft

    config, separator = writer.config, writer.tokenizer.encode(SEPARATOR)
    requests = []
    for text in texts:
        given = writer.tokenizer.encode(text) + separator
        room = ROOM * len(given) + 32
        rules = Rules(config.alphabet, frozenset(config.operators), min(len(given) + room, config.max_length))
        requests.append(Request(Draft.continuation(given, rules), room))
    return writer.write(requests, sampling)


def parse_correctors(texts: Iterable[str]) -> list[SystemSpec]:
    """Systems as the command line names them, each under a name of its own.

    >>> [each.name for each in parse_correctors(["source", "ours=runs/mine,stop_bias=1"])]
    ['source', 'ours']
    """
    specs: dict[str, SystemSpec] = {}
    for text in texts:
        try:
            spec = SystemSpec(text, text) if text in PEERS else SystemSpec.parse(text)
        except ConfigError as error:
            raise ConfigError(f"{error}, or one of {', '.join(PEERS)}") from None
        if spec.name in specs:
            raise ConfigError(f"--system names {spec.name} twice; give one of the two another name")
        if spec.name in PEERS and spec.model != spec.name:
            raise ConfigError(f"--system {text}: {spec.name} means the peer of that name; give the model another")
        if not spec.is_folder or spec.steps is not None:
            raise ConfigError(f"--system {text}: only models of our own kind correct texts; give a model folder")
        specs[spec.name] = spec
    return list(specs.values())


def open_corrector(spec: SystemSpec, device: str = "cpu", harper: str = ".") -> Corrector:
    """The system that a spec names, ready to correct."""
    from reviser.config import override
    from reviser.decoding.presets import GREEDY, SCAN
    from reviser.decoding.writer import Writer
    from reviser.evaluation.correction.peers import Codespell, Harper
    from reviser.proofreading.rereading import scan_for

    if spec.model in PEERS:
        peers: dict[str, Callable[[], Corrector]] = {
            SOURCE: Unchanged,
            CODESPELL: Codespell,
            CODESPELL_FIRST: lambda: Codespell(CODESPELL_FIRST, takes_first=True),
            HARPER: lambda: Harper(folder=harper),
        }
        return peers[spec.model]()
    if spec.of_writing:
        raise ConfigError(f"--system {spec.text}: {spec.of_writing} is for writing, and these texts are corrected")
    changes = [each for each in spec.sampling if each != REWRITES]
    of_edits = [each for each in changes if each.partition("=")[0] in EDIT_SETTINGS]
    try:
        how = _read_edit_settings(of_edits)
        others = [each for each in changes if each not in of_edits]
        usual = GREEDY if others or REWRITES in spec.changes else replace(SCAN, scan=scan_for(how))
        sampling = override(usual, others)
    except ConfigError as error:
        raise ConfigError(f"--system {spec.text}: {error}") from None
    writer = Writer.from_pretrained(spec.model, device)
    return ModelCorrector(spec.name, writer, sampling, REWRITES in spec.changes, how)


def _read_edit_settings(changes: Sequence[str]) -> Proofreading:
    """`min_probability`, `passes`, `reread` and `spelling`, as name=value."""
    values, truth = dict(each.split("=", 1) for each in changes), {"true": True, "false": False}
    try:
        return Proofreading(
            min_probability=float(values.get("min_probability", MIN_PROBABILITY)),
            passes=int(values.get("passes", PASSES)),
            reread=truth[values.get("reread", "true")],
            spelling=truth[values.get("spelling", "true")],
        )
    except (ValueError, KeyError):
        raise ConfigError(
            f"{', '.join(changes)}: min_probability is a number, passes a whole number, reread and spelling are true "
            "or false"
        ) from None
