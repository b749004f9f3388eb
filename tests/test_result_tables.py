"""Results as they are written, and their tables: headings that collide, numbers that JSON has no word for."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from reviser.errors import DataError
from reviser.reports.kinds import bits_error
from reviser.reports.markdown import write_table
from reviser.reports.results import make_result, write_result
from reviser.reports.sections import tables_of
from reviser.reports.tables import Table


def test_a_number_that_json_has_no_word_for_is_refused_with_its_place(tmp_path: Path) -> None:
    rows = [{"system": "a", "perplexity": {"value": 3.0, "error": None}}]
    write_result(make_result("evalppl", rows, {}), tmp_path / "good.json")
    rows.append({"system": "b", "perplexity": {"value": math.nan, "error": None}})
    with pytest.raises(DataError) as caught:
        write_result(make_result("evalppl", rows, {}), tmp_path / "bad.json")
    place = "rows.1.perplexity.value (nan) of this evalppl result is not finite"
    assert str(caught.value).startswith(
        f"{tmp_path / 'bad.json'}: not written, for {place}, and JSON has only finite"
    )
    assert not (tmp_path / "bad.json").exists()


def metrics_table(rows: list[dict[str, Any]], columns: dict[str, Any]) -> Table:
    [table] = tables_of(make_result("metrics", rows, {}, columns=columns))
    return table


def test_a_heading_that_is_no_text_is_written_as_one() -> None:
    table = metrics_table([{"system": "a", "texts": 1, "commas": 7}], {"commas": 3})
    assert table.columns == ("system", "texts", "3")
    assert "| a | 1 | 7 |" in write_table(table)


def test_a_heading_that_is_taken_gives_way_to_the_key() -> None:
    row = {"system": "a", "texts": 1, "commas": 7, "dots": 8, "names": 9}
    table = metrics_table([row], {"commas": "marks", "dots": "marks", "names": "system"})
    assert table.columns == ("system", "texts", "marks", "dots", "names")
    assert table.rows == (("a", "1", "7", "8", "9"),)


def test_keys_that_read_alike_are_two_columns() -> None:
    [table] = tables_of(make_result("odd", [{"a_b": 1, "a b": 2}], {}))
    assert table.rows == (("1", "2"),)


def test_a_row_of_no_nats_has_the_error_it_says_and_else_none() -> None:
    row = {"bits_per_byte": 0.0, "nats_per_token": 0.0, "error": 0.1}
    assert bits_error(row) is None
    assert bits_error(row | {"bits_per_byte_error": 0.2}) == 0.2
    assert bits_error(row | {"nats_per_token": 2.0, "bits_per_byte": 1.0}) == 0.05
