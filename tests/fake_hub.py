"""A hub on this machine: what `huggingface_hub` asks of the real one for models, and faults on request.

>>> with running() as hub:  # doctest: +SKIP
...     main(["push", "my-model", "me/mine", "--endpoint", hub.url])
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_the_token_of_the_tests"
NOT_FOUND = {"repo": "RepoNotFound", "revision": "RevisionNotFound", "entry": "EntryNotFound"}
LARGE = ".safetensors"


@dataclass
class Kept:
    """One model: its commits, each a whole state, and what its branches point at."""

    is_private: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, branch: str, files: dict[str, bytes]) -> str:
        old = self.commits.get(self.branches.get(branch, ""), {})
        sha = hashlib.sha1(f"{len(self.commits)}{branch}".encode()).hexdigest()
        self.commits[sha], self.branches[branch] = old | files, sha
        return sha

    def find(self, revision: str) -> str | None:
        return revision if revision in self.commits else self.branches.get(revision)


class FakeHub(ThreadingHTTPServer):
    """Answers on a free port of the loopback."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.models: dict[str, Kept] = {}
        self.large: dict[str, bytes] = {}
        """What was uploaded, by its sha256."""
        self.asked: list[tuple[str, str, str]] = []
        """Method, path and token of every request."""
        self.chunk_size = 0
        """Large files arrive in parts of so many bytes, where it is not 0."""
        self.listed: dict[str, int | None] = {}
        """Sizes that the listing claims, by file."""
        self.sent: dict[str, bytes] = {}
        """What downloads give instead, by file."""
        self.is_endless = False
        """Whether downloads never end by themselves."""
        self.broken: dict[str, int] = {}
        """The status that requests whose path contains a text get."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def put(self, name: str, files: dict[str, bytes], branch: str = "main", is_private: bool = False) -> str:
        """A model that somebody pushed by other means."""
        return self.models.setdefault(name, Kept(is_private)).commit(branch, files)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are what some tests are about."""


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FakeHub

    def log_message(self, format: str, *args: Any) -> None: ...

    def do_GET(self) -> None:
        self._route("GET")

    def do_HEAD(self) -> None:
        self._route("HEAD")

    def do_POST(self) -> None:
        self._route("POST")

    def do_PUT(self) -> None:
        self._route("PUT")

    def _route(self, method: str) -> None:
        path = unquote(urlsplit(self.path).path).lstrip("/")
        self.token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.server.asked.append((method, path, self.token))
        self.body = self._read_body()
        for text, status in self.server.broken.items():
            if text in path:
                return self._give(status, {"error": "the hub is out of order"})
        words = path.split("/")
        if words[:2] == ["api", "models"]:
            return self._answer_model("/".join(words[2:4]), words[4:])
        if words[0] in ("lfs", "cdn"):
            return self._answer_large(words[0], words[1:])
        if "resolve" in words:
            return self._resolve("/".join(words[:2]), words[3], "/".join(words[4:]))
        if path.endswith(".git/info/lfs/objects/batch"):
            return self._give(
                200, {"transfer": "basic", "objects": [self._place(each) for each in self._json()["objects"]]}
            )
        if path == "api/repos/create":
            return self._create()
        return self._give(200 if path == "api/validate-yaml" else 404, {})

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _json(self) -> Any:
        return json.loads(self.body)

    def _create(self) -> None:
        asked = self._json()
        name = f"{asked['organization']}/{asked['name']}"
        if self.token != TOKEN:
            return self._give(401, {"error": "Invalid username or password."})
        if name in self.server.models:
            return self._give(
                409, {"error": "You already created this model repo", "url": f"{self.server.url}/{name}"}
            )
        is_private = asked.get("visibility") == "private" or bool(asked.get("private"))
        self.server.put(name, {".gitattributes": b""}, is_private=is_private)
        return self._give(200, {"url": f"{self.server.url}/{name}", "id": name})

    def _answer_model(self, name: str, words: list[str]) -> None:
        model = self.server.models.get(name)
        if model is None or (model.is_private and self.token != TOKEN):
            return self._miss("repo")
        what, rest = (words[0], "/".join(words[1:])) if words else ("revision", "main")
        if what == "branch":
            if rest in model.branches:
                return self._give(409, {"error": "Reference already exists"})
            model.branches[rest] = model.branches["main"]
            return self._give(201, {})
        sha = model.find(rest)
        if sha is None:
            return self._miss("revision")
        if what == "revision":
            return self._give(200, self._describe(name, model, sha))
        if what == "tree":
            listed = self._describe(name, model, sha)["siblings"]
            about = [{"type": "file", "path": each["rfilename"], "oid": each["blobId"], **each} for each in listed]
            return self._give(200, about)
        if self.token != TOKEN:
            return self._give(403, {"error": "You may not write here."})
        if what == "preupload":
            modes = [
                {
                    "path": each["path"],
                    "uploadMode": "lfs" if each["path"].endswith(LARGE) else "regular",
                    "shouldIgnore": False,
                }
                for each in self._json()["files"]
            ]
            return self._give(200, {"files": modes})
        return self._commit(name, model, rest)

    def _describe(self, name: str, model: Kept, sha: str) -> dict[str, Any]:
        siblings = [
            {"rfilename": file, "size": self.server.listed.get(file, len(content)), "blobId": "0" * 40}
            for file, content in model.commits[sha].items()
        ]
        return {"_id": "0", "id": name, "sha": sha, "private": model.is_private, "siblings": siblings}

    def _commit(self, name: str, model: Kept, branch: str) -> None:
        lines = [json.loads(line) for line in self.body.splitlines()]
        files = {
            line["value"]["path"]: base64.b64decode(line["value"]["content"])
            if line["key"] == "file"
            else self.server.large[line["value"]["oid"]]
            for line in lines
            if line["key"] != "header"
        }
        sha = model.commit(branch, files)
        self._give(200, {"commitUrl": f"{self.server.url}/{name}/commit/{sha}", "commitOid": sha, "success": True})

    def _place(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Where a large file goes, unless it is here already."""
        oid, size, chunk = asked["oid"], asked["size"], self.server.chunk_size
        if oid in self.server.large:
            return {"oid": oid, "size": size}
        base = f"{self.server.url}/lfs"
        upload: dict[str, Any] = {"href": f"{base}/{oid}"}
        if chunk:
            parts = {str(n + 1): f"{base}/{oid}/{n}" for n in range(-(-size // chunk))}
            upload = {"href": f"{base}/{oid}/done", "header": {"chunk_size": str(chunk)} | parts}
        return {"oid": oid, "size": size, "actions": {"upload": upload, "verify": {"href": f"{base}/verify"}}}

    def _answer_large(self, where: str, words: list[str]) -> None:
        large = self.server.large
        if where == "cdn":
            return self._send(self.server.sent.get(words[1], large.get(words[0], b"")))
        if words == ["verify"]:
            asked = self._json()
            return self._give(200 if len(large[asked["oid"]]) == asked["size"] else 422, {})
        if words[-1] == "done":
            whole = b"".join(large.pop(f"{words[0]}/{n}") for n in range(len(self._json()["parts"])))
            large[words[0]] = whole
        else:
            large["/".join(words)] = self.body
            whole = b""
        return self._give(200, {}, {"ETag": hashlib.md5(self.body).hexdigest()})

    def _resolve(self, name: str, revision: str, file: str) -> None:
        model = self.server.models.get(name)
        if model is None or (model.is_private and self.token != TOKEN):
            return self._miss("repo")
        sha = model.find(revision)
        if sha is None or file not in model.commits[sha]:
            return self._miss("revision" if sha is None else "entry")
        content = self.server.sent.get(file, model.commits[sha][file])
        digest = hashlib.sha256(content).hexdigest()
        about = {"X-Repo-Commit": sha}
        if not file.endswith(LARGE):
            return self._send(content, about | {"ETag": f'"{digest[:40]}"'})
        self.server.large.setdefault(digest, content)
        linked = {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(content))}
        place = {"Location": f"http://localhost:{self.server.server_port}/cdn/{digest}/{file}"}
        return self._give(302, {}, about | linked | place)

    def _miss(self, what: str) -> None:
        self._give(404, {"error": f"{what} not found"}, {"X-Error-Code": NOT_FOUND[what]})

    def _give(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        self._send(json.dumps(value).encode(), {"Content-Type": "application/json"} | (headers or {}), status)

    def _send(self, content: bytes, headers: dict[str, str] | None = None, status: int = 200) -> None:
        is_endless = self.server.is_endless and status == 200 and self.path.startswith("/cdn/")
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header(*(("Transfer-Encoding", "chunked") if is_endless else ("Content-Length", str(len(content)))))
        self.end_headers()
        if self.command == "HEAD":
            return
        if not is_endless:
            self.wfile.write(content)
        while is_endless:
            self.wfile.write(b"10000\r\n" + bytes(1 << 16) + b"\r\n")


@contextmanager
def running() -> Iterator[FakeHub]:
    hub = FakeHub()
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
