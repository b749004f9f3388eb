"""Files and texts made to harm: nothing in them is run, believed without looking, shown as markup, or obeyed."""

from __future__ import annotations

import gzip
import html.parser
import json
import lzma
import os
import pickle
import random
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from reviser.files import hash_file, stamp
from torture.damage import FORMATS, Format, _read_damaged
from torture.forked import Forked, Ways
from torture.trial import Tally, environment, hang_s, trial
from torture.world import world

MEMORY = {"RLIMIT_AS": 3 << 30}
"""What a process may take beyond what it has when it starts."""
PAYLOAD = "<img src=x onerror=boom><script>boom()</script>\"'--></script><svg/onload=boom>&lt;"
ESCAPES = "\x1b[2J\x1b]0;boom\x07\x9b31m\u202ereversed\u2066\x08\x00\r"


def attempt(tally: Tally, what: str, words: list[Any], out: Path | None = None) -> str:
    """Run a command with little memory; what it said on both streams."""
    ways = Ways(MEMORY, os.devnull if out is None else str(out))
    done = Forked(words, environment(COLUMNS="200"), ways=ways).finish(hang_s())
    tally.add(done.problem and f"{what}: {done.problem}", done.is_named)
    return done.err + (out.read_text("utf-8", "replace") if out is not None and out.exists() else "")


