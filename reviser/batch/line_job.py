"""A line in, what a job makes of it out. A line that cannot be used is a `DataError`, and so is one that the model
cannot take.

    job       reads                                       gives
    generate  prompt                                      seed, texts
    infill    prefix and suffix, or text with its ___     seed, texts
    edit      text, and format where it is not the run's  seed, format, text, edits
    score     text                                        log_probability, num_tokens, num_bytes, ...

Every answer begins with `line`, the line's number, and `id` where the line has one. Its seed is made from the run's
and the number of the line, so `reviser generate PROMPT --seed SEED` writes the same text.

>>> seed_of(1, 7) == seed_of(1, 7) != seed_of(1, 8)
True
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reviser.batch.answers import describe_edited, describe_text
from reviser.batch.batch_config import BatchConfig
from reviser.batch.input_lines import Line
from reviser.data.sources import is_unicode
from reviser.decoding.gap_filling import GapLimits, split_gaps
from reviser.errors import DataError
from reviser.orders.rng import Random

if TYPE_CHECKING:
    from reviser.decoding.writer import Writer

Answer = dict[str, Any]


def seed_of(seed: int, number: int) -> int:
    """The seed of a line; 53 bits, which any reader of JSON can hold."""
    return Random.of(seed, number).state >> 11


def begin_answer(line: Line) -> Answer:
    """What every answer begins with."""
    value = check_line(line)
    return {"line": line.number, **({"id": value["id"]} if "id" in value else {})}


def check_line(line: Line) -> dict[str, Any]:
    """The fields of a line that could be read."""
    if line.value is None:
        raise DataError(line.problem or "no fields")
    return line.value


def read_text(line: Line, name: str) -> str:
    """A field that must be there and be text."""
    value = check_line(line)
    if name not in value:
        raise DataError(f"no field {name!r}")
    text = value[name]
    if not isinstance(text, str):
        raise DataError(f"field {name!r} is {'null' if text is None else type(text).__name__}, not text")
    if not is_unicode(text):
        raise DataError(f"field {name!r} holds a lone surrogate, which is not valid Unicode")
    return text


def answer_line(writer: Writer, config: BatchConfig, line: Line) -> Answer:
    """What a job that writes makes of a line."""
    work = {"generate": _generate, "infill": _infill, "edit": _edit}[config.job]
    seed = seed_of(config.seed, line.number)
    return begin_answer(line) | {"seed": seed} | work(writer, config, line, seed)


def _generate(writer: Writer, config: BatchConfig, line: Line, seed: int) -> Answer:
    start = writer.continuation(read_text(line, "prompt"), config.max_tokens)
    texts = writer.write_drafts([start], config.n, config.best_of or 1, config.max_actions, seed, config.sampling)
    return {"texts": [describe_text(text, has_gaps=False) for text in texts]}


def _infill(writer: Writer, config: BatchConfig, line: Line, seed: int) -> Answer:
    limits = GapLimits(config.max_tokens, config.min_length, config.max_length)
    parts = _read_parts(line)
    texts = writer.fill(parts, limits, config.n, config.best_of, config.max_actions, seed, config.sampling)
    return {"texts": [describe_text(text, has_gaps=True) for text in texts]}


def _read_parts(line: Line) -> list[str]:
    value = check_line(line)
    if "prefix" in value or "suffix" in value:
        return [read_text(line, "prefix"), read_text(line, "suffix")]
    if "text" not in value:
        raise DataError("no fields 'prefix' and 'suffix', and no field 'text'")
    return split_gaps(read_text(line, "text"))


def _edit(writer: Writer, config: BatchConfig, line: Line, seed: int) -> Answer:
    text, how = read_text(line, "text"), config.proofreading
    if not text.strip():
        raise DataError("field 'text' is empty")
    if "format" in check_line(line):
        how = replace(how, format=read_text(line, "format"))
    edited = writer.edit(
        text, format=how.format, min_probability=how.min_probability, passes=how.passes, words=how.words,
        reread=how.reread, spelling=how.spelling, seed=seed, sampling=config.sampling,
    )  # fmt: skip
    return describe_edited(edited, how.format)
