"""What a model has written, as it is kept: a JSON document, a trajectory file, a page, a picture that moves."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reviser.cli.shared.command import format_json
from reviser.errors import ConfigError, DataError
from reviser.files import write_text

if TYPE_CHECKING:
    from reviser.decoding.presets import Sampling
    from reviser.decoding.writer import Text, Writer


def make_document(args: argparse.Namespace, writer: Writer, texts: Sequence[Text], sampling: Sampling) -> str:
    """One JSON document of everything."""
    from reviser.batch.answers import describe_text
    from reviser.config import to_dict

    entries = [
        {
            **describe_text(text, has_gaps=args.command == "infill"),
            "actions": _names(writer, text),
            **_tell_revision(text),
            "trajectory": record,
        }
        for text, record in zip(texts, _records(args, writer, texts), strict=True)
    ]
    asked = {"command": args.command, "given": args.text, "model": model_name(args), "seed": args.seed}
    names = ["n", "best_of", "max_actions", "max_tokens"]
    names += (
        ["min_length", "max_length"] if args.command == "infill" else ["revise", "revise_probability", "revise_by"]
    )
    limits = {name: getattr(args, name) for name in names}
    return format_json(asked | limits | {"sampling": to_dict(sampling), "texts": entries})


def _tell_revision(text: Text) -> dict[str, Any]:
    """The draft, its edits and the actions that all passes took, where there were any."""
    from reviser.proofreading.changes import to_records
    from reviser.proofreading.proofread import Edited

    if text.revision is None:
        return {}
    revision = text.revision
    edits = to_records(Edited(revision.original, revision.edits))
    return {"draft": revision.original, "edits": edits, "revising_actions": revision.num_actions}


def _names(writer: Writer, text: Text) -> list[str]:
    """The model's own actions, by name."""
    tokenizer = writer.tokenizer
    alphabet = tokenizer.alphabet
    return [
        f'INSERT "{tokenizer.piece(action)}"' if alphabet.is_insert(action) else alphabet.name(action)
        for action in text.decoded.actions
    ]


def _records(args: argparse.Namespace, writer: Writer, texts: Sequence[Text]) -> list[dict[str, Any]]:
    """The trajectory file's objects."""
    from reviser.orders.record import to_record

    name = _tokenizer_name(args, writer)
    return [
        to_record(
            text.trajectory,
            text=text.text,
            tokenizer={"name": name, "sha256": writer.tokenizer.sha256},
            model=model_name(args),
            seed=[args.seed, text.number],
            ended_by=text.ended_by,
            log_probabilities=text.decoded.log_probabilities,
        )
        for text in texts
    ]


def model_name(args: argparse.Namespace) -> str:
    from reviser.model.folder import SHIPPED

    return SHIPPED.name if args.model in (None, "shipped") else str(args.model)


def _tokenizer_name(args: argparse.Namespace, writer: Writer) -> str:
    """What `reviser trajectory show` can load: a name where one fits, else the model's folder."""
    from reviser.model.folder import TOKENIZER, find, read_config
    from reviser.tokenizer import load

    folder = find(args.model)
    if not (folder / TOKENIZER).is_file():
        return str(read_config(folder).missing_tokenizer)
    return "default" if load("default").sha256 == writer.tokenizer.sha256 else str(folder)


def check_output(option: str, path: str) -> None:
    """Refuse a file that cannot be written, before any work is done for it."""
    target = Path(os.path.realpath(path))
    try:
        if target.is_dir():
            raise ConfigError(f"{option} {path} is a folder; give a file")
        if target.exists() and not target.is_file():  # a device or a pipe, which is written to as it is
            return
        # The file takes its place under another name first, so its folder must take files.
        folder = next(parent for parent in target.parents if parent.exists())
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}; give another file") from None


def write_trajectories(args: argparse.Namespace, writer: Writer, texts: Sequence[Text]) -> None:
    """The file that --out names."""
    from reviser.orders.record import dump_records

    try:
        write_text(args.out, dump_records(_records(args, writer, texts)))
    except OSError as error:
        raise DataError(f"cannot write {args.out}: {error.strerror}; give another file") from None


def write_page(args: argparse.Namespace, writer: Writer, texts: Sequence[Text]) -> None:
    """The page that --html names."""
    from reviser.viewer import replay_page

    examples = [
        replay_page.Example(text.trajectory, text.text, text.decoded.log_probabilities, text.decoded.alternatives)
        for text in texts
    ]
    replay_page.write_page(args.html, examples, writer.tokenizer, f"reviser {args.command}: {args.text}")


def write_picture(args: argparse.Namespace, writer: Writer, texts: Sequence[Text]) -> None:
    """The animation that --svg names."""
    from reviser.viewer.animation import write_animation
    from reviser.viewer.replay_page import Example

    names = [f"text {number} of {len(texts)}" if len(texts) > 1 else "" for number in range(1, len(texts) + 1)]
    examples = [
        Example(text.trajectory, name, text.decoded.log_probabilities)
        for text, name in zip(texts, names, strict=True)
    ]
    write_animation(args.svg, examples, writer.tokenizer, f"reviser {args.command}: {args.text}")
