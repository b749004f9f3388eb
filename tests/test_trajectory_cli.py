"""The trajectory commands as a user runs them."""

import io
import json
import subprocess
import sys

import pytest
import scramble  # noqa: F401 - registers an order that uses every operator
from rich.cells import cell_len

from reviser import plugins
from reviser.actions import OPERATORS
from reviser.canvas import Rules, protect
from reviser.cli import build_parser, main
from reviser.files import stamp
from reviser.orders.record import Draft, Trajectory, dump_records, to_record
from reviser.orders.registry import ORDERS
from reviser.tokenizer import load
from reviser.viewer.terminal import make_console, visible

TEXT = "The quick brown fox jumps over the lazy dog."


def run(capsys, *argv):
    code = main(list(argv))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def made(capsys, tmp_path):
    code, out, _ = run(capsys, "trajectory", "make", TEXT, "--seed", "3", "--count", "3", "--tokenizer", "bytes")
    assert code == 0
    path = tmp_path / "made.jsonl"
    path.write_text(out, "utf8")
    return path


def test_make_is_reproducible_and_replays(capsys, made):
    again = run(capsys, "trajectory", "make", TEXT, "--seed", "3", "--count", "3", "--tokenizer", "bytes")[1]
    assert again == made.read_text("utf8")
    assert run(capsys, "trajectory", "check", str(made)) == (0, "3 trajectories replay\n", "")


def test_make_reads_a_file_and_protects_what_is_given(capsys, tmp_path):
    source = tmp_path / "text.txt"
    source.write_text(TEXT, "utf8")
    code, out, _ = run(
        capsys,
        "trajectory",
        "make",
        str(source),
        "--prefix",
        "3",
        "--suffix",
        "2",
        "--order",
        "scramble",
        "--operators",
        ",".join(OPERATORS),
        "--json",
    )
    [record] = json.loads(out)
    assert code == 0
    # Three tokens before the gap and two behind it, on a draft of five; the gap alone is open.
    assert (record["text"], record["fixed"], record["closed"]) == (TEXT, [0, 1, 2, 3, 4], [0, 1, 2, 4, 5])
    assert set(record["operators"]) > {"move", "delete", "paste"}


def test_show_prints_every_canvas_readably_without_colour(capsys, made):
    code, out, _ = run(capsys, "trajectory", "show", str(made), "--index", "1", "--width", "90")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].split() == ["0", "draft", "|"]
    assert lines[-1] == TEXT
    assert all(len(line) <= 90 for line in lines)
    assert "[" in lines[1]
    assert "\x1b" not in out


OLD = {"num_text": 257, "pad": 256, "max_length": 64, "operators": ["move"], "log_q": None, "tokenizer": "bytes",
       "actions": [99, 261 + 1, 100, 260]}  # fmt: skip
"""What version 0.1 wrote, but for the draft: INSERT c, MOVE -1, INSERT d, STOP."""


@pytest.mark.parametrize("name", ["seed_actions", "draft_actions"])
def test_files_of_the_first_version_load_and_show(capsys, tmp_path, name):
    path, page = tmp_path / "old.jsonl", tmp_path / "old.html"
    # ab|yz: both ends are protected, the cursor stands in the gap.
    path.write_text(json.dumps(OLD | {name: [*b"abyz", 257 + 7], "prefix": 2, "suffix": 2}), "utf8")
    assert run(capsys, "trajectory", "check", str(path)) == (0, "1 trajectory replays\n", "")
    code, out, _ = run(capsys, "trajectory", "show", str(path), "--tokenizer", "bytes", "--width", "60")
    assert code == 0
    assert [line.split()[-1] for line in out.splitlines()[:5]] == [
        "{ab}|{yz}", "{ab}[c]|{yz}", "{ab}|c{yz}", "{ab}[d]|c{yz}", "{ab}d|c{yz}",
    ]  # fmt: skip
    assert out.splitlines()[5:] == ["4 actions for 2 tokens", "abdcyz"]
    assert run(capsys, "trajectory", "show", str(path), "--tokenizer", "bytes", "--html", str(page))[0] == 0
    assert '"draft":[97,98,121,122],"cursor":2,"marks":[2,3,1,3,3]' in page.read_text("utf8")
    code, out, _ = run(capsys, "trajectory", "stats", str(path), "--json")
    assert (code, json.loads(out)["non_end_append_fraction"], json.loads(out)["mean_tokens"]) == (0, 0.5, 2.0)
    path.write_text(json.dumps(OLD | {name: [*b"ab"], "prefix": 2, "suffix": 2}), "utf8")
    assert (
        "a protected prefix of 2 and suffix of 2 on a draft of 2" in run(capsys, "trajectory", "check", str(path))[1]
    )


