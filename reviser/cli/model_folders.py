"""`reviser info`, `pack`, `import`, `push` and `pull`: model folders shown, rounded, converted, sent and
fetched."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from reviser.cli.shared.command import add_command
from reviser.errors import make_visible

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from reviser.hub.hub_client import Hub
    from reviser.hub.pulling import Pulled
    from reviser.hub.pushing import Pushed
    from reviser.model.author import Imported
    from reviser.model.folder import FolderConfig


def add(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    _add_info(commands)
    _add_pack(commands)
    _add_import(commands)
    _add_push(commands)
    _add_pull(commands)


def _add_info(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        commands,
        "info",
        "show what a model folder holds",
        "  reviser info\n  reviser info reviser-100m --json",
        description="Show a model folder's parameters, shape, weights, tokenizer, training and size on disk. The "
        "weights themselves are not read.",
    )
    parser.add_argument(
        "model", metavar="MODEL", nargs="?", help="a model folder or hub id (default: the shipped model)"
    )
    parser.set_defaults(run=run_info)


def _add_pack(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        commands,
        "pack",
        "write a model folder with its weights rounded to fewer bytes",
        "  reviser pack runs/mine/model mine-int8 --weights int8\n"
        "  reviser pack mine-int8 mine-float32 --weights float32 --json",
        description="Write a model folder again with its matrices in int8, bf16 or float32; the rest stays float32. "
        "int8 rounds as CPU decoding does, so on a CPU an int8 folder is decoded as it is.",
    )
    parser.add_argument("model", metavar="MODEL", help="a model folder or hub id")
    parser.add_argument("out", metavar="OUT", help="the model folder to write; it must not exist yet")
    parser.add_argument(
        "--weights", choices=("int8", "bf16", "float32"), required=True, help="the format of the matrices"
    )
    parser.set_defaults(run=run_pack)


def _add_import(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        commands,
        "import",
        "convert one of the author's checkpoints to a model folder",
        "  reviser import reviser_100m.pt reviser-100m\n"
        "  reviser import reviser_300m.pt reviser-300m --tokenizer gpt2/tokenizer.json --json",
        description="Read a .pt file of the published Reviser, infer the model's shape from its tensors and "
        "write a model folder. Nothing in the file is executed.",
    )
    parser.add_argument("file", metavar="FILE", help="the author's .pt file")
    parser.add_argument("out", metavar="OUT", help="the model folder to write; it must not exist yet")
    parser.add_argument(
        "--tokenizer",
        metavar="SPEC",
        default="gpt2",
        help="name, tokenizer.json or folder (default gpt2; if it is not installed, the folder only names it)",
    )
    parser.set_defaults(run=run_import)


def _add_push(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        commands,
        "push",
        "send a model folder to the Hugging Face hub",
        "  reviser push runs/mine me/mine --private\n"
        "  reviser push runs/mine/model me/mine --revision v1 --token-file token.txt --json",
        description="Send a model folder to the Hugging Face hub, in one commit. It is loaded first, and one that "
        "does not load is refused.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="a model folder, or a run folder")
    parser.add_argument("name", metavar="NAME", help="owner/model at the hub; made where it is missing")
    parser.add_argument("--revision", metavar="BRANCH", default="main", help="the branch (default main)")
    parser.add_argument("--private", action="store_true", help="make it private; refused where it is public already")
    _add_hub(parser)
    parser.set_defaults(run=run_push)


def _add_pull(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        commands,
        "pull",
        "fetch a model folder from the Hugging Face hub",
        "  reviser pull me/mine mine\n  reviser pull me/mine mine --revision v1 --force --json",
        description="Fetch a model folder from the Hugging Face hub. Its checksums are compared and it is loaded "
        "before it is put in place. Nothing in it is executed, and files that are no part of a model folder are not "
        "fetched.",
    )
    parser.add_argument("name", metavar="NAME", help="owner/model at the hub")
    parser.add_argument("folder", metavar="FOLDER", help="the model folder to write")
    parser.add_argument("--revision", metavar="REVISION", help="a branch, tag or commit (default: the branch main)")
    parser.add_argument("--force", action="store_true", help="replace FOLDER where it is a model folder")
    _add_hub(parser)
    parser.set_defaults(run=run_pull)


def _add_hub(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="a file that holds the hub's token (default: the variable HF_TOKEN, or what `hf auth login` stored)",
    )
    parser.add_argument(
        "--endpoint",
        metavar="URL",
        help="the hub's address (default: the variable HF_ENDPOINT, or https://huggingface.co)",
    )


def run_info(args: argparse.Namespace) -> int:
    from reviser.model.card import rows
    from reviser.model.folder import FORMATS, SHIPPED, WEIGHTS, count_weights, find, read_config

    folder = find(args.model or SHIPPED)
    described, num_parameters = read_config(folder, FORMATS), count_weights(folder / WEIGHTS)
    if args.json:
        print(json.dumps(_summary(folder, described, num_parameters)))
        return 0
    table = {"folder": str(folder)} | rows(described, num_parameters) | {"on disk": _megabytes(_num_bytes(folder))}
    width = max(map(len, table))
    print("\n".join(make_visible(f"{name:<{width}}  {value}") for name, value in table.items()))
    if described.notes:
        print("", *map(make_visible, described.notes.splitlines()), sep="\n")
    return 0


def run_pack(args: argparse.Namespace) -> int:
    from reviser.diffusion.denoiser_folder import pack_model
    from reviser.model.folder import FORMATS, WEIGHTS, count_weights, find, read_config

    folder = pack_model(args.model, args.out, args.weights)
    before, after = _num_bytes(find(args.model)), _num_bytes(folder)
    num_parameters = count_weights(folder / WEIGHTS)
    if args.json:
        print(
            json.dumps(_summary(folder, read_config(folder, FORMATS), num_parameters) | {"num_bytes_before": before})
        )
    else:
        size = f"{_megabytes(after)}, before {_megabytes(before)}"
        print(f"{folder}: {num_parameters:,} parameters in {args.weights}, {size}")
    return 0


def _summary(folder: Path, described: FolderConfig, num_parameters: int) -> dict[str, object]:
    from reviser.config import to_dict

    return {
        "folder": str(folder),
        "num_parameters": num_parameters,
        "num_bytes": _num_bytes(folder),
        **to_dict(described),
    }


def _num_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f} MB"


def run_import(args: argparse.Namespace) -> int:
    from reviser.model.author import import_checkpoint

    imported = import_checkpoint(args.file, args.out, args.tokenizer)
    print(json.dumps(_as_json(imported)) if args.json else _summarise(imported))
    return 0


def _as_json(imported: Imported) -> dict[str, object]:
    from reviser.config import to_dict

    return {
        "folder": str(imported.folder),
        "num_parameters": imported.num_parameters,
        "missing_tokenizer": imported.missing_tokenizer,
        "model": to_dict(imported.config),
    }


def _summarise(imported: Imported) -> str:
    from reviser.packages import GPT2, install_files

    config = imported.config
    shape = f"{config.num_layers} layers of {config.width}, {config.num_heads} heads, context {config.context}"
    lines = [f"{imported.folder}: {imported.num_parameters:,} parameters ({shape}, {config.positions})"]
    if imported.missing_tokenizer is not None:
        hint = f"; run: {install_files(GPT2)}" if imported.missing_tokenizer == "gpt2" else ""
        lines.append(f"the tokenizer {imported.missing_tokenizer} is not installed, so the folder lacks it{hint}")
    return "\n".join(lines)


def run_push(args: argparse.Namespace) -> int:
    from reviser.hub.pushing import push

    done = push(args.folder, args.name, revision=args.revision, private=args.private, hub=_hub_of(args))
    return _report_transfer(args, "is not sent", done, f"{done.url} at {done.commit[:12]}")


def run_pull(args: argparse.Namespace) -> int:
    from reviser.hub.pulling import pull

    done = pull(args.name, args.folder, revision=args.revision, force=args.force, hub=_hub_of(args))
    return _report_transfer(args, "is not fetched", done, f"{done.folder}: {args.name} at {done.commit[:12]}")


def _hub_of(args: argparse.Namespace) -> Hub:
    from reviser.hub.hub_client import Hub, read_token

    return Hub(args.endpoint, read_token(args.token_file))


def _report_transfer(args: argparse.Namespace, ignored: str, done: Pushed | Pulled, what: str) -> int:
    for name in done.left_out:
        print(make_visible(f"{name} {ignored}: it is no part of a model folder"), file=sys.stderr)
    if args.json:
        print(json.dumps({"name": args.name} | asdict(done), default=str))
    else:
        print(make_visible(f"{what}, {len(done.files)} files, {_megabytes(done.num_bytes)}"))
    return 0
