"""`reviser trajectory`: make, show, check and count trajectories."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reviser.errors import ConfigError, DataError, ReviserError, TokenizerError

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from reviser.tokenizer import Tokenizer
    from reviser.trajectory.record import Seed, Trajectory

ORDER_HELP = "e.g. random-walk, runs:jump=0.05,start=end, left-to-right, scramble, 0.7*runs+0.3*left-to-right"


def add(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = commands.add_parser("trajectory", help="make, show, check and count trajectories")
    kinds = parser.add_subparsers(title="subcommands", required=True, metavar="WHAT")
    for adder in (_add_make, _add_show, _add_check, _add_stats):
        adder(kinds)


def _leaf(kinds: argparse._SubParsersAction[ArgumentParser], name: str, text: str, examples: str) -> ArgumentParser:
    return kinds.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_make(kinds: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = _leaf(
        kinds,
        "make",
        "draw trajectories that write a text, one JSON object a line",
        "  reviser trajectory make 'Mary had a little lamb.' --order random-walk --seed 3\n"
        "  reviser trajectory make notes.txt --order runs:jump=0.05 --prefix 8 --count 4 > notes.trajectories.jsonl",
    )
    parser.add_argument("text", help="the text, or a file that holds it")
    parser.add_argument("--order", default="runs", help=f"the order policy ({ORDER_HELP}; default runs)")
    parser.add_argument("--seed", type=int, default=0, help="random seed; the same seed gives the same output")
    parser.add_argument("--count", type=int, default=1, help="how many trajectories (default 1)")
    parser.add_argument(
        "--tokenizer", default="default", help="name, tokenizer.json or folder (default: the shipped)"
    )
    parser.add_argument("--prefix", type=int, default=0, help="tokens at the front given as prompt")
    parser.add_argument("--suffix", type=int, default=0, help="tokens at the end given, to infill before them")
    parser.add_argument("--max-length", type=int, default=512, help="tokens the canvas holds (default 512)")
    parser.add_argument("--operators", help="comma-separated; default: what the order uses")
    parser.add_argument("--json", action="store_true", help="one JSON array instead of lines")
    parser.set_defaults(run=run_make)


def _add_show(kinds: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = _leaf(
        kinds,
        "show",
        "print the canvas after each action, the cursor as a bar",
        "  reviser trajectory make 'Hello there, world.' | reviser trajectory show -\n"
        "  reviser trajectory show notes.trajectories.jsonl --index 2 --no-color",
    )
    parser.add_argument("file", help="a trajectory file, or - for standard input")
    parser.add_argument("--index", type=int, help="only this trajectory, counted from 0")
    parser.add_argument("--tokenizer", help="name, tokenizer.json or folder (default: the one the file names)")
    parser.add_argument("--width", type=int, help="columns (default: the terminal's)")
    parser.add_argument("--no-color", action="store_true", help="no colours; inserted text stands in [brackets]")
    parser.set_defaults(run=run_show)


def _add_check(kinds: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = _leaf(
        kinds,
        "check",
        "replay each trajectory under its own rules; exit 1 at the first bad action",
        "  reviser trajectory check notes.trajectories.jsonl\n  reviser trajectory check - --json < file.jsonl",
    )
    parser.add_argument("file", help="a trajectory file, or - for standard input")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    parser.set_defaults(run=run_check)


def _add_stats(kinds: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = _leaf(
        kinds,
        "stats",
        "the paper's table for a trajectory file or, with --order, for an order alone (null statistics)",
        "  reviser trajectory stats --order random-walk --n 145\n  reviser trajectory stats file.jsonl --json",
    )
    parser.add_argument("file", nargs="?", help="a trajectory file, or - for standard input")
    parser.add_argument("--order", help=f"null statistics of this order ({ORDER_HELP})")
    parser.add_argument("--n", type=int, default=145, help="tokens per target, with --order (default 145)")
    parser.add_argument("--samples", type=int, default=1000, help="trajectories drawn, with --order (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="random seed, with --order")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    parser.set_defaults(run=run_stats)


def run_make(args: argparse.Namespace) -> int:
    from reviser.tokenizer import load
    from reviser.trajectory.names import format_order, parse_order
    from reviser.trajectory.record import dump_records, to_record
    from reviser.trajectory.rng import Random

    order, tokenizer = parse_order(args.order), load(args.tokenizer)
    text = _read_text(args.text)
    target = tokenizer.encode(text)
    seed = _make_seed(args, order.needs, tokenizer, target)
    extra = {"text": text, "tokenizer": {"name": str(args.tokenizer), "sha256": tokenizer.sha256}}
    records = []
    for index in range(args.count):
        drawn = order.draw(seed, target, Random.of(args.seed, index))
        records.append(to_record(drawn, **extra, order=format_order(order), seed=[args.seed, index]))
    print(json.dumps(records, ensure_ascii=False) if args.json else dump_records(records).rstrip("\n"))
    return 0


def _read_text(argument: str) -> str:
    path = Path(argument)
    try:
        if len(argument) < 256 and path.is_file():
            return path.read_text("utf8")
    except UnicodeDecodeError:
        raise DataError(f"{argument} is not UTF-8 text") from None
    except OSError as error:
        raise DataError(f"cannot read {argument}: {error.strerror}") from None
    return argument


def _make_seed(args: argparse.Namespace, needs: frozenset[str], tokenizer: Tokenizer, target: Sequence[int]) -> Seed:
    from reviser.actions import OPERATORS
    from reviser.canvas import Rules
    from reviser.trajectory.record import Seed

    if min(args.prefix, args.suffix) < 0 or args.prefix + args.suffix > len(target):
        raise ConfigError(
            f"prefix {args.prefix} and suffix {args.suffix} do not fit a text of {len(target)} tokens; "
            f"together they may be 0..{len(target)}"
        )
    is_scramble = args.order.startswith("scramble")
    default = frozenset(OPERATORS) if is_scramble else needs | {"move"}
    operators = frozenset(filter(None, args.operators.split(","))) if args.operators is not None else default
    rules = Rules(tokenizer.alphabet, operators, max_length=args.max_length)
    return Seed.infill(target[: args.prefix], target[len(target) - args.suffix :], rules)


def _load_for(record: dict[str, Any], spec: str | None) -> Tokenizer:
    """The tokenizer a record was made with, or the one asked for if it is the same."""
    from reviser.tokenizer import load

    named = record.get("tokenizer") or {}
    tokenizer = load(spec or named.get("name", "default"))
    if named.get("sha256") not in (None, tokenizer.sha256):
        raise TokenizerError(
            f"this trajectory was made with another tokenizer than {spec or named.get('name')} "
            f"(sha256 {named['sha256'][:12]}..., not {tokenizer.sha256[:12]}...); give the right one with --tokenizer"
        )
    return tokenizer


def run_show(args: argparse.Namespace) -> int:
    from reviser.trajectory.record import from_record, read_records
    from reviser.viewer.terminal import make_console, show_trajectory

    console = make_console(width=args.width, has_color=not args.no_color)
    records = list(read_records(args.file))
    if args.index is not None:
        if not 0 <= args.index < len(records):
            raise ConfigError(f"no trajectory {args.index}; {args.file} holds {len(records)}, counted from 0")
        records = records[args.index : args.index + 1]
    for number, record in records:
        try:
            trajectory = from_record(record)
        except ReviserError as error:
            raise DataError(f"{args.file}, line {number}: {error}") from None
        show_trajectory(console, trajectory, _load_for(record, args.tokenizer), record)
    return 0


def run_check(args: argparse.Namespace) -> int:
    from reviser.trajectory.record import from_record, read_records

    bad, count = None, 0
    for count, (number, record) in enumerate(read_records(args.file), 1):
        try:
            from_record(record)
        except ReviserError as error:
            bad = {"trajectory": count - 1, "line": number, "error": str(error)}
            break
    if args.json:
        print(json.dumps({"is_valid": bad is None, "trajectories": count, "bad": bad}))
    elif bad:
        print(f"trajectory {bad['trajectory']} (line {bad['line']}): {bad['error']}")
    else:
        print(f"{count} trajectories replay")
    return 1 if bad else 0


def run_stats(args: argparse.Namespace) -> int:
    from reviser.trajectory.record import read_trajectories
    from reviser.trajectory.statistics import format_table, summarise

    if (args.file is None) == (args.order is None):
        raise ConfigError("give either a trajectory file or --order")
    trajectories = read_trajectories(args.file) if args.file else _draw_null(args)
    summary = summarise(trajectories)
    if not summary["trajectories"]:
        raise DataError(f"{args.file} holds no trajectories")
    if args.json:
        print(json.dumps(summary))
    else:
        sys.stdout.write(format_table({args.order or Path(args.file).name: summary}))
    return 0


def _draw_null(args: argparse.Namespace) -> Iterator[Trajectory]:
    from reviser.actions import OPERATORS, Alphabet
    from reviser.canvas import Rules
    from reviser.trajectory.draw import draw
    from reviser.trajectory.names import parse_order
    from reviser.trajectory.record import Seed
    from reviser.trajectory.rng import Random

    order = parse_order(args.order)
    if args.n < 1 or args.samples < 1:
        raise ConfigError(f"--n {args.n} and --samples {args.samples} must be at least 1")
    rules = Rules(Alphabet(num_text=args.n + 1, pad=args.n), frozenset(OPERATORS), max_length=max(512, 2 * args.n))
    seed, target = Seed.continuation([], rules), list(range(args.n))
    for index in range(args.samples):
        yield draw(order, seed, target, Random.of(args.seed, index))