class Boom:
    """Something that makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.marker),)


@trial("hostile", "pickles", "in the place of every binary file", 10, 1)
def pickles(count: int, chance: random.Random, place: Path) -> Tally:
    tally, marker = Tally(), place / "unpickled"
    for _ in range(count):
        bomb = pickle.dumps(Boom(marker), protocol=chance.randint(0, 5))
        for format in FORMATS:
            folder = place / str(tally.tried)
            folder.mkdir()
            copy = world().copy(format.made(), folder)
            (copy / format.file if format.file else copy).write_bytes(bomb)
            problem, is_named = _read_damaged(format, copy, None, "a pickle") if format.is_checked else (None, False)
            tally.add(problem and f"{format.name}: {problem}", is_named)
        for name, data in _pickle_files(bomb, marker, place):
            (place / name).write_bytes(data)
            attempt(tally, name, ["import", str(place / name), str(place / "imported")])
        if marker.exists():
            tally.add("a pickle was executed")
            marker.rmdir()
    return tally


def _pickle_files(bomb: bytes, marker: Path, place: Path) -> Iterator[tuple[str, bytes]]:
    yield "plain.pt", bomb
    with zipfile.ZipFile(place / "zip", "w") as file:
        file.writestr("archive/data.pkl", bomb)
        file.writestr("archive/version", "3")
    yield "zip.pt", (place / "zip").read_bytes()
    np.save(place / "object.npy", np.array([Boom(marker)], object))
    yield "object.npy.pt", (place / "object.npy").read_bytes()


@trial("hostile", "object arrays", "pickles inside of .npy and .npz files", 1)
def object_arrays(count: int, chance: random.Random, place: Path) -> Tally:
    tally, marker = Tally(), place / "unpickled"
    for _ in range(count):
        data = world().copy(world().data, place)
        for split in ("train", "heldout"):
            np.save(data / f"{split}.offsets.npy", np.array([Boom(marker)], object), allow_pickle=True)
            attempt(tally, "offsets", ["data", "info", data, "--verify"])
        table = place / "errors.npz"
        np.savez(table, about=np.array([Boom(marker)], object), word_bytes=np.array([Boom(marker)], object))
        attempt(tally, "error table", ["data", "errors", "Hi there.", "--table", table])
        if marker.exists():
            tally.add("a pickle was executed")
    return tally


@trial("hostile", "bombs", "files that unpack to gigabytes", 1)
def bombs(count: int, chance: random.Random, place: Path) -> Tally:
    tally = Tally()
    for _ in range(count):
        size = 1 << 28
        packed = gzip.compress(b"\0" * size, 9)
        (place / "a.jsonl.gz").write_bytes(packed)
        (place / "b.jsonl.xz").write_bytes(lzma.compress(b"\0" * size))
        (place / "d.json.gz").write_bytes(gzip.compress(b"[" * (1 << 24)))
        for name in ("a.jsonl.gz", "b.jsonl.xz", "d.json.gz"):
            attempt(tally, name, ["data", "prepare", place / name, place / f"out-{name}", "--tokenizer", "bytes"])
        with zipfile.ZipFile(place / "errors.npz", "w", zipfile.ZIP_DEFLATED) as file:
            header = b"\x93NUMPY\x01\x00" + struct.pack("<H", 118)
            text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({1 << 40},), }}".ljust(117) + "\n"
            for name in ("about", "token_bytes", "word_bytes"):
                file.writestr(f"{name}.npy", header + text.encode() + b"\0" * (1 << 24))
        attempt(tally, "npz", ["data", "errors", "Hi there.", "--table", place / "errors.npz"])
        with zipfile.ZipFile(place / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("archive/data.pkl", b"\x80\x02}q\x00." + b"\0" * (1 << 26))
            file.writestr("archive/data/0", b"\0" * (1 << 28))
        attempt(tally, "pt", ["import", place / "bomb.pt", place / "imported"])
    return tally


def nasty_json() -> Iterator[tuple[str, bytes]]:
    """JSON that is valid, or nearly, and that no reader expects."""
    yield "deep lists", b"[" * 100_000 + b"]" * 100_000
    yield "deep objects", b'{"a":' * 50_000 + b"1" + b"}" * 50_000
    yield "deep value", b'{"version": 1, "model": ' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    yield "huge text", json.dumps({"text": "x" * (1 << 25)}).encode()
    yield "huge number", b'{"version": ' + b"9" * 100_000 + b"}"
    yield "infinity", b'{"version": 1e999, "seed": -1e999, "rows": NaN}'
    yield "many keys", json.dumps({f"k{number}": number for number in range(200_000)}).encode()
    yield "lone surrogate", b'{"version": "\\ud800", "text": "\\udfff", "kind": "\\ud800"}'
    yield "nul", b'{"text": "\\u0000", "kind": "a\\u0000b"}'
    yield "not UTF-8", b'{"text": "\xff\xfe"}'
    yield "byte order mark", b"\xef\xbb\xbf{}"
    yield "another encoding", '{"text": "Hi"}'.encode("utf-16")
    for value in (b"null", b"true", b"-0", b'""', b"[]", b"{}", b"[{}]", b"[[]]", b"1e400", b"{}\n{}", b"\n" * 9999):
        yield value[:6].decode(), value
    yield "escapes", json.dumps({"kind": ESCAPES, "format": ESCAPES, ESCAPES: 1}).encode()


def json_formats() -> list[Format]:
    return [each for each in FORMATS if each.file.endswith((".json", ".jsonl")) or "json" in each.made().suffix]


@trial("hostile", "JSON", "deep, huge, or of other types than expected", 1)
def nasty_files(count: int, chance: random.Random, place: Path) -> Tally:
    tally = Tally()
    for number in range(count):
        for format in json_formats():
            folder = place / f"{number} {format.name}"
            folder.mkdir()
            copy = world().copy(format.made(), folder)
            target = copy / format.file if format.file else copy
            for what, data in nasty_json():
                target.write_bytes(data)
                problem, is_named = _read_damaged(format, copy, None, what)
                is_wrong = problem is not None and problem != "another result"
                tally.add(f"{format.name}, {what}: {problem}" if is_wrong else None, is_named)
    return tally


@trial("hostile", "values", "a value of any JSON file replaced by another, checksums made to fit", 2000, 60)
def values(count: int, chance: random.Random, place: Path) -> Tally:
    """A file that somebody changed on purpose may mean something else; it may not end in a traceback."""
    tally, formats = Tally(), json_formats()
    pool = [
        None,
        True,
        -1,
        0,
        1,
        2**31,
        2**63,
        10**400,
        0.5,
        1e308,
        "",
        "x",
        "../../etc/passwd",
        [],
        {},
        [[]],
        ESCAPES,
    ]
    copies = {}
    for _ in range(count):
        format = chance.choice(formats)
        if format.name not in copies:
            folder = place / format.name
            folder.mkdir()
            copies[format.name] = world().copy(format.made(), folder)
        copy = copies[format.name]
        target = copy / format.file if format.file else copy
        good = target.read_bytes()
        try:
            lines = good.split(b"\n") if target.suffix == ".jsonl" else [good]
            document = json.loads(lines[0])
            way, value = _replace(document, chance.choice(pool), chance)
            document.pop("settings_sha256", None)
            lines[0] = json.dumps(stamp(document) if "checksum" in document else document).encode()
            target.write_bytes(b"\n".join(lines))
            problem, is_named = _read_damaged(format, copy, None, "a value")
            is_wrong = problem is not None and problem != "another result"
            tally.add(f"{format.name}, {way} = {value!r}: {problem}"[:300] if is_wrong else None, is_named)
        finally:
            target.write_bytes(good)
    return tally


def _replace(document: Any, value: Any, chance: random.Random) -> tuple[str, Any]:
    place, way = document, []
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = chance.choice(keys)
        way.append(str(key))
        if not isinstance(place[key], dict | list) or not place[key] or chance.random() < 0.2:
            place[key] = value
            return ".".join(way), value
        place = place[key]


@trial("hostile", "headers", "sizes that no file has", 1)
def headers(count: int, chance: random.Random, place: Path) -> Tally:
    tally = Tally()
    for number in range(count):
        folder = place / str(number)
        folder.mkdir()
        model = world().copy(world().model, folder)
        weights, config = model / "model.safetensors", model / "config.json"
        described = json.loads(config.read_text())
        claims = [struct.pack("<Q", size) + b"{}" for size in (1 << 63, 1 << 40, 3, 100_000_000)]
        for shape in ([1 << 60], [1 << 31, 1 << 31], [-1], [0, 1 << 62]):
            text = json.dumps({"embedding.weight": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}})
            claims.append(struct.pack("<Q", len(text)) + text.encode() + b"\0" * 4)
        for data in claims:
            weights.write_bytes(data)
            config.write_text(json.dumps(described | {"weights_sha256": hash_file(weights)}))
            attempt(tally, "safetensors", ["generate", "Hi", "--model", model, "--max-actions", "3"])
        data = world().copy(world().data, folder)
        header = json.loads((data / "data.json").read_text())
        for shape in ("(1152921504606846976,)", "(-5,)", "(1,) * 9", "(10, 10, 10)", "'x'"):
            text = f"{{'descr': '<u8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
            path = data / "train.offsets.npy"
            path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + text.encode() + b"\0" * 64)
            header["splits"]["train"]["offsets_sha256"] = hash_file(path)
            (data / "data.json").write_text(json.dumps(stamp(header)))
            attempt(tally, "npy", ["data", "info", data, "--verify"])
        path.write_bytes(b"\x93NUMPY\x03\x00" + struct.pack("<I", 1 << 31) + b"{" * 1000)
        attempt(tally, "npy", ["data", "info", data, "--verify"])
    return tally


@trial("hostile", "paths", "files that name files elsewhere, links and odd names", 1)
def paths(count: int, chance: random.Random, place: Path) -> Tally:
    tally = Tally()
    for number in range(count):
        folder = place / str(number)
        folder.mkdir()
        outside = folder / "outside.bin"
        data = world().copy(world().data, folder)
        outside.write_bytes((data / "train-00000.bin").read_bytes())
        header = json.loads((data / "data.json").read_text())
        for name in ("../outside.bin", str(outside), "a/../../outside.bin", "..", "", "\0", "x\nerror: y", ESCAPES):
            header["splits"]["train"]["shards"][0]["file"] = name
            (data / "data.json").write_text(json.dumps(stamp(header)))
            said = attempt(tally, f"a shard named {name!r}", ["data", "info", data, "--verify"])
            if "error: " not in said:
                tally.add(f"a shard named {name!r} is read")
        corpus = folder / "corpus"
        corpus.mkdir()
        for name in (b"\xff\xfe.txt", b"a\x1b[2Jb.txt", b"line\nbreak.txt", "\u202e.txt".encode(), b"-n.txt"):
            (corpus / os.fsdecode(name)).write_bytes(b"Some text.\n")
        said = attempt(tally, "odd names", ["data", "prepare", corpus, folder / "odd", "--tokenizer", "bytes"])
        (corpus / "loop").symlink_to(corpus)
        attempt(tally, "a loop", ["data", "prepare", corpus, folder / "loop", "--tokenizer", "bytes"])
        for words in (["generate", "Hi", "--model"], ["trajectory", "check"], ["report"], ["data", "info"], ["info"]):
            said = attempt(tally, "a name that is not there", [*words, f"no/such{ESCAPES.replace(chr(0), '')}"])
            _check_quiet(tally, words[0], said)
    return tally


def _check_quiet(tally: Tally, what: str, said: str) -> None:
    """Count what a terminal would obey as a failure."""
    if found := [each for each in "\x1b\x9b\u202e\u2066\x07\x08\x00" if each in said]:
        tally.add(f"{what}: prints {found!r}")


class Tags(html.parser.HTMLParser):
    """Whether a page has elements that the payload asks for."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.bad: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if any("boom" in (value or "") and name.startswith("on") for name, value in attrs) or tag == "boom":
            self.bad.append(f"<{tag}>")

    def handle_data(self, data: str) -> None:
        if self.lasttag == "script" and data.startswith("boom("):
            self.bad.append("a script")


