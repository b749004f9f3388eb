"""Model folders to and from a hub on this machine, through the real client: round trips, damage, and every error."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import huggingface_hub
import pytest
import torch
from fake_hub import TOKEN, FakeHub, running
from huggingface_hub import constants
from hypothesis import given, settings
from hypothesis import strategies as st
from test_docs_python import blocks

import reviser
from reviser import tokenizer as tokenizers
from reviser.cli import main
from reviser.config import ModelConfig
from reviser.errors import CheckpointError, HubError, MissingPackageError
from reviser.files import hash_file
from reviser.hub.hub_client import Hub, read_token
from reviser.hub.pulling import LIMITS, pull
from reviser.hub.pushing import push
from reviser.model.checkpoint import from_pretrained, save_pretrained, weights
from reviser.model.folder import CARD, CONFIG, TOKENIZER, WEIGHTS
from reviser.model.transformer import Transformer

# The client's own: it sends large files in a way that its HTTP library deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
TINY = ModelConfig(num_text=257, pad=256, num_layers=1, width=16, num_heads=2, ff_width=24, context=12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    place = tmp_path_factory.mktemp("models") / "model"
    return save_pretrained(Transformer(TINY), place, tokenizers.load("bytes"), notes="Small.")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """The client asks nobody else, and uploads by a protocol that can be spoken in a test."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no token"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with running() as started:
        monkeypatch.setattr(constants, "ENDPOINT", started.url)
        place = "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", started.url + place)
        yield started


