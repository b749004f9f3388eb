"""The container and the systemd unit name only what there is; neither podman nor a running systemd is needed."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from argparse import Namespace
from pathlib import Path

import pytest
from served import make_writer, serving

from reviser.cli import build_parser
from reviser.serving.serve_config import TOKEN_VARIABLE, ServeConfig

ROOT = Path(__file__).parents[1]
CONTAINER = (ROOT / "packaging" / "Containerfile").read_text("utf-8").replace("\\\n", " ")
UNIT = ROOT / "packaging" / "reviser.service"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def lines(word: str) -> list[str]:
    """What stands behind an instruction, each time that it is given."""
    return re.findall(rf"^{word} (.*)$", CONTAINER, re.M)


def parse_serve(words: list[str]) -> Namespace:
    args = build_parser().parse_args(words)
    assert words[0] == "serve"
    return args


def test_the_image_is_of_a_python_that_the_package_needs() -> None:
    for image in lines("FROM"):
        found = re.fullmatch(r"docker\.io/library/python:(\d+\.\d+)-slim( AS build)?", image)
        assert found
        assert f">={found[1]}" == PROJECT["requires-python"]


def test_the_image_copies_and_installs_what_exists() -> None:
    [files, package, _] = lines("COPY")
    for name in [*files.split()[:-1], package.split()[0]]:
        assert (ROOT / name).exists(), name
    kept = (ROOT / ".dockerignore").read_text("utf-8").split()
    assert {f"!{name}" for name in [*files.split()[:-1], package.split()[0]]} <= set(kept)
    [extras] = re.findall(r"-c constraints\.txt '\.\[([\w,]+)\]'", CONTAINER)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    assert (ROOT / PROJECT["readme"]).name in files
    pinned = {normal(line.partition("==")[0]) for line in (ROOT / "constraints.txt").read_text("utf-8").split("\n")}
    for each in PROJECT["dependencies"] + PROJECT["optional-dependencies"]["serve"]:
        assert normal(re.split(r"[^\w-]", each)[0]) in pinned


def normal(name: str) -> str:
    """A package's name as PyPI compares it."""
    return name.lower().replace("_", "-")


def test_the_image_runs_commands_that_exist_and_not_as_root() -> None:
    assert json.loads(lines("ENTRYPOINT")[0]) == ["reviser"]
    args = parse_serve(json.loads(lines("CMD")[0]))
    assert (args.host, args.token) == ("0.0.0.0", None)
    assert lines("EXPOSE") == [str(args.port)]
    # podman and docker wait for ten seconds.
    assert args.grace_s < 10
    [user] = lines("USER")
    assert int(user) > 0
    assert f"--uid {user} " in CONTAINER
    for words in re.findall(r"\breviser (edit|infill) '([^']+)'", CONTAINER):
        build_parser().parse_args(list(words))
    assert TOKEN_VARIABLE in CONTAINER
    assert not re.search(rf"^(ENV|ARG).*{TOKEN_VARIABLE}", CONTAINER, re.M), "a token must not be part of an image"


def test_the_health_check_of_the_image_tells_a_server_that_is_ready() -> None:
    [check] = lines("HEALTHCHECK")
    code = json.loads(check[check.index("CMD ") + 4 :])[2]
    assert f":{ServeConfig().port}/health'" in code
    with serving(make_writer("move")) as served:
        here = code.replace("http://127.0.0.1:8000", served.url)
        subprocess.run(["python3", "-c", here], check=True)
        served.service.is_draining = True
        assert subprocess.run(["python3", "-c", here], check=False, capture_output=True).returncode == 1
        served.service.is_draining = False


def read_unit() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNIT)
    return parser["Service"]


def test_the_unit_runs_a_command_that_exists_with_few_rights() -> None:
    unit = read_unit()
    program, *words = shlex.split(unit["ExecStart"])
    args = parse_serve(words)
    assert program.endswith("/bin/reviser")
    assert ServeConfig(host=args.host).is_loopback
    assert float(unit["TimeoutStopSec"]) > args.grace_s
    assert int(unit["LimitNOFILE"]) > args.max_connections
    wanted = {"DynamicUser": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes"}
    assert {name: unit[name] for name in wanted} == wanted
    assert (unit["CapabilityBoundingSet"], unit["Restart"]) == ("", "on-failure")
    # What it may write is its cache alone.
    assert set(re.findall(r"=(/\S+)", unit["Environment"])) == {"/var/cache/reviser", "/var/cache/reviser/kernels"}
    assert unit["CacheDirectory"] == "reviser"
    assert TOKEN_VARIABLE in UNIT.read_text("utf-8")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    program = shlex.split(read_unit()["ExecStart"])[0]
    unit.write_text(UNIT.read_text("utf-8").replace(program, shutil.which("true") or ""))
    found = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
