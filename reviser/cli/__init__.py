"""The command line: `reviser [--plugin FILE] COMMAND ...`. Commands import what they need when they run.

Whatever a user can cause ends in one line on standard error and a code; `--debug` shows the traceback instead.

    0    done
    1    a check failed, or the reader of a pipe has gone
    2    the user must change something: a word, a setting, a file, the room on a disk or in memory
    130  Ctrl-C
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import io
import os
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn

from reviser import __version__
from reviser.errors import ReviserError, make_visible
from reviser.plugins import load_inherited, load_plugin, on_command_line

COMMANDS = (
    "trajectory",
    "data",
    "train",
    "model_folders",
    "write",
    "edit",
    "batch",
    "serve",
    "evaluate",
    "reproduce",
    "report",
    "bench",
)
"""Modules beside this one, in the order of the flow; each registers its commands with `add`."""

GLOBAL_OPTIONS = ("--debug", "--plugin", "--version")
ADVICE = {
    errno.ENOSPC: "free some space and run it again",
    errno.EDQUOT: "free some space and run it again",
    errno.EACCES: "check its permissions or choose another path",
    errno.EPERM: "check its permissions or choose another path",
    errno.EROFS: "choose a path that can be written to",
    errno.EMFILE: "close some files or raise the limit with: ulimit -n",
}


class Parser(argparse.ArgumentParser):
    """One whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; see {self.prog} --help\n")


def build_parser() -> Parser:
    parser = Parser(
        prog="reviser",
        description="Language models that write by editing: make and look at trajectories, prepare data, train, "
        "generate, evaluate.",
        epilog="examples:\n  reviser generate 'The old lighthouse' --live\n"
        "  reviser trajectory make 'Hello there.' --order runs | reviser trajectory show -\n"
        "  reviser --plugin mine.py trajectory make 'Hello there.' --order mine",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # plugins have run before this parser is made, and only where the option is written out
    )
    parser.add_argument("--version", action="version", version=f"reviser {__version__}")
    _add_early(parser)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name in COMMANDS:
        importlib.import_module(f"reviser.cli.{name}").add(commands)
    return parser


def _add_early(parser: Parser) -> None:
    """The options that take effect before the command is known."""
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.add_argument(
        "--plugin",
        metavar="FILE",
        action="append",
        default=[],
        help="first run a Python file that registers orders, metrics or canvas inputs; repeatable",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not _prepare_streams():
        _say("error: standard output is closed; send it to a file or to /dev/null")
        return 2
    early = _parse_early(words)
    if not early.debug:
        # A package in Rust that runs out of memory while it prints its own traceback waits for itself for ever.
        os.environ["RUST_BACKTRACE"] = "0"
    try:
        return _flush(_run(words, early.plugin))
    except SystemExit as ended:  # argparse has printed help, or what is wrong
        ended.code = _flush(ended.code if isinstance(ended.code, int) else 0)
        raise
    except KeyboardInterrupt:
        _say("stopped")
        return _flush(130)
    except BrokenPipeError:
        return _flush(1)
    except BaseException as error:  # for a panic in Rust is no Exception
        text = _explain(error)
        if early.debug or text is None:
            raise
        _say(f"error: {make_visible(' '.join(text.splitlines()))}")
        return _flush(2, is_told=True)


def _run(words: list[str], plugins: Sequence[str]) -> int:
    load_inherited()
    for plugin in plugins:
        load_plugin(plugin)
    parser = build_parser()
    args, unknown = parser.parse_known_args(words)
    if unknown:
        parser.exit(2, f"error: {_explain_unknown(words, unknown)}; see {args.prog} --help\n")
    with on_command_line(plugins):
        code: int = args.run(args)
    return code


def _parse_early(words: list[str]) -> argparse.Namespace:
    """What stands before the command; plugins run before the other options are made, for those may list names."""
    parser = Parser(prog="reviser", add_help=False, allow_abbrev=False)
    _add_early(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_known_args(words)[0]


def _explain_unknown(words: list[str], unknown: list[str]) -> str:
    options = [word for word in unknown if word.startswith("-")]
    misplaced = [word for word in options if word.partition("=")[0] in GLOBAL_OPTIONS]
    if misplaced:
        return f"{misplaced[0]} goes before the command: reviser {misplaced[0]} ..."
    if options:
        return f"no such option here: {' '.join(options)}"
    return f"unexpected words: {' '.join(unknown)}; quote a text of several words: {_quote(words, unknown)}"


def _quote(words: list[str], unknown: list[str]) -> str:
    """The words that were not expected and the one before them, as one argument."""
    for place in range(len(words) - len(unknown), 1, -1):
        is_here = words[place : place + len(unknown)] == unknown
        if is_here and not any(word.startswith("-") for word in words[place - 2 : place]):
            return shlex.quote(" ".join(words[place - 1 : place + len(unknown)]))
    return "'like this'"


def _explain(error: BaseException) -> str | None:
    """What went wrong, in one line, where it is something that a user can cause."""
    if isinstance(error, ReviserError):
        return str(error)
    if isinstance(error, RecursionError):
        return "something that was read is nested too deeply; flatten it, or see which with: reviser --debug ..."
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _is_out_of_memory(str(error))):
        return "out of memory; use a smaller model, batch, canvas or number of workers, or a machine with more"
    if type(error).__name__ == "PanicException":
        return f"a package written in Rust gave up ({error}); there may be too little memory, or too few threads"
    if isinstance(error, OSError):
        what = f"{error.filename}: " if error.filename is not None else ""
        advice = ADVICE.get(error.errno or 0, "see where it happened with: reviser --debug ...")
        said = " ".join(str(error.strerror or error or type(error).__name__).split())
        return f"{what}{said}; {advice}"
    return None


def _is_out_of_memory(text: str) -> bool:
    """Whether it is PyTorch's way to say so, on a GPU or a CPU."""
    return any(words in text for words in ("out of memory", "can't allocate memory", "not enough memory"))


def _prepare_streams() -> bool:
    """Whether there is a standard output; characters that it cannot show are escaped."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, it stays open as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    return sys.stdout is not None


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr)


def _flush(code: int, is_told: bool = False) -> int:
    """The exit code once standard output has taken everything: 1 where a pipe is closed, 2 where a disk is full."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # Python would try again at exit, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return code or 1
        if not is_told:
            _say(f"error: standard output: {_explain(error)}")
        return 2
    return code
