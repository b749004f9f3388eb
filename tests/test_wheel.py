"""The wheel and the sdist: what they hold, and that an installed copy writes by itself, without network or home."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import reviser

ROOT = Path(__file__).parents[1]
SOURCES = ("CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md", "SECURITY.md", "constraints.txt", "pyproject.toml")
SMALL = 32_000_000
"""A third of what the package index takes."""
NO_NETWORK = """
import sys

def refuse(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.bind"):
        raise RuntimeError(f"{event} {args}")

sys.addaudithook(refuse)
"""
pytestmark = pytest.mark.slow


def run(*words: object, **how: object) -> str:
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, **how)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An sdist of a copy of the sources, and the wheel of that sdist, made with the packages of this environment."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for name in SOURCES:
        shutil.copy(ROOT / name, tree)
    shutil.copytree(ROOT / "reviser", tree / "reviser", ignore=shutil.ignore_patterns("__pycache__"))
    (tree / "tests").mkdir()
    shutil.copy(__file__, tree / "tests")
    make = f"import setuptools.build_meta as backend; backend.build_sdist({str(out)!r})"
    run(sys.executable, "-c", make, cwd=tree)
    [sdist] = out.glob("*.tar.gz")
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation", "-w", out)
    run(*pip, sdist, cwd=out)
    [wheel] = out.glob("*.whl")
    return sdist, wheel


def test_the_wheel_holds_the_package_and_nothing_else(built: tuple[Path, Path]) -> None:
    wheel = built[1]
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    about = f"reviser-{reviser.__version__}.dist-info"
    wanted = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "reviser").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if not name.startswith(about)} == wanted
    assert {f"{about}/licenses/LICENSE", f"{about}/entry_points.txt", "reviser/py.typed"} <= names
    assert wheel.name.endswith("-py3-none-any.whl")
    size = wheel.stat().st_size
    assert size < SMALL
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    [said] = re.findall(r"systems: (\d+\.\d) MB", page)
    assert float(said) == pytest.approx(size / 1e6, abs=0.2)


def test_the_sdist_holds_what_the_wheel_is_made_of_and_no_tests(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert set(SOURCES) <= names
    assert not [name for name in names if name.startswith("tests")]
    assert built[0].stat().st_size < SMALL


def test_the_installed_package_writes_without_network_and_home(built: tuple[Path, Path], tmp_path: Path) -> None:
    place, elsewhere = tmp_path / "env", tmp_path / "elsewhere"
    elsewhere.mkdir()
    venv.create(place, with_pip=False)
    base = {"base": str(place), "platbase": str(place), "installed_base": sys.base_prefix}
    packages = Path(sysconfig.get_path("purelib", vars=base))
    pip = (sys.executable, "-m", "pip", "--python", place / "bin" / "python", "install", "--no-deps", "--no-index")
    # Whatever another test left in the environment, the copy that is tested is the wheel's.
    given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run(*pip, "--ignore-installed", built[1], cwd=elsewhere, env=given)
    # Its dependencies are those of this environment; the folder of an editable copy is no part of that.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (packages / "no_network.py").write_text(NO_NETWORK)
    (packages / "no_network.pth").write_text("import no_network\n")
    kept = {name: value for name, value in os.environ.items() if name in ("OMP_NUM_THREADS", "SYSTEMROOT")}
    environment = kept | {"PATH": os.defpath, "PYTHONSAFEPATH": "1"}

    def call(*words: str) -> str:
        return run(place / "bin" / words[0], *words[1:], cwd=elsewhere, env=environment)

    found = call(
        "python", "-c", "import reviser; from reviser.model.folder import SHIPPED; print(reviser.__file__, SHIPPED)"
    )
    assert found.split() == [str(packages / "reviser" / each) for each in ("__init__.py", "pretrained/reviser-small")]
    assert call("reviser", "--version") == f"reviser {reviser.__version__}\n"
    text = call("reviser", "edit", "I am sory that I did not answered your letter sooner.")
    assert text == "I am sorry that I did not answer your letter sooner.\n"
    text = call("reviser", "infill", "The ___ lighthouse ___ until ___.", "--seed", "2")
    assert text.startswith("The ")
    assert text.endswith(".\n")
    assert call("reviser", "generate", "The old lighthouse", "--seed", "1", "--max-tokens", "26").startswith(
        "The old li"
    )
    assert list(elsewhere.iterdir()) == []
    refused = subprocess.run(
        [place / "bin" / "python", "-c", "import socket; socket.create_connection(('127.0.0.1', 9))"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "RuntimeError: socket." in refused.stderr
