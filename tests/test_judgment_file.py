"""The file of judgments: whatever its lines hold, and whatever the disk does, is judgments or one clear line."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from judged import make_many

from reviser.errors import ConfigError, DataError
from reviser.evaluation.judges.arena import Judgment, JudgmentFile, Pair, hold, open_judgments, read_judgments
from reviser.evaluation.judges.judgments import VERDICTS
from reviser.evaluation.metrics.win_rates import score

GOOD = Judgment("a", "b", "p1", 0, "second", "I find [[B]]", "some judge", "0123456789abcdef")
TYPES = {name: int if name == "seed" else str for name in asdict(GOOD)}
reuse = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["a", "b", *VERDICTS]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def line(record: Any) -> str:
    return json.dumps(record) + "\n"


@reuse
@given(st.dictionaries(st.sampled_from(list(TYPES)), values), st.sets(st.sampled_from(list(TYPES)), max_size=2))
def test_a_line_of_other_values_is_that_judgment_or_names_the_field(
    tmp_path: Path, changes: dict[str, Any], dropped: set[str]
) -> None:
    path = tmp_path / "judgments.jsonl"
    record = {name: value for name, value in (asdict(GOOD) | changes).items() if name not in dropped}
    path.write_text(line(record))
    wrong = [name for name, kind in TYPES.items() if name not in dropped and type(record[name]) is not kind]
    if dropped or wrong:
        with pytest.raises(DataError, match="line 1: not a judgment") as caught:
            read_judgments(path)
        assert any(name in str(caught.value) for name in dropped or wrong)
        assert str(caught.value).isprintable()
    elif record["verdict"] not in VERDICTS or record["first"] == record["second"]:
        with pytest.raises(DataError, match=r"verdict .* is none of|first and second are both"):
            read_judgments(path)
    else:
        assert read_judgments(path) == [Judgment(**record)]
        with suppress(DataError):
            assert score(read_judgments(path))["rows"]


@reuse
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 2), st.binary(max_size=3)), min_size=1, max_size=4))
def test_a_line_of_other_bytes_is_judgments_or_a_data_error(
    tmp_path: Path, edits: list[tuple[int, int, bytes]]
) -> None:
    path, data = tmp_path / "judgments.jsonl", 2 * line(asdict(GOOD)).encode()
    for at, removed, added in edits:
        data = data[:at] + added + data[at + removed :]
    path.write_bytes(data)
    with suppress(DataError):
        score(read_judgments(path))
    with suppress(DataError, ConfigError):
        JudgmentFile(path, GOOD.judge)


@reuse
@given(
    st.builds(Judgment, st.text(), st.text(), st.text(), st.integers(), st.sampled_from(VERDICTS), *3 * [st.text()])
)
def test_what_is_written_is_read_again(tmp_path: Path, judgment: Judgment) -> None:
    judgment = replace(judgment, second=judgment.first + "x")
    path = tmp_path / "judgments.jsonl"
    path.unlink(missing_ok=True)
    JudgmentFile(path, judgment.judge).add(judgment)
    assert read_judgments(path) == [judgment]


@pytest.mark.parametrize(
    "text, reason",
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"first": ' * 100_000, "nested too deeply"),
        (b"\xff", "not UTF-8"),
        (b"1" * 5000, "a number of too many digits"),
        (b"null", "not a JSON object"),
        (b"{", "not JSON: Expecting property name"),
        (line(asdict(GOOD) | {"seed": True}).encode(), "seed True is not an integer"),
        (line(asdict(GOOD) | {"reply": ["\x1b"]}).encode(), r"reply \['\\x1b'\] is not a string"),
        (line(asdict(GOOD) | {"first": "b"}).encode(), "first and second are both 'b'"),
    ],
)
def test_a_bad_line_is_named_with_its_reason(text: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "judgments.jsonl"
    path.write_bytes(line(asdict(GOOD)).encode() + text.removesuffix(b"\n") + b"\n")
    with pytest.raises(DataError, match=rf"line 2: not a judgment \(.*{reason}.*\); remove the line"):
        read_judgments(path)


@pytest.mark.parametrize("text", [b"my notes", b'{"second": 1', b"[" * 100_000])
def test_a_last_line_that_no_run_broke_off_is_refused_and_kept(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(text)
    with pytest.raises(DataError, match="line 1: not a judgment"):
        JudgmentFile(path, "some judge")
    assert path.read_bytes() == text


def test_names_from_a_file_cannot_control_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "judgments.jsonl"
    path.write_text(line(asdict(GOOD) | {"judge": "\x1b[2J"}))
    with pytest.raises(ConfigError, match=r"holds judgments of \\x1b\[2J, not of me"):
        JudgmentFile(path, "me")
    path.write_text(line(asdict(GOOD) | {"judge": "\x1b[2J"}) + line(asdict(GOOD)))
    with pytest.raises(DataError, match=r"judgments of \\x1b\[2J and of some judge; keep each judge's in a separate"):
        read_judgments(path)


@contextmanager
def room_for(num_bytes: int) -> Iterator[None]:
    """A disk on which no file grows beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 1, 50])