def test_show_names_jumps_marks_where_they_came_from_and_braces_protected_spans(capsys, tmp_path):
    tokenizer, path = load("bytes"), tmp_path / "jumps.jsonl"
    jump, rules = tokenizer.alphabet.jump, Rules(tokenizer.alphabet, frozenset(OPERATORS))
    draft = Draft.edit(b"one two three", rules, protect(13, [(0, 3), (8, 13)], ends=[0]))
    actions = (jump(4), 45, jump(8), jump(14), tokenizer.alphabet.stop)
    trajectory = Trajectory(draft, actions, (True,) * len(actions))
    path.write_text(dump_records([to_record(trajectory, tokenizer={"name": "bytes"})]), "utf8")
    code, out, _ = run(capsys, "trajectory", "show", str(path), "--width", "80")
    assert (code, out.splitlines()[:6]) == (0, [
        "    0  draft               {one} two {three}|",
        '    1  JUMP 4 after " "    {one} |two {three}¦',
        '    2  INSERT "-"          {one} [-]|two {three}',
        '    3  JUMP 8 after "o"    {one} -¦two| {three}',
        "    4  JUMP 14 to the end  {one} -two¦ {three}|",
        "    5  STOP                {one} -two {three}|",
    ])  # fmt: skip
    record = json.loads(path.read_text("utf8"))
    assert (record["fixed"], record["closed"]) == ([0, 1, 2, 8, 9, 10, 11, 12], [0, 1, 2, 9, 10, 11, 12])
    code, out, _ = run(capsys, "trajectory", "stats", str(path), "--json")
    assert json.loads(out)["jumps_per_token"] == 3 / 11
    record["actions"][2] = jump(1)
    path.write_text(json.dumps(record), "utf8")
    assert (
        "action 2: JUMP 1 at cursor 5 of 14 tokens: it leads to the closed boundary 1; valid there: INSERT, "
        in run(capsys, "trajectory", "check", str(path))[1]
    )


@pytest.mark.parametrize("width", [40, 50, 80, 200])
def test_a_long_jump_shows_both_of_its_places(capsys, tmp_path, width):
    tokenizer, path = load("default"), tmp_path / "long.jsonl"
    words = tokenizer.encode("It was the kind of morning that made the harbour look painted. " * 3)
    jump, places = tokenizer.alphabet.jump, range(0, len(words), 3)
    draft = Draft.edit(words, Rules(tokenizer.alphabet, frozenset(OPERATORS)), protect(len(words), [(1, 3), (9, 12)]))
    actions = (*(jump(place) for place in places if draft.canvas.is_open(place)), tokenizer.alphabet.stop)
    path.write_text(dump_records([to_record(Trajectory(draft, actions, (True,) * len(actions)))]), "utf8")
    lines = run(capsys, "trajectory", "show", str(path), "--width", str(width))[1].splitlines()[:-2]
    assert all(cell_len(line) <= width for line in lines)
    assert all((line.count("|"), line.count("¦")) == (1, "JUMP" in line) for line in lines)


def test_half_a_character_never_breaks_show(capsys, tmp_path):
    path = tmp_path / "emoji.jsonl"
    for order in ("runs:jump=0.5", "random-walk"):
        path.write_text(run(capsys, "trajectory", "make", "héé 😀 ok\n", "--order", order, "--tokenizer", "bytes")[1])
        code, out, _ = run(capsys, "trajectory", "show", str(path), "--no-color")
        assert code == 0
        assert out.rstrip("\n").endswith("héé 😀 ok")
    assert visible("a\nb\t\x00") == "a⏎b⇥␀"


