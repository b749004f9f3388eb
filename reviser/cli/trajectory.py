"""`reviser trajectory`: make, show, check and summarise trajectories."""

from __future__ import annotations

import argparse
import errno
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reviser.cli.shared.command import add_command, format_json, looks_like_file
from reviser.errors import ConfigError, DataError, ReviserError, TokenizerError, TrajectoryError

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from reviser.orders.policies import Order
    from reviser.orders.record import Draft, Trajectory
    from reviser.tokenizer import Tokenizer

ORDER_HELP = "e.g. random-walk, runs:jump=0.05,start=end, left-to-right, 0.7*runs+0.3*left-to-right"


def add(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = commands.add_parser("trajectory", help="make, show, check and summarise trajectories")
    kinds = parser.add_subparsers(title="subcommands", required=True, metavar="WHAT")
    for adder in (_add_make, _add_show, _add_check, _add_stats):
        adder(kinds)


def _add_make(kinds: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        kinds,
        "make",
        "draw trajectories that write a text, one JSON object per line",
        "  reviser trajectory make 'Mary had a little lamb.' --order random-walk --seed 3\n"
        "  reviser trajectory make notes.txt --order runs:jump=0.05 --prefix 8 --count 4 > notes.trajectories.jsonl",
        has_json=False,
    )
    parser.add_argument("text", metavar="TEXT|FILE", help="the text, a file that holds it, or - for standard input")
    parser.add_argument("--order", default="runs", help=f"the order policy ({ORDER_HELP}; default runs)")
    parser.add_argument("--seed", type=int, default=0, help="random seed; the same seed gives the same output")
    parser.add_argument("--count", type=int, default=1, help="how many trajectories (default 1)")
    parser.add_argument(
        "--tokenizer", default="default", help="name, tokenizer.json or folder (default: the shipped)"
    )
    parser.add_argument("--prefix", type=int, default=0, help="how many tokens at the front are given, as a prompt")
    parser.add_argument(
        "--suffix", type=int, default=0, help="how many tokens at the end are given, to infill before them"
    )
    parser.add_argument("--max-length", type=int, default=512, help="most tokens on the canvas (default 512)")
    parser.add_argument("--operators", help="operators to enable, comma-separated (default: those the order uses)")
    parser.add_argument("--json", action="store_true", help="print one JSON array instead of lines")
    parser.set_defaults(run=run_make)


def _add_show(kinds: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        kinds,
        "show",
        "print the canvas after each action, or write a page or a picture that plays it",
        "  reviser trajectory make 'Hello there, world.' | reviser trajectory show -\n"
        "  reviser trajectory show notes.trajectories.jsonl --index 2 --no-color\n"
        "  reviser trajectory show notes.trajectories.jsonl --html notes.html\n"
        "  reviser trajectory show notes.trajectories.jsonl --index 0 --svg notes.svg",
        has_json=False,
    )
    parser.add_argument("file", help="a trajectory file, or - for standard input")
    parser.add_argument("--index", type=int, help="only this trajectory, counted from 0")
    parser.add_argument("--tokenizer", help="name, tokenizer.json or folder (default: the one the file names)")
    parser.add_argument("--width", type=int, help="columns (default: the terminal's)")
    parser.add_argument("--no-color", action="store_true", help="no colours; inserted text is shown in [brackets]")
    parser.add_argument("--html", metavar="FILE", help="write a page that plays all of them instead of printing them")
    parser.add_argument("--svg", metavar="FILE", help="write a picture that shows them one action after another")
    parser.set_defaults(run=run_show)


def _add_check(kinds: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        kinds,
        "check",
        "replay each trajectory under its own rules; exit code 1 at the first invalid action",
        "  reviser trajectory check notes.trajectories.jsonl\n  reviser trajectory check - --json < file.jsonl",
    )
    parser.add_argument("file", help="a trajectory file, or - for standard input")
    parser.set_defaults(run=run_check)


def _add_stats(kinds: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        kinds,
        "stats",
        "print the paper's statistics of a trajectory file or, with --order, of an order without a model",
        "  reviser trajectory stats --order random-walk --n 145\n  reviser trajectory stats file.jsonl --json",
    )
    parser.add_argument("file", nargs="?", help="a trajectory file, or - for standard input")
    parser.add_argument("--order", help=f"draw from this order instead of reading a file ({ORDER_HELP})")
    parser.add_argument("--n", type=int, default=145, help="tokens per text, with --order (default 145)")
    parser.add_argument("--samples", type=int, default=1000, help="how many to draw, with --order (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="random seed, with --order")
    parser.set_defaults(run=run_stats)


def run_make(args: argparse.Namespace) -> int:
    from reviser.orders.checked import draw_by_method
    from reviser.orders.record import dump_records, to_record
    from reviser.orders.registry import format_order, parse_order
    from reviser.orders.rng import Random
    from reviser.tokenizer import load

    _check_range("--count", args.count, 1, 1_000_000)
    order, tokenizer = parse_order(args.order), load(args.tokenizer)
    text = _read_text(args.text)
    target = tokenizer.encode(text)
    draft = _make_draft(args, order, tokenizer, target)
    extra = {"text": text, "tokenizer": {"name": str(args.tokenizer), "sha256": tokenizer.sha256}}
    records = []
    for index in range(args.count):
        drawn = draw_by_method(order, draft, target, Random.of(args.seed, index), tokenizer.decode)
        records.append(to_record(drawn, **extra, order=format_order(order), seed=[args.seed, index]))
    print(format_json(records) if args.json else dump_records(records).rstrip("\n"))
    return 0


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{name} {value} must be from {low} to {high}")


def _read_text(argument: str) -> str:
    """The argument itself, or what the file of that name or standard input (`-`) holds."""
    try:
        if argument == "-":
            return sys.stdin.read()
        if Path(argument).is_file():
            return Path(argument).read_text("utf8")
    except UnicodeDecodeError:
        raise DataError(f"{argument} is not UTF-8 text") from None
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise DataError(f"cannot read {argument}: {error.strerror}") from None
    if looks_like_file(argument):
        raise DataError(f"no file {argument}; to use the name itself as text, pipe it to: reviser trajectory make -")
    return argument


def _make_draft(args: argparse.Namespace, order: Order, tokenizer: Tokenizer, target: Sequence[int]) -> Draft:
    from reviser.actions import INSERT_MOVE
    from reviser.canvas import Rules
    from reviser.orders.record import Draft

    if min(args.prefix, args.suffix) < 0 or args.prefix + args.suffix > len(target):
        raise ConfigError(
            f"prefix {args.prefix} and suffix {args.suffix} do not fit a text of {len(target)} tokens; "
            f"together they may be 0..{len(target)}"
        )
    chosen = (args.operators or "").replace(" ", "").split(",")
    operators = order.needs | INSERT_MOVE if args.operators is None else frozenset(filter(None, chosen))
    rules = Rules(tokenizer.alphabet, operators, max_length=args.max_length)
    return Draft.infill(target[: args.prefix], target[len(target) - args.suffix :], rules)


def _load_for(record: dict[str, Any], spec: str | None) -> Tokenizer:
    """The tokenizer a record was made with, or the one asked for if it is the same."""
    from reviser.tokenizer import load

    named = record.get("tokenizer")
    named = named if isinstance(named, dict) else {}
    name = spec or str(named.get("name", "default"))
    tokenizer, sha256 = load(name), str(named.get("sha256", ""))
    if sha256 not in ("", tokenizer.sha256):
        difference = f"sha256 {sha256[:12]}..., not {tokenizer.sha256[:12]}..."
    elif (record["num_text"], record["pad"]) != (tokenizer.num_text, tokenizer.pad):
        difference = f"{record['num_text']} tokens, not {tokenizer.num_text}, or another end of text"
    else:
        return tokenizer
    raise TokenizerError(
        f"this trajectory was made with another tokenizer than {name} ({difference}); "
        "give the right one with --tokenizer"
    )


def run_show(args: argparse.Namespace) -> int:
    from reviser.viewer.terminal import MIN_WIDTH, make_console, show_trajectory

    if args.width is not None:
        _check_range("--width", args.width, MIN_WIDTH, 10_000)
    lines = _choose_lines(args)
    if args.html is not None or args.svg is not None:
        _write_files(args, lines)
        return 0
    console = make_console(width=args.width, has_color=not args.no_color)
    for record, trajectory in _parse_lines(args.file, lines):
        show_trajectory(console, trajectory, _load_for(record, args.tokenizer), record)
    return 0


def _choose_lines(args: argparse.Namespace) -> list[tuple[int, str]]:
    """Number and content of the lines to show."""
    from reviser.orders.record import read_lines

    lines = list(read_lines(args.file))
    _check_some(args.file, len(lines))
    if args.index is None:
        return lines
    if not 0 <= args.index < len(lines):
        raise ConfigError(f"no trajectory {args.index}; {args.file} holds {len(lines)}, counted from 0")
    return lines[args.index : args.index + 1]


def _parse_lines(file: str, lines: Sequence[tuple[int, str]]) -> Iterator[tuple[dict[str, Any], Trajectory]]:
    from reviser.orders.record import from_record, parse_record

    for number, line in lines:
        try:
            record = parse_record(line)
            yield record, from_record(record)
        except ReviserError as error:
            raise DataError(f"{file}, line {number}: {error}") from None


def _write_files(args: argparse.Namespace, lines: Sequence[tuple[int, str]]) -> None:
    """The page and the picture that options name."""
    from reviser.viewer.animation import write_animation
    from reviser.viewer.replay_page import Example, write_page

    parsed = list(_parse_lines(args.file, lines))
    first, tokenizer = parsed[0][0], _load_for(parsed[0][0], args.tokenizer)
    for (number, _), (record, _) in zip(lines, parsed, strict=True):
        if any(record.get(key) != first.get(key) for key in ("tokenizer", "num_text", "pad")):
            raise TokenizerError(
                f"{args.file}, line {number} was made with another tokenizer than line {lines[0][0]}, and a page has "
                "one; choose a trajectory with --index"
            )
    examples = [Example(trajectory, log_probabilities=_scores(record)) for record, trajectory in parsed]
    orders = sorted({str(record["order"]) for record, _ in parsed if "order" in record})
    name = "Trajectories" if args.file == "-" else Path(args.file).name
    title = f"{name}: {', '.join(orders)}" if orders else name
    for path, write in ((args.html, write_page), (args.svg, write_animation)):
        if path is not None:
            write(path, examples, tokenizer, title)
            print(f"wrote {path}", file=sys.stderr)


def _scores(record: dict[str, Any]) -> tuple[float, ...] | None:
    """The log-probabilities of a record's actions, where a model chose them."""
    scores = record.get("log_probabilities")
    if scores is None:
        return None
    is_list = isinstance(scores, list) and all(isinstance(each, int | float) for each in scores)
    if not is_list or any(each > 0 for each in scores):
        raise TrajectoryError("log_probabilities must be a list of numbers of at most 0; correct it or leave it out")
    return tuple(map(float, scores))


def _check_some(file: str, count: int) -> None:
    if not count:
        raise DataError(f"{'standard input' if file == '-' else file} holds no trajectories")


def run_check(args: argparse.Namespace) -> int:
    from reviser.orders.record import from_record, parse_record, read_lines

    bad, count = None, 0
    for count, (number, line) in enumerate(read_lines(args.file), 1):
        try:
            from_record(parse_record(line))
        except ReviserError as error:
            bad = {"trajectory": count - 1, "line": number, "error": str(error)}
            break
    _check_some(args.file, count)
    if args.json:
        print(json.dumps({"is_valid": bad is None, "trajectories": count, "bad": bad}))
    elif bad:
        print(f"trajectory {bad['trajectory']} (line {bad['line']}): {bad['error']}")
    else:
        print(f"{count} {'trajectory replays' if count == 1 else 'trajectories replay'}")
    return 1 if bad else 0


def run_stats(args: argparse.Namespace) -> int:
    from reviser.orders.record import read_trajectories
    from reviser.orders.statistics import format_table, summarise

    if (args.file is None) == (args.order is None):
        raise ConfigError("give either a trajectory file or --order")
    trajectories = read_trajectories(args.file) if args.file else _draw_null(args)
    summary = summarise(trajectories)
    _check_some(args.file, summary["trajectories"])
    if args.json:
        print(json.dumps(summary))
    else:
        sys.stdout.write(format_table({args.order or Path(args.file).name: summary}))
    return 0


def _draw_null(args: argparse.Namespace) -> Iterator[Trajectory]:
    from reviser.actions import OPERATORS, Alphabet
    from reviser.canvas import Rules
    from reviser.orders.draw import draw
    from reviser.orders.record import Draft
    from reviser.orders.registry import parse_order
    from reviser.orders.rng import Random

    order = parse_order(args.order)
    _check_range("--n", args.n, 1, 100_000)
    _check_range("--samples", args.samples, 1, 10_000_000)
    rules = Rules(Alphabet(num_text=args.n + 1, pad=args.n), frozenset(OPERATORS), max_length=max(512, 2 * args.n))
    draft, target = Draft.continuation([], rules), list(range(args.n))
    for index in range(args.samples):
        yield draw(order, draft, target, Random.of(args.seed, index))
