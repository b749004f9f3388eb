"""`reviser data`: turn text files into token shards, learn a tokenizer, show what a data folder holds."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reviser.cli.command import add_command
from reviser.cli.progress_bar import show_progress
from reviser.errors import ConfigError, DataError

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Iterator

    from reviser.cli.progress_bar import ProgressBar
    from reviser.data.corpus import PrepareProgress
    from reviser.data.shards import Header

SAMPLE_BYTES = 1_000_000
UNITS = {"K": 10**3, "M": 10**6, "G": 10**9}


def add(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = commands.add_parser("data", help="prepare token shards, learn a tokenizer, inspect shards")
    kinds = parser.add_subparsers(title="subcommands", required=True, metavar="WHAT")
    for adder in (_add_prepare, _add_tokenizer, _add_info):
        adder(kinds)


def _add_prepare(kinds: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        kinds,
        "prepare",
        "turn text files into a data folder of token ids",
        "  reviser data prepare corpus/ data/web --tokenizer gpt2 --workers 8\n"
        "  reviser data prepare part-*.jsonl.xz notes.txt data/mine --tokenizer tokenizers/8k --holdout 1%",
        description="Turn text files into a data folder of token ids, split into train and heldout.\n"
        "Reads .txt .md .jsonl .json (also .gz .xz .zst), .parquet and .arrow, and folders of them.\n"
        "Drops exact duplicates. If it is interrupted, the same command resumes where it stopped.",
    )
    parser.add_argument("paths", nargs="+", metavar="FILE|FOLDER", help="files and folders to read, in this order")
    parser.add_argument("out", metavar="OUT", help="the data folder to make or resume")
    parser.add_argument(
        "--tokenizer", default="default", help="name, tokenizer.json or folder (default: the shipped)"
    )
    parser.add_argument("--holdout", default="0.5%", help="share of documents to hold out (default 0.5%%)")
    parser.add_argument("--workers", type=int, help="tokenizing processes (default: one per core)")
    parser.add_argument("--field", default="text", help="JSON field or column with the text (default text)")
    parser.set_defaults(run=run_prepare)


def _add_tokenizer(kinds: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        kinds,
        "tokenizer",
        "learn a byte-level BPE tokenizer from text files",
        "  reviser data tokenizer corpus/ --size 8192 --out tokenizers/8k --limit-bytes 200M\n"
        "  reviser data tokenizer notes.txt --size 512 --out tokenizers/tiny --json",
        description="Learn a byte-level BPE tokenizer from the kinds of files that `reviser data prepare` reads.\n"
        "The same text gives the same tokenizer.",
    )
    parser.add_argument("paths", nargs="+", metavar="FILE|FOLDER", help="files and folders to learn from")
    parser.add_argument("--size", type=int, required=True, help="size of the vocabulary, at least 257")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where to write tokenizer.json")
    parser.add_argument("--limit-bytes", metavar="N", help="stop after reading this much text, e.g. 200M")
    parser.add_argument("--field", default="text", help="JSON field or column with the text (default text)")
    parser.set_defaults(run=run_tokenizer)


def _add_info(kinds: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        kinds,
        "info",
        "show what a data folder holds and verify it",
        "  reviser data info data/web\n  reviser data info data/web --verify --json",
        description="Show what a data folder holds: documents, tokens, bytes, settings, what was dropped.\n"
        "With --verify, read every file and compare its checksum; the exit code is 1 if one is damaged.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="a data folder")
    parser.add_argument("--verify", action="store_true", help="read every file and compare checksums")
    parser.set_defaults(run=run_info)


def run_prepare(args: argparse.Namespace) -> int:
    from reviser.data.corpus import prepare
    from reviser.tokenizer import load

    workers = _num_cores() if args.workers is None else args.workers
    share = parse_share(args.holdout)
    start = time.monotonic()
    try:
        with show_progress("prepare") as bar:
            header = prepare(
                args.paths,
                args.out,
                load(args.tokenizer),
                holdout=share,
                workers=workers,
                field=args.field,
                report=lambda progress: bar.show(progress.num_read, progress.num_to_read, _describe(progress)),
            )
    except KeyboardInterrupt:
        print("stopped; run the same command again to resume", file=sys.stderr)
        return 130
    seconds = time.monotonic() - start
    if args.json:
        print(json.dumps(_as_json(args.out, header) | {"seconds": round(seconds, 1)}))
    else:
        print(f"{_summarise(args.out, header)}\n  took       {seconds:.0f} s")
    return 0


def run_tokenizer(args: argparse.Namespace) -> int:
    from reviser.tokenizer import FILE, train

    path = Path(args.out) / FILE
    if path.exists():
        raise ConfigError(f"{path} exists; choose another --out or delete it")
    reading = _Reading(args.paths, args.field, parse_bytes(args.limit_bytes) if args.limit_bytes else None)
    with show_progress("tokenizer") as bar:
        tokenizer = train(reading.texts(bar), args.size)
    if not reading.num_documents:
        raise DataError(f"no document to learn from; {reading.complaints.first[0]}")
    tokenizer.save(args.out)
    num_tokens = sum(map(len, tokenizer.encode_many(reading.sample)))
    num_bytes = sum(len(text.encode()) for text in reading.sample)
    result = {
        "tokenizer": str(path),
        "num_text": tokenizer.num_text,
        "sha256": tokenizer.sha256,
        "num_documents": reading.num_documents,
        "num_bytes": reading.num_bytes,
        "bytes_per_token": round(num_bytes / num_tokens, 3),
        "num_bad": reading.complaints.counts,
    }
    print(json.dumps(result) if args.json else _describe_tokenizer(result, args.size))
    return 0


def _describe_tokenizer(result: dict[str, Any], size: int) -> str:
    few = "" if result["num_text"] == size else f" (fewer than {size:,}: the text has no more pairs to merge)"
    return (
        f"{result['tokenizer']}: {result['num_text']:,} tokens{few}, {result['bytes_per_token']} bytes per token\n"
        f"  learned from {result['num_documents']:,} documents, {result['num_bytes'] / 1e6:,.1f} MB\n"
        f"  sha256 {result['sha256']}"
    )


class _Reading:
    """The texts of some files up to a limit, counted as they pass; the first megabyte is kept as a sample."""

    def __init__(self, paths: list[str], field: str, limit: int | None) -> None:
        from reviser.data.sources import Complaints, read_documents

        self.complaints = Complaints()
        self._documents = read_documents(paths, field, self.complaints)
        self._limit = limit
        self.num_documents, self.num_bytes = 0, 0
        self.sample: list[str] = []

    def texts(self, bar: ProgressBar) -> Iterator[str]:
        for document in self._documents:
            if self._limit is not None and self.num_bytes >= self._limit:
                return
            if self.num_bytes < SAMPLE_BYTES:
                self.sample.append(document.text)
            self.num_documents += 1
            self.num_bytes += len(document.text.encode())
            bar.show(self.num_bytes, self._limit, f"{self.num_documents:,} documents")
            yield document.text


def run_info(args: argparse.Namespace) -> int:
    from reviser.data.shards import read_header

    header = read_header(args.folder)
    problem = _find_damage(args.folder, header) if args.verify else None
    if args.json:
        verified = {"verified": problem is None, "problem": problem} if args.verify else {}
        print(json.dumps(_as_json(args.folder, header) | verified))
    else:
        print(_summarise(args.folder, header))
        if args.verify:
            print(f"  checksums  {problem or 'all files match'}")
    return 0 if problem is None else 1


def _find_damage(folder: str, header: Header) -> str | None:
    from reviser.data.shards import Shards

    try:
        for name, split in header.splits.items():
            if split.num_documents:
                Shards.open(folder, name).verify()
    except DataError as error:
        return str(error)
    return None


def parse_share(text: str) -> float:
    """0.5% or 0.005."""
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError as error:
        raise ConfigError(f"--holdout {text!r} is not a share; write it as 0.5% or 0.005") from error


def parse_bytes(text: str) -> int:
    """200M, 1.5G or a plain number of bytes."""
    unit = UNITS.get(text[-1:].upper())
    try:
        count = int(float(text[:-1] if unit else text) * (unit or 1))
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"--limit-bytes {text!r} is not a size; write it as 200M, 1.5G or 5000") from error
    if count < 1:
        raise ConfigError(f"--limit-bytes {text} leaves nothing to read; it must be at least 1")
    return count


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _as_json(folder: str, header: Header) -> dict[str, Any]:
    return {"folder": str(folder)} | header.as_json()


def _describe(progress: PrepareProgress) -> str:
    return (
        f"{progress.num_documents:,} documents, {progress.num_tokens / 1e6:,.1f}M tokens, "
        f"{progress.num_bytes / 1e6:,.1f} MB of text"
    )


def _summarise(folder: str, header: Header) -> str:
    from reviser.data.sources import EMPTY

    lines = [f"{folder}: {header.settings.dtype} ids of {header.settings.num_text:,} tokens"]
    for name, split in header.splits.items():
        lines.append(
            f"  {name:<10} {split.num_documents:,} documents, {split.num_tokens:,} tokens, "
            f"{split.num_bytes:,} bytes in {len(split.shards)} shards"
        )
    lines.append(f"  held out   {header.settings.holdout:.4g} of all documents, by a hash of their text")
    num_empty = header.num_bad.get(EMPTY, 0)
    num_bad = sum(header.num_bad.values()) - num_empty
    lines.append(f"  dropped    duplicates: {header.num_duplicates:,}, bad records: {num_bad:,}")
    lines += [f"             {count:,} x {problem}" for problem, count in header.num_bad.items() if problem != EMPTY]
    lines.append(
        f"  read from  {len(header.inputs):,} files, {num_empty:,} of them empty, "
        f"{sum(each.num_bytes for each in header.inputs):,} bytes"
    )
    lines += [f"  {'first bad' if number == 0 else '':<10} {each}" for number, each in enumerate(header.first_bad)]
    lines.append(f"  tokenizer  sha256 {header.settings.tokenizer_sha256}")
    return "\n".join(lines)
