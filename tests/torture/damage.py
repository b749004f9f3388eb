"""Every file format with flipped bytes, cut short, empty, and of another version: an error of one line, or the same
result as before; never a traceback, a hang or another result. A format more is a `Format` more in `FORMATS`."""

from __future__ import annotations

import contextlib
import json
import pickle
import random
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batched import echo_all, write_lines

from reviser.cli import _explain
from reviser.errors import ReviserError
from reviser.files import stamp
from torture.forked import Forked
from torture.trial import TRIALS, Tally, Trial, environment, files_of, hang_s
from torture.world import world

NUM_FLIPS, NUM_CUTS = 200, 50
NUM_COMMANDS = 6
"""Damages of each format that are also given to the real command."""
READ_S = 60
"""A reader that takes longer hangs."""


@dataclass(frozen=True)
class Format:
    """A file, or a file in a folder; `read` gives what must not change, `words` a command that reads it too."""

    name: str
    made: Callable[[], Path]
    """Where a good one is."""
    file: str
    """What is damaged: a path in the folder, a pattern of one, or nothing where the file itself is meant."""
    read: Callable[[Path], Any]
    words: Callable[[Path], list[str]] | None = None
    is_checked: bool = True
    """Whether it carries a checksum; a user's own text and a log do not, and then only errors are looked at."""
    version: Callable[[bytes], bytes] | None = None
    """The same of another version."""
    has_lines: bool = False
    """Whether a shorter file is a good one with fewer lines, as a killed run leaves it and the next one fills it."""


def read_model(folder: Path) -> Any:
    from reviser.model.checkpoint import from_pretrained, read_config, tokenizer_of

    config, model = read_config(folder), from_pretrained(folder)
    tensors = {name: tensor.numpy().tobytes() for name, tensor in model.state_dict().items()}
    return config.model, config.weights, config.trained, tensors, tokenizer_of(folder).sha256


def read_checkpoint(folder: Path) -> Any:
    from reviser.training.runs import Run

    run, settings, data = Run.open(folder)
    saved = run.load()
    parts = [
        {name: tensor.numpy().tobytes() for name, tensor in each.items()} for each in (saved.weights, saved.optimizer)
    ]
    return settings, data, saved.state, parts


def read_newest(folder: Path) -> Any:
    from reviser.model.folder import find

    return read_model(find(folder))


def read_metrics(folder: Path) -> Any:
    from reviser.training.runs import Run

    return Run(folder).metrics


def read_shards(folder: Path) -> Any:
    from reviser.data.shards import Shards

    shards = Shards.open(folder)
    shards.verify()
    documents = [shards[number].tobytes() for number in range(len(shards))]
    return shards.header, documents, shards.tokenizer.sha256


def read_trajectory_file(path: Path) -> Any:
    from reviser.orders.record import read_trajectories

    return list(read_trajectories(path))


def read_generation_file(path: Path) -> Any:
    from reviser.evaluation.generations import read_generations

    return read_generations(path)


def read_judgment_file(path: Path) -> Any:
    from reviser.evaluation.judges.judgments import read_judgments

    return read_judgments(path)


def read_result_file(path: Path) -> Any:
    from reviser.reports.results import read_result
    from reviser.reports.sections import render

    document = read_result(path)
    render(path, document)
    # Without the checksum, or what the name of that field may have become.
    return {name: document.get(name) for name in json.loads(world().result.read_text()) if name != "checksum"}


def read_texts(path: Path) -> Any:
    from reviser.data.sources import read_documents

    return list(read_documents([path]))


def read_error_table(path: Path) -> Any:
    from reviser.mistakes.table_file import load_table

    return pickle.dumps(load_table(path))


def read_batch(folder: Path) -> Any:
    """What the rest of a batch is added to; as often as asked."""
    with tempfile.TemporaryDirectory() as place:
        again = Path(shutil.copytree(folder, Path(place, "again")))
        echo_all(again / "in.jsonl", again / "out.jsonl")
        return files_of(again)


def read_lessons(folder: Path) -> Any:
    from reviser.own_states.lessons import Lessons

    return pickle.dumps(Lessons.load(folder / ROUND))


def packed_model() -> Path:
    from reviser.model.checkpoint import pack_folder

    path = world().root / "packed"
    return path if path.exists() else pack_folder(world().model, path, "int8")


