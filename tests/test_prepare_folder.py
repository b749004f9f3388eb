"""The output folder of `data prepare`: what a kill leaves is resumed, and what is not its own is left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from reviser.data.corpus import prepare
from reviser.data.shards import read_header
from reviser.errors import DataError
from reviser.files import hash_file, stamp
from reviser.tokenizer import load

BYTES = load("bytes")


def make_source(folder: Path, name: str | bytes = "a.txt", text: str = "Some text.") -> Path:
    path = Path(os.fsdecode(os.path.join(os.fsencode(folder), os.fsencode(name))))
    path.write_text(text)
    return path


def test_a_process_killed_before_its_first_file_is_resumed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / ".lock").touch()
    (out / ".data.json.4711.part").write_text('{"format": ')
    header = prepare([make_source(tmp_path)], out, BYTES, holdout=0.0)
    assert header.splits["train"].num_documents == 1
    assert not list(out.glob("*.part"))


def test_a_name_that_is_not_utf8_is_kept(tmp_path: Path) -> None:
    try:
        source = make_source(tmp_path, b"caf\xe9.txt")
    except OSError:
        pytest.skip("this file system takes no such name")
    header = prepare([source], tmp_path / "out", BYTES, holdout=0.0)
    assert prepare([source], tmp_path / "out", BYTES, holdout=0.0) == header
    assert read_header(tmp_path / "out").inputs[0].path == str(source)


def test_files_of_others_are_never_deleted(tmp_path: Path) -> None:
    out, source = tmp_path / "out", make_source(tmp_path)
    prepare([source], out, BYTES, holdout=0.0)
    others = {name: out / name for name in ("notes.txt", "thesis.part", "train-final.bin", "model.npy")}
    for path in others.values():
        path.write_text("mine")
    header = json.loads((out / "data.json").read_text())
    progress = {"cursor": {"source": 0, "record": 0, "complaints": {}}, "num_tokenless": 0, "splits": {}}
    begun = header | {"complete": False, "progress": progress}
    (out / "data.json").write_text(json.dumps(stamp(begun)))
    prepare([source], out, BYTES, holdout=0.0)
    assert all(path.read_text() == "mine" for path in others.values())
    # And where the input holds no document, so that the folder is taken back.
    empty = make_source(tmp_path, "empty.jsonl", "{\n")
    inputs = [{"path": str(empty), "num_bytes": 2, "sha256": hash_file(empty)}]
    (out / "data.json").write_text(json.dumps(stamp(begun | {"inputs": inputs})))
    with pytest.raises(DataError, match="no document in the input"):
        prepare([empty], out, BYTES, holdout=0.0)
    assert sorted(path.name for path in out.iterdir()) == sorted(others)


WORK_FOREVER = """
import sys, time
import reviser.data.stream

def encode(tokenizer, texts):
    print("ready", flush=True)
    time.sleep(600)

reviser.data.stream.encode_texts = encode  # in the workers too, which import this file
if __name__ == "__main__":
    from reviser.cli import main

    sys.exit(main(["data", "prepare", sys.argv[1], sys.argv[2], "--tokenizer", "bytes", "--workers", "2"]))
"""


def test_ctrl_c_does_not_wait_for_workers_however_often_it_comes(tmp_path: Path) -> None:
    (tmp_path / "forever.py").write_text(WORK_FOREVER)
    words = [sys.executable, str(tmp_path / "forever.py"), str(make_source(tmp_path)), str(tmp_path / "out")]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            for _ in range(4):
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGINT)
                time.sleep(0.03)
            _, said = child.communicate(timeout=30)  # and so have its workers, who hold the same pipes
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    # A signal that comes while Python leaves ends it by that signal, which a shell counts as 130 too.
    assert child.returncode in (130, -signal.SIGINT)
    assert said == "stopped; run the same command again to resume\n"
