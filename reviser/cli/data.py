"""`reviser data`: text files to token shards, tokenizers, what a data folder holds, and errors made in clean text."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reviser.cli.shared.command import add_command, check_positive, format_json, looks_like_file
from reviser.cli.shared.fields import parse_bytes, parse_share
from reviser.errors import ConfigError, DataError, make_visible
from reviser.viewer.progress_bar import show_progress

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Iterator

    from reviser.data.corpus import PrepareProgress
    from reviser.data.shards import Header
    from reviser.viewer.progress_bar import ProgressBar

NAMED_KINDS = 5
SAMPLE_BYTES = 1_000_000


def add(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = commands.add_parser("data", help="prepare token shards, learn a tokenizer, inspect shards, make errors")
    kinds = parser.add_subparsers(title="subcommands", required=True, metavar="WHAT")
    for adder in (_add_prepare, _add_tokenizer, _add_info, _add_errors, _add_error_table, _add_drafts):
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
        "JSON lines with before and after instead of text are pairs, from which a model learns to edit.\n"
        "Drops exact duplicates. If it is interrupted, the same command resumes where it stopped.",
    )
    parser.add_argument("paths", nargs="+", metavar="FILE|FOLDER", help="files and folders to read, in this order")
    parser.add_argument("out", metavar="OUT", help="the data folder to make or resume")
    parser.add_argument(
        "--tokenizer", default="default", help="name, tokenizer.json or folder (default: the shipped)"
    )
    parser.add_argument("--holdout", default="0.5%", help="share of documents to hold out (default 0.5%%)")
    parser.add_argument(
        "--pair-holdout", default="2%", help="share of pairs to hold out, by source and message (default 2%%)"
    )
    parser.add_argument("--workers", type=int, help="tokenizing processes (default: one per core)")
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="tokenize on a Ray cluster: local (started here), auto (the one of this machine) or HOST:PORT",
    )
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


def _add_errors(kinds: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        kinds,
        "errors",
        "make errors in a text, as in the training of a proofreader",
        "  reviser data errors notes.txt --table errors.npz --n 3 --seed 1\n"
        "  reviser data errors - --table errors.npz --set article=0.3 --set misspelling=0 --json",
        description="Make errors in a text, as in the training of a proofreader, and list them by kind.\n"
        "No text is left clean here unless --set clean says so. The same seed gives the same errors.",
    )
    parser.add_argument("text", metavar="TEXT|FILE|-", help="a text, a file of text, or - for standard input")
    parser.add_argument("--table", metavar="FILE", required=True, help="what `reviser data error-table` wrote")
    parser.add_argument("--tokenizer", default="default", help="the table's tokenizer (default: the shipped)")
    parser.add_argument("--n", type=int, default=1, help="number of texts with errors (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default 0)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KIND=RATE", help="change the rate of a kind; repeatable"
    )
    parser.set_defaults(run=run_errors)


def _add_error_table(kinds: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        kinds,
        "error-table",
        "build the table of words that errors are made with",
        "  reviser data error-table corpus/ --out errors.npz\n"
        "  reviser data error-table data/web --out errors.npz --tokenizer data/web --num-words 60000",
        description="Build the table that errors are made with: the commonest words of some text, and what can "
        "become of each.\nNeeds the extra errors (codespell, lemminflect); using the table does not.",
    )
    parser.add_argument(
        "paths", nargs="+", metavar="FILE|FOLDER", help="files and folders of text, or one data folder"
    )
    parser.add_argument("--out", metavar="FILE", required=True, help="the table to write")
    parser.add_argument(
        "--tokenizer", default="default", help="name, tokenizer.json or folder (default: the shipped)"
    )
    parser.add_argument(
        "--num-words", type=int, default=40_000, help="how many of the commonest words (default 40000)"
    )
    parser.add_argument("--limit-bytes", default="40M", metavar="N", help="stop after this much text (default 40M)")
    parser.add_argument("--field", default="text", help="JSON field or column with the text (default text)")
    parser.set_defaults(run=run_error_table)


def _add_drafts(kinds: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        kinds,
        "drafts",
        "have a model write spans of texts anew, as pairs to learn revising from",
        "  reviser data drafts runs/proof corpus/ --out drafts.jsonl --n 100000 --device cuda\n"
        "  reviser data drafts runs/proof notes.txt --out drafts.jsonl --spans 1,1 --blind 0 --seed 1",
        description="Replace spans of texts, a word to a few sentences, by what a model writes there, and keep each "
        "text before and after as a pair for `reviser data prepare`.\n"
        "The same command resumes a file that exists. The same seed gives the same spans.",
    )
    parser.add_argument("model", metavar="MODEL", help="a model folder, a run folder, a hub id, or shipped")
    parser.add_argument("paths", nargs="+", metavar="TEXTS", help="files and folders of documents, or data folders")
    parser.add_argument("--out", required=True, metavar="FILE", help="the pairs, as JSON lines")
    parser.add_argument("--n", type=int, help="maximum number of pairs (default: those of all documents)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default 0)")
    parser.add_argument("--tokens", type=int, default=170, help="maximum length of a text (default 170)")
    parser.add_argument("--spans", default="1,3", metavar="LOW,HIGH", help="spans in a text (default 1,3)")
    parser.add_argument(
        "--blind", type=float, default=0.5, help="share of sentences that see no suffix (default 0.5)"
    )
    parser.add_argument("--per-document", type=int, default=4, help="maximum texts of a document (default 4)")
    parser.add_argument(
        "--min-gain", type=float, help="keep spans whose original reads better by this many nats (default: all)"
    )
    parser.add_argument("--temperature", type=float, default=0.9, help="of what is written (default 0.9)")
    parser.add_argument("--top-k", type=int, default=50, help="of what is written (default 50; 0 is all)")
    parser.add_argument("--rows", type=int, help="spans written at once (default: 16, or 256 on a GPU)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1 (default cpu)")
    parser.add_argument("--field", default="text", help="JSON field or column with the text (default text)")
    parser.set_defaults(run=run_drafts)


def run_drafts(args: argparse.Namespace) -> int:
    from reviser.cli.shared.fields import parse_numbers
    from reviser.decoding.arguments import check_device
    from reviser.decoding.presets import Sampling
    from reviser.decoding.writer import Writer
    from reviser.drafting.draft_pairs import Drafting, read_sources, write_drafts
    from reviser.evaluation.evaluator import hash_weights
    from reviser.model.folder import find

    low, high = parse_numbers("--spans", args.spans, 2)
    cut = args.seed, args.tokens, (low, high), args.blind, args.per_document, args.min_gain
    how = Drafting(*cut, Sampling(args.temperature, args.top_k))
    check_positive(args, *(name for name in ("n", "rows") if getattr(args, name) is not None))
    check_device(args.device, "--device")
    rows, start = args.rows or (16 if args.device == "cpu" else 256), time.monotonic()
    writer = Writer.from_pretrained(args.model, args.device, rows)
    with show_progress("drafts") as bar:
        num_pairs = write_drafts(
            writer, read_sources(args.paths, args.field), args.out, how, hash_weights(find(args.model)), args.n,
            lambda texts, pairs: bar.show(pairs, args.n, f"{pairs:,} pairs of {texts:,} texts"),
        )  # fmt: skip
    seconds = time.monotonic() - start
    done = {"file": args.out, "num_pairs": num_pairs, "seconds": round(seconds, 1)}
    print(json.dumps(done) if args.json else f"{args.out}: {num_pairs:,} pairs\n  took       {seconds:.0f} s")
    return 0


def run_errors(args: argparse.Namespace) -> int:
    from reviser.config import override
    from reviser.mistakes.make import make_mistakes
    from reviser.mistakes.mistake_kinds import MistakeConfig
    from reviser.mistakes.table_file import load_table
    from reviser.orders.rng import Random
    from reviser.tokenizer import load

    check_positive(args, "n")
    config = override(MistakeConfig(clean=0.0), args.set)
    tokenizer = load(args.tokenizer)
    table = load_table(args.table, tokenizer)
    clean = tokenizer.encode(_read_text(args.text))
    results: list[dict[str, Any]] = []
    for number in range(args.n):
        made, mistakes = make_mistakes(clean, table, config, Random.of(args.seed, number))
        rows = [
            {"kind": each.kind.label, "before": tokenizer.decode(clean[each.start : each.end])}
            | {"after": tokenizer.decode(made[each.new_start : each.new_end])}
            for each in mistakes
        ]
        results.append({"text": tokenizer.decode(made), "errors": rows})
    if args.json:
        print(format_json({"seed": args.seed, "table": args.table, "texts": results}))
    else:
        print("\n---\n".join(_describe_errors(**result) for result in results))
    return 0


def _describe_errors(text: str, errors: list[dict[str, str]]) -> str:
    """A text, and below it a line for each error in it."""
    rows = [("kind", "before", "after"), *((row["kind"], repr(row["before"]), repr(row["after"])) for row in errors)]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"  {kind:<{widths[0]}}  {before:<{widths[1]}}  {after}" for kind, before, after in rows]
    return "\n".join([text, "", *lines]) if errors else f"{text}\n\n  no errors"


def _read_text(argument: str) -> str:
    """The text itself, or that of the file of this name or of standard input, without its last newline."""
    try:
        if argument == "-":
            return sys.stdin.read().removesuffix("\n")
        if len(argument) < 256 and Path(argument).is_file():
            return Path(argument).read_text("utf8").removesuffix("\n")
    except UnicodeDecodeError:
        name = "standard input" if argument == "-" else argument
        raise DataError(f"{name} is not UTF-8 text") from None
    if looks_like_file(argument):
        raise DataError(
            f"{argument}: no such file; to use the name itself as text, pipe it to: reviser data errors -"
        )
    return argument


def run_error_table(args: argparse.Namespace) -> int:
    from reviser.mistakes.mistake_kinds import Kind
    from reviser.mistakes.table_file import save_table
    from reviser.mistakes.word_sources import count_words, read_inflections, read_misspellings
    from reviser.mistakes.word_table import choose_words, find_facts, make_table
    from reviser.tokenizer import load

    check_positive(args, "num_words")
    if Path(args.out).exists():
        raise ConfigError(f"{args.out} exists; choose another --out or delete it")
    tokenizer, limit = load(args.tokenizer), parse_bytes(args.limit_bytes)
    misspellings = read_misspellings()
    read_inflections([])  # says what is missing before much text is read
    reading = _Reading(args.paths, args.field, limit)
    with show_progress("error-table") as bar:
        counts = count_words(reading.texts(bar))
    words = choose_words(counts, misspellings, args.num_words)
    facts = find_facts(words, misspellings, read_inflections(words))
    table = make_table(tokenizer, facts)
    save_table(table, args.out)
    result = {
        "table": args.out,
        "num_bytes": os.path.getsize(args.out),
        "num_words": table.num_words,
        "num_alternatives": len(table.alternative_kinds),
        "words_of_kind": {kind.label: sum(each.kinds >> kind & 1 for each in facts.values()) for kind in Kind},
        "tokenizer_sha256": tokenizer.sha256,
        "num_documents": reading.num_documents,
        "num_read": reading.num_bytes,
    }
    print(json.dumps(result) if args.json else _describe_error_table(result))
    return 0


def _describe_error_table(result: dict[str, Any]) -> str:
    return (
        f"{result['table']}: {result['num_words']:,} words, {result['num_alternatives']:,} alternatives, "
        f"{result['num_bytes'] / 1e6:.2f} MB\n"
        f"  words from {result['num_documents']:,} documents, {result['num_read'] / 1e6:,.1f} MB\n"
        f"  tokenizer  sha256 {result['tokenizer_sha256']}"
    )


def run_prepare(args: argparse.Namespace) -> int:
    from reviser.data.corpus import prepare
    from reviser.data.sources import count_skipped
    from reviser.tokenizer import load

    check_positive(args, "workers")
    workers = args.workers or (0 if args.ray else _num_cores())
    share = parse_share(args.holdout)
    start = time.monotonic()
    try:
        with show_progress("prepare") as bar:
            header = prepare(
                args.paths,
                args.out,
                load(args.tokenizer),
                holdout=share,
                pair_holdout=parse_share(args.pair_holdout, "--pair-holdout"),
                workers=workers,
                field=args.field,
                ray=args.ray,
                report=lambda progress: bar.show(progress.num_read, progress.num_to_read, _describe(progress)),
            )
    except KeyboardInterrupt:
        print("stopped; run the same command again to resume", file=sys.stderr)
        return 130
    seconds = time.monotonic() - start
    if skipped := count_skipped(args.paths):
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in list(skipped.items())[:NAMED_KINDS])
        more = ", ..." if len(skipped) > NAMED_KINDS else ""
        print(f"note: {sum(skipped.values()):,} files of other kinds were left out: {kinds}{more}", file=sys.stderr)
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
    try:
        with show_progress("tokenizer") as bar:
            # In a thread: it is outside Python for minutes, and Ctrl-C would wait for it. Nothing is half done then.
            learning = ThreadPoolExecutor(1).submit(train, reading.texts(bar), args.size)
            # A signal that reaches the thread does not wake whoever waits for it without an end.
            while not wait([learning], timeout=0.2).done:
                pass
            tokenizer = learning.result()
    except KeyboardInterrupt:
        print("stopped; nothing was written", file=sys.stderr, flush=True)
        os._exit(130)
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
    """The texts of some files, or of one data folder, up to a limit, counted as they pass; the first megabyte is kept
    as a sample."""

    def __init__(self, paths: list[str], field: str, limit: int | None) -> None:
        from reviser.data.shards import HEADER
        from reviser.data.sources import Complaints, read_documents

        self.complaints = Complaints()
        if len(paths) == 1 and (Path(paths[0]) / HEADER).is_file():
            self._documents = self._decoded(paths[0])
        else:
            self._documents = (document.text for document in read_documents(paths, field, self.complaints))
        self._limit = limit
        self.num_documents, self.num_bytes = 0, 0
        self.sample: list[str] = []

    def texts(self, bar: ProgressBar) -> Iterator[str]:
        for text in self._documents:
            if self._limit is not None and self.num_bytes >= self._limit:
                return
            if self.num_bytes < SAMPLE_BYTES:
                self.sample.append(text)
            self.num_documents += 1
            self.num_bytes += len(text.encode())
            bar.show(self.num_bytes, self._limit, f"{self.num_documents:,} documents")
            yield text

    def _decoded(self, folder: str) -> Iterator[str]:
        """The training documents of a data folder."""
        from reviser.data.shards import Shards

        shards = Shards.open(folder, "train")
        return (shards.tokenizer.decode(shards[i]) for i in range(len(shards)))


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
            + (f"; {split.num_pairs:,} of the documents are pairs" if split.num_pairs else "")
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
    return "\n".join(map(make_visible, lines))
