"""`reviser eval likelihood`: how probable held-out text is to systems."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reviser.cli.command import add_command
from reviser.cli.progress_bar import count_up
from reviser.errors import ConfigError, DataError

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from reviser.evaluation.records import Prompt
    from reviser.orders.policies import Order


def add(suites: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        suites,
        "likelihood",
        "how probable held-out text is: perplexity and bits per byte, exact or a bound",
        "  reviser eval likelihood --system ours=runs/mine/model --data data/mine --samples 8\n"
        "  reviser eval likelihood --system ours=runs/mine/model --system ar=runs/ar/model --texts heldout.jsonl "
        "--job infill --n 50 --json",
        description="The likelihood bound with K trajectories a text, log (1/K) sum p(A)/q(A), in nats and "
        "perplexity per final token and in bits per byte, with standard errors over texts; exact from left to right. "
        "Bits per byte more than the first system's have the error of the texts' own differences. "
        "Perplexities of different tokenizers do not compare; bits per byte do.",
    )
    parser.add_argument(
        "--system", action="append", required=True, metavar="NAME=MODEL", help="a model folder; repeatable"
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--texts", metavar="FILE", help="a .jsonl file with the field text, or a text file")
    source.add_argument("--data", metavar="FOLDER", help="a data folder, of which the held-out documents are taken")
    parser.add_argument(
        "--order",
        action="append",
        default=[],
        help="the order policy, once for all systems or once for each (default: what each was trained with)",
    )
    parser.add_argument(
        "--job",
        choices=("continue", "infill"),
        default="continue",
        help="what is given (default continue: the prefix)",
    )
    parser.add_argument("--samples", type=int, default=1, metavar="K", help="trajectories drawn a text (default 1)")
    parser.add_argument("--n", type=int, default=100, help="texts at most (default 100)")
    parser.add_argument(
        "--prefix", type=int, default=32, help="tokens given before and, to infill, behind (default 32)"
    )
    parser.add_argument("--length", type=int, default=128, help="tokens scored, to a sentence's end (default 128)")
    parser.add_argument("--ruler", help="the tokenizer that counts these tokens (default: the first system's)")
    parser.add_argument("--seed", type=int, default=0, help="random seed; the same seed gives the same output")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default auto)")
    parser.add_argument("--precision", choices=("float32", "bf16"), default="float32", help="default float32")
    parser.add_argument("--out", metavar="FILE", help="also write the result there, as JSON")
    parser.set_defaults(run=run_likelihood)


def run_likelihood(args: argparse.Namespace) -> int:
    from reviser import tokenizer as tokenizers
    from reviser.diffusion.denoiser_folder import load_tokenizer
    from reviser.evaluation.metrics.likelihood import beside_first, cut_prompts
    from reviser.evaluation.records import make_result, write_result

    _check_numbers(args)
    systems = _systems(args)
    ruler = tokenizers.load(args.ruler) if args.ruler else load_tokenizer(systems[0][1])
    documents, source = _open_texts(args)
    prompts = cut_prompts(documents, ruler, args.n, args.prefix, args.length, args.job == "infill")
    rows = beside_first([_measure(args, *system, prompts) for system in systems])
    names = ("job", "samples", "prefix", "length", "precision")
    config = {name: getattr(args, name) for name in names} | {"n": len(prompts), "ruler_sha256": ruler.sha256}
    result = make_result("likelihood", rows, config, texts=source, seed=args.seed)
    if args.out:
        write_result(result, args.out)
    print(json.dumps(result) if args.json else _table(rows))
    return 0


def _check_numbers(args: argparse.Namespace) -> None:
    for name, least in (("samples", 1), ("n", 1), ("length", 1), ("prefix", 1 if args.job == "infill" else 0)):
        if getattr(args, name) < least:
            raise ConfigError(f"--{name} {getattr(args, name)} must be at least {least}")


def _systems(args: argparse.Namespace) -> list[tuple[str, str, Order | None]]:
    """Name, model folder and order of each system; a diffusion model has none."""
    from reviser.diffusion.denoiser import FAMILIES
    from reviser.diffusion.denoiser_folder import family_of
    from reviser.evaluation.metrics.likelihood import trained_order
    from reviser.orders.registry import parse_order

    if len(args.order) not in (0, 1, len(args.system)):
        raise ConfigError(
            f"{len(args.order)} orders for {len(args.system)} systems; give --order once, or once for each system"
        )
    orders = args.order * len(args.system) if len(args.order) == 1 else args.order or [None] * len(args.system)
    systems: list[tuple[str, str, Order | None]] = []
    for spec, order in zip(args.system, orders, strict=True):
        name, _, model = spec.partition("=")
        # How many steps a diffusion model writes in is for suites that write.
        model = model.partition(",steps=")[0]
        if not (name and model):
            raise ConfigError(f"--system {spec} is no NAME=MODEL; write ours=runs/mine/model")
        if any(name == other for other, _, _ in systems):
            raise ConfigError(f"--system names {name} twice; give one of the two another name")
        is_denoiser = family_of(model) in FAMILIES
        systems.append((name, model, None if is_denoiser else parse_order(order or trained_order(model))))
    return systems


def _open_texts(args: argparse.Namespace) -> tuple[Iterator[tuple[str, str]], dict[str, str]]:
    """Names and texts of documents, and where they come from."""
    from reviser.data.shards import Shards
    from reviser.files import hash_file

    if args.texts:
        documents = _read_texts(args.texts)
        return documents, {"file": args.texts, "sha256": hash_file(Path(args.texts))}
    shards = Shards.open(args.data, "heldout")
    decoded = ((f"heldout:{i}", shards.tokenizer.decode(shards[i].tolist())) for i in range(len(shards)))
    return decoded, {"data": args.data, "split": "heldout", "sha256": shards.header.sha256}


def _read_texts(file: str) -> Iterator[tuple[str, str]]:
    from reviser.data.sources import Complaints, read_documents

    if not Path(file).is_file():
        raise DataError(f"{file}: no such file; give a .jsonl or text file")
    bad = Complaints()
    documents = ((f"{Path(file).name}:{each.line}", each.text) for each in read_documents([file], complaints=bad))
    first = next(documents, None)
    if first is None:
        raise DataError(f"{file} holds no text" + (f" ({bad.first[0]})" if bad.first else ""))
    return itertools.chain([first], documents)


def _measure(
    args: argparse.Namespace, name: str, folder: str, order: Order | None, prompts: list[Prompt]
) -> dict[str, Any]:
    from reviser.diffusion.denoiser_folder import load_model, load_tokenizer
    from reviser.diffusion.published import is_published, weights_file
    from reviser.evaluation.metrics.likelihood import measure
    from reviser.files import hash_file
    from reviser.model.checkpoint import WEIGHTS, find
    from reviser.orders.policies import LeftToRight
    from reviser.training.distributed import join_team

    model = load_model(folder, join_team(args.device).device)
    is_exact = isinstance(order, LeftToRight)
    if is_exact:
        print(f"{name}: left-to-right may only append: one trajectory a text, so K = 1 is exact", file=sys.stderr)
    with count_up(name, len(prompts) * (1 if is_exact else args.samples), "trajectories") as advance:
        row = measure(model, load_tokenizer(folder), order, prompts, args.samples, args.seed, args.precision, advance)
    file = weights_file(folder) if is_published(folder) else find(folder) / WEIGHTS
    return {"system": name, **row, "model": folder, "weights_sha256": hash_file(file)}


def _table(rows: list[dict[str, Any]]) -> str:
    width = max(len(row["order"]) for row in rows) + 2
    names = f"{'nats/token':>12}{'error':>9}{'perplexity':>12}{'bits/byte':>11}"
    more = f"  {'more than ' + rows[0]['system']:>17}" if len(rows) > 1 else ""
    lines = [f"{'system':<16}{'order':<{width}}{'K':>5}{names}{more}{'n':>6}"]
    for row in rows:
        error = "-" if row["error"] is None else f"{row['error']:.4f}"
        lines.append(
            f"{row['system']:<16}{row['order']:<{width}}{row['K']:>5}{row['nats_per_token']:>12.4f}{error:>9}"
            f"{row['perplexity']:>12.2f}{row['bits_per_byte']:>11.4f}{_more(row):>{len(more)}}{row['n']:>6}  "
            f"{'exact' if row['is_exact'] else 'bound'}"
        )
    return "\n".join(lines)


def _more(row: dict[str, Any]) -> str:
    """Bits per byte that a system has more than the first."""
    if not (found := row.get("more_than_first")):
        return ""
    return f"{found['value']:+.4f}" + ("" if found["error"] is None else f" ± {found['error']:.4f}")
