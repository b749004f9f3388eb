"""Order, metric and judge of docs/extending.md work as the page says (the canvas input: test_canvas_kinds.py)."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged import arena_command, write
from test_docs_python import blocks
from tiny import make_trainer

import reviser
from reviser.actions import Alphabet
from reviser.canvas import Rules
from reviser.cli import main
from reviser.evaluation.judges.pairs import Pair
from reviser.orders.policies import Order
from reviser.orders.record import Draft, Trajectory
from reviser.orders.registry import parse_order
from reviser.orders.rng import Random

RULES = Rules(Alphabet(num_text=257, pad=256), max_length=64)


@pytest.fixture(scope="module", autouse=True)
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("plugins")
    order, metric, judge, _ = blocks("extending.md")
    made = {"pieces": order, "ends": metric, "words": judge}
    for name, text in made.items():
        (folder / f"{name}.py").write_text(text, "utf-8")
        reviser.load_plugin(folder / f"{name}.py")
    return {name: folder / f"{name}.py" for name in made}


def test_every_example_is_short() -> None:
    assert all(block.count("\n") < 60 for block in blocks("extending.md"))


@given(st.binary(max_size=14), st.integers(1, 5), st.integers(0, 1 << 30), st.binary(max_size=3))
def test_the_order_writes_its_target_and_knows_its_probability(
    target: bytes, size: int, number: int, prefix: bytes
) -> None:
    order: Order = parse_order(f"pieces:size={size}")
    drawn = order.draw(Draft.continuation(prefix, RULES), [*prefix, *target], Random.of(number))
    assert drawn.final.tokens == (*prefix, *target)
    assert order.log_q(drawn) == drawn.log_q == pytest.approx(-math.lgamma(-(-len(target) // size) + 1))


def test_the_orders_probabilities_sum_to_one_and_no_other_trajectory_has_any() -> None:
    order, draft = parse_order("pieces:size=2"), Draft.continuation((), RULES)
    found: set[tuple[int, ...]] = {order.draw(draft, b"abcde", Random.of(i)).actions for i in range(300)}
    scores = [order.log_q(Trajectory(draft, actions, (True,) * len(actions))) for actions in found]
    assert len(found) == 6
    assert sum(map(math.exp, scores)) == pytest.approx(1)
    alphabet = RULES.alphabet
    other = (98, alphabet.move(-1), 97, alphabet.stop)
    assert order.log_q(Trajectory(draft, other, (True,) * 4)) == -math.inf


def test_the_order_trains_by_name(data: Path) -> None:
    trainer = make_trainer(data, "data.order=pieces:size=4", "train.steps=2", "train.eval_every=2")
    bounds = trainer.train()
    assert math.isfinite(bounds["continue"].nats_per_token)


def test_the_metric_is_known_to_commands_reports_and_python(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [" It rained.", " and then"]
    made = [
        reviser.Generation("ours", f"p{i}", 0, "So", text, "", " it goes!", True, 2, 2)
        for i, text in enumerate(texts)
    ]
    file, out = tmp_path / "made.jsonl", tmp_path / "ends.json"
    file.write_text("".join(json.dumps(asdict(each)) + "\n" for each in made))
    words = f"--plugin {files['ends']} eval metrics {file} --metric ends --metric diversity".split()
    assert main([*words, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "end with a full stop" in shown
    assert "distinct-2" in shown
    assert main(["report", str(out)]) == 0
    assert "end with a full stop" in capsys.readouterr().out
    results = reviser.evaluate({"theirs": file}, metrics=["ends"])
    assert results.value("metrics", "theirs", "whole_share")["value"] == 0.5
    assert results.value("metrics", "(reference)", "whole_share")["value"] == 1.0


def test_the_judge_compares_systems_in_the_arena(files: dict[str, Path], tmp_path: Path) -> None:
    pairs = [Pair(write("a", p, " an enormous harbour"), write("b", p, " a big bay")) for p in range(3)]
    command = arena_command(tmp_path, pairs, "--judge", "long-words", "--json")
    assert main(["--plugin", str(files["words"]), *command]) == 0
    lines = (tmp_path / "judgments.jsonl").read_text().splitlines()
    assert {json.loads(line)["judge"] for line in lines} == {"registered long-words"}
    winners = {json.loads(line)[json.loads(line)["verdict"]] for line in lines}
    assert winners == {"a"}


def test_a_metric_that_gives_something_else_is_one_line() -> None:
    reviser.register_metric("odd", lambda texts: {"x": "much"})  # type: ignore[dict-item, return-value]
    prompts = ["Once", "Twice"]

    class Echo:
        def generate(self, prompts: list[reviser.Prompt], seed: int) -> list[str]:
            return [prompt.prefix for prompt in prompts]

    with pytest.raises(reviser.ReviserError, match="metric odd gives x as str; give a finite number"):
        reviser.evaluate({"echo": Echo()}, prompts, metrics=["odd"])
    with pytest.raises(reviser.ReviserError, match=r"no metric 'od'; metrics are diversity, .*did you mean odd"):
        reviser.evaluate({"echo": Echo()}, prompts, metrics=["od"])
    with pytest.raises(reviser.ReviserError, match="there is already a metric 'odd'; give this one another name"):
        reviser.register_metric("odd", len)  # type: ignore[arg-type]


def test_pieces_of_a_permutation_are_all_drawn() -> None:
    order, draft = parse_order("pieces:size=1"), Draft.continuation((), RULES)
    wanted = len(list(itertools.permutations(range(3))))
    assert len({order.draw(draft, b"xyz", Random.of(i)).actions for i in range(200)}) == wanted
