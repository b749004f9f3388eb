"""Every kind of file gives the same documents; what is wrong in one is counted and named."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviser.data import sources
from reviser.data.sources import Complaints, count_skipped, find_sources, read_documents, read_records
from reviser.errors import DataError, MissingPackageError

pyarrow = pytest.importorskip("pyarrow")
zstandard = pytest.importorskip("zstandard")

TEXTS = ["One.", "Two\nlines, déjà vu", "  three  ", "漢字 👩‍🚀\ttab", "five " * 300]


def as_lines(texts: list[str]) -> bytes:
    return "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts)).encode()


def as_text(texts: list[str]) -> bytes:
    return "\n<|endoftext|>\n".join(texts).encode() + b"\n"


def as_table(texts: list[str]) -> Any:
    return pyarrow.table({"id": list(range(len(texts))), "text": texts})


def write_parquet(path: Path, texts: list[str]) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(as_table(texts), path, row_group_size=2)


def write_arrow_stream(path: Path, texts: list[str]) -> None:
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, as_table(texts).schema) as writer:
        writer.write_table(as_table(texts), max_chunksize=2)


def write_arrow_file(path: Path, texts: list[str]) -> None:
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_file(file, as_table(texts).schema) as writer:
        writer.write_table(as_table(texts), max_chunksize=2)


WRITERS: dict[str, Callable[[Path, list[str]], object]] = {
    "a.txt": lambda path, texts: path.write_bytes(as_text(texts)),
    "a.md.gz": lambda path, texts: path.write_bytes(gzip.compress(as_text(texts))),
    "a.jsonl": lambda path, texts: path.write_bytes(as_lines(texts)),
    "a.json.gz": lambda path, texts: path.write_bytes(gzip.compress(as_lines(texts))),
    "a.jsonl.xz": lambda path, texts: path.write_bytes(lzma.compress(as_lines(texts))),
    "a.jsonl.zst": lambda path, texts: path.write_bytes(zstandard.compress(as_lines(texts))),
    "a.parquet": write_parquet,
    "stream.arrow": write_arrow_stream,
    "file.arrow": write_arrow_file,
}


def texts_of(*paths: Path) -> list[str]:
    return [document.text for document in read_documents(paths)]


@pytest.mark.parametrize("name", WRITERS)
def test_every_kind_of_file_gives_the_same_documents(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    WRITERS[name](path, TEXTS)
    assert texts_of(path) == TEXTS
    (source,) = find_sources([path])
    records = list(read_records(source, "text"))
    assert all(0 < record.num_read <= source.num_bytes for record in records)
    for skip in range(len(TEXTS) + 2):
        assert list(read_records(source, "text", skip)) == records[skip:]


@pytest.mark.parametrize("name", [name for name in WRITERS if name not in ("a.txt", "a.jsonl")])
def test_a_file_cut_short_is_an_error_that_names_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    WRITERS[name](path, TEXTS)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError) as caught:
        texts_of(path)
    assert str(caught.value).startswith(f"{path}: cannot be read to its end (")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.xz", "a.jsonl.zst", "a.parquet", "a.arrow"])
def test_a_file_that_is_something_else_is_an_error_that_names_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"something else altogether, and long enough")
    with pytest.raises(DataError, match=rf"{name}: cannot be read to its end \(.*\); get the file again"):
        texts_of(path)


def test_packed_files_made_of_several_parts_are_read_whole(tmp_path: Path) -> None:
    parts = [as_lines([text]) for text in TEXTS]
    (tmp_path / "a.jsonl.gz").write_bytes(b"".join(map(gzip.compress, parts)))
    (tmp_path / "b.jsonl.xz").write_bytes(b"".join(map(lzma.compress, parts)))
    (tmp_path / "c.jsonl.zst").write_bytes(b"".join(map(zstandard.compress, parts)))
    assert texts_of(tmp_path) == 3 * TEXTS


def test_an_xz_file_that_asks_for_gigabytes_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 1 << 20}]
    packed = bytearray(lzma.compress(b'{"text": "Hi."}\n', filters=filters))
    # The dictionary's size in the header, and the header's checksum behind it.
    place = packed.index(b"\x21\x01\x10", 12) + 2
    packed[place] = 40  # 4 GiB
    packed[20:24] = zlib.crc32(packed[12:20]).to_bytes(4, "little")
    path = tmp_path / "a.jsonl.xz"
    path.write_bytes(packed)
    with pytest.raises(
        DataError, match=r"a\.jsonl\.xz: unpacking it takes more than 256 MiB of memory; pack it with a"
    ):
        list(read_documents([path]))


def test_zeros_may_stand_between_the_streams_of_an_xz_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.xz").write_bytes(
        b"\0\0\0\0".join(lzma.compress(as_lines([text])) for text in "ab") + b"\0" * 8
    )
    assert [document.text for document in read_documents([tmp_path])] == ["a", "b"]


def test_a_large_zstandard_file_is_read_in_pieces(tmp_path: Path) -> None:
    texts = [f"{i} " * 2000 for i in range(800)]
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.compress(as_lines(texts)))
    assert texts_of(tmp_path) == texts


@given(parts=st.lists(st.text(alphabet="ab \n\ré", max_size=8), max_size=4))
def test_separated_texts_come_back(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_bytes(as_text(parts))
    wanted = [part.removesuffix("\r") for part in parts if part.strip()]
    assert texts_of(path) == wanted


def test_text_keeps_its_line_ends_and_loses_its_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert texts_of(path) == ["one\r\ntwo"]
    path.write_bytes(b"")
    assert texts_of(path) == []


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_without_documents_is_counted_once_and_named(tmp_path: Path, name: str) -> None:
    complaints = Complaints()
    WRITERS[name](tmp_path / name, [])
    (source,) = find_sources([tmp_path / name])
    assert list(read_documents([tmp_path / name], complaints=complaints)) == []
    assert complaints.counts == {"empty file": 1}
    assert complaints.first == [f"{tmp_path / name}: empty file"]
    assert list(read_records(source, "text"))[-1].num_read == source.num_bytes


def test_a_folder_is_read_recursively_in_order_without_what_is_hidden(tmp_path: Path) -> None:
    names = ["b/2.txt", "a/1.jsonl", "c.txt", ".git/x.txt", "a/.hidden.txt", "a/notes.csv", "a/state.json"]
    for name in [*names, "a/dataset_info.json", "dataset_dict.json"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        text = json.dumps({"text": name}) if name.endswith(("json", "jsonl")) else name
        (tmp_path / name).write_text(text)
    assert texts_of(tmp_path) == ["a/1.jsonl", "b/2.txt", "c.txt"]
    assert texts_of(tmp_path / "c.txt", tmp_path / "a") == ["c.txt", "a/1.jsonl"]
    documents = list(read_documents([tmp_path / "c.txt"]))
    assert documents == [("c.txt", str(tmp_path / "c.txt"), 1)]


def test_links_are_followed_and_what_cannot_be_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, other = tmp_path / "corpus", tmp_path / "other"
    for folder in (corpus, other):
        folder.mkdir()
        (folder / "a.txt").write_text(folder.name)
    (corpus / "linked").symlink_to(other)
    assert texts_of(corpus) == ["corpus", "other"]
    (other / "back").symlink_to(corpus)
    with pytest.raises(DataError, match=r"linked/back: a link to a folder that it lies in; remove it"):
        find_sources([corpus])
    (other / "back").unlink()
    (corpus / "gone.txt").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"gone\.txt: a link that points at nothing; mend or remove it"):
        find_sources([corpus])
    (corpus / "gone.txt").unlink()
    scan = os.scandir

    def refuse(path: str) -> Any:
        if Path(path).name == "linked":
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(
        DataError, match=r"linked: cannot be read \(Permission denied\); make it readable or remove it"
    ):
        find_sources([corpus])


def test_files_of_other_kinds_are_counted(tmp_path: Path) -> None:
    for name in ("a.txt", "b.csv", "c.csv", "LICENSE", ".hidden.csv", "state.json"):
        (tmp_path / name).write_text("x")
    assert count_skipped([tmp_path, tmp_path / "a.txt"]) == {".csv": 2, "LICENSE": 1}


@given(text=st.text(alphabet="ab \né🙂", max_size=90), longest=st.integers(12, 40))
def test_long_texts_are_cut_and_nothing_is_lost(
    tmp_path_factory: pytest.TempPathFactory, text: str, longest: int
) -> None:
    folder = tmp_path_factory.mktemp("long")
    (folder / "a.txt").write_bytes(text.encode())
    (folder / "b.jsonl").write_bytes(as_lines([text]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "LONGEST_TEXT", longest)
        complaints = Complaints()
        for name in ("a.txt", "b.jsonl"):
            found = list(read_documents([folder / name], complaints=complaints))
            assert "".join("".join(each.text for each in found).split()) == "".join(text.split())
            assert all(len(each.text) <= longest for each in found)
        assert complaints.counts.keys() <= {"empty", "empty file"}


def test_a_line_of_json_without_end_is_counted_and_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "LONGEST_LINE", 1 << 20)
    (tmp_path / "a.jsonl").write_bytes(as_lines(["one", "x" * 3_000_000, "two"]))
    complaints = Complaints()
    assert [each.text for each in read_documents([tmp_path / "a.jsonl"], complaints=complaints)] == ["one", "two"]
    assert complaints.first == [f"{tmp_path / 'a.jsonl'}:2: a line of more than 1 MiB"]


MEASURE = """
import re, sys
from reviser.data.sources import read_documents
print(sum(len(each.text) for each in read_documents([sys.argv[1]])))
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc, which says how much memory was taken")
@pytest.mark.parametrize("name", ["a.txt.zst", "a.jsonl.zst"])
def test_memory_does_not_grow_with_what_a_small_file_unpacks_to(tmp_path: Path, name: str) -> None:
    packer = zstandard.ZstdCompressor().compressobj()
    packed = b"".join(packer.compress(b"[" * (1 << 20)) for _ in range(400)) + packer.flush()
    (tmp_path / name).write_bytes(packed)
    assert len(packed) < 100_000
    command = [sys.executable, "-c", MEASURE, str(tmp_path / name)]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    size, kilobytes = map(int, said.stdout.split())
    assert size == (400 << 20 if "txt" in name else 0)
    assert kilobytes < 350_000


