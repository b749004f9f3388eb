"""The trajectory commands as a user runs them."""

import json
import subprocess
import sys

import pytest

from reviser.cli import build_parser, main
from reviser.viewer.terminal import visible

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
        "--json",
    )
    [record] = json.loads(out)
    assert code == 0
    assert (record["text"], record["prefix"], record["suffix"]) == (TEXT, 3, 2)
    assert set(record["operators"]) > {"move", "delete", "paste"}


def test_show_prints_every_canvas_readably_without_colour(capsys, made):
    code, out, _ = run(capsys, "trajectory", "show", str(made), "--index", "1", "--width", "90")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].split() == ["0", "seed", "|"]
    assert lines[-1] == TEXT
    assert all(len(line) <= 90 for line in lines)
    assert "[" in lines[1]
    assert "\x1b" not in out


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
        ({"prefix": 3}, "the seed leaves the cursor at 0, outside the editable 3..0"),
        ({"has_loss": [1]}, "has_loss has 1 entries for"),
        ({"operators": ["fly"]}, "unknown operator 'fly'"),
        ({"seed_actions": [1, 262]}, "seed action 1: MOVE -1 at cursor 1 of 1 tokens"),
        ({"seed_actions": [1, 262, 2]}, "the seed actions are not the tokens in order"),
    ],
)
def test_each_damage_of_a_record_is_named(capsys, made, change, text):
    record = json.loads(made.read_text("utf8").splitlines()[0]) | change
    if text.startswith("seed action"):
        record["max_length"] = 1
        record["seed_actions"] = [1, 257 + 6]
        text = "seed action 1: MOVE +2 at cursor 1 of 1 tokens"
    made.write_text(json.dumps(record), "utf8")
    code, out, _ = run(capsys, "trajectory", "check", str(made))
    assert code == 1
    assert text in out


def test_a_missing_field_and_a_line_that_is_not_json_are_named(capsys, made):
    record = json.loads(made.read_text("utf8").splitlines()[0])
    del record["pad"]
    made.write_text(json.dumps(record), "utf8")
    assert "the field 'pad' is missing" in run(capsys, "trajectory", "check", str(made))[1]
    made.write_text("{oops", "utf8")
    assert "line 1: not JSON" in run(capsys, "trajectory", "check", str(made))[2]
    made.write_text("[1]", "utf8")
    assert "a JSON object is wanted, not list" in run(capsys, "trajectory", "check", str(made))[2]


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
        (["stats", "--order", "runs", "--n", "0"], "--n 0 and --samples 1000 must be at least 1"),
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
    made.write_text("", "utf8")
    assert "holds no trajectories" in run(capsys, "trajectory", "stats", str(made))[2]


def test_debug_shows_the_traceback():
    with pytest.raises(Exception, match="no order"):
        main(["--debug", "trajectory", "make", "abc", "--order", "sideways"])


def test_bench_prints_one_json_document(capsys):
    code, out, _ = run(capsys, "bench", "trajectories", "--json", "--seconds", "0.05", "--n", "20")
    result = json.loads(out)
    assert code == 0
    assert list(result["orders"]) == ["random-walk", "runs", "left-to-right"]
    assert all(row["actions_per_s"] > 0 for row in result["orders"].values())
    assert result["orders"]["left-to-right"]["actions_per_token"] == 1.0
    assert run(capsys, "bench", "trajectories", "--seconds", "0.01", "--n", "20")[1].startswith("order")
    assert "must be at least 1" in run(capsys, "bench", "trajectories", "--n", "0")[2]


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
        assert parser.epilog.count(" ".join(path)) >= 2, path


def test_help_is_quick_and_needs_no_torch():
    code = "import sys; from reviser.cli import build_parser; build_parser().format_help(); " \
           "sys.exit(any(m in sys.modules for m in ('torch', 'numba', 'numpy', 'rich', 'tokenizers')))"  # fmt: skip
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
