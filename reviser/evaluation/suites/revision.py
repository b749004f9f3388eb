"""How systems edit, and what that costs: trajectory statistics, and the frontier of revision against probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from reviser.errors import ConfigError, DataError
from reviser.evaluation.generations import Generation
from reviser.evaluation.specs import parse_systems
from reviser.evaluation.suites.base import SILENT, Listener, option
from reviser.evaluation.suites.probability import named_orders
from reviser.evaluation.suites.scoring import Scoring
from reviser.reports.results import hash_files, read_result

if TYPE_CHECKING:
    from reviser.orders.policies import Order


@dataclass(frozen=True, kw_only=True)
class Trajectories(Scoring):
    name: ClassVar[str] = "trajectories"
    summary: ClassVar[str] = "how systems edited: the paper's ten rows, beside the order's null statistics"
    examples: ClassVar[str] = (
        "  reviser eval trajectories ours.jsonl --order random-walk\n"
        "  reviser eval trajectories both.jsonl --order ours=runs:jump=0.05,start=end --order ar=left-to-right "
        "--plot paths.png --json\n"
        "  reviser eval trajectories ours.jsonl --order sentences --system ours=runs/mine"
    )
    description: ClassVar[str] = (
        "Compute the ten rows of the paper's table for every system that edits, beside those of trajectories that "
        "its order draws at the same lengths without a model. An order that cuts at the ends of sentences needs the "
        "system's tokenizer."
    )

    order: tuple[str, ...] = option(
        (),
        metavar="[NAME=]ORDER",
        help="the order that all models, or the system NAME, were trained with, shown for comparison; repeatable",
    )
    system: tuple[str, ...] = option(
        (),
        metavar="NAME=MODEL",
        help="the model folder of a system, whose tokenizer tells where sentences end; repeatable",
    )
    seed: int = option(0, help="random seed of the order's draws (default: 0)")
    plot: str | None = option(
        None, metavar="FILE", help="write a picture of cursor paths, insertion order and move lengths"
    )

    def check(self) -> None:
        self.at_least(1, "n")
        parse_systems(self.system)

    def measure(self, generations: Sequence[Generation], listener: Listener = SILENT) -> dict[str, Any]:
        from reviser.evaluation.metrics.editing import describe, plot, trajectories_of
        from reviser.orders.registry import parse_order

        editing = {each.system for each in generations if each.record is not None}
        all_systems = list(dict.fromkeys(each.system for each in generations))
        systems = [name for name in all_systems if name in editing]
        if not systems:
            trajectories_of(generations, generations[0].system)
        orders = {name: parse_order(text) for name, text in named_orders(self.order, all_systems).items()}
        rows = [
            describe(generations, name, order, self.seed, self._find_ends(generations, name, order, listener))
            for name, order in ((name, orders.get(name)) for name in systems)
        ]
        if self.plot:
            plot({name: trajectories_of(generations, name) for name in systems}, self.plot)
        return self._result("trajectories", rows, {"order": list(self.order)}, seed=self.seed)

    def _find_ends(
        self, generations: Sequence[Generation], name: str, order: Order | None, listener: Listener
    ) -> frozenset[int]:
        """The tokens that end a sentence, where a system's order cuts there and its tokenizer is known."""
        from reviser.canvas import Rules
        from reviser.data.examples import with_ends
        from reviser.diffusion.denoiser_folder import load_tokenizer
        from reviser.evaluation.metrics.editing import trajectories_of
        from reviser.orders.policies import needs_ends

        if order is None or not needs_ends(order):
            return frozenset()
        models = {spec.name: spec.model for spec in parse_systems(self.system)}
        if name not in models:
            listener.note(
                f"{name}: nothing beside its statistics, for its order cuts at the ends of sentences; --system "
                f"{name}=MODEL says which tokens end one"
            )
            return frozenset()
        tokenizer, alphabet = load_tokenizer(models[name]), trajectories_of(generations, name)[0].draft.rules.alphabet
        if tokenizer.alphabet != alphabet:
            raise ConfigError(
                f"--system {name}={models[name]} has {tokenizer.num_text} tokens, but what {name} wrote has "
                f"{alphabet.num_text}; give the model that wrote it"
            )
        return with_ends(Rules(alphabet), order, tokenizer).ends


@dataclass(frozen=True, kw_only=True)
class Frontier(Scoring):
    name: ClassVar[str] = "frontier"
    summary: ClassVar[str] = "evalPPL over a left-to-right system's, against the share of insertions not at the end"
    examples: ClassVar[str] = (
        "  reviser eval frontier ar.jsonl jumps.jsonl --against ar --evalppl evalppl.json\n"
        "  reviser eval frontier *.jsonl --against ar --evalppl evalppl.json --likelihood bounds.json --out "
        "results/frontier.json"
    )
    description: ClassVar[str] = (
        "Compare how much systems edited with how probable their texts are, relative to a left-to-right system. "
        "The results of `reviser eval evalppl` and `likelihood` are read, not measured again; systems are matched by "
        "name."
    )

    against: str = option(metavar="SYSTEM", help="the left-to-right system")
    evalppl: str = option(metavar="FILE", help="a result of `reviser eval evalppl`")
    likelihood: str | None = option(None, metavar="FILE", help="a result of `reviser eval likelihood`")

    def check(self) -> None:
        self.at_least(1, "n")

    def measure(self, generations: Sequence[Generation], listener: Listener = SILENT) -> dict[str, Any]:
        from reviser.evaluation.metrics.frontier import frontier

        files = {"evalppl": self.evalppl} | ({"likelihood": self.likelihood} if self.likelihood else {})
        read = [_rows(kind, file) for kind, file in files.items()]
        rows = frontier(generations, self.against, *read)
        edited = {row["system"] for row in rows}
        if others := sorted({each.system for each in generations} - edited):
            listener.note(f"left out, for they do not edit: {', '.join(others)}")
        config = {"against": self.against, "results": hash_files(files.values())}
        return self._result("frontier", rows, config)


def _rows(kind: str, file: str) -> list[dict[str, Any]]:
    document = read_result(file)
    if document["kind"] != kind:
        raise DataError(f"{file} is a result of kind {document['kind']}; give one of `reviser eval {kind}`")
    return list(document["rows"])
