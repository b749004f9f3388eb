"""The shape of the house: imports go along the flow, sizes stay readable, docs stay true."""

import ast
import doctest
import importlib
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "reviser"
FLOW = ("errors", "files", "compiled", "machine_code", "packages", "plugins", "cluster", "actions", "config",
        "canvas", "tokenizer", "token_marks", "orders", "mistakes", "data", "model", "proofreading", "decoding",
        "training", "diffusion", "hub", "bench", "reports", "evaluation", "drafting", "own_states", "paper", "viewer",
        "serving", "batch", "cli")  # fmt: skip
TORCHLESS = ("errors", "files", "compiled", "machine_code", "packages", "plugins", "config", "actions", "canvas",
             "tokenizer", "token_marks", "orders", "mistakes", "data", "proofreading", "reports")  # fmt: skip
VERSIONS = {"board.py", "sampling.py", "step.py"}
"""Names that decoding/, decoding/cpu and decoding/gpu share, for they are versions of one thing."""
SOURCES = sorted(PACKAGE.rglob("*.py"))
EXAMPLES = [path for path in SOURCES if re.search(r">>> (?!.*\+SKIP)", path.read_text("utf8"))]


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path, top_level_only=False):
    tree = ast.parse(path.read_text("utf8"))
    nodes = tree.body if top_level_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_leftwards_along_the_flow(path):
    room = room_of(path)
    if room in ("__init__", "__main__"):
        return
    for name in imports_of(path):
        if name.startswith("reviser.") and name.split(".")[1] in FLOW:
            assert FLOW.index(name.split(".")[1]) <= FLOW.index(room), f"{path.name} imports {name}"


def test_what_is_tracked_is_small_and_holds_no_caches():
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=False)
    if listed.returncode or not listed.stdout:
        pytest.skip("this is no clone")
    files = [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]
    assert not [path.name for path in files if path.suffix in (".nbc", ".nbi", ".pyc")]
    assert sum(path.stat().st_size for path in files) < 40 * 2**20


def test_the_flow_is_all_rooms_and_no_others():
    assert {room_of(path) for path in SOURCES} - {"__init__", "__main__"} == set(FLOW)


def module_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def find_circle(imports):
    """Modules that import each other in a circle when they are loaded, or none."""
    done, way = set(), []

    def visit(name):
        if name in way:
            return way[way.index(name) :]
        if name in done:
            return []
        way.append(name)
        circle = next(filter(None, map(visit, imports.get(name, ()))), [])
        way.pop()
        done.add(name)
        return circle

    return next(filter(None, map(visit, imports)), [])


def test_no_modules_import_each_other_in_a_circle():
    names = {module_of(path) for path in SOURCES}

    def targets(path):
        for name in imports_of(path, top_level_only=True):
            target = name if name in names else name.rpartition(".")[0]
            # A package's own __init__ is already being loaded when one of its modules is.
            if target in names and not module_of(path).startswith(f"{target}."):
                yield target

    imports = {module_of(path): sorted(set(targets(path))) for path in SOURCES}
    assert sum(map(len, imports.values())) > len(SOURCES)
    assert find_circle(imports) == []
    assert find_circle({"a": ["b"], "b": ["c", "d"], "c": [], "d": ["b"]}) == ["b", "d"]


def test_folders_hold_few_enough_files_to_look_through():
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in SOURCES)
    assert {folder: count for folder, count in counts.items() if count > 15} == {}


def test_no_file_and_no_class_has_the_name_of_another():
    files = Counter(path.name for path in SOURCES)
    assert {name for name, count in files.items() if count > 1} <= {"__init__.py"} | VERSIONS
    assert {path.parent.relative_to(PACKAGE).parts[0] for path in SOURCES if path.name in VERSIONS} == {"decoding"}
    classes = Counter(
        node.name
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text("utf8")))
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in classes.items() if count > 1} == set()


@pytest.mark.parametrize("room", TORCHLESS)
def test_the_ground_imports_no_torch(room):
    for path in SOURCES:
        if room_of(path) == room:
            assert not any(name.split(".")[0] == "torch" for name in imports_of(path)), path


def test_trajectories_load_without_torch():
    code = "import sys, reviser.orders.draw, reviser.orders.statistics, reviser.viewer.terminal; " \
           "sys.exit('torch' in sys.modules)"  # fmt: skip
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_examples_in_docstrings_hold(path):
    result = doctest.testmod(importlib.import_module(module_of(path)))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("path", SOURCES + sorted((ROOT / "tests").glob("*.py")), ids=lambda p: p.name)
def test_files_and_functions_stay_readable(path):
    text = path.read_text("utf8")
    assert text.count("\n") <= 500
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno < 80, f"{path.name}: {node.name}"


def test_functions_are_short_as_a_rule():
    sizes = sorted(
        node.end_lineno - node.lineno + 1
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text("utf8")))
        if isinstance(node, ast.FunctionDef)
    )
    assert sizes[len(sizes) // 2] <= 12
    assert sizes[len(sizes) * 9 // 10] <= 40


def test_the_command_reference_is_up_to_date():
    from make_cli_reference import render

    assert (ROOT / "docs" / "cli.md").read_text("utf8") == render(), "run: make docs"


def test_every_command_in_readme_and_docs_exists():
    from reviser.cli import build_parser

    top = build_parser()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for line in re.findall(r"^\s*(?:\$ )?reviser ([a-z]+(?: [a-z-]+)?)", path.read_text("utf8"), re.M):
            parser = top
            for word in line.split():
                choices = [a.choices for a in parser._actions if isinstance(getattr(a, "choices", None), dict)]
                if not choices:
                    break
                assert word in choices[0], f"{path.name}: reviser {line}"
                parser = choices[0][word]


def test_the_readme_is_short_and_has_one_small_table():
    readme = (ROOT / "README.md").read_text("utf8")
    assert readme.count("\n") <= 120
    assert len(readme.split()) <= 1000
    head, _, *rows = [line.count("|") - 1 for line in readme.splitlines() if line.startswith("|")]
    assert head <= 5
    assert len(rows) <= 6


def test_the_first_page_of_the_docs_shows_a_real_edit(capsys):
    from reviser.cli import main

    page = (ROOT / "docs" / "index.md").read_text("utf8")
    main(["trajectory", "show", str(ROOT / "docs" / "demo.jsonl"), "--width", "80"])
    shown = capsys.readouterr().out.splitlines()[:-2]
    assert page.split("```\n")[1].splitlines() == shown


def test_the_walks_through_the_code_are_short_and_their_files_exist():
    page = (ROOT / "docs" / "code.md").read_text("utf8")
    walks = page.split("\n### ")[1:]
    assert [walk.split("\n")[0] for walk in walks] == ["A prompt", "A document", "A result"]
    for walk in walks:
        assert 1 <= len(re.findall(r"^\d+\. ", walk, re.M)) <= 12


def test_links_in_readme_and_docs_lead_somewhere():
    for path in [ROOT / "README.md", ROOT / "LOG.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for link in re.findall(r"\]\(([^)#\s]+)", path.read_text("utf8")):
            assert "://" in link or (path.parent / link).exists(), f"{path.name}: {link}"
