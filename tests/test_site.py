"""docs/ as a site: it builds without a warning, every page is in its place, and reading it asks no other host."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
from chromium import BROWSER, Browser

import reviser

ROOT = Path(__file__).parents[1]
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""What a browser asks for by itself, by tag."""


def nav_groups() -> dict[str, list[str]]:
    """The pages of each group of the navigation."""
    groups: dict[str, list[str]] = {}
    for line in (ROOT / "mkdocs.yml").read_text("utf-8").split("\nnav:\n")[1].splitlines():
        if found := re.fullmatch(r"  - (\w+):(.*)", line):
            group = found[1]
            groups[group] = [found[2].strip()] if found[2] else []
        elif found := re.fullmatch(r"      - .+: (\S+)", line):
            groups[group].append(found[1])
    return groups


def test_every_page_is_in_the_navigation_and_where_the_readme_has_it() -> None:
    groups = nav_groups()
    pages = [page for group in groups.values() for page in group]
    assert len(pages) == len(set(pages))
    written = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert written == {page for page in pages if not page.startswith("repository/")} - {"reference.md"}
    last = (ROOT / "README.md").read_text("utf-8").rstrip().split("\n\n")[-1]
    for name, text in re.findall(r"(\w+): ((?:\[[^\]]+\]\([^)]+\),?\s*)+)", last):
        for link in re.findall(r"\]\(([^)]+)\)", text):
            page = link.removeprefix("docs/") if link.startswith("docs/") else f"repository/{link}"
            assert page in groups[name], f"{page} is under {name} in README.md"


class Links(HTMLParser):
    """Tags with their attributes, and the ids of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def loaded(self) -> Iterator[str]:
        for tag, attributes in self.tags:
            address = attributes.get(LOADED.get(tag, ""))
            if address and attributes.get("rel") not in ("canonical", "next", "prev"):
                yield address


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly."""
    folder = tmp_path_factory.mktemp("site")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    return folder


@pytest.mark.slow
def test_the_site_asks_no_other_host_and_all_that_it_names_is_there(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for path in pages:
        links = Links(path.read_text("utf-8"))
        for address in links.loaded():
            assert not urlsplit(address).netloc, f"{path.name}: {address}"
        near = [str(each["href"]) for tag, each in links.tags if tag == "a" and each.get("href")]
        for address in near:
            parts = urlsplit(address)
            if path.name != "404.html" and not parts.scheme and parts.path:
                assert (path.parent / parts.path).exists(), f"{path.name}: {address}"
    for path in site.rglob("*.css"):
        asked = re.findall(r"url\(\s*[\"']?(?!data:)([^)\"']+)|@import", path.read_text("utf-8"))
        assert not [each for each in asked if urlsplit(each).netloc], path.name


@pytest.mark.slow
def test_the_site_finds_words_and_documents_every_public_name(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))["docs"]
    assert any("trajectory" in each["text"] for each in index)
    assert any(each["location"].startswith("tutorials/") for each in index)
    assert not any(".py.html" in each["location"] for each in index)
    ids = {each.get("id") for _, each in Links((site / "reference.html").read_text("utf-8")).tags}
    for name in set(reviser.__all__) - {"__version__"}:
        assert f"reviser.{reviser._PLACES[name]}.{name}" in ids
    for name in ("orders.record.Trajectory", "canvas.Rules", "model.canvas_kinds.CanvasKind"):
        assert f"reviser.{name}" in ids
    assert "replay.html" in Links((site / "viewer.html").read_text("utf-8")).loaded()
    assert '"actions":[' in (site / "replay.html").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium; on Debian: apt-get install -y chromium")
def test_pages_fit_a_phone_and_neither_complain_nor_ask_elsewhere(site: Path, browser: Browser) -> None:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        home = f"http://127.0.0.1:{server.server_port}/"
        for page, width, scheme in (("index.html", 1280, "light"), ("viewer.html", 390, "dark"),
                                    ("reference.html", 390, "light")):  # fmt: skip
            browser.resize(width, 800, scheme=scheme)
            browser.open(urljoin(home, page))
            browser.wait("document.querySelector('.md-content')")
            assert browser.run("document.documentElement.scrollWidth") <= width
            complaints = [each for each in browser.complaints(home) if '"url": "data:' not in json.dumps(each)]
            assert complaints == []
        server.shutdown()
