"""A data folder whose index or tokens lead outside it is refused, also where every checksum fits."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reviser.data.corpus import PrepareProgress, prepare
from reviser.data.shards import Shards
from reviser.errors import DataError
from reviser.evaluation.correction.tasks import _read_held_out
from reviser.evaluation.prompts import read_named
from reviser.files import hash_file, stamp
from reviser.tokenizer import load

Array = npt.NDArray[Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = [{"text": f"The {number} old houses."} for number in range(40)]
    pairs = [{"before": f"teh {number}", "after": f"the {number}"} for number in range(20)]
    source = tmp_path / "source.jsonl"
    source.write_text("".join(json.dumps(each) + "\n" for each in (*texts, *pairs)))
    prepare([source], tmp_path / "data", load("bytes"), holdout=0.2, pair_holdout=0.4, shard_tokens=300)
    assert len(Shards.open(tmp_path / "data").header.splits["train"].shards) > 1
    return tmp_path / "data"


def sign(folder: Path) -> None:
    """Make the checksums fit the files, as whoever changed a file on purpose would."""
    header = json.loads((folder / "data.json").read_text())
    for name, split in header["splits"].items():
        for kind in ("offsets", "bytes", "cuts"):
            if f"{kind}_sha256" in split:
                split[f"{kind}_sha256"] = hash_file(folder / f"{name}.{kind}.npy")
        for shard in split["shards"]:
            shard["sha256"] = hash_file(folder / shard["file"])
    (folder / "data.json").write_text(json.dumps(stamp(header)))


def put(place: int, value: int) -> Callable[[Array], Array]:
    def change(array: Array) -> Array:
        array[place] = value
        return array

    return change


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("offsets", put(-1, 1 << 40), "the shards do not begin where it says"),
        ("offsets", put(0, 7), "the shards do not begin where it says"),
        ("offsets", put(3, 1 << 62), "document 3 ends before it begins"),
        ("offsets", put(3, (1 << 64) - 1), "document 3 ends before it begins"),
        ("offsets", lambda array: array.astype(np.float64), "holds float64 numbers, not uint64"),
        ("bytes", lambda array: array.astype(np.int8), "holds int8 numbers, not uint32"),
        ("cuts", put(-1, 1 << 20), "a text before an edit is longer than its document"),
    ],
)
def test_an_index_that_leads_outside_its_shards_is_refused(
    folder: Path, name: str, change: Callable[[Array], Array], text: str
) -> None:
    path = folder / f"train.{name}.npy"
    np.save(path, change(np.load(path)))
    sign(folder)
    with pytest.raises(DataError, match=rf"train\.{name}\.npy: {text}.*; prepare the folder again$"):
        Shards.open(folder)


def test_shards_that_hold_other_documents_than_their_split_are_refused(folder: Path) -> None:
    header = json.loads((folder / "data.json").read_text())
    header["splits"]["train"]["shards"][0]["num_documents"] += 1
    (folder / "data.json").write_text(json.dumps(stamp(header)))
    with pytest.raises(DataError, match=r"data\.json: the shards of split train hold \d+ documents, the split \d+;"):
        Shards.open(folder)


VALUES = (None, True, -1, 1.5, 10**30, "x", "../x", [], {}, [1], {"a": 1})


def places_of(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place] * bool(place) + [found for name, each in inside for found in places_of(each, (*place, name))]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose preparation was interrupted, and its source."""

    def stop(progress: PrepareProgress) -> None:
        raise KeyboardInterrupt

    folder = tmp_path_factory.mktemp("begun")
    (folder / "source.txt").write_text("\n<|endoftext|>\n".join(f"text {number}" for number in range(9)))
    with pytest.raises(KeyboardInterrupt):
        prepare([folder / "source.txt"], folder / "data", load("bytes"), batch_characters=20, report=stop)
    return folder


@pytest.mark.parametrize("name", ["../train-00000.bin", "/etc/passwd", "..", "", "\0", "train-00000.bin\n"])
def test_a_shard_that_is_named_elsewhere_is_refused(folder: Path, name: str) -> None:
    header = json.loads((folder / "data.json").read_text())
    header["splits"]["train"]["shards"][0]["file"] = name
    (folder / "data.json").write_text(json.dumps(stamp(header)))
    with pytest.raises(DataError, match=r"splits\.train names the file '.*', which is no shard of this folder"):
        Shards.open(folder)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(data=st.data(), is_finished=st.booleans())
def test_data_json_with_any_value_changed_is_read_or_refused_in_one_line(
    folder: Path, begun: Path, data: st.DataObject, is_finished: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        changed = Path(shutil.copytree(folder if is_finished else begun / "data", name, dirs_exist_ok=True))
        header = json.loads((changed / "data.json").read_text())
        *way, last = data.draw(st.sampled_from(places_of(header)))
        functools.reduce(lambda value, key: value[key], way, header)[last] = data.draw(st.sampled_from(VALUES))
        (changed / "data.json").write_text(json.dumps(stamp(header) if data.draw(st.booleans()) else header))
        try:
            if is_finished:
                shards = Shards.open(changed)
                shards.verify()
            else:
                prepare([begun / "source.txt"], changed, load("bytes"))
        except DataError as error:
            said = str(error)
        else:
            said = ""
        assert "\n" not in said


def test_any_bit_flipped_in_the_index_is_a_data_error(folder: Path) -> None:
    path = folder / "train.offsets.npy"
    good = path.read_bytes()
    for bit in range(0, 1024, 3):
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        with suppress(DataError):
            Shards.open(folder)


@pytest.mark.parametrize("read", [read_named, lambda paths: _read_held_out(paths[0])])
def test_evaluation_reads_no_damaged_text(folder: Path, read: Callable[[list[Path]], Iterable[object]]) -> None:
    assert list(read([folder]))
    path = folder / "heldout-00000.bin"
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"heldout-00000\.bin: damaged, its sha256 is not"):
        list(read([folder]))


def test_a_token_that_the_tokenizer_lacks_fails_the_check(folder: Path) -> None:
    path = folder / "train-00000.bin"
    path.write_bytes(b"\xff\xff" + path.read_bytes()[2:])
    sign(folder)
    with pytest.raises(DataError, match=r"train-00000\.bin: token 65535, but the tokenizer has 257; prepare"):
        Shards.open(folder).verify()