def judgments() -> Path:
    from reviser.evaluation.judges.judgments import Judgment, JudgmentFile

    path = world().root / "judged.jsonl"
    if not path.exists():
        file = JudgmentFile(path, "reader")
        for number in range(6):
            verdict = ("first", "second", "tie")[number % 3]
            file.add(Judgment("ours", "theirs", f"p{number}", 0, verdict, "[[A]]", "reader", f"{number:016x}"))
    return path


def packed_text(packing: str) -> Callable[[], Path]:
    def make() -> Path:
        import gzip
        import lzma

        path = world().root / f"packed.jsonl.{packing}"
        text = world().corpus.read_bytes()[:4000].rpartition(b"\n")[0] + b"\n"
        path.write_bytes(gzip.compress(text, mtime=0) if packing == "gz" else lzma.compress(text))
        return path

    return make


def other_document(data: bytes) -> bytes:
    """A JSON document that says another version of itself, with checksums that fit."""
    document = json.loads(data) | {"version": 99}
    return json.dumps(stamp(document) if "checksum" in document else document).encode()


def other_line(data: bytes) -> bytes:
    first, _, rest = data.partition(b"\n")
    return json.dumps(stamp(json.loads(first) | {"version": 99})).encode() + b"\n" + rest


def generate_words(folder: Path) -> list[str]:
    return ["generate", "The", "--model", str(folder), "--seed", "1", "--max-actions", "6"]


def resume_words(folder: Path) -> list[str]:
    return ["train", "--resume", str(folder), "--device", "cpu"]


def verify_words(folder: Path) -> list[str]:
    return ["data", "info", str(folder), "--verify"]


PART = "out.jsonl.part"
NEWEST, ROUND = "checkpoints/step-00000012", "rollouts/round-0001-step-00000002.npz"
FORMATS = [
    Format("weights", lambda: world().model, "model.safetensors", read_model, generate_words),
    Format("int8 weights", packed_model, "model.safetensors", read_model, generate_words),
    Format("model config", lambda: world().model, "config.json", read_model, generate_words, version=other_document),
    Format("tokenizer", lambda: world().model, "tokenizer.json", read_model, generate_words),
    Format(
        "checkpoint weights", lambda: world().run_folder, f"{NEWEST}/model.safetensors", read_checkpoint, resume_words
    ),
    Format(
        "checkpoint optimizer",
        lambda: world().run_folder,
        f"{NEWEST}/optimizer.safetensors",
        read_checkpoint,
        resume_words,
    ),
    Format("checkpoint state", lambda: world().run_folder, f"{NEWEST}/state.json", read_checkpoint, resume_words),
    Format(
        "checkpoint config",
        lambda: unfinished_run(),
        f"{NEWEST}/config.json",
        read_newest,
        generate_words,
        version=other_document,
    ),
    Format(
        "run settings",
        lambda: world().run_folder,
        "config.json",
        read_checkpoint,
        resume_words,
        version=other_document,
    ),
    Format(
        "run record", lambda: world().run_folder, "run.json", read_checkpoint, resume_words, version=other_document
    ),
    Format("run measurements", lambda: world().run_folder, "metrics.jsonl", read_metrics, resume_words, False),
    Format("data header", lambda: world().data, "data.json", read_shards, verify_words, version=other_document),
    Format("shard", lambda: world().data, "train-00000.bin", read_shards, verify_words),
    Format("index of offsets", lambda: world().data, "train.offsets.npy", read_shards, verify_words),
    Format("index of bytes", lambda: world().data, "train.bytes.npy", read_shards, verify_words),
    Format("data tokenizer", lambda: world().data, "tokenizer.json", read_shards, verify_words),
    Format(
        "trajectories",
        lambda: world().trajectories,
        "",
        read_trajectory_file,
        lambda path: ["trajectory", "show", str(path), "--tokenizer", "bytes"],
        version=other_line,
        has_lines=True,
    ),
    Format(
        "generations",
        lambda: world().generations,
        "",
        read_generation_file,
        lambda path: ["eval", "metrics", str(path)],
        version=other_line,
        has_lines=True,
    ),
    Format(
        "judgments",
        judgments,
        "",
        read_judgment_file,
        lambda path: ["eval", "arena", "--judgments", str(path)],
        version=other_line,
        has_lines=True,
    ),
    Format(
        "result",
        lambda: world().result,
        "",
        read_result_file,
        lambda path: ["report", str(path)],
        version=other_document,
    ),
    Format("pairs", lambda: world().pairs, "", read_texts, None, False),
    Format("gzip text", packed_text("gz"), "", read_texts, has_lines=True),
    Format("xz text", packed_text("xz"), "", read_texts, has_lines=True),
    Format("batch state", lambda: unfinished_batch(), f"{PART}/state.json", read_batch, version=other_document),
    Format("batch answers", lambda: unfinished_batch(), f"{PART}/answers.jsonl", read_batch),
    Format("rollouts", lambda: world().own_run, ROUND, read_lessons),
    Format("error table", lambda: error_table(), "", read_error_table),
]


