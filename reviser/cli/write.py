"""`reviser generate`, `reviser infill`: a model writes in the terminal."""

from __future__ import annotations

import argparse
import ast
import gc
import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from reviser.cli.shared.command import add_command
from reviser.cli.shared.written import (
    check_output,
    make_document,
    model_name,
    write_page,
    write_picture,
    write_trajectories,
)
from reviser.decoding.presets import BEST_OF, LONGEST_GAP, NAMED, Sampling
from reviser.errors import ConfigError, DataError
from reviser.proofreading.choices import REVISE_BY, REVISE_PROBABILITY, Proofreading, revising

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from rich.console import Console

    from reviser.decoding.requests import Event
    from reviser.decoding.writer import Text, Writer
    from reviser.orders.record import Draft

SEPARATOR = "---"
"""Printed between two texts."""


def add(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    _add_generate(commands)
    _add_infill(commands)


def _add_generate(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        commands,
        "generate",
        "continue a text",
        "  reviser generate 'The old lighthouse' --live\n"
        "  reviser generate 'The old lighthouse' --n 3 --seed 1 --top-p 0.95 --json\n"
        "  reviser generate 'The old lighthouse' --model runs/own --revise 2 --live",
        description="Continue a text, or write one from nothing. The text goes to standard output, and a line about "
        "it to standard error. The same seed gives the same text. With --revise the model then goes over its draft "
        "and changes what it finds better changed; the given text stays.",
    )
    parser.add_argument(
        "text",
        metavar="TEXT",
        nargs="?",
        default="",
        help="the beginning of the text, or - for standard input (default: nothing)",
    )
    _add_options(parser)
    parser.add_argument(
        "--out-of-order",
        action="store_true",
        help="write in the other order that the model was trained in (data.jobs.told_order): by default the ending "
        "first and then what leads up to it",
    )
    parser.add_argument(
        "--revise", type=int, default=0, metavar="N", help="go over the draft at most N times and edit it (default 0)"
    )
    parser.add_argument(
        "--revise-probability",
        type=float,
        default=REVISE_PROBABILITY,
        metavar="P",
        help=f"leave out changes of a draft that are less probable (default {REVISE_PROBABILITY})",
    )
    parser.add_argument(
        "--revise-by",
        choices=REVISE_BY,
        default=REVISE_BY[0],
        help="reading: fill anew what reads worst, where the text gains by it; scan: look for places to change as a "
        f"proofreader does (default {REVISE_BY[0]})",
    )
    parser.set_defaults(run=run_generate, command="generate")


def _add_infill(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        commands,
        "infill",
        "fill the gaps ___ in a text",
        "  reviser infill 'The old lighthouse ___ until morning.' --live\n"
        "  reviser infill 'The ___ lighthouse ___ until ___.' --n 3 --html lighthouse.html",
        description="Fill the gaps of a text with as many words as it takes. The given text does not change. A space "
        "before a gap belongs to the gap. A model that was trained on several gaps fills them in one go, another one "
        "after the other. Of several texts (--n), all different, the best fit comes first.",
    )
    parser.add_argument("text", metavar="TEXT", help="a text with ___ where its gaps are, or - for standard input")
    _add_options(parser, max_tokens=LONGEST_GAP, best_of=None)
    add_gap_limits(parser)
    parser.set_defaults(run=run_infill, command="infill")


def _add_options(parser: ArgumentParser, max_tokens: int | None = None, best_of: int | None = 1) -> None:
    add_limits(parser, max_tokens, best_of)
    add_live(parser)
    parser.add_argument(
        "--html", metavar="FILE", help="write a page that replays the texts and shows the alternatives at each step"
    )
    add_svg(parser)
    parser.add_argument("--out", metavar="FILE", help="write a trajectory file (see reviser trajectory show)")
    add_model(parser)
    add_sampling(parser)


def add_svg(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--svg", metavar="FILE", help="also write a picture that shows one action after another, for a README"
    )


def add_limits(parser: ArgumentParser, max_tokens: int | None = None, best_of: int | None = 1) -> None:
    """How many texts, and how long; `max_tokens` is the default of a gap, and a `best_of` of None is found later."""
    parser.add_argument("--n", type=int, default=1, help="number of texts (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default 0)")
    best = f"keep the best of this many (default {best_of or f'{BEST_OF} where something follows'})"
    parser.add_argument("--best-of", type=int, default=best_of, help=best)
    parser.add_argument("--max-actions", type=int, default=256, help="end after this many actions (default 256)")
    room, per = (
        ("what the canvas holds", "") if max_tokens is None else (str(max_tokens), ", times the number of gaps")
    )
    parser.add_argument(
        "--max-tokens", type=int, default=max_tokens, help=f"write at most this many tokens{per} (default {room})"
    )


def add_gap_limits(parser: ArgumentParser) -> None:
    parser.add_argument("--min-length", type=int, default=0, help="write at least this many tokens in each gap")
    parser.add_argument(
        "--max-length",
        type=int,
        help="write at most this many tokens in each gap; with this or --min-length, gaps are filled in turn",
    )


def add_live(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--live",
        action="store_true",
        help="show the canvas while it is edited; prints only the text if standard output is not a terminal",
    )
    parser.add_argument(
        "--pace",
        type=float,
        default=25.0,
        help="with --live, at most this many actions per second (default 25; 0: no limit)",
    )


def add_model(parser: ArgumentParser) -> None:
    parser.add_argument("--model", metavar="SPEC", help="a model folder, a run folder or a hub id (default: shipped)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1 (default cpu)")
    parser.add_argument(
        "--weights",
        choices=("auto", "int8", "float32"),
        default="auto",
        help="precision of the weights: int8 rounds them, on a CPU; auto is int8 if the model folder holds int8 "
        "weights, as that of the shipped model does (default auto)",
    )


def add_sampling(parser: ArgumentParser, preset: str = "default") -> None:
    """An option for every field of `Sampling`, with its docstring as help."""
    group = parser.add_argument_group("sampling")
    either = group.add_mutually_exclusive_group()
    either.add_argument(
        "--sampling",
        choices=tuple(NAMED),
        default=preset,
        help="the preset to start from; paper is temperature 0.9 and top-k 50, nothing else; the defaults below are "
        f"those of the preset {preset}",
    )
    either.add_argument(
        "--greedy", dest="sampling", action="store_const", const="greedy", help="same as --sampling greedy"
    )
    docstrings = _field_docstrings()
    for each in fields(Sampling):
        name, text = f"--{each.name.replace('_', '-')}", docstrings[each.name].rstrip(".").replace("%", "%%")
        text = text[0].lower() + text[1:]
        default = getattr(NAMED[preset], each.name)
        if isinstance(default, bool):
            state = "on" if default else "off"
            group.add_argument(
                name, action=argparse.BooleanOptionalAction, default=None, help=f"{text} (default {state})"
            )
        else:
            group.add_argument(name, help=text if default is None else f"{text} (default {default})")


def _field_docstrings() -> dict[str, str]:
    """The docstring of each field of `Sampling`."""
    [tree] = ast.parse(inspect.getsource(Sampling)).body
    assert isinstance(tree, ast.ClassDef)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def run_generate(args: argparse.Namespace) -> int:
    text = _read(args)

    def write(writer: Writer, start: Draft, sampling: Sampling, num_alternatives: int) -> list[Text]:
        limits = args.n, args.best_of, args.max_actions, args.seed
        texts = writer.write_drafts([start], *limits, sampling, num_alternatives)
        how = _revising(args)
        return texts if how is None else writer.revise(texts, how)

    return _run(args, lambda writer: writer.continuation(text, args.max_tokens, args.out_of_order), write)


def _revising(args: argparse.Namespace) -> Proofreading | None:
    """How drafts are revised, where they are."""
    return revising(args.revise, args.revise_probability, args.revise_by) if args.command == "generate" else None


def run_infill(args: argparse.Namespace) -> int:
    from reviser.decoding.gap_filling import GapLimits, split_gaps, usual_best_of

    parts, limits = split_gaps(_read(args)), GapLimits(args.max_tokens, args.min_length, args.max_length)
    if args.best_of is None:
        args.best_of = 1 if args.live else usual_best_of(parts, read_sampling(args))

    def begin(writer: Writer) -> Draft:
        if args.live and not writer.fills_at_once(parts, limits):
            raise ConfigError("--live shows gaps filled in one go, and these are filled in turn; drop --live")
        return writer.gaps(parts, limits)

    def write(writer: Writer, _: Draft, sampling: Sampling, num_alternatives: int) -> list[Text]:
        asked = args.n, args.best_of, args.max_actions, args.seed
        return writer.fill(parts, limits, *asked, sampling, num_alternatives)

    return _run(args, begin, write)


def _read(args: argparse.Namespace) -> str:
    """The argument, or what standard input holds without its last newline."""
    if args.text == "-":
        try:
            args.text = sys.stdin.read().removesuffix("\n")
        except UnicodeDecodeError:
            raise DataError("standard input is not UTF-8 text") from None
    return str(args.text)


def _run(
    args: argparse.Namespace,
    begin: Callable[[Writer], Draft],
    write: Callable[[Writer, Draft, Sampling, int], list[Text]],
) -> int:
    sampling = read_sampling(args)
    _check(args)
    with waiting("loading (slow the very first time)"), without_collector():
        writer, start = _open(args, begin, sampling)
    texts = _write(args, writer, start, sampling, write)
    if len(texts) < args.n:
        _say(args, f"note: --n {args.n} texts were asked for, and {len(texts)} that differ were found")
    if args.json:
        print(make_document(args, writer, texts, sampling))
    if args.out is not None:
        write_trajectories(args, writer, texts)
        _say(args, f"{args.out}: show it with reviser trajectory show")
    if args.html is not None:
        write_page(args, writer, texts)
        _say(args, f"{args.html}: open it in a browser")
    if args.svg is not None:
        write_picture(args, writer, texts)
        _say(args, f"{args.svg}: open it in a browser, or show it as an image")
    return 0


def _say(args: argparse.Namespace, line: str) -> None:
    """A line on standard error, unless --json asks for the document alone."""
    if not args.json:
        print(line, file=sys.stderr)


def read_sampling(args: argparse.Namespace) -> Sampling:
    from reviser.config import override

    given = {each.name: getattr(args, each.name) for each in fields(Sampling)}
    changes = {name: str(value).lower() for name, value in given.items() if value is not None}
    return override(NAMED[args.sampling], [f"{name}={value}" for name, value in changes.items()])


def _check(args: argparse.Namespace) -> None:
    """Refuse what can be refused before a model is loaded."""
    from reviser.model.folder import find, read_config
    from reviser.proofreading.proofread import check_can_edit

    for name in ("n", "best_of"):
        if getattr(args, name) < 1:
            raise ConfigError(f"--{name.replace('_', '-')} {getattr(args, name)} must be at least 1")
    if not 0 <= args.pace < float("inf"):
        raise ConfigError(f"--pace {args.pace} must be 0 or more")
    for name, is_given in (("--json", args.json), ("--best-of", args.best_of > 1)):
        if args.live and is_given:
            raise ConfigError(f"--live shows every text as it is written, {name} only the result; drop one")
    for name in ("html", "svg", "out"):
        if getattr(args, name) is not None:
            check_output(f"--{name}", getattr(args, name))
    config = read_config(find(args.model)).model
    if _revising(args) is not None:
        check_can_edit(config, model_name(args))
    if args.command == "generate" and args.text.endswith(" "):
        _say(args, "note: most tokens begin with a space; leave out the space at the end of the text")


def _open(args: argparse.Namespace, begin: Callable[[Writer], Draft], sampling: Sampling) -> tuple[Writer, Draft]:
    """The writer and the draft it starts from."""
    from reviser.decoding.arguments import check_device
    from reviser.decoding.requests import check_room
    from reviser.decoding.writer import Writer

    check_device(args.device, "--device")
    writer = Writer.from_pretrained(args.model, args.device, weights=args.weights)
    start = begin(writer)
    check_room(start, writer.config, args.max_actions)
    # The first use loads the kernels, which is no part of the model's speed.
    writer.generate("", max_actions=2, sampling=sampling)
    return writer, start


def waiting(message: str) -> AbstractContextManager[object]:
    """A spinner on standard error, if that is a terminal."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return nullcontext()
    from rich.console import Console

    return Console(file=sys.stderr).status(message)


@contextmanager
def without_collector() -> Iterator[None]:
    """Load without the garbage collector: it would take a seventh of the time to the first text, and more than half a
    second when the process ends."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def _write(
    args: argparse.Namespace,
    writer: Writer,
    start: Draft,
    sampling: Sampling,
    write: Callable[[Writer, Draft, Sampling, int], list[Text]],
) -> list[Text]:
    """Write all texts and, unless they go into a document, print them."""
    from reviser.decoding.writer import NUM_ALTERNATIVES

    if args.live and sys.stdout.isatty():
        from reviser.viewer.live import live_console

        console = live_console()
        if console is not None:
            return _write_live(args, writer, start, sampling, console)
    begin = time.perf_counter()
    num_alternatives = 0 if args.html is None else NUM_ALTERNATIVES
    with waiting("writing"):
        texts = write(writer, start, sampling, num_alternatives)
    seconds = time.perf_counter() - begin
    if not args.json:
        _print_all(args, writer, texts, seconds)
    return texts


