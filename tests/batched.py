"""Small batches for tests: files of lines, a tiny model's folder, and a worker without a model."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from reviser.batch.batch_config import BatchConfig
from reviser.batch.batch_run import BatchResult, write_batch
from reviser.batch.block_worker import DoneBlock
from reviser.batch.input_lines import LineBlock
from reviser.batch.part_files import OutputFile

OPERATORS = ("jump", "delete", "replace")
FILE_EVENTS = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate"}


def make_model(folder: Path, *operators: str) -> Path:
    """The folder of a tiny model on bytes."""
    from served import make_writer

    from reviser.model.checkpoint import save_pretrained

    writer = make_writer(*(operators or OPERATORS))
    return save_pretrained(writer.model, folder / "model", writer.tokenizer)


def write_lines(path: Path, lines: Iterable[Any]) -> Path:
    """JSON lines; bytes stand for themselves."""
    path.write_bytes(
        b"".join(each if isinstance(each, bytes) else json.dumps(each).encode() + b"\n" for each in lines)
    )
    return path


def read_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def echo(block: LineBlock) -> DoneBlock:
    """Says the text of each line; those that say "fail" do."""
    answers, failures = [], []
    for line in block.lines:
        if line.value is None or line.value.get("text") == "fail":
            failures.append({"line": line.number, "problem": line.problem or "asked to", "input": line.text})
        else:
            answers.append({"line": line.number, "text": line.value.get("text")})
    data = [b"".join(json.dumps(each).encode() + b"\n" for each in kind) for kind in (answers, failures)]
    return DoneBlock(*data, len(block.lines), len(failures), block.num_lines, block.share)


def echo_all(
    source: Path, out: Path, block_lines: int = 2, stop_after: int | None = None, **more: Any
) -> BatchResult:
    """A batch by `echo`, which may be interrupted after some blocks."""

    def do(blocks: Iterable[LineBlock]) -> Iterator[DoneBlock]:
        for number, block in enumerate(blocks):
            if number == stop_after:
                raise KeyboardInterrupt
            yield echo(block)

    config = BatchConfig("score", block_lines=block_lines)
    return write_batch(config, str(source), OutputFile(str(out)), {"block_lines": block_lines, **more}, do)


def echo_and_die(source: Path, out: Path, at: int) -> None:
    """The same in a process that is killed before its file operation of that number."""
    left = at

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal left
        if event in FILE_EVENTS and str(out.parent) in str(args[0]):
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    sys.addaudithook(hook)
    echo_all(source, out)
