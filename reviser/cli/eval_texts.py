"""`reviser eval evalppl` and `reviser eval mauve`: what separate models say of generations."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from reviser.cli.command import add_command
from reviser.cli.options import DEVICE, DTYPES, PROMPTS, add_out, check_positive, print_result
from reviser.cli.progress_bar import count_up

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from reviser.evaluation.records import Generation

NAMED = "smollm2, gemma3-270m, a folder, a GGUF file or a hub id"
FEATURES = "mean:smollm2"
DIVERSITY = (
    ("distinct-1", "distinct_1", ".3f"), ("-2", "distinct_2", ".3f"), ("-3", "distinct_3", ".3f"),
    ("pooled-1", "pooled_distinct_1", ".3f"), ("entropy", "entropy_bits", ".2f"),
    ("longest", "longest_repeat", ".1f"), ("repeat-4", "repeated_4", ".1%"), ("words", "words", ".1f"),
    ("of ref.", "words_over_reference", ".2f"), ("stopped", "stopped", ".0%"),
)  # fmt: skip
"""The second table's columns: title, key of a row, format."""


def add(suites: argparse._SubParsersAction[ArgumentParser]) -> None:
    _add_evalppl(suites)
    _add_mauve(suites)
    _add_gaps(suites)


def _add_evalppl(suites: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        suites,
        "evalppl",
        "perplexity and bits per byte of generations under a separate model, beside their diversity",
        "  reviser eval evalppl ours.jsonl --evaluator smollm2\n"
        "  reviser eval evalppl ours.jsonl ar.jsonl --evaluator gpt2-large --device cuda --batch 64 --out x.json",
        description="Score what systems wrote with a separate model, prefixes as free context, and count how much "
        "they repeat; the references are scored the same way. A masked evaluator gives pseudo-likelihoods.",
    )
    _add_shared(parser, batch=8)
    parser.add_argument("--evaluator", default="smollm2", help=f"{NAMED} (default smollm2)")
    parser.add_argument(
        "--kind",
        default="auto",
        choices=("auto", "causal", "masked"),
        help="what the evaluator is (default: what its configuration says)",
    )
    parser.add_argument(
        "--chunk", type=int, default=1, help="tokens masked at once by a masked evaluator (default 1)"
    )
    parser.set_defaults(run=run_evalppl)


def _add_mauve(suites: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        suites,
        "mauve",
        "how alike generations and references are as sets of texts",
        "  reviser eval mauve ours.jsonl ar.jsonl\n"
        "  reviser eval mauve ours.jsonl --features bert:bert-base-uncased --device cuda --batch 256 --json",
        description="Turn generations and references into features, cluster both together and compare the two "
        "histograms (MAUVE), once for each clustering seed; at least 100 texts a seed and system. Features are the "
        "mean of a model's states over a text (mean:NAME, or NAME alone), its state at the last token (last:NAME), "
        "the tokens' log-likelihoods by a causal model (logp:NAME), or their pseudo-log-likelihoods by a masked one "
        "(bert:NAME).",
    )
    _add_shared(parser, batch=32)
    parser.add_argument(
        "--features", default=FEATURES, metavar="[WAY:]NAME", help=f"NAME is minilm, {NAMED} (default {FEATURES})"
    )
    parser.add_argument("--tokens", type=int, default=100, help="the model's tokens read of a text (default 100)")
    parser.add_argument("--clusterings", type=int, default=5, help="how many seeds of clustering (default 5)")
    parser.add_argument("--seed", type=int, default=25, help="the first of them (default 25)")
    parser.add_argument("--clusters", type=int, help="default: a tenth of the texts")
    parser.set_defaults(run=run_mauve)


def _add_gaps(suites: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        suites,
        "gaps",
        "how well what systems wrote into gaps leads on to what stands behind them",
        "  reviser eval gaps infill.jsonl\n  reviser eval gaps ours.jsonl ar.jsonl --evaluator gpt2-large --json",
        description="Score texts with their gaps filled by a separate causal model: the gap after the prefix, the "
        "suffix after both, and the two together; beside them the references, and nothing in the gap at all.",
    )
    _add_shared(parser, batch=8)
    parser.add_argument("--evaluator", default="smollm2", help=f"{NAMED} (default smollm2)")
    parser.set_defaults(run=run_gaps)


