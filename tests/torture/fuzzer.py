"""Requests for a server, made from its own description: some as they are meant, most with something wrong."""

from __future__ import annotations

import json
import random
from typing import Any
from urllib.parse import quote_from_bytes, urlencode

Schema = dict[str, Any]
TEXTS = [
    "", "a", "The old sea", "é" * 40, "\ud800", "\x00", "\u202e\x1b[2J", "<script>", "x" * 5000, "\U0001f600",
    "\n" * 50, "___", "%00", "../../etc/passwd", "{" * 500, "  ",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 3, 2**31, 2**63, 10**30, -0.0, 0.5, 1e308, 1e-300, [], {}, [[]], [None],
    {"a": {"b": []}}, [1, 2], ["a", "b"], {"include_usage": 3},
]  # fmt: skip
MEANT: dict[str, list[Any]] = {
    "prompt": ["The", "The old sea", ""], "prefix": ["a"], "suffix": [" b", None], "input_prefix": ["a"],
    "input_suffix": ["b"], "text": ["Teh cat.", "a ___ b", "a ___ b ___ c"], "parts": [["a", "b"], ["a", "b", "c"]],
    "model": [None], "n": [1, 2], "best_of": [1, 2], "max_tokens": [1, 3], "n_predict": [1, 3], "max_actions": [1, 4],
    "min_tokens": [0, 1], "min_length": [0, 1], "max_length": [None, 3], "seed": [0, 3], "temperature": [0, 0.7],
    "top_p": [0.9, 1.0], "top_k": [0, 5], "min_p": [0, 0.1], "moves": [True, None], "stop": ["e", ["a", "b"]],
    "logprobs": [0, 2], "echo": [True, False], "stream": [True, False], "stream_options": [{"include_usage": True}],
    "units": ["characters", "utf-16"], "format": ["text", "markdown"], "words": [["teh"]],
    "min_probability": [0, 0.5], "reread": [True, False], "within": [[0, 3]], "start": [0], "end": [1, 3],
    "number": [0, 1], "canvas": [True],
    "clip": [True, False], "title": ["x"], "input_extra": [[]], "user": ["me"],
}  # fmt: skip
"""What the fields are for."""
NEEDED = {
    "/v1/completions": ("prompt", "max_tokens"), "/infill": ("input_prefix", "input_suffix", "n_predict"),
    "/v1/trajectories": ("prompt", "max_actions"), "/v1/edits": ("text",), "/v1/edits/ways": ("text", "start", "end"),
    "/v1/fillings": ("parts", "max_actions"), "/v1/replays": ("runs",),
}  # fmt: skip
"""Fields without which an endpoint does nothing, or too much."""
OFTEN, SELDOM = 0.1, {"/v1/edits/ways": 0.002, "/v1/edits": 0.01, "/v1/fillings": 0.03, "/v2/check": 0.01}
"""How often an endpoint is asked for what it is for; a model that knows nothing takes long over an edit."""
PATHS = ["/%2e%2e/%2e%2e/etc/passwd", "/static/../app.py", "/static/%00", "//", "/v1/%ff"]
HEADERS = [
    {"Authorization": "Bearer x"}, {"Origin": "http://evil"}, {"Accept": "\x7f"}, {"X-Long": "y" * 3000},
    {"Host": "evil.example"}, {"Expect": "100-continue"},
]  # fmt: skip


