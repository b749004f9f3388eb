"""A block of lines in, its answers and failures out, by one model in one process.

Every line is a client of the running batch that `reviser serve` has, too: it gets what it would get alone, joins when
a row is free and leaves when it is done. So rows stay busy from one block to the next, and what comes out depends
neither on the other lines nor on how many processes there are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import NamedTuple, TypeVar

from reviser.batch.answers import describe_score
from reviser.batch.batch_config import BatchConfig, ModelSpec
from reviser.batch.input_lines import Line, LineBlock
from reviser.batch.line_job import Answer, answer_line, begin_answer, read_text
from reviser.decoding.cpu.step import has_cpu_kernels
from reviser.decoding.writer import Writer
from reviser.errors import CheckpointError, ReviserError
from reviser.model.folder import CONFIG, TOKENIZER, WEIGHTS, find
from reviser.serving.scheduler import Scheduler, Task
from reviser.serving.served_writer import ServedWriter

T = TypeVar("T")


class DoneBlock(NamedTuple):
    """A block as it is written: JSON lines of answers and of failures."""

    answers: bytes
    failures: bytes
    num_lines: int
    """Answered or failed."""
    num_failed: int
    num_read: int
    """Lines of the input, with blank ones."""
    share: float
    """Of the input, that has been read with this block."""


class BlockWorker:
    """A model with a running batch; calls from several threads share it."""

    def __init__(self, writer: Writer, config: BatchConfig, rows: int = 16) -> None:
        self._writer, self._config = writer, config
        is_exact = has_cpu_kernels(writer.model) or writer.device != "cpu"
        # Without kernels, the last bits of a row depend on how many there are: there is one, then.
        rows = rows if is_exact else 1
        self._scheduler = Scheduler(writer, rows)
        self._scheduler.start()
        # As many again wait, so that a row is free for no longer than a step.
        self._lines = ThreadPoolExecutor(2 * rows, thread_name_prefix="reviser-line")
        self._reading = Lock()
        self._task = Task()

    def close(self) -> None:
        """End at once: lines that are not done are left."""
        self._lines.shutdown(wait=False, cancel_futures=True)
        self._scheduler.cancel(self._task)
        self._scheduler.close()
        self._lines.shutdown()

    def __call__(self, block: LineBlock) -> DoneBlock:
        results = self._score(block.lines) if self._config.job == "score" else self._write(block.lines)
        answers, failures = [], []
        for line, result in zip(block.lines, results, strict=True):
            if isinstance(result, str):
                failures.append(_dump({"line": line.number, "problem": result, "input": line.text}))
            else:
                answers.append(_dump(result))
        return DoneBlock(
            b"".join(answers), b"".join(failures), len(block.lines), len(failures), block.num_lines, block.share
        )

    def _write(self, lines: Sequence[Line]) -> list[Answer | str]:
        return list(self._lines.map(lambda line: _catch(partial(self._answer, line)), lines))

    def _answer(self, line: Line) -> Answer:
        return answer_line(ServedWriter(self._writer, self._scheduler, self._task), self._config, line)

    def _score(self, lines: Sequence[Line]) -> list[Answer | str]:
        """All texts are read together."""
        texts = [_catch(partial(self._encode, line)) for line in lines]
        asked = [each for each in texts if not isinstance(each, str)]
        with self._reading:
            scores = iter(self._writer.read([tokens for _, tokens, _ in asked]))
        results: list[Answer | str] = []
        for each in texts:
            if isinstance(each, str):
                results.append(each)
                continue
            begun, tokens, num_bytes = each
            found = next(scores)
            results.append(begun | describe_score(found, num_bytes) if found else self._explain_long(len(tokens)))
        return results

    def _encode(self, line: Line) -> tuple[Answer, list[int], int]:
        text = read_text(line, "text")
        tokens = self._writer.tokenizer.encode(text)
        if not tokens:
            raise ReviserError("field 'text' is empty")
        return begin_answer(line), tokens, len(text.encode())

    def _explain_long(self, num_tokens: int) -> str:
        config = self._writer.config
        most = min(config.context - 1, config.max_length)
        return f"a text of {num_tokens} tokens, and the model reads {most}; shorten it"


def _catch(work: Callable[[], T]) -> T | str:
    """What comes out, or what a user can do something about; anything else ends the run."""
    try:
        return work()
    except ReviserError as error:
        return " ".join(str(error).split())


def _dump(value: Answer) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def identify_model(spec: str | None) -> dict[str, str]:
    """The sha256 of what decides what a model writes."""
    from reviser.files import hash_file

    folder = find(spec)
    return {name: hash_file(folder / name) for name in (CONFIG, WEIGHTS, TOKENIZER) if (folder / name).is_file()}


def make_worker(spec: ModelSpec, config: BatchConfig, model: dict[str, str]) -> BlockWorker:
    """The worker of a process; the model that it finds must be the one that was meant."""
    import socket

    if identify_model(spec.model) != model:
        raise CheckpointError(
            f"the model {spec.model or 'shipped'} on {socket.gethostname()} is not the one that the run began with; "
            "give all machines the same"
        )
    writer = Writer.from_pretrained(spec.model, spec.device, spec.rows, spec.weights)
    return BlockWorker(writer, config, spec.rows)
