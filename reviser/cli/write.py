"""`reviser generate`, `reviser infill`, `reviser edit`: a model writes in the terminal."""

from __future__ import annotations

import argparse
import ast
import gc
import inspect
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from reviser.cli.command import add_command
from reviser.cli.written import Result, make_document, write_page, write_trajectories
from reviser.decoding.presets import NAMED, Sampling
from reviser.errors import ConfigError, DataError

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from rich.console import Console

    from reviser.decoding.engine import Event
    from reviser.decoding.writer import Text, Writer
    from reviser.orders.record import Draft

GAP = re.compile("_{3,}")
BETWEEN = "---"
"""Stands between two texts."""
LONGEST_GAP = 64
"""Tokens; the shipped model was taught gaps of up to 63, and wanders beyond."""


def add(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    _add_generate(commands)
    _add_infill(commands)
    _add_edit(commands)


def _add_generate(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        commands,
        "generate",
        "continue a text",
        "  reviser generate 'The old lighthouse' --live\n"
        "  reviser generate 'The old lighthouse' --n 3 --seed 1 --top-p 0.95 --json",
        description="Continue a text, or write one from nothing. The text goes to standard output, and what it took "
        "to standard error. The same seed gives the same text.",
    )
    parser.add_argument(
        "text",
        metavar="TEXT",
        nargs="?",
        default="",
        help="how it begins, or - for standard input (default: nothing)",
    )
    _add_options(parser)
    parser.set_defaults(run=run_generate, command="generate")


def _add_infill(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        commands,
        "infill",
        "fill the gap ___ in a text",
        "  reviser infill 'The old lighthouse ___ until morning.' --live\n"
        "  reviser infill 'The old lighthouse ___ until morning.' --n 3 --html lighthouse.html",
        description="Fill the gap of a text with as many words as it takes. What stands around the gap stays. A "
        "space before the gap belongs to it.",
    )
    parser.add_argument("text", metavar="TEXT", help="a text with one ___ in it, or - for standard input")
    _add_options(parser, max_tokens=LONGEST_GAP)
    parser.set_defaults(run=run_infill, command="infill")


def _add_edit(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        commands,
        "edit",
        "revise a text",
        "  reviser edit 'The old lighthouse stood dark.' --live\n"
        "  reviser edit - --model runs/mine --out revised.jsonl < draft.txt",
        description="Revise a text: the model stands at its end and may go anywhere in it. What it can do there are "
        "the operators it was trained with; one without delete or replace, like the shipped one, can only insert.",
    )
    parser.add_argument("text", metavar="TEXT", help="the text, or - for standard input")
    _add_options(parser)
    parser.set_defaults(run=run_edit, command="edit")


def _add_options(parser: ArgumentParser, max_tokens: int | None = None) -> None:
    parser.add_argument("--n", type=int, default=1, help="so many texts (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default 0)")
    parser.add_argument("--best-of", type=int, default=1, help="write so many for each text, keep the most probable")
    parser.add_argument("--max-actions", type=int, default=256, help="end after so many (default 256)")
    room = "what the canvas holds" if max_tokens is None else str(max_tokens)
    parser.add_argument(
        "--max-tokens", type=int, default=max_tokens, help=f"write no more than so many (default {room})"
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="show the canvas while it is edited; where standard output is no terminal, the text alone",
    )
    parser.add_argument(
        "--pace", type=float, default=25.0, help="with --live, actions a second at most (default 25; 0: no limit)"
    )
    parser.add_argument("--html", metavar="FILE", help="write a page that replays it, with what else was considered")
    parser.add_argument("--out", metavar="FILE", help="write a trajectory file, for reviser trajectory show")
    parser.add_argument("--model", metavar="SPEC", help="a model folder or hub id (default: the shipped model)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1 (default cpu)")
    parser.add_argument(
        "--weights",
        choices=("auto", "int8"),
        help="auto takes the weights as they are, int8 rounds them for a CPU (default: int8 for the shipped model)",
    )
    _add_sampling(parser)


def _add_sampling(parser: ArgumentParser) -> None:
    """An option for every field of `Sampling`, with what its docstring says."""
    group = parser.add_argument_group("sampling")
    either = group.add_mutually_exclusive_group()
    either.add_argument(
        "--sampling",
        choices=tuple(NAMED),
        default="default",
        help="settings to begin with; paper has temperature 0.9 and top-k 50 alone, the defaults below are those of "
        "default",
    )
    either.add_argument("--greedy", dest="sampling", action="store_const", const="greedy", help="--sampling greedy")
    notes = _notes()
    for each in fields(Sampling):
        name, note = f"--{each.name.replace('_', '-')}", notes[each.name].rstrip(".").replace("%", "%%")
        note = note[0].lower() + note[1:]
        default = getattr(NAMED["default"], each.name)
        if isinstance(default, bool):
            state = "on" if default else "off"
            group.add_argument(
                name, action=argparse.BooleanOptionalAction, default=None, help=f"{note} (default {state})"
            )
        else:
            group.add_argument(name, help=note if default is None else f"{note} (default {default})")


def _notes() -> dict[str, str]:
    """The docstring of each field of `Sampling`."""
    [tree] = ast.parse(inspect.getsource(Sampling)).body
    assert isinstance(tree, ast.ClassDef)
    return {
        field.target.id: note.value.value
        for field, note in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(note, ast.Expr)
        and isinstance(note.value, ast.Constant)
        and isinstance(note.value.value, str)
    }


def run_generate(args: argparse.Namespace) -> int:
    text = _read(args)
    return _run(args, lambda writer: writer.continuation(text, args.max_tokens))


def run_infill(args: argparse.Namespace) -> int:
    prefix, suffix = split_gap(_read(args))
    return _run(args, lambda writer: writer.gap(prefix, suffix, args.max_tokens))


def run_edit(args: argparse.Namespace) -> int:
    text = _read(args)
    return _run(args, lambda writer: writer.revision(text, args.max_tokens))


def split_gap(text: str) -> tuple[str, str]:
    """What stands before and behind the one gap.

    Most tokens bring the space before them, so that of the prefix is left to the gap:

    >>> split_gap("The old ___ until morning.")
    ('The old', ' until morning.')
    """
    parts = GAP.split(text)
    if len(parts) != 2:
        found = "no gap" if len(parts) == 1 else f"{len(parts) - 1} gaps"
        raise ConfigError(f"the text has {found}; write ___ once, where the gap is")
    return parts[0].removesuffix(" "), parts[1]


def _read(args: argparse.Namespace) -> str:
    """The argument, or what standard input holds without its last newline."""
    if args.text == "-":
        try:
            args.text = sys.stdin.read().removesuffix("\n")
        except UnicodeDecodeError:
            raise DataError("standard input is not UTF-8 text") from None
    return str(args.text)


def _run(args: argparse.Namespace, begin: Callable[[Writer], Draft]) -> int:
    sampling = _sampling(args)
    _check(args)
    with _waiting("loading (slow the very first time)"), _without_collector():
        writer, start = _open(args, begin, sampling)
    results = _write(args, writer, start, sampling)
    if args.json:
        print(make_document(args, writer, results, sampling))
    if args.out is not None:
        write_trajectories(args, writer, results)
        _tell(args, f"{args.out}: show it with reviser trajectory show")
    if args.html is not None:
        write_page(args, writer, results)
        _tell(args, f"{args.html}: open it in a browser")
    return 0


def _tell(args: argparse.Namespace, line: str) -> None:
    """A line beside the text; with --json there is none."""
    if not args.json:
        print(line, file=sys.stderr)


def _sampling(args: argparse.Namespace) -> Sampling:
    from reviser.config import override

    given = {each.name: getattr(args, each.name) for each in fields(Sampling)}
    changes = {name: str(value).lower() for name, value in given.items() if value is not None}
    return override(NAMED[args.sampling], [f"{name}={value}" for name, value in changes.items()])


def _check(args: argparse.Namespace) -> None:
    """What can be said before a model is loaded."""
    from reviser.model.folder import SHIPPED, find, read_config

    for name in ("n", "best_of"):
        if getattr(args, name) < 1:
            raise ConfigError(f"--{name.replace('_', '-')} {getattr(args, name)} must be at least 1")
    if not 0 <= args.pace < float("inf"):
        raise ConfigError(f"--pace {args.pace} must be 0 or more")
    for name, is_given in (("--json", args.json), ("--best-of", args.best_of > 1)):
        if args.live and is_given:
            raise ConfigError(f"--live shows every text as it is written, {name} only what comes of it; drop one")
    for name in ("html", "out"):
        path = getattr(args, name)
        if path is not None and Path(path).is_dir():
            raise ConfigError(f"--{name} {path} is a folder; give a file")
    read_config(find(args.model or SHIPPED))
    if args.command == "generate" and args.text.endswith(" "):
        _tell(args, "note: most tokens bring the space before them; leave out the one that the text ends in")


def _open(args: argparse.Namespace, begin: Callable[[Writer], Draft], sampling: Sampling) -> tuple[Writer, Draft]:
    """The writer and what it begins with."""
    from reviser.decoding.reference import check_room
    from reviser.decoding.writer import Writer
    from reviser.model.folder import SHIPPED

    _check_device(args.device)
    is_quick = args.model is None and args.device == "cpu"
    weights: Literal["auto", "int8"] = args.weights or ("int8" if is_quick else "auto")
    writer = Writer.from_pretrained(args.model or SHIPPED, args.device, weights=weights)
    start = begin(writer)
    check_room(start, writer.model.config, args.max_actions)
    # The first use loads the kernels, which is no part of the model's speed.
    list(writer.stream(start, max_actions=1, sampling=sampling))
    writer.write_drafts([start], 1, 1, 1, args.seed, sampling)
    return writer, start


def _check_device(name: str) -> None:
    import torch

    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type != "cpu" and (device.type != "cuda" or (device.index or 0) >= torch.cuda.device_count()):
        raise ConfigError(f"--device {name} is not usable here; write cpu, or cuda where there is a GPU")


def _waiting(message: str) -> AbstractContextManager[object]:
    """A spinner on standard error, where somebody waits."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return nullcontext()
    from rich.console import Console

    return Console(file=sys.stderr).status(message)


@contextmanager
def _without_collector() -> Iterator[None]:
    """For what is loaded and stays: looking for garbage in it takes a seventh of the time to the first text, and more
    than half a second when the process ends."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def _write(args: argparse.Namespace, writer: Writer, start: Draft, sampling: Sampling) -> list[Result]:
    """Write all texts and, unless they go into a document, print them."""
    if args.live and sys.stdout.isatty():
        from reviser.viewer.live import live_console

        console = live_console()
        if console is not None:
            return _write_live(args, writer, start, sampling, console)
    begin = time.perf_counter()
    with _waiting("writing"):
        results = _write_all(args, writer, start, sampling)
    seconds = time.perf_counter() - begin
    if not args.json:
        _print_all(args, writer, results, seconds)
    return results


def _write_all(args: argparse.Namespace, writer: Writer, start: Draft, sampling: Sampling) -> list[Result]:
    if args.html is None:
        texts = writer.write_drafts([start], args.n, args.best_of, args.max_actions, args.seed, sampling)
        return [Result(text) for text in texts]
    results = [
        _collect(writer, start, _events(args, writer, start, sampling, number))
        for number in range(args.n * args.best_of)
    ]
    groups = [results[first : first + args.best_of] for first in range(0, len(results), args.best_of)]
    return [max(group, key=lambda result: result.text.score) for group in groups]


def _events(
    args: argparse.Namespace, writer: Writer, start: Draft, sampling: Sampling, number: int
) -> Iterator[Event]:
    return writer.stream(start, max_actions=args.max_actions, seed=args.seed, sampling=sampling, number=number)


def _collect(writer: Writer, start: Draft, events: Iterable[Event]) -> Result:
    seen = tuple(events)
    return Result(writer.collect(start, seen), seen)


def _write_live(
    args: argparse.Namespace, writer: Writer, start: Draft, sampling: Sampling, console: Console
) -> list[Result]:
    """Draw one text after the other; whoever interrupts keeps what has been written."""
    from reviser.viewer.live import Timed, watch

    results: list[Result] = []
    for number in range(args.n):
        events = Timed(_events(args, writer, start, sampling, number))
        seen: list[Event] = []
        try:
            with closing(watch(events, start, writer.tokenizer, console, args.pace)) as shown:
                for event in shown:
                    seen.append(event)
        finally:
            results.append(_collect(writer, start, seen))
            _print_text(args, writer, results[-1].text, number, console, events.rate)
    return results


def _print_all(args: argparse.Namespace, writer: Writer, results: Sequence[Result], seconds: float) -> None:
    """Every text with its line on standard error, and at the end how quick they all were."""
    # Nobody counts the actions of texts that are not kept.
    rate = sum(result.text.num_actions for result in results) / seconds if args.best_of == 1 else None
    console = _plain_console()
    for number, result in enumerate(results):
        _print_text(args, writer, result.text, number, console, rate if args.n == 1 else None)
    if args.n > 1 and rate is not None:
        print(f"{args.n} texts, {rate:.0f} actions/s", file=sys.stderr)


def _plain_console() -> Console | None:
    """Where a terminal shows it; a pipe gets the text as it is."""
    if not sys.stdout.isatty():
        return None
    from reviser.viewer.terminal import make_console

    return make_console()


def _print_text(
    args: argparse.Namespace,
    writer: Writer,
    text: Text,
    number: int,
    console: Console | None,
    rate: float | None = None,
) -> None:
    if number:
        print(BETWEEN)
    if console is None:
        print(text.text, flush=True)
    else:
        from reviser.viewer.live import draw_final

        console.print(draw_final(text.decoded.canvas, text.draft.rules, writer.tokenizer), overflow="fold")
    rules, given = text.draft.rules, len(text.draft.canvas.tokens)
    before = given - rules.prefix - rules.suffix
    tokens = f", {text.num_tokens - before:+d} tokens" if before else f" for {_count(text.num_tokens, 'token')}"
    parts = [
        f"{_count(text.num_actions, 'action')}{tokens}",
        f"log-probability {text.log_probability:.2f}",
        "stopped by itself" if text.has_stopped else f"not finished: {_limit(args, writer, text)}",
        *([] if rate is None else [f"{rate:.0f} actions/s"]),
    ]
    print(", ".join(parts), file=sys.stderr, flush=True)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _limit(args: argparse.Namespace, writer: Writer, text: Text) -> str:
    """What ended a text that did not stop by itself."""
    if text.num_actions >= args.max_actions:
        return f"--max-actions {args.max_actions}"
    return f"the model reads {writer.model.config.context} positions at most, the given text's among them"
