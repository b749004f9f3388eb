"""A batch answers every line once and in order, whatever stops it on the way."""

from __future__ import annotations

import gzip
import json
import signal
from pathlib import Path
from typing import Any

import fsspec
import pytest
from batched import echo, echo_all, echo_and_die, read_lines, write_lines
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import fork

from reviser.batch.batch_config import BatchConfig, ModelSpec
from reviser.batch.batch_run import BatchProgress, write_batch
from reviser.batch.input_lines import read_blocks
from reviser.batch.part_files import OutputFile
from reviser.errors import ConfigError, DataError
from reviser.files import locked, stamp

LINE = st.one_of(
    st.fixed_dictionaries({"text": st.text(max_size=5) | st.just("fail")}),
    st.sampled_from([b"\n", b"  \r\n", b"no JSON\n", b"\xff\n", b"[1]\n", b'{"text": "\xc3\xa9"}\r\n']),
)
FEW = [{"text": "a"}, b"\n", {"text": "fail"}, {"text": "b"}, b"oops\n", {"text": "c"}, {"text": "d"}]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "in.jsonl"}


@settings(max_examples=20)
@given(lines=st.lists(LINE, min_size=1, max_size=9), block_lines=st.integers(1, 4), data=st.data())
def test_every_line_is_answered_or_failed_once_and_in_order_wherever_it_was_stopped(
    tmp_path_factory: pytest.TempPathFactory, lines: list[Any], block_lines: int, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("batch")
    (folder / "one").mkdir()
    source = write_lines(folder / "in.jsonl", lines)
    wanted = [number for number, line in enumerate(lines, 1) if not isinstance(line, bytes) or line.strip()]
    if not wanted:
        with pytest.raises(DataError, match="no line in it"):
            echo_all(source, folder / "one" / "out.jsonl", block_lines)
        assert files(folder / "one") == {}
        return
    result = echo_all(source, folder / "one" / "out.jsonl", block_lines)
    answered = [each["line"] for each in read_lines(folder / "one" / "out.jsonl")]
    failed = [] if result.failures is None else [each["line"] for each in read_lines(Path(result.failures))]
    assert sorted(answered + failed) == wanted
    assert (answered, failed) == (sorted(answered), sorted(failed))
    assert (result.num_lines, result.num_failed) == (len(wanted), len(failed))
    (folder / "two").mkdir()
    out = folder / "two" / "out.jsonl"
    for stop_after in data.draw(st.lists(st.integers(0, 3), max_size=3)):
        try:
            echo_all(source, out, block_lines, stop_after)
            break
        except KeyboardInterrupt:
            assert not out.exists()
    else:
        echo_all(source, out, block_lines)
    assert files(folder / "one") == files(folder / "two")


@pytest.mark.slow
def test_a_process_may_be_killed_at_any_file_operation(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", FEW)
    (tmp_path / "whole").mkdir()
    echo_all(source, tmp_path / "whole" / "out.jsonl")
    for at in range(200):
        folder = tmp_path / f"killed{at}"
        folder.mkdir()
        process = fork(echo_and_die, source, folder / "out.jsonl", at)
        process.join(30)
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        if (folder / "out.jsonl").exists() and not (folder / "out.jsonl.part" / "state.json").exists():
            # It was done but for an empty folder, which the next command removes.
            with pytest.raises(DataError, match="already exists"):
                echo_all(source, folder / "out.jsonl")
        else:
            echo_all(source, folder / "out.jsonl")
        assert files(folder) == files(tmp_path / "whole"), at
    assert at > 20
    assert files(folder) == files(tmp_path / "whole")


def test_nothing_is_written_over_and_nothing_else_is_resumed(tmp_path: Path) -> None:
    source, out = write_lines(tmp_path / "in.jsonl", FEW), tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        echo_all(source, out, stop_after=1, seed={"a": 1})
    with pytest.raises(DataError, match=r"out.jsonl.part: begun with another seed.a: 1, now 2; repeat the first"):
        echo_all(source, out, seed={"a": 2})
    with locked(tmp_path / "out.jsonl.part"), pytest.raises(DataError, match="another process is writing"):
        echo_all(source, out, seed={"a": 1})
    (tmp_path / "out.jsonl.part" / "answers.jsonl").write_bytes(b"")
    with pytest.raises(DataError, match=r"answers.jsonl: 0 bytes, but \d+ were written; delete the folder"):
        echo_all(source, out, seed={"a": 1})
    state = tmp_path / "out.jsonl.part" / "state.json"
    for other in ("", [], 7, {"num_blocks": "many"}):
        state.write_text(json.dumps(stamp(_read_json(state.read_bytes()) | {"state": other})))
        with pytest.raises(DataError, match=r"state.json: damaged \(.*\); delete the folder"):
            echo_all(source, out, seed={"a": 1})
    state.write_text("{}")
    with pytest.raises(DataError, match=r"state.json: damaged \('format'\); delete the folder"):
        echo_all(source, out, seed={"a": 1})
    for name in ("other.jsonl", "other.failures.jsonl"):
        (tmp_path / name).touch()
        with pytest.raises(DataError, match=f"{name} already exists; choose another output or delete it"):
            echo_all(source, tmp_path / "other.jsonl")
        (tmp_path / name).unlink()
    (tmp_path / "mine.jsonl.part").mkdir()
    (tmp_path / "mine.jsonl.part" / "diary").touch()
    with pytest.raises(DataError, match=r"mine.jsonl.part is not an unfinished batch; move it away"):
        echo_all(source, tmp_path / "mine.jsonl")
    (tmp_path / "yours.jsonl.part").touch()
    with pytest.raises(DataError, match=r"yours.jsonl.part is a file, but the run keeps its state there"):
        echo_all(source, tmp_path / "yours.jsonl")


def test_an_output_that_appears_on_the_way_stays(tmp_path: Path) -> None:
    source, out = write_lines(tmp_path / "in.jsonl", FEW), tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        echo_all(source, out, stop_after=1)
    out.write_text("mine")
    with pytest.raises(DataError, match="appeared while this batch was under way"):
        echo_all(source, out)
    assert out.read_text() == "mine"


def test_what_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", FEW)
    with pytest.raises(ConfigError, match=r"end it in .jsonl or .parquet"):
        echo_all(source, tmp_path / "out.txt")
    for name, problem in (
        ("none.jsonl", "none.jsonl: no such file; give a file of JSON lines"),
        ("in.txt", "in.txt: this kind of file cannot be read; give .jsonl"),
        ("in.parquet.gz", "this kind of file cannot be read"),
        ("none://x/in.jsonl", "none://x/in.jsonl: cannot be opened"),
    ):
        if not name.startswith("none"):
            (tmp_path / name).touch()
        with pytest.raises(DataError, match=problem):
            next(read_blocks(name if "://" in name else str(tmp_path / name), 2))
    packed = tmp_path / "in.jsonl.gz"
    packed.write_bytes(gzip.compress(source.read_bytes())[:-20])
    with pytest.raises(DataError, match=r"cannot be read to its end"):
        list(read_blocks(str(packed), 2))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"n": 0}, "n=0 must be at least 1"),
        ({"block_lines": 0}, "block_lines=0 must be at least 1"),
        ({"max_tokens": 0}, "max_tokens=0 must be at least 1"),
        ({"min_length": 3, "max_length": 2}, "max_length=2 is less than min_length=3"),
        ({"job": "sing"}, "no job 'sing'; jobs are generate, infill, edit, score"),
    ],
)
def test_settings_are_checked(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        BatchConfig(**{"job": "generate"} | changes)
    with pytest.raises(ConfigError, match="rows=0 must be at least 1"):
        ModelSpec(rows=0)


def test_compressed_lines_and_tables_are_the_same_lines(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pytest.importorskip("pyarrow")
    texts = [{"text": f"{number}é", "id": number} for number in range(2500)]
    plain = write_lines(tmp_path / "in.jsonl", texts)
    (tmp_path / "in.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    parquet.write_table(arrow.Table.from_pylist(texts), tmp_path / "in.parquet")
    for skip in (0, 2):
        found = [
            list(read_blocks(str(tmp_path / f"in.{kind}"), 700, skip)) for kind in ("jsonl", "jsonl.gz", "parquet")
        ]
        values = [[(line.number, line.value) for block in each for line in block.lines] for each in found]
        assert values[0] == values[1] == values[2] == list(enumerate(texts, 1))[skip * 700 :]
        assert all(each[-1].share == 1.0 for each in found)


def test_files_elsewhere_are_read_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    system = fsspec.filesystem("memory")
    source = write_lines(tmp_path / "in.jsonl", FEW)
    echo_all(source, tmp_path / "here.jsonl")
    system.pipe("/box/in.jsonl", source.read_bytes())
    config = BatchConfig("score", block_lines=2)
    output = OutputFile("memory://box/out.jsonl")
    told: list[BatchProgress] = []
    result = write_batch(config, "memory://box/in.jsonl", output, {}, lambda blocks: map(echo, blocks), told.append)
    assert system.cat("/box/out.jsonl") == (tmp_path / "here.jsonl").read_bytes()
    assert system.cat(result.failures) == (tmp_path / "here.failures.jsonl").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl", "here.jsonl", "here.failures.jsonl"}
    assert [each.num_lines for each in told] == [1, 3, 5, 6]
    assert told[-1].left_s == 0.0


def test_a_state_is_json_that_says_what_was_asked(tmp_path: Path) -> None:
    source, out = write_lines(tmp_path / "in.jsonl", FEW), tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        echo_all(source, out, stop_after=2, config=BatchConfig("edit").as_json())
    state = json.loads((tmp_path / "out.jsonl.part" / "state.json").read_text())
    assert state["settings"]["config"]["job"] == "edit"
    assert (state["state"]["num_blocks"], state["state"]["num_lines"]) == (2, 3)


@pytest.mark.parametrize("name", ["state.json", "answers.jsonl", "failures.jsonl"])
def test_any_bit_flipped_in_an_unfinished_batch_is_named(tmp_path: Path, name: str) -> None:
    source, out = write_lines(tmp_path / "in.jsonl", FEW), tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        echo_all(source, out, stop_after=3)
    path = tmp_path / "out.jsonl.part" / name
    good = path.read_bytes()
    for place in range(0, 8 * len(good), 1 if len(good) < 99 else 37):
        data = bytearray(good)
        data[place // 8] ^= 1 << place % 8
        path.write_bytes(data)
        if name == "state.json" and json.loads(good) == _read_json(data):
            continue
        with pytest.raises(DataError, match=r"damaged|not what was written"):
            echo_all(source, out)
        assert path.read_bytes() == data
    path.write_bytes(good)
    assert echo_all(source, out).num_lines == 6


def _read_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None