def test_bad_lines_are_counted_and_the_first_few_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    bad = [b"{", b'{"body": "x"}', b"[1]", b'{"text": 7}', b'{"text": null}', b'{"text": " "}', b'{"text": "\xff"}']
    lines = [b'{"text": "good"}', *bad, b'{"text": "\\ud800"}', b"", b"[" * 100_000, b'{"text": "last"}']
    path.write_bytes(b"\n".join(lines))
    complaints = Complaints()
    assert [each.text for each in read_documents([path], complaints=complaints)] == ["good", "last"]
    assert complaints.counts == {
        "not JSON": 2,
        "no field 'text'": 2,
        "field 'text' is int, not text": 1,
        "field 'text' is null, not text": 1,
        "empty": 1,
        "not UTF-8": 1,
        "a lone surrogate, which is not valid Unicode": 1,
    }
    assert complaints.first[:2] == [f"{path}:2: not JSON", f"{path}:3: no field 'text'"]
    assert len(complaints.first) == 5


def test_text_that_is_not_utf8_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"fine\n<|endoftext|>\nline three\nline \xff four\n<|endoftext|>\nlast")
    complaints = Complaints()
    assert [each.text for each in read_documents([path], complaints=complaints)] == ["fine", "last"]
    assert complaints.first == [f"{path}:4: not UTF-8"]


