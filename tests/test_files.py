"""Whatever a name stands for, writing to it changes its content and nothing else."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from reviser.files import replacing, write_text


def test_an_existing_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("before")
    path.chmod(0o600)
    write_text(path, "after")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("after", 0o600)
    assert [each.name for each in tmp_path.iterdir()] == ["mine.txt"]


def test_a_link_stays_and_what_it_points_at_is_written(tmp_path: Path) -> None:
    link, target = tmp_path / "link", tmp_path / "folder" / "target"
    link.symlink_to(target)
    for text in ("made", "changed"):
        write_text(link, text)
        assert link.is_symlink()
        assert target.read_text() == text


def test_a_pipe_gets_what_is_written_and_stays_a_pipe(tmp_path: Path) -> None:
    path, found = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: found.append(path.read_text()))
    reader.start()
    write_text(path, "through")
    reader.join(10)
    assert found == ["through"]
    assert path.is_fifo()


def test_a_device_is_written_to_and_stays(tmp_path: Path) -> None:
    (tmp_path / "null").symlink_to(os.devnull)
    before = os.stat(os.devnull)
    write_text(tmp_path / "null", "gone")
    assert (os.stat(os.devnull).st_rdev, os.stat(os.devnull).st_ino) == (before.st_rdev, before.st_ino)


def test_a_file_whose_writing_fails_is_as_it_was(tmp_path: Path) -> None:
    write_text(tmp_path / "mine.txt", "before")
    with pytest.raises(TypeError), replacing(tmp_path / "mine.txt") as file:
        file.writelines([b"half", "no bytes"])  # type: ignore[list-item]
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("mine.txt", "before")]


def test_what_a_killed_process_left_is_removed_and_what_another_writes_is_not(tmp_path: Path) -> None:
    target, own = tmp_path / "note.txt", tmp_path / ".note.txt.mine.part"
    left, alive = (tmp_path / f".note.txt.{number}.part" for number in (2_000_000_001, 2_000_000_002))
    for path in (left, alive, own):
        path.write_text("half")
    with alive.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        write_text(target, "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([target.name, alive.name, own.name])


def test_a_killed_writer_leaves_nothing_that_the_next_one_does_not_remove(tmp_path: Path) -> None:
    target = tmp_path / "tokenizer.json"
    code = "import os, sys; from reviser.files import replacing\nwith replacing(sys.argv[1]): os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code, str(target)], check=False).returncode == -signal.SIGKILL
    assert [path.suffix for path in tmp_path.iterdir()] == [".part"]
    write_text(target, "{}")
    assert list(tmp_path.iterdir()) == [target]
