"""A data folder holds every document once, whatever the order, the workers or the interruptions."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import pickle
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models

from reviser.data.corpus import PrepareProgress, prepare
from reviser.data.shards import Shards, read_header
from reviser.data.stream import Seen
from reviser.errors import ConfigError, DataError
from reviser.files import locked
from reviser.tokenizer import Tokenizer, load

ROOT = Path(__file__).resolve().parent.parent
BYTES = load("bytes")


def make_texts(number: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [
        " ".join(draw.choices(["sea", "boat", "gull", "déjà", "vu."], k=draw.randint(1, 9))) for _ in range(number)
    ]


def write_lines(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def write_pairs(path: Path, number: int) -> Path:
    """Pairs of which every fourth has the source and message of the three before it; two bad lines."""
    befores, afters = make_texts(number, seed=5), make_texts(number, seed=6)
    lines = [
        {"before": befores[i], "after": afters[i], "source": "book", "message": f"fix {i // 4}"}
        for i in range(number)
        if befores[i] != afters[i]
    ]
    bad: list[dict[str, object]] = [{"before": "same", "after": "same"}, {"before": None, "after": "x"}]
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, *bad]))
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Three files with duplicates inside and across them, and two bad lines."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    texts = make_texts(120)
    for number in range(3):
        write_lines(folder / f"{number}.jsonl", texts[number * 35 : number * 35 + 50])
    with open(folder / "1.jsonl", "a") as file:
        file.write("{bad\n")
    with open(folder / "2.jsonl", "a") as file:
        file.write('{"no": "text"}\n')
    return folder


def prepare_small(paths: list[Path], out: Path, **changed: Any) -> Any:
    arguments = {"holdout": 0.2, "shard_tokens": 300, "batch_characters": 150, "checkpoint_s": 0.0} | changed
    return prepare(paths, out, BYTES, **arguments)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def texts_in(folder: Path, split: str) -> list[str]:
    shards = Shards.open(folder, split)
    return [shards.tokenizer.decode(shards[i].tolist()) for i in range(len(shards))]


def unique(corpus: Path) -> list[str]:
    lines = [line for path in sorted(corpus.iterdir()) for line in path.read_text().splitlines()]
    return list(dict.fromkeys(json.loads(line)["text"] for line in lines if line.startswith('{"text"')))


def test_every_document_is_there_once_and_in_order(corpus: Path, tmp_path: Path) -> None:
    header = prepare_small([corpus], tmp_path / "out")
    train, heldout = texts_in(tmp_path / "out", "train"), texts_in(tmp_path / "out", "heldout")
    wanted = unique(corpus)
    assert sorted(train + heldout) == sorted(wanted)
    assert train == [text for text in wanted if text in set(train)]
    assert heldout
    assert header == read_header(tmp_path / "out")
    assert header.num_duplicates == 150 - len(wanted)
    assert header.num_bad == {"not JSON": 1, "no field 'text'": 1}
    assert header.first_bad == (f"{corpus}/1.jsonl:51: not JSON", f"{corpus}/2.jsonl:51: no field 'text'")
    assert len(header.splits["train"].shards) > 2


def test_counts_and_offsets_agree(corpus: Path, tmp_path: Path) -> None:
    header = prepare_small([corpus], tmp_path / "out")
    for split in ("train", "heldout"):
        shards, texts = Shards.open(tmp_path / "out", split), texts_in(tmp_path / "out", split)
        assert shards.num_tokens == sum(len(shards[i]) for i in range(len(shards))) == int(shards.lengths.sum())
        assert [shards.num_bytes(i) for i in range(len(shards))] == [len(text.encode()) for text in texts]
        assert shards.total_bytes == int(shards.byte_counts.sum()) == header.splits[split].num_bytes
        assert not shards[0].flags.writeable
        assert str(shards[0].dtype) == "uint16"
        assert (str(shards.offsets.dtype), str(shards.byte_counts.dtype)) == ("uint64", "uint32")
        shards.verify()
    assert sorted(
        path.suffix for path in (tmp_path / "out").iterdir() if path.suffix not in (".bin", ".npy", "")
    ) == [
        ".json",
        ".json",
    ]


def test_a_document_lands_in_the_same_split_in_any_order(tmp_path: Path) -> None:
    texts = make_texts(80)
    prepare_small([write_lines(tmp_path / "a.jsonl", texts)], tmp_path / "a", holdout=0.3)
    prepare_small([write_lines(tmp_path / "b.jsonl", texts[::-1] + texts)], tmp_path / "b", holdout=0.3)
    for split in ("train", "heldout"):
        assert set(texts_in(tmp_path / "a", split)) == set(texts_in(tmp_path / "b", split))


def test_the_held_out_share_is_about_what_was_asked(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [f"document {i}" for i in range(2000)])
    header = prepare([path], tmp_path / "out", BYTES, holdout=0.1)
    assert 150 < header.splits["heldout"].num_documents < 250


def test_two_workers_write_the_same_bytes(corpus: Path, tmp_path: Path) -> None:
    prepare_small([corpus], tmp_path / "one")
    prepare_small([corpus], tmp_path / "two", workers=2)
    prepare_small([corpus], tmp_path / "large", batch_characters=10**6, checkpoint_s=99.0)
    assert content(tmp_path / "one") == content(tmp_path / "two") == content(tmp_path / "large")


def test_pairs_are_documents_with_a_cut_and_are_held_out_together(tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "pairs.jsonl", 400)
    plain = write_lines(tmp_path / "plain.jsonl", make_texts(30))
    header = prepare_small([path, plain], tmp_path / "out", pair_holdout=0.3, workers=2)
    assert header.num_bad == {"before and after are the same": 1, "field 'before' is null, not text": 1}
    lines = map(json.loads, path.read_text().splitlines())
    wanted = {(line["before"], line["after"]): line["message"] for line in lines if "message" in line}
    groups: dict[str, set[str]] = {}
    for split in ("train", "heldout"):
        shards = Shards.open(tmp_path / "out", split)
        shards.verify()
        assert header.splits[split].num_pairs == int((shards.cuts > 0).sum())
        for i in np.flatnonzero(shards.cuts).tolist():
            ids, cut = shards[i].tolist(), int(shards.cuts[i])
            pair = shards.tokenizer.decode(ids[:cut]), shards.tokenizer.decode(ids[cut:])
            assert shards.num_bytes(i) == sum(len(text.encode()) for text in pair)
            groups.setdefault(wanted.pop(pair), set()).add(split)
    assert not wanted
    assert all(len(splits) == 1 for splits in groups.values())
    share = sum("heldout" in splits for splits in groups.values()) / len(groups)
    assert 0.15 < share < 0.45
    # Without pairs there is no word of them.
    prepare_small([plain], tmp_path / "plain")
    assert "num_pairs" not in (tmp_path / "plain" / "data.json").read_text()
    assert not (tmp_path / "plain" / "train.cuts.npy").exists()


class PowerCut(BaseException):
    """Ends a preparation as a kill would: nothing catches it."""


def cut_after(number: int, error: type[BaseException] = PowerCut) -> Callable[[PrepareProgress], None]:
    left = [number]

    def report(progress: PrepareProgress) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise error

    return report


Cut = tuple[int, float, int]


@pytest.mark.slow
@given(cuts=st.lists(st.tuples(st.integers(1, 40), st.sampled_from([0.0, 99.0]), st.integers(50, 900)), max_size=4))
@settings(max_examples=20)
def test_an_interrupted_preparation_ends_with_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[Cut]
) -> None:
    tmp_path = tmp_path_factory.mktemp("cuts")
    paths = [write_lines(tmp_path / f"{i}.jsonl", [*make_texts(60, seed=i), "the same"]) for i in range(2)]
    paths.insert(1, write_pairs(tmp_path / "pairs.jsonl", 40))
    prepare_small(paths, tmp_path / "whole")
    for number, checkpoint_s, characters in cuts:
        changed = {"checkpoint_s": checkpoint_s, "batch_characters": characters}
        try:
            prepare_small(paths, tmp_path / "cut", report=cut_after(number), **changed)
        except PowerCut:
            with pytest.raises(DataError, match="preparation has not finished; run the same"):
                Shards.open(tmp_path / "cut")
    prepare_small(paths, tmp_path / "cut")
    assert content(tmp_path / "cut") == content(tmp_path / "whole")


PREPARE_SLOWLY = """
import multiprocessing, sys, time
from reviser.data.corpus import prepare
from reviser.tokenizer import load