def test_rows_without_text_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    write_arrow_file(path, ["x", "", None])  # type: ignore[list-item]
    complaints = Complaints()
    assert [each.text for each in read_documents([path], complaints=complaints)] == ["x"]
    assert complaints.counts == {"empty": 1, "field 'text' is null, not text": 1}


def test_another_field_can_hold_the_text(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"body": "here"}')
    assert [each.text for each in read_documents([path], field="body")] == ["here"]
    write_parquet(tmp_path / "b.parquet", TEXTS)
    with pytest.raises(DataError, match=r"b\.parquet: no column 'body'; its columns are id, text"):
        list(read_documents([tmp_path / "b.parquet"], field="body"))


def test_paths_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    (tmp_path / "b.parquet.gz").write_text("x")
    with pytest.raises(DataError, match="nowhere: no such file or folder"):
        find_sources([tmp_path / "nowhere"])
    for name in ("a.csv", "b.parquet.gz"):
        with pytest.raises(DataError, match=rf"{name}: cannot read this kind of file; kinds are \.txt"):
            find_sources([tmp_path / name])
    with pytest.raises(DataError, match="this folder holds no text file; kinds are"):
        find_sources([tmp_path])
    with pytest.raises(DataError, match="no files to read; name files or folders"):
        find_sources([])


@pytest.mark.parametrize("name, package", [("a.jsonl.zst", "zstandard"), ("a.parquet", "pyarrow")])
def test_a_missing_package_is_named_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    WRITERS[name](tmp_path / name, TEXTS)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=f"needs the package {package}, .* run: pip install {package}"):
        texts_of(tmp_path)
