"""What docs/trajectories.md shows is what the program does."""

import io
import re
import shlex
from pathlib import Path

from reviser.cli import main
from reviser.orders.record import from_record, parse_record
from reviser.orders.registry import ORDERS
from reviser.plugins import VARIABLE

PAGE = (Path(__file__).parents[1] / "docs" / "trajectories.md").read_text("utf8")


def run(capsys, line):
    assert main(shlex.split(line)[1:]) == 0
    return capsys.readouterr().out


def test_the_drawn_example_is_drawn_so(capsys, monkeypatch):
    block = re.search(r"```\n\$ (reviser trajectory make .*?)\\\n(.*?) \| (.*?)\n(.*?)```", PAGE, re.S)
    made = run(capsys, block[1] + block[2])
    monkeypatch.setattr("sys.stdin", io.StringIO(made))
    assert run(capsys, block[3]) == block[4]


def test_the_line_of_a_file_is_made_so(capsys):
    command, line = re.search(r"`(reviser trajectory make [^`]*)`:\n\n```json\n(.*?)```", PAGE, re.S).groups()
    assert run(capsys, command) == line


def test_the_python_in_the_page_gives_what_it_says():
    first, third, second = (
        block for block in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "register" not in block
    )
    names = {}
    exec(first, names)
    assert (names["canvas"].tokens, names["canvas"].cursor) == ((72, 105, 33), 3)
    assert f"'{names['describe_valid'](names['canvas'], names['rules'])}'" in first
    exec(third, names)
    draft, record, final = names["draft"], names["record"], names["edited"].final
    assert f"# {draft.canvas.open_boundaries()}, {draft.cursor}\n" in third
    assert f"# {bytes(final.tokens)}\n" in third
    assert f"# {record['draft_actions']}, {record['fixed']}, {record['closed']}\n" in third
    assert from_record(record) == names["edited"]
    exec(second, names)
    drawn = names["drawn"]
    assert f"# {drawn.actions}, {drawn.log_q:.6}"[:-1] in second
    assert f"..., {drawn.final.tokens}" in second


def test_the_order_of_ones_own_can_be_drawn(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setattr(ORDERS, "_entries", dict(ORDERS._entries))
    (plugin,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "register" in block)
    path = tmp_path / "mine.py"
    path.write_text(plugin, "utf8")
    line = re.search(r"^(reviser --plugin mine.py .*?) \| (.*?)$", PAGE, re.M)
    made = run(capsys, line[1].replace("mine.py", str(path)))
    monkeypatch.setattr("sys.stdin", io.StringIO(made))
    shown = run(capsys, line[2]).splitlines()
    assert shown[-1] == "Hello there."
    assert shown[1].endswith("[.]|")
    assert "order right-to-left, log q 0" in shown[-2]
    drawn = from_record(parse_record(made))
    assert ORDERS["right-to-left"]().log_q(drawn) == 0.0
