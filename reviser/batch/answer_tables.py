"""Answers as a Parquet file: JSON lines in, a table with one row for each out, a block of rows at a time."""

from __future__ import annotations

import importlib
import itertools
import json
from pathlib import Path
from typing import IO, Any

from reviser.batch.batch_config import Job
from reviser.errors import MissingPackageError

ROWS_AT_ONCE = 1024


def check_tables() -> None:
    """Refuse a table where nothing can write one."""
    _import("pyarrow")


def write_table(job: Job, source: Path, target: IO[bytes]) -> None:
    """The same lines always give the same bytes."""
    arrow, parquet = _import("pyarrow"), _import("pyarrow.parquet")
    schema = _schema(arrow, job)
    with open(source, "rb") as lines, parquet.ParquetWriter(target, schema, compression="zstd") as writer:
        while rows := [_row(line) for line in itertools.islice(lines, ROWS_AT_ONCE)]:
            writer.write_table(arrow.Table.from_pylist(rows, schema=schema))


def _row(line: bytes) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(line)
    given = value.get("id")
    # A column has one type; what is no text is its JSON.
    return value | {"id": given if given is None or isinstance(given, str) else json.dumps(given, ensure_ascii=False)}


def _schema(arrow: Any, job: Job) -> Any:
    whole, number, text = arrow.int64(), arrow.float64(), arrow.string()
    first = {"line": whole, "id": text}
    if job == "score":
        counts = {"log_probability": number, "num_tokens": whole, "num_bytes": whole}
        return arrow.schema(first | counts | {"nats_per_token": number, "bits_per_byte": number})
    first |= {"seed": whole}
    if job == "edit":
        place = dict.fromkeys(("start", "end", "line", "column"), whole)
        edit = arrow.struct(place | {"before": text, "after": text, "probability": number})
        return arrow.schema(first | {"format": text, "text": text, "edits": arrow.list_(edit)})
    parts = {"text": text, "new": text, **({"fillings": arrow.list_(text), "fit": number} if job == "infill" else {})}
    how = {"log_probability": number, "has_stopped": arrow.bool_(), "ended_by": text}
    written = arrow.struct(parts | how | {"num_actions": whole, "num_tokens": whole})
    return arrow.schema(first | {"texts": arrow.list_(written)})


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingPackageError("pyarrow", "a Parquet file", "pip install 'reviser[train]'") from None