@trial("hostile", "markup", "in texts, names and results shown in pages", 1)
def markup(count: int, chance: random.Random, place: Path) -> Tally:
    tally = Tally()
    for number in range(count):
        page = place / f"{number}.html"
        made = place / f"{number}.jsonl"
        words = ["generate", PAYLOAD, "--model", world().model, "--seed", "1", "--max-actions", "8", "--html", page]
        attempt(tally, "generate", [*words, "--out", made])
        _check_page(tally, "generate", page)
        attempt(tally, "show", ["trajectory", "show", made, "--tokenizer", "bytes", "--html", page])
        _check_page(tally, "show", page)
        result = json.loads(world().result.read_text())
        for row in result["rows"]:
            row |= {"system": PAYLOAD, PAYLOAD: PAYLOAD}
        for kind in (result["kind"], PAYLOAD, "mauve", "arena", "metrics", "edits", "decode"):
            path = place / "result.json"
            path.write_text(json.dumps(stamp(result | {"kind": kind, "command": PAYLOAD, "texts": PAYLOAD})))
            attempt(tally, f"report of {kind[:9]}", ["report", path, "--html", page, "--markdown", place / "r.md"])
            _check_page(tally, f"report of {kind[:9]}", page)
    return tally


def _check_page(tally: Tally, what: str, page: Path) -> None:
    if not page.exists():
        return
    bad = Tags(page.read_text("utf-8")).bad
    tally.add(f"{what}: the page has {', '.join(bad)}" if bad else None)
    page.unlink()