@pytest.fixture(autouse=True)
def _keep_the_token(capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    assert TOKEN not in "".join(capsys.readouterr())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def asked_for(hub: FakeHub, file: str) -> bool:
    return any(path.endswith(file) for _, path, _ in hub.asked)


def test_what_is_pushed_is_pulled(
    hub: FakeHub, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["push", str(folder), "me/mine", "--endpoint", hub.url]) == 0
    assert capsys.readouterr().out.startswith(f"{hub.url}/me/mine at ")
    assert not hub.models["me/mine"].is_private
    assert main(["pull", "me/mine", str(tmp_path / "mine"), "--endpoint", hub.url, "--json"]) == 0
    out, err = capsys.readouterr()
    said = json.loads(out)
    assert err == ""
    assert contents(tmp_path / "mine") == contents(folder)
    assert said == {
        "name": "me/mine", "folder": str(tmp_path / "mine"), "commit": hub.models["me/mine"].branches["main"],
        "files": [CONFIG, TOKENIZER, CARD, WEIGHTS], "left_out": [],
        "num_bytes": sum(map(len, contents(folder).values())),
    }  # fmt: skip
    # The place where large files lie is another host.
    assert {token for _, path, token in hub.asked if path.startswith("cdn/")} == {""}


def test_large_files_travel_in_parts_and_only_once(hub: FakeHub, folder: Path, tmp_path: Path) -> None:
    hub.chunk_size = 1000
    first = push(folder, "me/mine", hub=Hub(hub.url, TOKEN))
    assert push(folder, "me/other", hub=Hub(hub.url, TOKEN)).num_bytes == first.num_bytes
    sent = [path for method, path, _ in hub.asked if method == "PUT"]
    assert len(sent) == -(-(folder / WEIGHTS).stat().st_size // 1000)
    assert pull("me/other", tmp_path / "other", hub=Hub(hub.url)).files == first.files
    assert contents(tmp_path / "other") == contents(folder)


def test_branches_and_commits_are_kept_apart(hub: FakeHub, folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(1)
    later = save_pretrained(Transformer(TINY), tmp_path / "later", tokenizers.load("bytes"))
    first = push(folder, "me/mine", hub=Hub(hub.url))
    for _ in range(2):
        again = push(later, "me/mine", revision="v2", hub=Hub(hub.url))
    assert again.commit == hub.models["me/mine"].branches["v2"]
    for revision, wanted in ((None, folder), ("v2", later), (first.commit, folder), (again.commit, later)):
        pulled = pull("me/mine", tmp_path / "mine", revision=revision, force=True, hub=Hub(hub.url))
        assert contents(pulled.folder) == contents(wanted)


def test_a_private_model_needs_the_token_and_a_public_one_is_not_taken_for_it(
    hub: FakeHub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(folder, "me/hidden", private=True, hub=Hub(hub.url))
    assert hub.models["me/hidden"].is_private
    push(folder, "me/hidden", private=True, hub=Hub(hub.url))
    push(folder, "me/shown", hub=Hub(hub.url))
    with pytest.raises(HubError, match="me/shown is public already; push without --private, or give another name"):
        push(folder, "me/shown", private=True, hub=Hub(hub.url))
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(HubError, match="no model me/hidden at the hub, or it is private; check the name, or give a"):
        pull("me/hidden", tmp_path / "mine", hub=Hub(hub.url))
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert main(["pull", "me/hidden", str(tmp_path / "mine"), "--endpoint", hub.url,
                 "--token-file", str(tmp_path / "token")]) == 0  # fmt: skip


@pytest.mark.parametrize("max_examples", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_refused_or_changes_nothing(
    max_examples: int, hub: FakeHub, folder: Path, tmp_path: Path
) -> None:
    @settings(max_examples=max_examples)
    @given(st.sampled_from([CONFIG, TOKENIZER, WEIGHTS]), st.floats(0, 1, exclude_max=True), st.integers(0, 7))
    def check(file: str, place: float, bit: int) -> None:
        files = contents(folder)
        flipped = bytearray(files[file])
        flipped[int(place * len(flipped))] ^= 1 << bit
        hub.put("me/flipped", files | {file: bytes(flipped)})
        place_here = tmp_path / "mine"
        try:
            pull("me/flipped", place_here, hub=Hub(hub.url))
        except CheckpointError as error:
            said = str(error)
        else:
            said = ""
        if said:
            assert said.endswith("; nothing was kept")
            assert str(tmp_path) not in said
            assert list(tmp_path.iterdir()) == []
        else:
            assert file != WEIGHTS
            for name, tensor in weights(from_pretrained(folder)).items():
                assert torch.equal(tensor, weights(from_pretrained(place_here))[name])
            shutil.rmtree(place_here)

    check()


def test_only_a_model_folders_files_are_fetched(
    hub: FakeHub, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others = {"modeling.py": b"import os", "../evil.json": b"{}", "onnx/config.json": b"{}", ".gitattributes": b""}
    hub.put("me/mine", contents(folder) | others)
    assert main(["pull", "me/mine", str(tmp_path / "mine"), "--endpoint", hub.url]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"{name} is not fetched: it is no part of a model folder"
        for name in ("../evil.json", "modeling.py", "onnx/config.json")
    ]
    assert contents(tmp_path / "mine") == contents(folder)
    assert not asked_for(hub, "modeling.py")
    (tmp_path / "mine" / "notes.txt").write_text("mine alone")
    assert main(["push", str(tmp_path / "mine"), "me/second", "--endpoint", hub.url]) == 0
    assert "notes.txt is not sent: it is no part of a model folder" in capsys.readouterr().err
    assert "notes.txt" not in hub.models["me/second"].commits[hub.models["me/second"].branches["main"]]


def test_a_folder_is_replaced_only_on_demand_and_only_where_it_is_a_model(
    hub: FakeHub, folder: Path, tmp_path: Path
) -> None:
    hub.put("me/mine", contents(folder))
    other = tmp_path / "other"
    other.mkdir()
    (other / "diary.txt").write_text("dear")
    with pytest.raises(
        CheckpointError, match="other already exists; give another folder, or replace it with --force"
    ):
        pull("me/mine", other, hub=Hub(hub.url))
    with pytest.raises(
        CheckpointError, match="other is no model folder, so --force does not replace it; give another"
    ):
        pull("me/mine", other, force=True, hub=Hub(hub.url))
    assert hub.asked == []
    old = save_pretrained(Transformer(TINY), tmp_path / "old", tokenizers.load("bytes"))
    hub.put("me/broken", contents(folder) | {WEIGHTS: b"no weights"})
    before = contents(old)
    with pytest.raises(CheckpointError):
        pull("me/broken", old, force=True, hub=Hub(hub.url))
    assert contents(old) == before
    pull("me/mine", old, force=True, hub=Hub(hub.url))
    assert contents(old) == contents(folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old", "other"]


def without_checksum(files: dict[str, bytes]) -> bytes:
    described = json.loads(files[CONFIG])
    del described["weights_sha256"]
    return json.dumps(described).encode()


PULL_ERRORS: dict[str, tuple[Callable[[FakeHub, dict[str, bytes]], object], str]] = {
    "too large": (
        lambda hub, files: hub.listed.update({WEIGHTS: LIMITS[WEIGHTS] + 1}),
        rf"model\.safetensors of me/mine has {LIMITS[WEIGHTS] + 1:,} bytes, but at most {LIMITS[WEIGHTS]:,}",
    ),
    "size unknown": (
        lambda hub, files: hub.listed.update({TOKENIZER: None}),
        r"the hub does not say how large tokenizer\.json of me/mine is; nothing was fetched",
    ),
    "no room": (
        lambda hub, files: hub.listed.update({WEIGHTS: LIMITS[WEIGHTS]}),
        r"the model has [\d,]+ bytes, but only 5 are free at .*; free some space or give a folder elsewhere",
    ),
    "no weights": (
        lambda hub, files: hub.models.clear() or hub.put("me/mine", {CONFIG: files[CONFIG]}),
        r"me/mine is no model folder: it holds no model\.safetensors; give a model that reviser pushed",
    ),
    "endless": (
        lambda hub, files: setattr(hub, "is_endless", True),
        r"more than the [\d,]+ bytes that the hub had named were sent; nothing was kept",
    ),
    "another size": (
        lambda hub, files: hub.sent.update({TOKENIZER: b"{}"}),
        r"tokenizer\.json of me/mine came with 2 bytes, but the hub says [\d,]+; run it again",
    ),
    "without a checksum": (
        lambda hub, files: hub.put("me/mine", files | {CONFIG: without_checksum(files)}),
        r"me/mine: config\.json has no weights_sha256, so that nothing can be checked; nothing was kept",
    ),
    "forged settings": (
        lambda hub, files: hub.put("me/mine", files | {CONFIG: files[CONFIG].replace(b": 12", b": 13")}),
        r"me/mine: config\.json does not describe a model: the settings in config\.json are not those that were",
    ),
    "other weights": (
        lambda hub, files: hub.put("me/mine", files | {WEIGHTS: files[WEIGHTS][:-1] + b"x"}),
        r"me/mine: model\.safetensors is damaged or was replaced: its sha256 is",
    ),
    "out of order": (
        lambda hub, files: hub.broken.update({"api/models": 501}),
        r"cannot pull me/mine: HTTP 501, the hub is out of order; check the endpoint and the network",
    ),
    "refused": (
        lambda hub, files: hub.broken.update({"resolve": 403}),
        r"cannot pull me/mine: the hub refuses \(HTTP 403\); give a token with --token-file FILE or in",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", PULL_ERRORS)
def test_what_cannot_be_pulled_is_one_line_and_leaves_nothing(
    fault: str, hub: FakeHub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    prepare, wanted = PULL_ERRORS[fault]
    files = contents(folder)
    hub.put("me/mine", files)
    prepare(hub, files)
    if fault == "no room":
        monkeypatch.setattr("shutil.disk_usage", lambda _: type("Room", (), {"free": 5}))
    assert main(["pull", "me/mine", str(tmp_path / "mine"), "--endpoint", hub.url]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(rf"error: {wanted}.*\n", err)
    assert list(tmp_path.iterdir()) == []


def test_names_revisions_and_addresses_that_lead_nowhere_are_one_line(
    hub: FakeHub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.put("me/mine", contents(folder))
    out = tmp_path / "mine"
    with pytest.raises(HubError, match="no model me/nothing at the hub, or it is private; check the name, or give a"):
        pull("me/nothing", out, hub=Hub(hub.url))
    with pytest.raises(HubError, match="me/mine has no revision v9; give a branch, a tag or a commit that it has"):
        pull("me/mine", out, revision="v9", hub=Hub(hub.url))
    for name in ("mine", "me/mine/more", "me/../mine", "http://me/mine", "me/", "-me/mine"):
        with pytest.raises(
            HubError, match="names no model of the hub; give owner/model, of letters, digits, -, _ and"
        ):
            pull(name, out, hub=Hub(hub.url))
    for endpoint in ("hub.example.org", "ftp://hub.example.org", "https://"):
        with pytest.raises(HubError, match="is no address; give one like https://"):
            Hub(endpoint)
    with pytest.raises(HubError, match="must begin with https://; plain http is for this machine alone"):
        Hub("http://hub.example.org")
    with pytest.raises(
        HubError, match=r"cannot pull me/mine: .*; check the endpoint and the network, and run it again"
    ):
        pull("me/mine", out, hub=Hub("http://127.0.0.1:9"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    huggingface_hub.close_session()
    with pytest.raises(HubError, match=r"cannot pull me/mine: HF_HUB_OFFLINE forbids the network; unset it"):
        pull("me/mine", out, hub=Hub(hub.url))
    huggingface_hub.close_session()
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingPackageError, match=r"the hub needs the package .*; run: pip install 'reviser\[hub\]'"):
        pull("me/mine", out, hub=Hub(hub.url))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_does_not_load_is_not_pushed(hub: FakeHub, folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for name, content in contents(folder).items():
        (broken / name).write_bytes(content)
    with pytest.raises(CheckpointError, match="no model folder me/model; give one that is here"):
        push("me/model", "me/mine", hub=Hub(hub.url))
    (broken / CONFIG).write_bytes(without_checksum(contents(folder)))
    with pytest.raises(
        CheckpointError, match=r"has no weights_sha256, .*; run: reviser pack .* NEW --weights float32"
    ):
        push(broken, "me/mine", hub=Hub(hub.url))
    (broken / CONFIG).write_bytes(contents(folder)[CONFIG])
    (broken / WEIGHTS).write_bytes(contents(folder)[WEIGHTS][:-1])
    with pytest.raises(CheckpointError, match="is damaged or cut short"):
        push(broken, "me/mine", hub=Hub(hub.url))
    (broken / WEIGHTS).write_bytes(contents(folder)[WEIGHTS])
    (broken / TOKENIZER).unlink()
    with pytest.raises(CheckpointError, match=r"holds no tokenizer\.json"):
        push(broken, "me/mine", hub=Hub(hub.url))
    assert (hub.asked, hub.models) == ([], {})


def test_who_may_not_push_is_told_what_to_do(
    hub: FakeHub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        HubError,
        match=r"cannot push me/mine: the hub refuses \(HTTP 401, Invalid username or password\); give",
    ):
        push(folder, "me/mine", hub=Hub(hub.url, "hf_wrong"))
    hub.broken["commit"] = 501
    with pytest.raises(HubError, match=r"cannot push me/mine: .*501.*; check the endpoint and the network"):
        push(folder, "me/mine", hub=Hub(hub.url))
    del hub.broken["commit"]
    hub.broken["lfs/objects"] = 501
    with pytest.raises(HubError, match=r"cannot push me/mine: .*501.*; check the endpoint and the network"):
        push(folder, "me/mine", hub=Hub(hub.url))
    assert list(hub.models["me/mine"].commits.values()) == [{".gitattributes": b""}]
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(
        HubError, match="pushing me/mine needs a token; give a token with --token-file FILE or in HF_TOK"
    ):
        push(folder, "me/mine", hub=Hub(hub.url))
    for content, wanted in ((b" \n", "must hold one word of ASCII"), (b"\xff\xfe", "it is no text")):
        (tmp_path / "token").write_bytes(content)
        with pytest.raises(HubError, match=wanted):
            read_token(tmp_path / "token")
    with pytest.raises(HubError, match=r"cannot read the token file .*: No such file or directory; give a file that"):
        read_token(tmp_path / "nothing")


def test_the_examples_of_the_install_page_run(
    hub: FakeHub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder, tmp_path / "runs" / "mine")
    [block] = [block for block in blocks("install.md", "sh") if "push" in block]
    *transfers, written = (shlex.split(line)[1:] for line in block.splitlines())
    for words in transfers:
        assert main(words) == 0
    assert written[-2:] == ["--model", "mine"]
    assert reviser.load("mine").notes == "Small."
    assert hub.models["me/mine"].is_private
    assert contents(tmp_path / "mine") == contents(folder)
    assert (reviser.push, reviser.pull) == (push, pull)


def test_a_model_is_loaded_by_its_name_at_the_hub_unless_a_folder_has_it(
    hub: FakeHub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hub.put("me/mine", contents(folder) | {"modeling.py": b"raise SystemExit"})
    assert reviser.load("me/mine").notes == "Small."
    assert not asked_for(hub, "modeling.py")
    hub.asked.clear()
    save_pretrained(Transformer(TINY), tmp_path / "me" / "mine", tokenizers.load("bytes"), notes="Local.")
    assert reviser.load("me/mine").notes == "Local."
    assert hub.asked == []
    assert hash_file(folder / WEIGHTS) == json.loads(contents(folder)[CONFIG])["weights_sha256"]
