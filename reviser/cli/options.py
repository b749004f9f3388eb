"""What commands that measure have in common: options of the same words, and how a result is handed over."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from reviser.errors import ConfigError

DEVICE = "auto, cpu, cuda (default auto)"
DTYPES = ("float32", "bfloat16", "float16")
PROMPTS = "prompts at most (default all)"


def add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", metavar="FILE", help="also write the result there, as JSON")


def add_system(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--system",
        action="append",
        required=True,
        metavar="NAME=MODEL",
        help="a model folder, hf:MODEL for one of transformers, published:MODEL for MDLM's or SEDD's; repeatable",
    )


def print_result(args: argparse.Namespace, result: dict[str, Any], tell: Callable[[], str]) -> int:
    """Print first: where the file cannot be written, what took long is not lost."""
    from reviser.evaluation.records import write_result

    print(json.dumps(result, ensure_ascii=False) if args.json else tell())
    if args.out:
        write_result(result, args.out)
    return 0


def check_positive(args: argparse.Namespace, *names: str) -> None:
    for name in names:
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ConfigError(f"--{name} {value} must be at least 1")