class Fuzzer:
    """All its luck is from `chance`; `trajectory` is one that can be replayed."""

    def __init__(self, schema: Schema, trajectory: dict[str, Any], chance: random.Random) -> None:
        self.chance = chance
        described = [(method.upper(), path) for path, methods in schema["paths"].items() for method in methods]
        pages = [("GET", path) for path in ("/", "/docs", "/openapi.json", "/static/index.html", "/metrics")]
        self.endpoints = 3 * [each for each in described if each not in pages] + pages
        bodies = schema["components"]["schemas"]
        self.fields = {path: _fields(about, bodies) for path, about in schema["paths"].items()}
        known = {field for each in bodies.values() for field in each.get("properties", {})}
        self.names = sorted(known | {"nothing", "a" * 300, ""})
        self.meant = MEANT | {"runs": [[{"trajectory": trajectory}]]}

    def request(self) -> tuple[str, str, bytes, dict[str, str]]:
        """A method, a path, a body and headers."""
        chance = self.chance
        method, path = chance.choice(self.endpoints)
        is_form, is_meant = path.startswith("/v2"), chance.random() < SELDOM.get(path, OFTEN)
        body = self.form(is_meant) if is_form else self.meant_body(path) if is_meant else self.json_body()
        headers = {"Content-Type": "application/x-www-form-urlencoded" if is_form else "application/json"}
        if chance.random() < 0.05:
            method = chance.choice(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "BREW"])
        if chance.random() < 0.05:
            more = [path + "/", path * 50, f"{path}?{'a=b&' * 200}", f"{path}?text=%ff&data=%5B"]
            path = chance.choice(PATHS + more)
        if chance.random() < 0.1:
            body = self.damage(body)
        if chance.random() < 0.05:
            kinds = ["", "text/plain", "application/json; charset=utf-16", "multipart/x"]
            headers["Content-Type"] = chance.choice(kinds)
        if chance.random() < 0.03:
            headers |= chance.choice(HEADERS)
        return method, path, b"" if method == "GET" else body, headers

    def meant_body(self, path: str) -> bytes:
        """What the endpoint is for, with a few more of its fields, or a value that it does not expect."""
        chance = self.chance
        names = [*NEEDED.get(path, ())]
        known = self.fields.get(path, [])
        names += chance.sample(known, min(len(known), chance.randint(0, 2)))
        body = {name: chance.choice(self.meant.get(name, VALUES)) for name in names}
        if body and chance.random() < 0.3:
            body[chance.choice(list(body))] = self.value()
        return json.dumps(body).encode()

    def json_body(self) -> bytes:
        """Fields of any endpoint, with any values."""
        body = {name: self.value() for name in self.chance.sample(self.names, self.chance.randint(0, 5))}
        return json.dumps({"max_actions": self.chance.randint(1, 4)} | body).encode()

    def value(self) -> Any:
        return self.chance.choice(TEXTS if self.chance.random() < 0.5 else VALUES)

    def form(self, is_meant: bool) -> bytes:
        chance = self.chance
        fields: dict[str, Any] = {"language": chance.choice(["en-US", "auto"] if is_meant else ["xx", ""])}
        if chance.random() < 0.8:
            fields["text"] = chance.choice(TEXTS)
        if chance.random() < 0.3:
            annotation = [{"text": chance.choice(TEXTS)}, {"markup": "<b>", "interpretAs": 3}, chance.choice(VALUES)]
            fields["data"] = json.dumps({"annotation": annotation[: chance.randint(0, 3)]})
        for name in ("enabledRules", "disabledRules", "enabledOnly", "level", "x" * 50):
            if chance.random() < 0.2:
                fields[name] = str(chance.choice(VALUES))
        return urlencode(fields, errors="surrogatepass").encode()

    def damage(self, body: bytes) -> bytes:
        chance = self.chance
        place = chance.randrange(len(body) + 1)
        huge = b"x" * ((1 << 20) + 5) if chance.random() < 0.05 else b"null"
        return chance.choice(
            [
                body[:place],
                body[:place] + bytes([chance.randrange(256)]) + body[place + 1 :],
                b"[" * 20_000,
                b'{"prompt":' * 3_000,
                b"\xff" + body,
                b"",
                body * 3,
                b'{"seed": ' + b"9" * 5000 + b"}",
                b'{"temperature": NaN, "top_p": Infinity}',
                huge,
                quote_from_bytes(body).encode(),
            ]
        )


def _fields(methods: Schema, bodies: Schema) -> list[str]:
    """The fields of a path's body."""
    found: list[str] = []
    for about in methods.values():
        for content in about.get("requestBody", {}).get("content", {}).values():
            given = content["schema"]
            model = bodies[given["$ref"].rpartition("/")[2]] if "$ref" in given else given
            found += model.get("properties", {})
    return found