def test_check_names_the_first_bad_action_and_exits_1(capsys, made):
    lines = made.read_text("utf8").splitlines()
    record = json.loads(lines[1])
    record["actions"][4] = record["num_text"] + 2
    made.write_text("\n".join([lines[0], json.dumps(record), lines[2]]), "utf8")
    code, out, _ = run(capsys, "trajectory", "check", str(made))
    assert code == 1
    assert out.startswith("trajectory 1 (line 2): action 4: DELETE at cursor ")
    assert "the operator delete is not enabled; enabled: move" in out
    code, out, _ = run(capsys, "trajectory", "check", str(made), "--json")
    assert (code, json.loads(out)["bad"]["line"]) == (1, 2)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"actions": []}, "the last action is not STOP"),
        ({"actions": None}, "a field has the wrong type"),
        ({"pad": 999}, "pad id 999 is not one of the 257 text tokens"),
        ({"fixed": [3]}, "fixed names 3 and goes from 0 to -1"),
        ({"closed": [0]}, "the draft leaves the cursor at 0, which is a closed boundary"),
        ({"fixed": ["a"]}, "a field has the wrong type: 'str' object cannot be interpreted as an integer"),
        ({"has_loss": [1]}, "has_loss has 1 entries for"),
        ({"operators": ["fly"]}, "unknown operator 'fly'"),
        ({"pad": float("inf")}, "a field has the wrong type: 'float' object cannot be interpreted as an integer"),
        ({"actions": [97.5]}, "a field has the wrong type: 'float' object cannot be interpreted as an integer"),
        ({"log_q": "low"}, "a field has the wrong type: could not convert string to float: 'low'"),
        ({"draft_actions": [1, 262]}, "draft action 1: MOVE -1 at cursor 1 of 1 tokens"),
        ({"draft_actions": [1, 262, 2]}, "the draft actions are not the tokens in order"),
    ],
)
def test_each_damage_of_a_record_is_named(capsys, made, change, text):
    record = json.loads(made.read_text("utf8").splitlines()[0]) | change
    if text.startswith("draft action"):
        record["max_length"] = 1
        record["draft_actions"] = [1, 257 + 6]
        text = "draft action 1: MOVE +2 at cursor 1 of 1 tokens"
    made.write_text(json.dumps(record), "utf8")
    code, out, _ = run(capsys, "trajectory", "check", str(made))
    assert code == 1
    assert text in out


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("{oops", "trajectory 0 (line 1): not JSON (Expecting property name"),
        ("[" * 100_000, "trajectory 0 (line 1): not JSON (maximum recursion depth"),
        ("[1]", "trajectory 0 (line 1): expected a JSON object, not list"),
        ("{}", "trajectory 0 (line 1): the field 'num_text' is missing"),
    ],
)
def test_a_line_that_is_no_record_fails_the_check(capsys, tmp_path, line, text):
    path = tmp_path / "bad.jsonl"
    path.write_text(line, "utf8")
    code, out, _ = run(capsys, "trajectory", "check", str(path))
    assert (code, out[: len(text)]) == (1, text)
    code, out, _ = run(capsys, "trajectory", "check", str(path), "--json")
    assert (code, json.loads(out)["is_valid"]) == (1, False)
    for command in ("show", "stats"):
        code, out, err = run(capsys, "trajectory", command, str(path))
        assert (code, out) == (2, "")
        assert err.startswith(f"error: {path}, line 1: ")


def test_separators_that_json_holds_as_they_are_do_not_end_a_line(capsys, tmp_path):
    text, path = "a\u2028b\x85c\x0cd", tmp_path / "lines.jsonl"
    path.write_text(run(capsys, "trajectory", "make", text)[1], "utf8")
    assert run(capsys, "trajectory", "check", str(path)) == (0, "1 trajectory replays\n", "")