def _add_shared(parser: ArgumentParser, batch: int) -> None:
    parser.add_argument("generations", nargs="+", metavar="GENERATIONS", help="files that `reviser eval` wrote")
    parser.add_argument("--n", type=int, help=PROMPTS)
    parser.add_argument("--batch", type=int, default=batch, help=f"texts scored at once (default {batch})")
    parser.add_argument("--device", default="auto", help=DEVICE)
    parser.add_argument("--dtype", default="float32", choices=DTYPES, help="default float32")
    parser.add_argument(
        "--remote-code", action="store_true", help="run the code a model folder or hub id brings (Dream needs it)"
    )
    add_out(parser)


def run_evalppl(args: argparse.Namespace) -> int:
    from reviser.evaluation.evaluators import load
    from reviser.evaluation.metrics.evalppl import score, summarise
    from reviser.evaluation.texts import lay_out, read_texts
    from reviser.training.distributed import join_team

    check_positive(args, "batch", "chunk")
    generations = read_texts(args.generations, args.n)
    _tell_uneven(generations)
    evaluator = load(args.evaluator, args.kind, str(join_team(args.device).device), args.dtype, args.remote_code)
    print(f"evaluator {evaluator.name} ({evaluator.kind}), sha256 {evaluator.sha256}", file=sys.stderr)
    texts = lay_out(generations)
    with count_up("evalppl", len(texts)) as advance:
        rows = summarise(generations, score(evaluator, texts, args.batch, args.chunk, advance))
    config = {"batch": args.batch}
    if evaluator.kind == "masked":
        config["chunk"] = args.chunk
    return _report(args, "evalppl", rows, config, evaluator.about, _tell_evalppl)


def run_mauve(args: argparse.Namespace) -> int:
    from reviser.evaluation.evaluators import require
    from reviser.evaluation.metrics.features import embed, load_features, parse
    from reviser.evaluation.metrics.mauve import check_counts, summarise
    from reviser.evaluation.texts import by_system, read_texts
    from reviser.training.distributed import join_team

    check_positive(args, "batch", "tokens", "clusterings", "clusters")
    generations = read_texts(args.generations, args.n)
    check_counts(generations)
    _tell_uneven(generations)
    require("mauve")
    way, _ = parse(args.features)
    encoder = load_features(args.features, str(join_team(args.device).device), args.dtype, args.remote_code)
    print(f"features {way}:{encoder.name}, sha256 {encoder.sha256}", file=sys.stderr)
    systems = by_system(generations)
    with count_up("mauve", sum(map(len, systems.values()))) as advance:
        features = {
            name: embed(encoder, [each.text for each in own], way, args.tokens, args.batch, advance)
            for name, own in systems.items()
        }
    seeds = list(range(args.seed, args.seed + args.clusterings))
    rows = summarise(generations, features, seeds, args.clusters)
    config = {"features": way, "tokens": args.tokens, "clustering_seeds": seeds}
    return _report(args, "mauve", rows, config, encoder.about, _tell_mauve)


def run_gaps(args: argparse.Namespace) -> int:
    from reviser.evaluation.evaluators import load
    from reviser.evaluation.metrics.gaps import VIEWS, lay_out_gaps, measure_gaps
    from reviser.evaluation.texts import read_texts
    from reviser.training.distributed import join_team

    check_positive(args, "batch")
    generations = read_texts(args.generations, args.n)
    count = len(VIEWS) * sum(map(len, lay_out_gaps(generations).values()))
    evaluator = load(args.evaluator, "auto", str(join_team(args.device).device), args.dtype, args.remote_code)
    print(f"evaluator {evaluator.name} ({evaluator.kind}), sha256 {evaluator.sha256}", file=sys.stderr)
    with count_up("gaps", count) as advance:
        rows = measure_gaps(evaluator, generations, args.batch, advance)
    config = {"batch": args.batch}
    return _report(args, "gaps", rows, config, evaluator.about, _tell_gaps)