def _write_live(
    args: argparse.Namespace, writer: Writer, start: Draft, sampling: Sampling, console: Console
) -> list[Text]:
    """Draw one text after the other; an interrupted text is kept as far as it was written."""
    from reviser.viewer.live import Timed, watch

    texts: list[Text] = []
    chosen = replace(sampling, min_tokens=max(sampling.min_tokens, getattr(args, "min_length", 0)))
    for number in range(args.n):
        limits = {"max_actions": args.max_actions, "seed": args.seed, "number": number}
        events = Timed(writer.stream(start, sampling=chosen, **limits))
        seen: list[Event] = []
        try:
            with closing(watch(events, start, writer.tokenizer, console, args.pace)) as shown:
                for event in shown:
                    seen.append(event)
        finally:
            texts.append(_revise_live(args, writer, writer.collect(start, seen, args.max_actions, number), console))
            _print_text(args, writer, texts[-1], number, console, events.rate)
    return texts


def _revise_live(args: argparse.Namespace, writer: Writer, text: Text, console: Console) -> Text:
    """The text after it has been revised, which is drawn too, unless it was interrupted."""
    from reviser.viewer.live import revise_live

    how = _revising(args)
    return text if how is None or text.ended_by == "interrupt" else revise_live(writer, text, how, console, args.pace)