def test_stats_of_a_file_and_of_an_order(capsys, made):
    code, out, _ = run(capsys, "trajectory", "stats", str(made), "--json")
    assert (code, json.loads(out)["trajectories"]) == (0, 3)
    code, out, _ = run(capsys, "trajectory", "stats", "--order", "random-walk", "--n", "30", "--samples", "20")
    assert code == 0
    assert "End-appends" in out


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["stats"], "give either a trajectory file or --order"),
        (["stats", "--order", "runs", "--n", "0"], "--n 0 must be from 1 to 100000"),
        (["stats", "--order", "runs", "--n", "1000000000"], "--n 1000000000 must be from 1 to 100000"),
        (["stats", "--order", "runs", "--samples", "-1"], "--samples -1 must be from 1 to 10000000"),
        (["show", "nowhere.jsonl", "--width", "0"], "--width 0 must be from 40 to 10000"),
        (["make", "abc", "--count", "0"], "--count 0 must be from 1 to 1000000"),
        (["make", "nowhere.txt"], "no file nowhere.txt; to use the name itself as text, pipe it to: reviser"),
        (["show", "nowhere.jsonl"], "cannot read nowhere.jsonl: No such file or directory"),
        (["make", "abc", "--tokenizer", "bytes", "--prefix", "4"], "do not fit a text of 3 tokens"),
        (["make", "abc", "--order", "sideways"], "no order 'sideways'; orders are random-walk"),
        (["make", "abc", "--operators", "fly"], "unknown operator 'fly'"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(capsys, argv, text):
    code, out, err = run(capsys, "trajectory", *argv)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert text in err


def test_an_index_that_is_not_there_and_another_tokenizer_are_refused(capsys, made):
    assert "no trajectory 9; " in run(capsys, "trajectory", "show", str(made), "--index", "9")[2]
    other = run(capsys, "trajectory", "show", str(made), "--tokenizer", "default")[2]
    assert "this trajectory was made with another tokenizer than default" in other
    record = json.loads(made.read_text("utf8").splitlines()[0]) | {"tokenizer": "bytes"}
    made.write_text(json.dumps(stamp(record)), "utf8")
    other = run(capsys, "trajectory", "show", str(made))[2]
    assert "another tokenizer than default (257 tokens, not 8192, or another end of text); give the right" in other


@pytest.mark.parametrize("command", ["show", "check", "stats"])
def test_a_file_without_trajectories_is_an_error(capsys, tmp_path, command):
    path = tmp_path / "empty.jsonl"
    path.write_text("\n", "utf8")
    assert run(capsys, "trajectory", command, str(path)) == (2, "", f"error: {path} holds no trajectories\n")


def test_text_comes_from_standard_input_and_a_long_argument_is_text(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("notes.txt"))
    assert json.loads(run(capsys, "trajectory", "make", "-")[1])["text"] == "notes.txt"
    assert json.loads(run(capsys, "trajectory", "make", "long " * 1000, "--max-length", "9999")[1])["fixed"] == []


def test_a_file_that_is_not_utf8_is_refused(capsys, tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes(b"caf\xe9")
    assert run(capsys, "trajectory", "make", str(path))[2] == f"error: {path} is not UTF-8 text\n"
    expected = f"error: {path} is not UTF-8 text; a trajectory file has one JSON object a line\n"
    assert run(capsys, "trajectory", "check", str(path))[2] == expected


def test_a_record_that_was_changed_or_is_of_another_version_is_named(capsys, made):
    first, *_ = made.read_text("utf8").splitlines()
    made.write_text(first.replace('"seed": [3,', '"seed": [9,'), "utf8")
    said = run(capsys, "trajectory", "show", str(made))[2]
    assert said == f"error: {made}, line 1: its checksum is not that of its fields: it is damaged or was changed\n"
    made.write_text(first.replace('"version": 1', '"version": 7'), "utf8")
    said = run(capsys, "trajectory", "show", str(made))[2]
    assert said == f"error: {made}, line 1: it is of version 7, and this program reads version 1\n"


def test_nothing_in_a_trajectory_speaks_to_the_terminal(capsys, tmp_path):
    path = tmp_path / "hostile.jsonl"
    made = run(capsys, "trajectory", "make", "a\x1b[2Jb\x9bc\u202ed\te\nf", "--tokenizer", "bytes")[1]
    path.write_text(json.dumps(stamp(json.loads(made) | {"order": "[/red]\x1b"})), "utf8")
    code, out, _ = run(capsys, "trajectory", "show", str(path))
    assert code == 0
    assert not {"\x1b", "\x9b", "\u202e"} & set(out)
    assert out.endswith("order [/red]␛, log q " + out.rpartition("log q ")[2])
    assert out.endswith("a␛[2Jb<9B>c<202E>d\te\nf\n")


def test_wide_characters_keep_the_columns_straight(capsys, tmp_path):
    path = tmp_path / "wide.jsonl"
    made = run(capsys, "trajectory", "make", "日本 ab 日本 cd", "--tokenizer", "bytes", "--order", "left-to-right")[1]
    path.write_text(made, "utf8")
    for width in (40, 60):
        lines = run(capsys, "trajectory", "show", str(path), "--width", str(width))[1].splitlines()
        assert all(cell_len(line) <= width for line in lines[:-2])


def test_colours_stay_away_where_they_are_not_wanted(monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert not make_console().no_color
    assert make_console(has_color=False).no_color
    monkeypatch.setenv("NO_COLOR", "1")
    assert make_console().no_color


def test_debug_shows_the_traceback():
    with pytest.raises(Exception, match="no order"):
        main(["--debug", "trajectory", "make", "abc", "--order", "sideways"])


def test_bench_prints_one_json_document(capsys):
    code, out, _ = run(capsys, "bench", "trajectories", "--json", "--seconds", "0.05", "--n", "20")
    result = json.loads(out)
    assert (code, result["kind"]) == (0, "trajectory_speed")
    [row] = result["rows"]
    assert list(row["orders"]) == ["random-walk", "runs", "left-to-right"]
    assert all(each["actions_per_s"] > 0 for each in row["orders"].values())
    assert row["orders"]["left-to-right"]["actions_per_token"] == 1.0
    assert run(capsys, "bench", "trajectories", "--seconds", "0.01", "--n", "20")[1].startswith("Speed of drawing")
    assert "n=0 must be from 1 to 10000" in run(capsys, "bench", "trajectories", "--n", "0")[2]
    assert "threads=300 must be from 1 to 256" in run(capsys, "bench", "trajectories", "--threads", "300")[2]
    assert (
        "seconds=nan must be above 0 and at most 3600" in run(capsys, "bench", "trajectories", "--seconds", "nan")[2]
    )


def test_every_command_has_help_with_two_examples():
    def leaves(parser, path):
        actions = [a for a in parser._actions if hasattr(a, "choices") and isinstance(a.choices, dict)]
        if not actions:
            yield path, parser
        for action in actions:
            for name, child in action.choices.items():
                yield from leaves(child, [*path, name])

    for path, parser in leaves(build_parser(), ["reviser"]):
        assert parser.description, path
        examples = parser.epilog.replace("reviser --plugin mine.py", "reviser")
        assert examples.count(" ".join(path)) >= 2, path


def test_help_is_quick_and_needs_no_torch():
    code = "import sys; from reviser.cli import build_parser; build_parser().format_help(); " \
           "sys.exit(any(m in sys.modules for m in ('torch', 'numba', 'numpy', 'rich', 'tokenizers')))"  # fmt: skip
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


BAD = """
from dataclasses import dataclass
from reviser.orders.policies import LeftToRight
from reviser.orders.record import Trajectory
import reviser

@dataclass(frozen=True)
class Short(LeftToRight):
    at: str = "end"

    def draw(self, draft, target, rng):
        text, stop = draft.editable(target), draft.rules.alphabet.stop
        actions = {"end": (*text[:-1], stop), "stop": text, "far": (10**9, stop), "text": ("a", stop)}[self.at]
        return Trajectory(draft, actions, (True,) * len(actions), 0.0)

reviser.register_order("short", Short)
"""


@pytest.fixture
def bad(tmp_path, monkeypatch):
    monkeypatch.setenv(plugins.VARIABLE, "")
    monkeypatch.setattr(ORDERS, "_entries", dict(ORDERS._entries))
    path = tmp_path / "bad.py"
    path.write_text(BAD)
    return str(path)


@pytest.mark.parametrize(
    ("order", "made", "counted"),
    [
        (
            "short",
            "its trajectory ends with 'Mary had a lamb', not with the text",
            "its trajectory ends with 8 tokens",
        ),
        ("short:at=stop", "its trajectory does not end in STOP", "its trajectory does not end in STOP"),
        ("short:at=far", "it drew the action 1000000000; actions are", "it drew the action 1000000000; actions are"),
        ("short:at=text", "it drew the action 'a', which is", "it drew the action 'a', which is"),
        ("short:at=air", "draw failed (KeyError: 'air'); fix it", "draw failed (KeyError: 'air'); fix it"),
    ],
)
def test_make_and_stats_refuse_a_wrong_trajectory_of_a_plugin(capsys, bad, order, made, counted):
    before = ("--plugin", bad, "trajectory")
    code, out, err = run(capsys, *before, "make", "Mary had a lamb.", "--order", order, "--tokenizer", "bytes")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"error: order {order}: {made}")
    code, out, err = run(capsys, *before, "stats", "--order", order, "--n", "9", "--samples", "2")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"error: order {order}: {counted}")


def test_the_error_of_a_long_text_says_where_it_differs(capsys, bad):
    err = run(capsys, "--plugin", bad, "trajectory", "make", TEXT * 2, "--order", "short", "--tokenizer", "bytes")[2]
    assert "ends with 87 tokens, not with the 88 of the text; they differ from token 87 on; fix its draw" in err
