"""A Ray cluster of two nodes on this machine: the same bytes as one process, whatever dies on the way."""

from __future__ import annotations

import os
import pickle
import random
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from batched import make_model, read_lines, write_lines
from clustered import make_known, make_meeting, make_nothing, make_refusing, make_square
from tiny import write_prose

from reviser.batch.batch_config import BatchConfig, ModelSpec
from reviser.batch.batch_run import run_batch
from reviser.cluster import Actors, connected
from reviser.data.corpus import prepare
from reviser.errors import CheckpointError, ClusterError, ConfigError, DataError, MissingPackageError, ReviserError
from reviser.tokenizer import load

ray = pytest.importorskip("ray", reason="needs ray: pip install 'reviser[ray]'")
from ray.cluster_utils import Cluster as LocalCluster  # noqa: E402, there is none to import from without it

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
LINES = [{"prompt": "ab"[: number % 3] * (number % 7)} for number in range(40)] + [{"prompt": 5}]
CONFIG = BatchConfig("generate", seed=3, max_actions=12, block_lines=4)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # Processes of the cluster import the tests' own helpers, and this checkout.
    root = Path(__file__).parents[1]
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, [root, root / "tests", os.environ.get("PYTHONPATH", "")]))
    nodes = LocalCluster()
    nodes.add_node(num_cpus=2, include_dashboard=False, object_store_memory=100 << 20)
    nodes.add_node(num_cpus=2, object_store_memory=100 << 20)
    try:
        yield nodes.address
    finally:
        nodes.shutdown()


def map_all(address: str, make: Callable[[], Any], items: Any, count: int = 3) -> list[Any]:
    with connected(address) as cluster:
        return list(cluster.map_in_order(make, items, Actors(count)))


def test_results_come_in_order_from_both_nodes(address: str, tmp_path: Path) -> None:
    assert map_all(address, make_square, iter(range(50))) == [number * number for number in range(50)]
    assert map_all(address, make_square, [], 1) == []
    assert len(set(map_all(address, partial(make_meeting, str(tmp_path)), range(8), 4))) == 2


def test_what_a_dead_process_had_is_done_by_another(address: str, tmp_path: Path) -> None:
    assert map_all(address, partial(make_square, str(tmp_path)), range(20)) == [number**2 for number in range(20)]
    assert len(list(tmp_path.iterdir())) == 2


def test_work_that_kills_every_process_is_given_up(address: str, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="3 processes of the cluster died one after the other at the same work"):
        map_all(address, partial(make_square, str(tmp_path), dies=True), range(20))


def test_errors_come_as_they_were_raised(address: str) -> None:
    with pytest.raises(DataError, match=r"^item 0 is bad; give another$"):
        map_all(address, make_refusing, range(1))
    with pytest.raises(ConfigError, match=r"^no worker here; add one$"):
        map_all(address, make_nothing, range(3))
    with pytest.raises(ConfigError, match="-1 actors were asked for"):
        Actors(-1)
    with pytest.raises(ConfigError, match="an actor of 0 cores was asked for"):
        Actors(num_cpus=0)
    with connected(address) as cluster, pytest.raises(ClusterError, match="has 0 GPUs, and an actor takes 1; add"):
        cluster.count_actors(Actors(num_gpus=1))


def test_a_cluster_that_is_not_there_is_named() -> None:
    with pytest.raises(ClusterError, match=r"no Ray cluster at '127.0.0.1:9' .*; start one with `ray start --head`"):
        map_all("127.0.0.1:9", make_square, range(3))
    with pytest.raises(ClusterError, match=r"no Ray cluster at 'here' \(not of the form HOST:PORT\)"):
        map_all("here", make_square, range(3))


def batch(folder: Path, model: Path, **how: Any) -> dict[str, bytes]:
    """All files that a batch leaves."""
    folder.mkdir(exist_ok=True)
    run_batch(
        CONFIG, str(folder.parent / "in.jsonl"), str(folder / "out.jsonl"), ModelSpec(str(model), rows=3), **how
    )
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_one_process_and_four_and_killed_ones_write_the_same_bytes(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(tmp_path)
    write_lines(tmp_path / "in.jsonl", LINES)
    alone = batch(tmp_path / "alone", model)
    assert set(alone) == {"out.jsonl", "out.failures.jsonl"}
    assert len(read_lines(tmp_path / "alone" / "out.jsonl")) == 40
    assert batch(tmp_path / "four", model, ray=address, actors=Actors(4)) == alone
    known = tmp_path / "processes"
    known.mkdir()
    monkeypatch.setattr("reviser.batch.batch_run.make_worker", partial(make_known, known))
    killed: list[int] = []

    def kill(_: object) -> None:
        """One of the processes, at the first report."""
        if not killed:
            killed.append(next(int(path.name) for path in known.iterdir()))
            os.kill(killed[0], signal.SIGKILL)

    assert batch(tmp_path / "killed", model, ray=address, actors=Actors(2), report=kill) == alone
    assert killed
    assert not psutil.pid_exists(killed[0])


def test_a_killed_run_is_resumed_by_another_number_of_processes(address: str, tmp_path: Path) -> None:
    model = make_model(tmp_path)
    write_lines(tmp_path / "in.jsonl", LINES)
    alone = batch(tmp_path / "alone", model)

    def stop(progress: Any) -> None:
        if progress.num_lines >= 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        batch(tmp_path / "two", model, ray=address, actors=Actors(2), report=stop)
    assert (tmp_path / "two" / "out.jsonl.part").is_dir()
    with pytest.raises(KeyboardInterrupt):
        batch(tmp_path / "two", model, report=lambda _: stop(_) if _.num_lines > 20 else None)
    assert batch(tmp_path / "two", model, ray=address, actors=Actors(1)) == alone


def test_another_model_on_a_node_is_noticed(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(tmp_path)
    write_lines(tmp_path / "in.jsonl", LINES)
    monkeypatch.setattr("reviser.batch.batch_run.identify_model", lambda _: {"model.safetensors": "another"})
    with pytest.raises(CheckpointError, match="is not the one that the run began with; give all machines the same"):
        batch(tmp_path / "other", model, ray=address, actors=Actors(1))


def test_a_data_folder_has_the_same_bytes_whoever_tokenizes(address: str, tmp_path: Path) -> None:
    draw = random.Random(1)
    texts = [write_prose(draw) for _ in range(60)]
    write_lines(tmp_path / "in.jsonl", [{"text": text} for text in [*texts, *texts[::3], "new"]] + [b"bad\n"])
    settings = {"holdout": 0.1, "batch_characters": 2000, "shard_tokens": 5000}

    def folder(name: str, **how: Any) -> dict[str, bytes]:
        prepare([tmp_path / "in.jsonl"], tmp_path / name, load("bytes"), **settings, **how)
        return {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}

    alone = folder("alone")
    for workers in (0, 1):
        assert folder(f"ray{workers}", workers=workers, ray=address) == alone

    def stop(progress: Any) -> None:
        if progress.num_documents > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        folder("stopped", ray=address, workers=2, report=stop)
    assert folder("stopped", ray=address, workers=1) == alone


def test_a_missing_package_is_told_from_another_process() -> None:
    error = pickle.loads(pickle.dumps(MissingPackageError("x", "y", "pip install x")))
    assert isinstance(error, ReviserError)
    assert str(error) == "y needs the package x, which is not installed; run: pip install x"