def test_a_full_disk_is_one_line_and_leaves_whole_lines(room: int, tmp_path: Path) -> None:
    path = tmp_path / "judgments.jsonl"
    file = JudgmentFile(path, GOOD.judge)
    file.add(GOOD)
    before = path.read_bytes()
    other = replace(GOOD, prompt_id="p2")
    with (
        room_for(len(before) + room),
        pytest.raises(ConfigError, match=r"judgments.jsonl: cannot be written \(File too large\); earlier judgments"),
    ):
        file.add(other)
    assert path.read_bytes() == before
    assert other.key not in file.judgments
    file.add(other)
    assert read_judgments(path) == [GOOD, other]


def test_a_whole_line_without_its_newline_is_kept_or_said_to_need_room(tmp_path: Path) -> None:
    path = tmp_path / "judgments.jsonl"
    path.write_text(line(asdict(GOOD)).rstrip())
    with room_for(len(line(asdict(GOOD))) - 1), pytest.raises(ConfigError, match="cannot be written"):
        JudgmentFile(path, GOOD.judge)
    JudgmentFile(path, GOOD.judge)
    assert path.read_text() == line(asdict(GOOD))


def test_paths_that_cannot_hold_judgments_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be written \(No such file or directory\)"):
        JudgmentFile(tmp_path / "none" / "judgments.jsonl", "me").add(GOOD)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(DataError, match="is not a regular file; give a file that"):
            JudgmentFile(path, "me")
    with pytest.raises(DataError, match=r"cannot be read \(No such file or directory\)"):
        read_judgments(tmp_path / "none")
    with pytest.raises(ConfigError, match=r"cannot be written \(File name too long\)"):
        JudgmentFile(tmp_path / ("x" * 300), "me")


def test_an_opened_file_keeps_other_runs_out_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "judgments.jsonl"
    for _ in range(2):
        with open_judgments(path, GOOD.judge) as file:
            file.add(GOOD)
            with (
                pytest.raises(ConfigError, match="another run writes judgments to it; wait"),
                open_judgments(path, "me"),
            ):
                pass
    assert read_judgments(path) == [GOOD]
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"), open_judgments(tmp_path / "file" / "x", "me"):
        pass


class Interrupted:
    """Judges two pairs, then Ctrl-C is pressed; notes the handler that was in place."""

    name, sha256 = "interrupted", None
    handler: Any = None

    def judge(self, pairs: Iterable[Pair]) -> Iterator[Judgment]:
        for number, pair in enumerate(pairs):
            self.handler = signal.getsignal(signal.SIGINT)
            if number == 2:
                os.kill(os.getpid(), signal.SIGINT)
            yield Judgment.of(pair, "tie", "", self.name)


def test_judging_without_signal_handlers_leaves_ctrl_c_alone(tmp_path: Path) -> None:
    judge, pairs, before = Interrupted(), make_many(5), signal.getsignal(signal.SIGINT)
    file = JudgmentFile(tmp_path / "judgments.jsonl", judge.name)
    with pytest.raises(KeyboardInterrupt):
        hold(judge, pairs, file, handle_signals=False)
    assert judge.handler is before
    assert [each.key for each in read_judgments(file.path)] == [pair.key for pair in pairs[:2]]
    assert not hold(judge, pairs, file)
    assert judge.handler is not before
    assert signal.getsignal(signal.SIGINT) is before
    assert hold(judge, pairs[:2], file, handle_signals=False)