def report(progress):
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    time.sleep(0.02)

if __name__ == "__main__":
    settings = {"holdout": 0.2, "shard_tokens": 300, "batch_characters": 150, "checkpoint_s": 0.0}
    prepare([sys.argv[1]], sys.argv[2], load("bytes"), workers=2, report=report, **settings)
"""


def test_a_killed_process_takes_its_workers_along_and_is_continued_to_the_same_bytes(
    corpus: Path, tmp_path: Path
) -> None:
    prepare_small([corpus], tmp_path / "whole")
    command = [sys.executable, "-c", PREPARE_SLOWLY, str(corpus), str(tmp_path / "cut")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        workers = [child.stdout.readline().split() for _ in range(9)][-1]
        child.kill()
    assert len(workers) == 2
    wait_until(lambda: not any(is_running(int(worker)) for worker in workers))
    assert json.loads((tmp_path / "cut" / "data.json").read_text())["progress"]["cursor"]["num_hashes"] > 20
    prepare_small([corpus], tmp_path / "cut")
    assert content(tmp_path / "cut") == content(tmp_path / "whole")


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until(is_so: Callable[[], bool], timeout_s: float = 10.0) -> None:
    end = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_ctrl_c_saves_what_was_done(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        prepare_small([corpus], tmp_path / "out", report=cut_after(9, KeyboardInterrupt), checkpoint_s=99.0)
    progress = json.loads((tmp_path / "out" / "data.json").read_text())["progress"]
    assert progress["cursor"]["num_hashes"] > 20


def test_a_finished_folder_is_left_as_it_is(corpus: Path, tmp_path: Path) -> None:
    header = prepare_small([corpus], tmp_path / "out")
    before = content(tmp_path / "out")
    (tmp_path / "out" / "hashes.part").write_bytes(b"left over by a kill behind the last step")
    assert prepare_small([corpus], tmp_path / "out", report=cut_after(1)) == header
    assert content(tmp_path / "out") == before


def test_progress_reaches_the_end_of_the_files(corpus: Path, tmp_path: Path) -> None:
    seen: list[PrepareProgress] = []
    header = prepare_small([corpus], tmp_path / "out", report=seen.append)
    assert [each.num_read for each in seen] == sorted(each.num_read for each in seen)
    assert seen[-1].num_read == seen[-1].num_to_read == sum(path.stat().st_size for path in corpus.iterdir())
    assert seen[-1].num_tokens == sum(split.num_tokens for split in header.splits.values())


@given(batches=st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=12), given=st.sets(st.integers(0, 30)))
def test_seen_finds_the_first_of_equal_hashes(batches: list[list[int]], given: set[int]) -> None:
    seen, known = Seen(np.array(sorted(given), np.uint64)), set(given)
    for batch in batches:
        wanted = [value not in known and value not in batch[:i] for i, value in enumerate(batch)]
        assert seen.add(np.array(batch, np.uint64)).tolist() == wanted
        known.update(batch)


def test_documents_without_tokens_are_counted(tmp_path: Path) -> None:
    inner = tokenizers.Tokenizer(models.BPE(vocab={"</s>": 0, "s": 1, "e": 2, "a": 3}, merges=[]))
    header = prepare([write_lines(tmp_path / "a.jsonl", ["sea", "low"])], tmp_path / "out", Tokenizer(inner.to_str()))
    assert header.splits["train"].num_documents == 1
    assert header.num_bad == {"no tokens": 1}
    path, tokenizer = write_lines(tmp_path / "b.jsonl", ["low"]), Tokenizer(inner.to_str())
    refuses("the tokenizer gives no token for any of them", lambda: prepare([path], tmp_path / "none", tokenizer))


def test_empty_files_are_counted_and_named(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name, text in {"a.txt": "", "b.txt": "sea", "c.md": " \n\n", "d.jsonl": "\n", "e.jsonl": "{bad"}.items():
        (folder / name).write_text(text)
    header = prepare_small([folder], tmp_path / "out", holdout=0.0)
    assert header.num_bad == {"empty file": 3, "not JSON": 1}
    named = [f"{folder}/a.txt: empty file", f"{folder}/c.md: empty file", f"{folder}/d.jsonl: empty file"]
    assert header.first_bad == (*named, f"{folder}/e.jsonl:1: not JSON")
    for number in range(1, 4):
        with contextlib.suppress(PowerCut):
            prepare_small([folder], tmp_path / "cut", holdout=0.0, batch_characters=1, report=cut_after(number))
    assert prepare_small([folder], tmp_path / "cut", holdout=0.0) == header


def test_large_vocabularies_take_four_bytes_a_token(tmp_path: Path) -> None:
    parts = json.loads(BYTES.serialised)
    parts["model"]["vocab"] |= {f"extra{i}": i for i in range(257, 65_540)}
    tokenizer = Tokenizer(json.dumps(parts))
    prepare([write_lines(tmp_path / "a.jsonl", ["sea"])], tmp_path / "out", tokenizer)
    shards = Shards.open(tmp_path / "out")
    assert (str(shards[0].dtype), shards[0].tolist()) == ("uint32", [115, 101, 97])


def test_shards_travel_to_another_process_as_their_folder(corpus: Path, tmp_path: Path) -> None:
    prepare_small([corpus], tmp_path / "out")
    shards = Shards.open(tmp_path / "out")
    packed = pickle.dumps(shards)
    assert len(packed) < 500
    assert pickle.loads(packed)[3].tolist() == shards[3].tolist()


def test_gathered_stretches_are_the_documents_own_tokens(corpus: Path, tmp_path: Path) -> None:
    prepare_small([corpus], tmp_path / "out")
    shards, generator = Shards.open(tmp_path / "out"), np.random.default_rng(3)
    documents = generator.integers(0, len(shards), 40)
    starts = generator.integers(0, shards.lengths[documents])
    sizes = generator.integers(0, shards.lengths[documents] - starts + 1)
    wanted = np.concatenate([shards[int(d)][s : s + n] for d, s, n in zip(documents, starts, sizes, strict=True)])
    assert shards.gather(documents, starts, sizes).tolist() == wanted.tolist()
    assert len(shards.header.splits["train"].shards) > 1


def refuses(text: str, function: Callable[[], object]) -> None:
    with pytest.raises(DataError, match=text) as caught:
        function()
    assert "\n" not in str(caught.value)


def test_other_settings_or_inputs_are_refused(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for is_finished in (False, True):
        if is_finished:
            prepare_small([corpus], out)
        else:
            with pytest.raises(PowerCut):
                prepare_small([corpus], out, report=cut_after(5))
        refuses("started with holdout 0.2, now 0.1; repeat", lambda: prepare_small([corpus], out, holdout=0.1))
        refuses("started with field text, now body", lambda: prepare_small([corpus], out, field="body"))
        refuses("started with 3 files, now 1", lambda: prepare_small([corpus / "1.jsonl"], out))
        before = (corpus / "2.jsonl").read_bytes()
        (corpus / "2.jsonl").write_bytes(before.replace(b"sea", b"SEA"))
        refuses(r"2\.jsonl has changed since this folder was started", lambda: prepare_small([corpus], out))
        (corpus / "2.jsonl").write_bytes(before)


def test_unfit_output_folders_are_refused(corpus: Path, tmp_path: Path) -> None:
    refuses("lies inside .*corpus, one of the inputs", lambda: prepare_small([corpus], corpus / "out"))
    (tmp_path / "file").write_text("mine")
    refuses("file: is a file, but the output is a folder", lambda: prepare_small([corpus], tmp_path / "file"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    refuses("full: not empty and not a data folder", lambda: prepare_small([corpus], tmp_path / "full"))
    (tmp_path / "locked").mkdir()
    with locked(tmp_path / "locked"):
        refuses("another process is preparing this folder", lambda: prepare_small([corpus], tmp_path / "locked"))


@pytest.mark.parametrize("holdout", [0.2, 0.0])
def test_an_output_that_cannot_be_written_can_be_resumed(corpus: Path, tmp_path: Path, holdout: float) -> None:
    obstacle = tmp_path / "out" / "heldout.bytes.npy"

    def put_in_the_way(progress: PrepareProgress) -> None:
        obstacle.mkdir(exist_ok=True)

    with pytest.raises(DataError, match=r"out: cannot be written \(Is a directory\); fix that and run the same"):
        prepare_small([corpus], tmp_path / "out", report=put_in_the_way, holdout=holdout)
    obstacle.rmdir()
    prepare_small([corpus], tmp_path / "out", holdout=holdout)
    prepare_small([corpus], tmp_path / "whole", holdout=holdout)
    assert content(tmp_path / "out") == content(tmp_path / "whole")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no /proc/self/mem, a file that cannot be read")
def test_an_input_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").symlink_to("/proc/self/mem")
    with pytest.raises(DataError, match=r"a\.txt: cannot be read \(Input/output error\); check the file"):
        prepare_small([tmp_path / "a.txt"], tmp_path / "out")


def test_files_lost_since_the_checkpoint_are_named(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(PowerCut):
        prepare_small([corpus], tmp_path / "out", report=cut_after(5))
    (tmp_path / "out" / "hashes.part").write_bytes(b"")
    refuses(r"hashes\.part: 0 bytes, but \d+ were written; delete", lambda: prepare_small([corpus], tmp_path / "out"))


def test_files_without_any_document_leave_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(" ")
    wanted = rf"no document in the input \(1 files\); {tmp_path}/a\.txt: empty file"
    refuses(wanted, lambda: prepare_small([tmp_path / "a.txt"], tmp_path / "out"))
    (tmp_path / "a.jsonl").write_text("{")
    refuses(r"a\.jsonl:1: not JSON", lambda: prepare_small([tmp_path / "a.jsonl"], tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_dead_worker_is_explained_and_the_work_goes_on(corpus: Path, tmp_path: Path) -> None:
    def kill_workers(progress: PrepareProgress) -> None:
        for child in multiprocessing.active_children():
            child.kill()

    changed = {"workers": 2, "report": kill_workers}
    refuses("a worker process died, .* fewer --workers", lambda: prepare_small([corpus], tmp_path / "out", **changed))
    prepare_small([corpus], tmp_path / "out")
    prepare_small([corpus], tmp_path / "whole")
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_impossible_settings_are_refused(corpus: Path, tmp_path: Path) -> None:
    for share in (-0.1, 1.0, float("nan")):
        with pytest.raises(ConfigError, match=f"holdout is {share}; it must be a share from 0 to below 1"):
            prepare_small([corpus], tmp_path / "out", holdout=share)
    with pytest.raises(ConfigError, match="workers is 0; it must be at least 1"):
        prepare_small([corpus], tmp_path / "out", workers=0)


def test_opening_names_what_is_wrong(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    refuses("out: not a data folder: it has no data.json", lambda: Shards.open(out))
    prepare_small([corpus], out, holdout=0.0)
    refuses("no split 'test'; splits are train, heldout", lambda: Shards.open(out, "test"))
    refuses("out: no document in split heldout", lambda: Shards.open(out, "heldout"))
    with pytest.raises(IndexError, match=r"document -1 of \d+"):
        Shards.open(out)[-1]
    good = (out / "data.json").read_text()
    damages = {
        "{": r"data\.json: damaged \(",
        "{}": r"data\.json: not the header of a data folder",
        good.replace('"version": 1', '"version": 9'): "version 9, but this program reads version 1",
        good.replace('"num_bytes": ', '"num_bytes": 1', 1): r"data\.json: damaged, its checksum is not that of",
        re.sub(r',\s*"checksum": "\w+"', "", good.replace('"num_duplicates"', '"number"')): (
            r"data\.json: damaged \(setting num_duplicates is missing\)"
        ),
    }
    for damaged, text in damages.items():
        (out / "data.json").write_text(damaged)
        refuses(text, lambda: Shards.open(out))


def damage(path: Path, start: int = -4) -> None:
    data = bytearray(path.read_bytes())
    data[start] ^= 1
    path.write_bytes(data)


def test_damaged_files_are_named(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare_small([corpus], out)
    good = content(out)
    for name in ("train-00001.bin", "train.offsets.npy", "train.bytes.npy"):
        damage(out / name)
        why = "damaged, its sha256 is not [0-9a-f]{64}|the shards do not begin where it says"
        refuses(f"{name}: ({why})", lambda: Shards.open(out).verify())
        (out / name).write_bytes(good[name][:-4])
        refuses(name + ": (missing or damaged|.* bytes, but)", lambda: Shards.open(out))
        (out / name).unlink()
        refuses(name + ": (missing or damaged|0 bytes, but)", lambda: Shards.open(out))
        (out / name).write_bytes(good[name])
    np.save(out / "train.bytes.npy", np.zeros(3, np.uint32))
    refuses(r"train\.bytes\.npy: holds 3 numbers, not \d+", lambda: Shards.open(out))


def test_another_tokenizer_in_the_folder_is_noticed(corpus: Path, tmp_path: Path) -> None:
    prepare_small([corpus], tmp_path / "out")
    parts = json.loads(BYTES.serialised)
    parts["model"]["vocab"] |= {"extra": 257}
    Tokenizer(json.dumps(parts)).save(tmp_path / "out")
    shards = Shards.open(tmp_path / "out")
    refuses(r"tokenizer\.json: not the tokenizer that made the ids", lambda: shards.tokenizer)
    refuses(r"tokenizer\.json: not the tokenizer that made the ids", shards.verify)
    (tmp_path / "out" / "tokenizer.json").write_text("{")
    refuses(r"tokenizer\.json: not a tokenizer\.json: .*; prepare the folder again", lambda: shards.tokenizer)