def _tell_uneven(generations: list[Generation]) -> None:
    """Rows over different prompts do not compare; say so."""
    prompts: dict[str, set[str]] = {}
    for each in generations:
        prompts.setdefault(each.system, set()).add(each.prompt_id)
    if len({frozenset(ids) for ids in prompts.values()}) > 1:
        counts = ", ".join(f"{name} {len(ids)}" for name, ids in prompts.items())
        print(f"note: systems have different prompts ({counts}); their rows do not quite compare", file=sys.stderr)


def _report(
    args: argparse.Namespace,
    kind: str,
    rows: list[dict[str, Any]],
    config: dict[str, Any],
    evaluator: dict[str, Any],
    tell: Callable[[list[dict[str, Any]]], str],
) -> int:
    from reviser.evaluation.records import hash_files, make_result

    config = {"generations": hash_files(args.generations), "n": args.n} | config
    return print_result(args, make_result(kind, rows, config, evaluator=evaluator), lambda: tell(rows))


def _tell_evalppl(rows: list[dict[str, Any]]) -> str:
    width = max(len("system"), *(len(row["system"]) for row in rows)) + 2
    lines = [f"{'system':<{width}}{'texts':>6}{'empty':>7}{'evalPPL':>18}{'over seeds':>20}{'bits/byte':>17}"]
    for row in rows:
        lines.append(
            f"{row['system']:<{width}}{row['texts']:>6}{row['empty']:>7}{_told(row['perplexity'], 2):>18}"
            f"{_told_spread(row['perplexity_over_seeds'], 2):>20}{_told(row['bits_per_byte'], 3):>17}"
        )
    lines += ["", f"{'system':<{width}}" + "".join(f"{title:>{_room(title)}}" for title, _, _ in DIVERSITY)]
    for row in rows:
        cells = (f"{_plain(row[key], form):>{_room(title)}}" for title, key, form in DIVERSITY)
        lines.append(f"{row['system']:<{width}}" + "".join(cells))
    return "\n".join(lines)


def _tell_gaps(rows: list[dict[str, Any]]) -> str:
    width = max(len("system"), *(len(row["system"]) for row in rows)) + 2
    lines = [
        f"{'bits per byte of':<{width}}{'':>6}{'gap':>18}{'suffix':>18}{'whole':>18}{'length':>9}{'of each text':>21}"
    ]
    lines.append(f"{'system':<{width}}{'texts':>6}{'':>54}{'of ref.':>9}{'10, 50 and 90%':>21}")
    for row in rows:
        cells = (f"{_told(row[f'{view}_bits_per_byte'], 3):>18}" for view in ("gap", "suffix", "whole"))
        longer = _plain(row["length_over_reference"], ".2f")
        each = ", ".join(f"{part:.2f}" for part in (row["length_quantiles"] or {}).values()) or "-"
        lines.append(f"{row['system']:<{width}}{row['texts']:>6}{''.join(cells)}{longer:>9}{each:>21}")
    return "\n".join(lines)


def _tell_mauve(rows: list[dict[str, Any]]) -> str:
    width = max(len("system"), *(len(row["system"]) for row in rows)) + 2
    lines = [
        f"{'system':<{width}}{'texts':>6}{'references':>12}{'clusters':>10}{'MAUVE over clusterings':>26}"
        f"{'over seeds':>20}"
    ]
    for row in rows:
        lines.append(
            f"{row['system']:<{width}}{row['texts']:>6}{row['references']:>12}{row['clusters']:>10}"
            f"{_told_spread(row['mauve_over_clusterings'], 3):>26}{_told_spread(row['mauve_over_seeds'], 3):>20}"
        )
    return "\n".join(lines)


def _room(title: str) -> int:
    return max(7, len(title) + 1)


def _told(measure: dict[str, Any] | None, digits: int) -> str:
    if measure is None:
        return "-"
    error = "" if measure["error"] is None else f" ± {measure['error']:.{digits}f}"
    return f"{measure['value']:.{digits}f}{error}"


def _told_spread(spread: dict[str, Any] | None, digits: int) -> str:
    """mean (standard deviation, number)."""
    if spread is None:
        return "-"
    deviation = "-" if spread["deviation"] is None else f"{spread['deviation']:.{digits}f}"
    return f"{spread['mean']:.{digits}f} ({deviation}, {spread['n']})"


def _plain(measure: dict[str, Any] | None, form: str) -> str:
    return "-" if measure is None else format(measure["value"], form)
