"""`reviser import`: turn one of the author's checkpoints into a model folder."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from reviser.cli.leaf import add_leaf

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from reviser.model.author import Imported


def add(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_leaf(
        commands,
        "import",
        "turn one of the author's checkpoints into a model folder",
        "  reviser import reviser_100m.pt reviser-100m\n"
        "  reviser import reviser_300m.pt reviser-300m --tokenizer gpt2/tokenizer.json --json",
        description="Read a .pt file of the published Reviser, find the model's shape from its tensors and "
        "write a model folder. Nothing in the file is executed.",
    )
    parser.add_argument("file", metavar="FILE", help="the author's .pt file")
    parser.add_argument("out", metavar="OUT", help="the model folder to write; it must not exist yet")
    parser.add_argument(
        "--tokenizer",
        metavar="SPEC",
        default="gpt2",
        help="name, tokenizer.json or folder (default gpt2; where it is not installed, the folder names it)",
    )
    parser.set_defaults(run=run_import)


def run_import(args: argparse.Namespace) -> int:
    from reviser.model.author import import_checkpoint

    imported = import_checkpoint(args.file, args.out, args.tokenizer)
    print(json.dumps(_described(imported)) if args.json else _told(imported))
    return 0


def _described(imported: Imported) -> dict[str, object]:
    from reviser.config import to_dict

    return {
        "folder": str(imported.folder),
        "num_parameters": imported.num_parameters,
        "missing_tokenizer": imported.missing_tokenizer,
        "model": to_dict(imported.config),
    }


def _told(imported: Imported) -> str:
    from reviser.tokenizer import GPT2_INSTALL

    config = imported.config
    shape = f"{config.num_layers} layers of {config.width}, {config.num_heads} heads, context {config.context}"
    lines = [f"{imported.folder}: {imported.num_parameters:,} parameters ({shape}, {config.positions})"]
    if imported.missing_tokenizer is not None:
        hint = f"; run: {GPT2_INSTALL}" if imported.missing_tokenizer == "gpt2" else ""
        lines.append(f"the tokenizer {imported.missing_tokenizer} is not installed, so the folder lacks it{hint}")
    return "\n".join(lines)
