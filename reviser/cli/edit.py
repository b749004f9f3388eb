"""`reviser edit`: a model proofreads texts and files."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING

from reviser.cli.shared.command import add_command, format_json, looks_like_file
from reviser.cli.shared.written import check_output, model_name
from reviser.cli.write import (
    add_live,
    add_model,
    add_sampling,
    add_svg,
    plain_console,
    read_sampling,
    waiting,
    without_collector,
)
from reviser.errors import ConfigError, DataError
from reviser.proofreading.choices import FORMATS, MIN_PROBABILITY, PASSES, Proofreading, format_of, read_words
from reviser.proofreading.text_files import TextFile, read_text_file

if TYPE_CHECKING:
    from reviser.decoding.presets import Sampling
    from reviser.decoding.requests import Decoded
    from reviser.decoding.writer import Writer
    from reviser.orders.record import Draft
    from reviser.proofreading.proofread import Edited, TellProgress

TOGETHER = ({"check", "diff"}, {"check", "json"}, {"review", "in_place"}, {"review", "diff"}, {"live", "in_place"})
"""Options that say what comes out, of which others do not go together."""


@dataclass(frozen=True, slots=True)
class GivenText:
    """A text to edit, and the file it is from, if it is."""

    name: str
    text: str
    format: str
    file: TextFile | None = None


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_command(
        commands,
        "edit",
        "proofread texts and files",
        "  reviser edit 'He go home.' --model runs/edits\n"
        "  reviser edit README.md docs/*.md --model runs/edits --check\n"
        "  reviser edit draft.tex --model runs/edits --review --in-place",
        description="Proofread texts and files of any length. Code, links, quotations, math and markup stay as they "
        "are. The edited text goes to standard output unless an option says otherwise. The model must have been "
        "trained on edits, as the shipped one was. Exit code 1 means that --check found something.",
    )
    parser.add_argument(
        "inputs", metavar="TEXT", nargs="+", help="a text, the names of files, or - for standard input"
    )
    add_choices(parser)
    parser.add_argument("--encoding", metavar="NAME", help="of the files (default utf-8, or what their mark says)")
    _add_outputs(parser)
    parser.add_argument("--seed", type=int, default=0, help="random seed, for sampling (default 0)")
    add_model(parser)
    add_sampling(parser, "scan")
    parser.set_defaults(run=run_edit, command="edit")


def add_choices(parser: argparse.ArgumentParser) -> None:
    """How texts are proofread."""
    parser.add_argument(
        "--min-probability",
        type=float,
        default=MIN_PROBABILITY,
        metavar="P",
        help=f"leave out less probable edits: lower finds more, higher errs less (default {MIN_PROBABILITY})",
    )
    parser.add_argument(
        "--passes",
        type=int,
        default=PASSES,
        metavar="N",
        help=f"read what has changed again, until nothing changes, at most this many times (default {PASSES})",
    )
    parser.add_argument(
        "--no-reread",
        dest="reread",
        action="store_false",
        help="judge edits by the model's actions alone, without reading the text with and without them; faster",
    )
    parser.add_argument(
        "--no-spelling",
        dest="spelling",
        action="store_false",
        help="leave out misspelled words that the model finds only with a list of words",
    )
    parser.add_argument("--format", choices=FORMATS, help="what the text is (default: by the file's name, else text)")
    parser.add_argument("--words", metavar="FILE", help="words that stay as they are: one a line, # before comments")


def read_choices(args: argparse.Namespace) -> tuple[Proofreading, Sampling]:
    """How, and how actions are drawn: a scan as fine as the edits that are wanted, unless options say otherwise."""
    sampling = read_sampling(args)
    words = read_words(args.words) if args.words is not None else ()
    asked = args.min_probability, args.passes, words, args.reread, args.spelling
    how = Proofreading(args.format or "text", *asked)
    if args.sampling == "scan" and args.scan is None:
        from reviser.proofreading.rereading import scan_for

        sampling = replace(sampling, scan=scan_for(how))
    return how, sampling


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--diff", action="store_true", help="print a unified diff, for patch, instead of the text")
    group.add_argument(
        "--check", action="store_true", help="print each edit as file:line:column and exit with 1 if there is one"
    )
    group.add_argument("--in-place", action="store_true", help="write the files; nothing else of them changes")
    group.add_argument("--review", action="store_true", help="ask about each edit: y, n, a (all), q (no more)")
    group.add_argument("--html", metavar="FILE", help="also write a page that shows the changes")
    add_svg(group)
    add_live(parser)


def run_edit(args: argparse.Namespace) -> int:
    how, sampling = read_choices(args)
    _check(args)
    sources = [_read(args, name) for name in args.inputs]
    _check_sources(args, sources)
    writer = _open(args)
    results = []
    readings: list[list[tuple[Draft, Decoded]]] = []
    for source in sources:
        edited = _edit(args, source, writer, how, sampling, readings)
        _print(args, source, edited)
        results.append((source, edited))
    if args.json:
        print(_make_document(args, how, sampling, results))
    if args.html is not None:
        from reviser.proofreading.tracked_page import write_tracked_page

        write_tracked_page(args.html, [(source.name, edited) for source, edited in results])
        _say(args, f"{args.html}: open it in a browser")
    if args.svg is not None:
        _write_picture(args, writer, readings, results[0][1])
        _say(args, f"{args.svg}: open it in a browser, or show it as an image")
    return int(args.check and any(edited.edits for _, edited in results))


def _say(args: argparse.Namespace, line: str) -> None:
    """A line on standard error, unless --json asks for the document alone."""
    if not args.json:
        print(line, file=sys.stderr)


def _check(args: argparse.Namespace) -> None:
    """Refuse what can be refused before a model is loaded."""
    from reviser.model.folder import find, read_config
    from reviser.proofreading.proofread import check_can_edit

    chosen = [name for name in ("check", "diff", "json", "review", "in_place", "live") if getattr(args, name)]
    for pair in combinations(chosen, 2):
        if set(pair) not in TOGETHER:
            names = " and ".join(f"--{name.replace('_', '-')}" for name in pair)
            raise ConfigError(f"{names} do not go together; drop one")
    if not 0 <= args.pace < float("inf"):
        raise ConfigError(f"--pace {args.pace} must be 0 or more")
    for name in ("html", "svg"):
        if getattr(args, name) is not None:
            check_output(f"--{name}", getattr(args, name))
    check_can_edit(read_config(find(args.model)).model, model_name(args))


def _read(args: argparse.Namespace, name: str) -> GivenText:
    if name == "-":
        try:
            text = sys.stdin.read().removesuffix("\n")
        except UnicodeDecodeError:
            raise DataError("standard input is not UTF-8 text; give the file and its --encoding") from None
        return GivenText("standard input", _check_text(text, "standard input"), args.format or "text")
    if os.path.isdir(name):
        raise DataError(f"{name} is a folder; give the files in it")
    if os.path.exists(name):
        file = read_text_file(name, args.encoding)
        return GivenText(name, file.text, args.format or format_of(name), file)
    if len(args.inputs) > 1 or looks_like_file(name):
        raise DataError(f"no file {name}; a text goes alone and in quotes, or to: reviser edit -")
    return GivenText("text", _check_text(name, "the text"), args.format or "text")


def _check_text(text: str, what: str) -> str:
    if not text.strip():
        raise DataError(f"{what} is empty; give something to edit")
    return text


def _check_sources(args: argparse.Namespace, sources: Sequence[GivenText]) -> None:
    if len(sources) > 1 and args.svg is not None:
        raise ConfigError(f"--svg shows how one text is edited, and these are {len(sources)}; give one")
    has_output = args.check or args.diff or args.in_place or args.json or args.html is not None
    if len(sources) > 1 and not has_output:
        raise ConfigError(f"{len(sources)} texts and one output; add --in-place, --diff, --check, --json or --html")
    for source in sources:
        if args.in_place and source.file is None:
            raise ConfigError(f"--in-place writes files, and {source.name} is none; drop it or give a file")
        if args.in_place and source.file is not None:
            source.file.check_writable()
        if args.review and source.name == "standard input":
            raise ConfigError("--review reads answers from standard input; give the text in a file")


def _open(args: argparse.Namespace) -> Writer:
    with waiting("loading (slow the very first time)"), without_collector():
        from reviser.decoding.arguments import check_device
        from reviser.decoding.writer import Writer

        check_device(args.device, "--device")
        return Writer.from_pretrained(args.model, args.device, weights=args.weights)


def _edit(
    args: argparse.Namespace,
    source: GivenText,
    writer: Writer,
    how: Proofreading,
    sampling: Sampling,
    readings: list[list[tuple[Draft, Decoded]]],
) -> Edited:
    """The text as it is edited; for --svg, what the model proposed goes to `readings`."""
    from reviser.proofreading.proofread import proofread

    ask = _live(args, writer, sampling) or partial(writer.propose, seed=args.seed, sampling=sampling)

    def propose(drafts: Sequence[Draft]) -> list[Decoded]:
        made = ask(drafts)
        if args.svg is not None:
            readings.append(list(zip(drafts, made, strict=True)))
        return made

    how = replace(how, format=source.format)
    with _progress(args, source) as progress:
        model = writer.tokenizer, writer.config
        edited = proofread(source.text, propose, *model, how, progress, writer.room, writer.read)
    if args.review and edited.edits:
        return _review(edited, source)
    return edited


@contextmanager
def _progress(args: argparse.Namespace, source: GivenText) -> Iterator[TellProgress | None]:
    """A bar on standard error, and nothing beside --json and --live."""
    if args.json or args.live:
        yield None
        return
    from reviser.viewer.progress_bar import show_progress

    with show_progress(source.name) as bar:
        yield lambda done, total: bar.show(done, total, f"{done:,} of {total:,} windows")


def _live(
    args: argparse.Namespace, writer: Writer, sampling: Sampling
) -> Callable[[Sequence[Draft]], list[Decoded]] | None:
    """A way to propose that shows every action, where standard output is a terminal that can be drawn on."""
    from reviser.viewer.live import live_console, propose_live

    console = live_console() if args.live else None
    return None if console is None else propose_live(writer, sampling, console, args.pace, args.seed)


def _review(edited: Edited, source: GivenText) -> Edited:
    from rich.console import Console

    from reviser.proofreading.review import review

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    is_plain = console.no_color or not console.is_terminal

    def ask(question: str) -> str:
        console.print(question, end="")
        return input()

    return review(edited, source.name, console.print, ask, is_plain)


def _print(args: argparse.Namespace, source: GivenText, edited: Edited) -> None:
    """What one text gives on standard output, or in its file."""
    from reviser.proofreading.changes import list_edits, make_diff

    if args.json:
        return
    if args.diff:
        print(make_diff(edited, source.name), end="")
    elif args.check:
        for line in list_edits(edited, source.name):
            print(line)
    elif args.in_place and source.file is not None:
        if edited.edits:
            source.file.write(edited.text)
    elif len(args.inputs) == 1:
        _print_text(edited, source)
    _say(args, f"{source.name}: {_count(edited)}")


def _print_text(edited: Edited, source: GivenText) -> None:
    """The text; on a terminal with its changes marked."""
    console = plain_console()
    if console is None or console.no_color:
        print(edited.text, end="" if source.file else "\n")
        return
    from reviser.proofreading.review import draw_changes

    console.print(draw_changes(edited), end="" if edited.text.endswith("\n") else "\n")


def _write_picture(
    args: argparse.Namespace, writer: Writer, readings: Sequence[Sequence[tuple[Draft, Decoded]]], edited: Edited
) -> None:
    """The animation that --svg names: every reading of every window, then the text with its edits."""
    from reviser.orders.record import Trajectory
    from reviser.viewer.animation import LastFrame, write_animation
    from reviser.viewer.replay_page import Example

    examples = []
    for number, reading in enumerate(readings, 1):
        for place, (draft, made) in enumerate(reading, 1):
            name = f"reading {number}" + f", window {place}" * (len(reading) > 1)
            trajectory = Trajectory(draft, made.actions, (True,) * len(made.actions))
            examples.append(Example(trajectory, name, made.log_probabilities))
    if not examples:
        raise ConfigError("--svg has nothing to show: nothing in this text may change; give another or drop it")
    parts, end = list[tuple[str, bool]](), 0
    for edit in edited.edits:
        parts += [(edited.original[end : edit.start], False), (edit.after, True)]
        end = edit.end
    ending = LastFrame(_count(edited), (*parts, (edited.original[end:], False)))
    write_animation(args.svg, examples, writer.tokenizer, f"reviser edit: {edited.original}", ending)


def _count(edited: Edited) -> str:
    count = len(edited.edits)
    return f"{'no' if count == 0 else count} edit{'' if count == 1 else 's'}"


def _make_document(
    args: argparse.Namespace, how: Proofreading, sampling: Sampling, results: Sequence[tuple[GivenText, Edited]]
) -> str:
    """One JSON document of everything."""
    from reviser.batch.answers import describe_edited
    from reviser.config import to_dict

    asked = {"command": "edit", "model": model_name(args), "seed": args.seed, "sampling": to_dict(sampling)}
    settings = {
        "min_probability": how.min_probability,
        "passes": how.passes,
        "reread": how.reread,
        "spelling": how.spelling,
        "words": list(how.words),
    }
    texts = [
        {"file": source.file.path if source.file else None, **describe_edited(edited, source.format)}
        for source, edited in results
    ]
    return format_json(asked | settings | {"texts": texts})