@trial("hostile", "escapes", "terminal escapes in texts, names and numbers", 1)
def escapes(count: int, chance: random.Random, place: Path) -> Tally:
    tally = Tally()
    for number in range(count):
        out, made = place / f"{number}.txt", place / f"{number}.jsonl"
        text = f"The {ESCAPES.replace(chr(0), '')} sea"
        common = ["--model", world().model, "--seed", "1", "--max-actions", "8"]
        said = attempt(tally, "generate", ["generate", text, *common, "--json", "--out", made], out)
        _check_quiet(tally, "generate --json", said)
        said = attempt(tally, "show", ["trajectory", "show", made, "--tokenizer", "bytes"], place / "shown.txt")
        _check_quiet(tally, "trajectory show", said)
        result = json.loads(world().result.read_text())
        for row in result["rows"]:
            row |= {"system": ESCAPES, ESCAPES: ESCAPES}
        path = place / "result.json"
        path.write_text(json.dumps(stamp(result | {"command": ESCAPES})))
        _check_quiet(tally, "report", attempt(tally, "report", ["report", path], place / "report.txt"))
        folder = place / f"model-{number}"
        folder.mkdir()
        model = world().copy(world().model, folder)
        config = json.loads((model / "config.json").read_text())
        config["notes"] = ESCAPES
        (model / "config.json").write_text(json.dumps(config))
        _check_quiet(tally, "info", attempt(tally, "info", ["info", model], place / "info.txt"))
        _check_quiet(tally, "info", attempt(tally, "info", ["info", model, "--json"], place / "info.json"))
    return tally