def unfinished_batch() -> Path:
    """A batch that was interrupted."""
    path = world().root / "batch"
    if not path.exists():
        path.mkdir()
        write_lines(path / "in.jsonl", [{"text": "fail" if number % 5 == 3 else f"{number}"} for number in range(40)])
        with contextlib.suppress(KeyboardInterrupt):
            echo_all(path / "in.jsonl", path / "out.jsonl", stop_after=12)
    return path


def unfinished_run() -> Path:
    """A run whose newest checkpoint stands for its model."""
    path = world().root / "unfinished"
    if not path.exists():
        shutil.copytree(world().run_folder, path)
        shutil.rmtree(path / "model")
    return path


def error_table() -> Path:
    out = world().root / "errors.npz"
    words = ["data", "error-table", world().corpus, "--out", out, "--num-words", "200"]
    return world().made("errors.npz", *words)


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """TimeoutError in what takes longer."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def damages(format: Format, good: bytes, count: int, chance: random.Random) -> Iterator[tuple[str, bytes]]:
    """What is done to a file, in words, and the file afterwards; `count` is the number of flipped bytes."""
    for _ in range(count):
        place, bit = chance.randrange(len(good)), 1 << chance.randrange(8)
        yield f"bit {bit} of byte {place}", good[:place] + bytes([good[place] ^ bit]) + good[place + 1 :]
    for _ in range(max(1, count * NUM_CUTS // NUM_FLIPS)):
        size = chance.randrange(len(good))
        yield f"cut to {size} bytes", good[:size]
    yield "empty", b""
    if format.version is not None:
        yield "another version", format.version(good)


def try_format(format: Format, count: int, chance: random.Random, place: Path) -> Tally:
    tally = Tally()
    copy = world().copy(format.made(), place)
    target = copy / format.file if format.file else copy
    good, wanted = target.read_bytes(), format.read(copy)
    tried = list(damages(format, good, count, chance))
    for how, damaged in tried:
        target.write_bytes(damaged)
        problem, is_named = _read_damaged(format, copy, wanted, how)
        tally.add(problem and f"{format.name}, {how}: {problem}", is_named)
    target.write_bytes(good)
    for how, damaged in chance.sample(tried, min(NUM_COMMANDS, count)) if format.words else []:
        target.write_bytes(damaged)
        given = copy if not format.file or format.words is not resume_words else _fresh(copy, place)
        done = Forked(format.words(given), environment()).finish(hang_s())
        tally.add(done.problem and f"{format.name}, {how}: {done.problem}", done.is_named)
    return tally


def _fresh(copy: Path, place: Path) -> Path:
    """A copy of a damaged run, which a command may go on with."""
    again = place / "again"
    shutil.rmtree(again, ignore_errors=True)
    return Path(shutil.copytree(copy, again))


def _read_damaged(format: Format, copy: Path, wanted: Any, how: str) -> tuple[str | None, bool]:
    """What is wrong with how a damaged file is read, and whether it was named."""
    try:
        with limited(READ_S):
            found = format.read(copy)
    except ReviserError as error:
        is_line = bool(str(error)) and "\n" not in str(error)
        is_right = how != "another version" or re.search(r"\b99\b", str(error))
        return (None if is_line and is_right else f"told badly: {error}"), True
    except TimeoutError:
        return "hangs", False
    except Exception as error:
        # What the command line says in one line: no room on the disk or in memory, no permission, nested too deeply.
        return (None if _explain(error) else f"{type(error).__name__}: {error}"), True
    if how == "another version":
        return "another version is read", False
    if format.has_lines and how.startswith(("cut", "empty")):
        return (None if wanted[: len(found)] == found else "other lines"), False
    return ("another result" if format.is_checked and found != wanted else None), False


for each in FORMATS:
    TRIALS.append(
        Trial(
            "damage",
            each.name,
            each.file or "the file",
            NUM_FLIPS,
            4,
            lambda count, chance, place, each=each: try_format(each, count, chance, place),
        )
    )
