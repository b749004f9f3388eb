"""What the site needs beside docs/, as hooks of mkdocs.yml; the pages themselves stay plain Markdown.

Pages of docs/ link files of the repository. Those files become part of the site, under `repository/`: Markdown as a
page, Python as a page of code, a folder as a list of its files, anything else as it is. Links to them are rewritten,
also in Markdown that lies outside of docs/.

    docs/model.md: [x](../reviser/canvas.py)  ->  model.md: [x](repository/reviser/canvas.py.md)
    LOG.md: [x](docs/model.md)                ->  repository/LOG.md: [x](../model.md)

Two more pages are made: from docstrings, the reference of all names that the package lists or that examples in docs/
import; and a replay, which the viewer's page shows.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import reviser
from reviser.orders.record import from_record, parse_record
from reviser.tokenizer import load
from reviser.viewer.replay_page import Example, page

ROOT = Path(__file__).parents[1]
COPIES = "repository/"
LINK = re.compile(r"(?<=\]\()([^)#\s]+)(?=[)#])")
FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.M | re.S)
LIST = re.compile(r"^(?![-*#|\s]|\d+\.)(.+)\n(?=- )", re.M)
"""A list right behind a line of text, which code hosts show as a list and Python-Markdown does not."""
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"
REFERENCE, REPLAY = "reference.md", "replay.html"
FRAME = f"""\
<iframe src="{REPLAY}" title="A sentence being proofread" width="100%" height="640" style="border: 0"></iframe>

[The same as a full page]({REPLAY}): the actions of `docs/demo.jsonl`."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add all that pages link to, and the pages that are made."""
    waiting = {place for file in files.documentation_pages() for place in _find_outside(file.src_uri, _read(file))}
    waiting |= {name.removeprefix(COPIES) for name in _nav_pages(config.nav) if name.startswith(COPIES)}
    done: set[str] = set()
    while waiting:
        place = min(waiting)
        content = _make_copy(place)
        files.append(File.generated(config, _site_name(place), content=content))
        done.add(place)
        waiting |= _find_outside(_site_name(place), content) if place.endswith(".md") else set()
        waiting -= done
    files.append(File.generated(config, REFERENCE, content=_make_reference()))
    files.append(File.generated(config, REPLAY, content=_make_replay()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = page.file.src_uri
    if here == "viewer.md":
        title, first, rest = markdown.split("\n\n", 2)
        markdown = "\n\n".join((title, first, FRAME, rest))

    def lead(found: re.Match[str]) -> str:
        place = _place(here, found[0])
        return found[0] if place is None else posixpath.relpath(_site_name(place), posixpath.dirname(here) or ".")

    return _change_prose(markdown, lambda text: LINK.sub(lead, LIST.sub(r"\1\n\n", text)))


def _read(file: File) -> str:
    return Path(str(file.abs_src_path)).read_text("utf-8")


def _nav_pages(nav: Any) -> Iterator[str]:
    """All pages that a navigation names."""
    if isinstance(nav, str):
        yield nav
    elif nav:
        for each in nav.values() if isinstance(nav, dict) else nav:
            yield from _nav_pages(each)


def _change_prose(markdown: str, change: Callable[[str], str]) -> str:
    """Markdown with its text changed and its blocks of code as they are."""
    parts, end = list[str](), 0
    for found in FENCE.finditer(markdown):
        parts += [change(markdown[end : found.start()]), found[0]]
        end = found.end()
    return "".join([*parts, change(markdown[end:])])


def _place(here: str, link: str) -> str | None:
    """What a link on a page of the site means in the repository, where that is not a page's own neighbour."""
    is_copy = here.startswith(COPIES)
    if "://" in link or link.startswith("mailto:"):
        return None
    home = posixpath.dirname(here.removeprefix(COPIES)) if is_copy else posixpath.dirname(f"docs/{here}")
    place = posixpath.normpath(posixpath.join(home, link))
    return place if is_copy or not place.startswith("docs/") else None


def _find_outside(here: str, markdown: str) -> set[str]:
    """Files and folders outside of docs/ that a page links to."""
    found: set[str] = set()
    _change_prose(markdown, lambda text: found.update(_places(here, text)) or text)
    return {place for place in found if not place.startswith("docs/")}


def _places(here: str, text: str) -> Iterator[str]:
    return (place for link in LINK.findall(text) if (place := _place(here, link)) is not None)


def _site_name(place: str) -> str:
    """Where on the site a file or folder of the repository is."""
    if place.startswith("docs/"):
        return place.removeprefix("docs/")
    if (ROOT / place).is_dir():
        return f"{COPIES}{place}/index.md"
    return f"{COPIES}{place}{'.md' if place.endswith('.py') else ''}"


def _make_copy(place: str) -> str:
    path = ROOT / place
    if not path.exists() or place.startswith(".."):
        raise PluginError(f"a page links to {place}, which the repository does not hold; correct the link")
    if path.is_dir():
        rows = [f"| `{each.name}` | {_first_line(each)} |" for each in sorted(path.glob("*.py"))]
        return "\n".join([f"{UNSEARCHED}# {place}\n", "| file | what |", "|---|---|", *rows]) + "\n"
    text = path.read_text("utf-8")
    return f"{UNSEARCHED}# {place}\n\n~~~~~~~~python\n{text}~~~~~~~~\n" if path.suffix == ".py" else text


def _first_line(path: Path) -> str:
    """Of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return text.split("\n")[0].replace("|", "\\|")


def _make_reference() -> str:
    """A page of directives for mkdocstrings: the package's own names, then those that examples import."""
    listed = [f"reviser.{reviser._PLACES[name]}.{name}" for name in reviser.__all__ if name in reviser._PLACES]
    imported = sorted(set(_imported()) - set(listed))
    parts = ["# Python reference\n\nMade from docstrings. [Examples](python.md) and [your own parts](extending.md)."]
    for title, names in (("The package `reviser`", listed), ("What examples import", imported)):
        parts += [f"## {title}", *(f"::: {name}" for name in names)]
    return "\n\n".join(parts) + "\n"


def _imported() -> Iterator[str]:
    """Full names of all that Python examples in docs/ import from the package's modules."""
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for block in re.findall(r"^```python\n(.*?)^```", path.read_text("utf-8"), re.M | re.S):
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.ImportFrom) and str(node.module).startswith("reviser."):
                    yield from (f"{node.module}.{name.name}" for name in node.names)


def _make_replay() -> str:
    """The viewer's page of docs/demo.jsonl."""
    record = parse_record((ROOT / "docs" / "demo.jsonl").read_text("utf-8"))
    example = Example(from_record(record), record["text"], tuple(record["log_probabilities"]))
    return page([example], load("default"), "reviser edit: one pass of the shipped model")
