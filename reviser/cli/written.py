"""What a model has written, as it is kept: a JSON document, a trajectory file, a page."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reviser.errors import DataError
from reviser.files import write_text

if TYPE_CHECKING:
    from reviser.decoding.engine import Event
    from reviser.decoding.presets import Sampling
    from reviser.decoding.writer import Text, Writer


@dataclass(frozen=True)
class Result:
    """A text, and the events it came of where they were asked for."""

    text: Text
    events: tuple[Event, ...] = ()


def make_document(args: argparse.Namespace, writer: Writer, results: Sequence[Result], sampling: Sampling) -> str:
    """One JSON document of everything."""
    from reviser.config import to_dict

    texts = [
        {
            "text": text.text,
            "new": text.new,
            "log_probability": text.log_probability,
            "has_stopped": text.has_stopped,
            "num_actions": text.num_actions,
            "num_tokens": text.num_tokens,
            "actions": _names(writer, text),
            "trajectory": record,
        }
        for text, record in zip((result.text for result in results), _records(args, writer, results), strict=True)
    ]
    asked = {"command": args.command, "given": args.text, "model": _model_name(args), "seed": args.seed}
    limits = {name: getattr(args, name) for name in ("n", "best_of", "max_actions", "max_tokens")}
    return json.dumps(asked | limits | {"sampling": to_dict(sampling), "texts": texts}, ensure_ascii=False)


def _names(writer: Writer, text: Text) -> list[str]:
    """The model's own actions, as a reader knows them."""
    tokenizer = writer.tokenizer
    alphabet = tokenizer.alphabet
    return [
        f'INSERT "{tokenizer.piece(action)}"' if alphabet.is_insert(action) else alphabet.name(action)
        for action in text.decoded.actions
    ]


def _records(args: argparse.Namespace, writer: Writer, results: Sequence[Result]) -> list[dict[str, Any]]:
    """The trajectory file's objects."""
    from reviser.orders.record import to_record

    name = _tokenizer_name(args, writer)
    return [
        to_record(
            result.text.trajectory,
            text=result.text.text,
            tokenizer={"name": name, "sha256": writer.tokenizer.sha256},
            model=_model_name(args),
            seed=[args.seed, number],
            has_stopped=result.text.has_stopped,
            log_probabilities=result.text.decoded.log_probabilities,
        )
        for number, result in enumerate(results)
    ]


def _model_name(args: argparse.Namespace) -> str:
    from reviser.model.folder import SHIPPED

    return args.model or SHIPPED.name


def _tokenizer_name(args: argparse.Namespace, writer: Writer) -> str:
    """What `reviser trajectory show` can load: a name where one fits, else the model's folder."""
    from reviser.model.folder import SHIPPED, TOKENIZER, find, read_config
    from reviser.tokenizer import load

    folder = find(args.model or SHIPPED)
    if not (folder / TOKENIZER).is_file():
        return str(read_config(folder).missing_tokenizer)
    return "default" if load("default").sha256 == writer.tokenizer.sha256 else str(folder)


def write_trajectories(args: argparse.Namespace, writer: Writer, results: Sequence[Result]) -> None:
    """The file that --out names."""
    from reviser.orders.record import dump_records

    try:
        write_text(args.out, dump_records(_records(args, writer, results)))
    except OSError as error:
        raise DataError(f"cannot write {args.out}: {error.strerror}; give another file") from None


def write_page(args: argparse.Namespace, writer: Writer, results: Sequence[Result]) -> None:
    """The page that --html names."""
    from reviser.viewer import replay_page as html

    examples = [
        html.Example(
            result.text.trajectory,
            result.text.new,
            result.text.decoded.log_probabilities,
            tuple(event.alternatives for event in result.events),
        )
        for result in results
    ]
    html.write_page(args.html, examples, writer.tokenizer, f"reviser {args.command}: {args.text}")