def _print_all(args: argparse.Namespace, writer: Writer, texts: Sequence[Text], seconds: float) -> None:
    """Every text with its line on standard error, and how fast they were written."""
    # The actions of texts that are not kept were not counted.
    rate = sum(text.num_actions for text in texts) / seconds if args.best_of == 1 else None
    console = plain_console()
    for number, text in enumerate(texts):
        _print_text(args, writer, text, number, console, rate if len(texts) == 1 else None)
    if len(texts) > 1 and rate is not None:
        print(f"{len(texts)} texts, {rate:.0f} actions/s", file=sys.stderr)


def plain_console() -> Console | None:
    """The console of a terminal; a pipe gets the text as it is."""
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
        print(SEPARATOR)
    if console is None:
        print(text.text, flush=True)
    else:
        from reviser.viewer.live import draw_final

        console.print(draw_final(text.decoded.canvas, writer.tokenizer), overflow="fold")
    parts = [
        f"{_count(text.num_actions, 'action')} for {_count(text.num_tokens, 'token')}",
        f"log-probability {text.log_probability:.2f}",
        _describe_end(args, writer, text),
        *([] if rate is None else [f"{rate:.0f} actions/s"]),
    ]
    print(", ".join(parts), file=sys.stderr, flush=True)
    if text.revision is not None:
        from reviser.proofreading.changes import describe_edit

        edits, taken = text.revision.edits, _count(text.revision.num_actions, "action")
        print(f"{_count(len(edits), 'edit')} of the draft, in {taken}", file=sys.stderr)
        for edit in edits:
            print(f"  {describe_edit(edit)}", file=sys.stderr, flush=True)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _describe_end(args: argparse.Namespace, writer: Writer, text: Text) -> str:
    """What ended a text."""
    rules, given = text.draft.rules, len(text.draft.tokens)
    limits = {"tokens": args.max_tokens, "length": getattr(args, "max_length", None)}
    limit, name = min(((most, name) for name, most in limits.items() if most is not None), default=(0, ""))
    is_filled = args.command == "infill" and text.draft.visits
    is_in_turn = is_filled and (not writer.has_gaps or args.min_length or args.max_length)
    if is_in_turn and limit:
        full = f"--max-{name} {limit} in a gap"
    elif limit and given + limit * max(len(text.fillings), 1) == rules.max_length:
        full = f"--max-{name} {limit}"
    else:
        full = f"the canvas, which holds {rules.max_length} tokens"
    return {
        "model": "stopped by itself",
        "length": f"ended by {full}",
        "actions": f"ended by --max-actions {args.max_actions}",
        "context": f"ended by the model's context: {writer.config.context} positions with the given text",
        "interrupt": "interrupted",
    }[text.ended_by]
