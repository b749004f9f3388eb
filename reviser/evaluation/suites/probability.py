"""Likelihood: how probable held-out text is to systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from reviser.errors import ConfigError
from reviser.evaluation.specs import SystemSpec, parse_systems
from reviser.evaluation.suites.base import SILENT, Listener, Suite, option
from reviser.evaluation.suites.writing import DEVICE, TEXTS
from reviser.files import hash_file
from reviser.reports.results import make_result

if TYPE_CHECKING:
    from reviser.evaluation.generations import Prompt
    from reviser.orders.policies import Order


@dataclass(frozen=True, kw_only=True)
class Likelihood(Suite):
    name: ClassVar[str] = "likelihood"
    summary: ClassVar[str] = "how probable held-out text is: perplexity and bits per byte, exact or a bound"
    examples: ClassVar[str] = (
        "  reviser eval likelihood heldout.jsonl --system shipped --samples 8\n"
        "  reviser eval likelihood data/mine --system ours=runs/mine --system ar=runs/ar --job infill --n 50 --json"
    )
    description: ClassVar[str] = (
        "Compute the likelihood bound with K trajectories per text, log (1/K) sum p(A)/q(A), in nats and perplexity "
        "per final token and in bits per byte, with standard errors over texts. It is exact for left-to-right. "
        "Differences to the first system have the errors of per-text differences. Perplexities under different "
        "tokenizers are not comparable; bits per byte are."
    )

    texts: tuple[str, ...] = option(positional=True, metavar="TEXTS", help=TEXTS)
    system: tuple[str, ...] = option(metavar="NAME=MODEL", help="shipped, or NAME= a model folder; repeatable")
    order: tuple[str, ...] = option(
        (),
        metavar="[NAME=]ORDER",
        help="the order of all systems, or of one (default: the order it was trained with); repeatable",
    )
    job: str = option(
        "continue",
        choices=("continue", "infill"),
        help="continue: the prefix is given; infill: both sides are (default: continue)",
    )
    samples: int = option(1, metavar="K", help="trajectories drawn for each text (default: 1)")
    n: int = option(100, help="maximum number of texts (default: 100)")
    prefix: int = option(32, help="tokens given before and, for infill, after (default: 32)")
    length: int = option(128, help="tokens scored, to the end of a sentence (default: 128)")
    ruler: str | None = option(None, help="tokenizer that counts these tokens (default: the first system's)")
    seed: int = option(0, help="random seed (default: 0)")
    device: str = option("auto", help=DEVICE)
    precision: str = option("float32", choices=("float32", "bf16"), help="default: float32")

    def check(self) -> None:
        self.at_least(1, "samples", "n", "length")
        self.at_least(1 if self.job == "infill" else 0, "prefix")
        for spec in parse_systems(self.system):
            if spec.of_writing:
                raise ConfigError(
                    f"--system {spec.name}: {spec.of_writing} is for writing, and a likelihood writes nothing; "
                    "leave it out" + (" and give an --order" if spec.out_of_order else "")
                )

    def run(self, listener: Listener = SILENT) -> dict[str, Any]:
        from reviser import tokenizer as tokenizers
        from reviser.diffusion.denoiser_folder import load_tokenizer
        from reviser.evaluation.metrics.likelihood import beside_first, cut_prompts
        from reviser.evaluation.prompts import check_there, read_named

        check_there(self.texts)
        systems = self._systems()
        ruler = tokenizers.load(self.ruler) if self.ruler else load_tokenizer(systems[0][0].model)
        documents = read_named(self.texts)
        prompts = cut_prompts(documents, ruler, self.n, self.prefix, self.length, self.job == "infill")
        rows = beside_first([self._measure(spec, order, prompts, listener) for spec, order in systems])
        names = ("job", "samples", "prefix", "length", "precision")
        config = {name: getattr(self, name) for name in names} | {"n": len(prompts), "ruler_sha256": ruler.sha256}
        return make_result("likelihood", rows, config, self.words, texts=_describe(self.texts), seed=self.seed)

    def _systems(self) -> list[tuple[SystemSpec, Order | None]]:
        """Every system with its order; a diffusion model has none."""
        from reviser.diffusion.denoiser import FAMILIES
        from reviser.diffusion.denoiser_folder import family_of
        from reviser.evaluation.metrics.likelihood import trained_order
        from reviser.orders.registry import parse_order

        specs = parse_systems(self.system)
        orders = named_orders(self.order, [spec.name for spec in specs])
        return [
            (
                spec,
                None
                if family_of(spec.model) in FAMILIES
                else parse_order(orders.get(spec.name) or trained_order(spec.model)),
            )
            for spec in specs
        ]

    def _measure(
        self, spec: SystemSpec, order: Order | None, prompts: Sequence[Prompt], listener: Listener
    ) -> dict[str, Any]:
        from reviser.diffusion.denoiser_folder import load_model, load_tokenizer
        from reviser.diffusion.published import is_published, weights_file
        from reviser.evaluation.metrics.likelihood import measure
        from reviser.model.checkpoint import WEIGHTS, find
        from reviser.orders.policies import LeftToRight
        from reviser.training.distributed import join_team

        model = load_model(spec.model, join_team(self.device).device)
        is_exact = isinstance(order, LeftToRight)
        if is_exact:
            listener.note(f"{spec.name}: left-to-right has one trajectory for each text, so K = 1 is exact")
        total = len(prompts) * (1 if is_exact else self.samples)
        with listener.count(spec.name, total, "trajectories") as advance:
            tokenizer = load_tokenizer(spec.model)
            row = measure(model, tokenizer, order, prompts, self.samples, self.seed, self.precision, advance)
        file = weights_file(spec.model) if is_published(spec.model) else find(spec.model) / WEIGHTS
        return {"system": spec.name, **row, "model": spec.model, "weights_sha256": hash_file(file)}


def named_orders(given: Sequence[str], systems: Sequence[str], option: str = "--order") -> dict[str, str]:
    """The order of each system: its own, or the one without a name.

    >>> named_orders(["runs", "ar=left-to-right"], ["ours", "ar"])
    {'ours': 'runs', 'ar': 'left-to-right'}
    """
    named = {name: text for name, _, text in (each.partition("=") for each in given) if name in systems}
    others = [each for each in given if each.partition("=")[0] not in systems]
    if len(others) > 1:
        raise ConfigError(
            f"{option} {others[1]}: {others[0]} is already the order of all systems; name one of them: "
            f"{', '.join(systems)}"
        )
    shared = dict.fromkeys(systems, others[0]) if others else {}
    return shared | named


def _describe(texts: Sequence[str]) -> dict[str, str]:
    """Which texts they are: files with their sha256, data folders with that of their documents."""
    from reviser.data.shards import HEADER, read_header

    found = {}
    for text in texts:
        path = Path(text)
        if (path / HEADER).is_file():
            found[text] = read_header(path).sha256
        elif path.is_file():
            found[text] = hash_file(path)
        else:
            found[text] = "a folder"
    return found
