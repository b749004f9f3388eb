"""Who may ask, how much, and what happens to those who go away, take too long or are left when the server stops."""

import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import pytest
from served import make_writer, serving, wait_until

from reviser.decoding.writer import Writer
from reviser.errors import ConfigError
from reviser.serving.running_engine import RunningEngine
from reviser.serving.serve_config import ServeConfig, read_token
from reviser.serving.server import listen

WRITER = make_writer("move")
LONG = make_writer("move", context=200)
SLOW = {"prompt": "ab", "max_actions": 190}


def complete(served, **fields):
    return served.post("/v1/completions", **{"prompt": "ab", "max_tokens": 2} | fields)


@pytest.fixture
def endless(monkeypatch):
    """Texts that take a second or more."""
    write, advance = Writer.write_drafts, RunningEngine.advance

    def write_long(self, drafts, n, best_of, max_actions, seed, sampling, num_alternatives=0):
        sampling = replace(sampling, stop_bias=-99.0)
        return write(self, drafts, n, best_of, max_actions, seed, sampling, num_alternatives)

    def advance_slowly(self):
        time.sleep(0.01)
        return advance(self)

    monkeypatch.setattr(Writer, "write_drafts", write_long)
    monkeypatch.setattr(RunningEngine, "advance", advance_slowly)


def test_large_bodies_and_long_texts_are_refused():
    with serving(WRITER, max_body_bytes=300, max_characters=20) as served:
        response = complete(served, prompt="a" * 400)
        assert response.status_code == 413
        assert response.json()["error"]["message"].startswith("the body is larger than 300 bytes; send less")
        chunked = served.http.post("/v2/check", content=(b"a" * 100 for _ in range(9)))
        assert (chunked.status_code, chunked.text[:6]) == (413, "Error:")
        response = complete(served, prompt="a" * 21)
        assert response.status_code == 413
        assert "prompt has 21 characters, and at most 20 are allowed" in response.json()["error"]["message"]
        assert complete(served).status_code == 200


def test_a_token_is_needed_everywhere_but_for_health_and_docs():
    with serving(WRITER, token="secret") as served:
        assert complete(served).status_code == 200
        for headers in ({}, {"Authorization": "Bearer secre"}, {"Authorization": "Basic secret"}):
            with httpx.Client(base_url=served.url, headers=headers) as stranger:
                refused = stranger.post("/v1/completions", json={"prompt": "a"})
                assert refused.status_code == 401
                assert refused.json()["error"]["message"].startswith("this server needs a token; send it as")
                assert refused.headers["WWW-Authenticate"] == "Bearer"
                assert [stranger.get(path).status_code for path in ("/metrics", "/v1/models")] == [401, 401]
                assert [stranger.get(path).status_code for path in ("/health", "/docs")] == [200, 200]


def test_other_names_for_this_machine_and_other_sites_are_refused():
    with serving(WRITER, allow_hosts=("model.lan",)) as served:
        for host, status in (("localhost:80", 200), ("[::1]:9", 200), ("MODEL.lan", 200), ("evil.example", 421)):
            assert served.http.get("/v1/models", headers={"Host": host}).status_code == status
        answer = served.http.get("/v1/models", headers={"Origin": "https://a.example"})
        assert "access-control-allow-origin" not in answer.headers
    with serving(WRITER, cors=("https://a.example",), token="t") as served:
        asked = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
        answer = httpx.options(f"{served.url}/v1/completions", headers=asked)
        assert answer.headers["access-control-allow-origin"] == "https://a.example"
        asked["Origin"] = "https://b.example"
        assert "access-control-allow-origin" not in httpx.options(f"{served.url}/infill", headers=asked).headers


def test_more_requests_than_the_queue_holds_are_turned_away(endless):
    with serving(LONG, concurrency=1, queue=1, rows=1, grace_s=0) as served, ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(served.post, "/v1/completions", **SLOW) for _ in range(2)]
        wait_until(lambda: served.service.num_admitted == 2)
        refused = complete(served)
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
        assert refused.json()["error"]["message"] == "2 requests are in work or waiting; try again later"
        stream = served.post("/infill", input_prefix="a", stream=True)
        assert (stream.status_code, stream.json()["error"]["code"]) == (429, 429)
        served.stop()
        answers = [each.result() for each in waiting]
        assert [each.status_code for each in answers] == [503, 503]
        assert "the server is shutting down and did not finish this" in answers[0].json()["error"]["message"]


def test_a_request_that_takes_too_long_is_ended(endless):
    with serving(LONG, timeout_s=0.3) as served:
        answer = served.post("/v1/completions", **SLOW)
        assert answer.status_code == 504
        assert answer.json()["error"]["message"] == "not done after 0.3 s; ask for less, or raise --timeout-s"
        wait_until(lambda: served.service.scheduler.num_decoding == 0)
        events = list(served.events("/v1/completions", **SLOW, stream=True))
        assert events[-1][1]["error"]["message"].startswith("not done after 0.3 s")


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_client_that_goes_away_frees_its_row(endless, is_stream):
    with serving(LONG) as served:
        body = httpx.Request("POST", f"{served.url}/v1/completions", json=SLOW | {"stream": is_stream})
        with socket.create_connection(("127.0.0.1", int(served.url.rpartition(":")[2]))) as raw:
            head = [f"{name}: {value}" for name, value in body.headers.items()]
            raw.sendall("\r\n".join(["POST /v1/completions HTTP/1.1", *head, "", ""]).encode() + body.read())
            wait_until(lambda: served.service.scheduler.num_decoding == 1)
        wait_until(lambda: served.service.scheduler.num_decoding == 0, limit_s=2)
        wait_until(lambda: served.service.num_admitted == 0, limit_s=2)
        assert "reviser_requests_cancelled_total 1.0" in served.http.get("/metrics").text


def test_a_server_that_stops_finishes_what_has_begun_and_is_not_ready(endless):
    with serving(LONG, grace_s=30) as served, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(served.post, "/v1/completions", **SLOW)
        wait_until(lambda: served.service.scheduler.num_decoding == 1)
        served.stop()
        with httpx.Client(base_url=served.url) as probe:
            ready = probe.get("/health")
            assert (ready.status_code, ready.json()["status"]) == (503, "draining")
            assert probe.get("/health/live").status_code == 200
            refused = probe.post("/v1/completions", json={"prompt": "a"})
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
            assert refused.json()["error"]["message"].startswith("the server is shutting down; ask another")
        assert waiting.result().status_code == 200
        assert waiting.result().json()["usage"]["completion_tokens"] > 50


@pytest.mark.parametrize("is_asked", [False, True])
def test_text_is_logged_only_where_it_is_asked_for(caplog, is_asked):
    with caplog.at_level(logging.INFO, "reviser.serving"), serving(WRITER, log_text=is_asked) as served:
        logging.getLogger("reviser.serving").propagate = True
        complete(served, prompt="private")
        served.http.get("/v2/check", params={"text": "private", "language": "en"})
    assert "POST /v1/completions 200" in caplog.text
    assert ("private" in caplog.text) == is_asked


def test_an_error_of_the_server_says_nothing_of_the_inside(monkeypatch):
    def fail(self, *args):
        raise RuntimeError("a secret")

    with serving(WRITER) as served:
        monkeypatch.setattr(Writer, "write_drafts", fail)
        answer = complete(served)
        assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")
        assert "secret" not in answer.text


def test_an_error_in_a_stream_is_told_and_logged(monkeypatch, caplog):
    def fail(self):
        raise RuntimeError("a secret")

    with caplog.at_level(logging.INFO, "reviser.serving"), serving(WRITER) as served:
        logging.getLogger("reviser.serving").propagate = True
        monkeypatch.setattr(RunningEngine, "advance", fail)
        kinds = {
            "/v1/trajectories": {"prompt": "a"},
            "/infill": {"stream": True},
            "/v1/completions": {"stream": True},
        }
        for path, fields in kinds.items():
            *_, (_, last) = served.events(path, **fields)
            assert last["error"]["message"] == "the server made a mistake; its log says which"
            assert f"{path} failed" in caplog.text
    assert "RuntimeError: a secret" in caplog.text


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"port": 70000}, "port 70000 must be between 0 and 65535; 0 takes any that is free"),
        ({"rows": 0}, "rows=0 must be at least 1"),
        ({"queue": -1}, "queue=-1 must be 0 or more"),
        ({"timeout_s": 0.0}, "timeout_s=0.0 must be finite and above 0"),
        ({"head_timeout_s": -1.0}, "head_timeout_s=-1.0 must be finite and above 0"),
        ({"max_connections": 0}, "max_connections=0 must be at least 1"),
        ({"grace_s": float("nan")}, "grace_s=nan must be finite and 0 or more"),
        ({"token": "a\n"}, "the token must be printable ASCII and not empty"),
        ({"cors": ("example.org",)}, "cors origin 'example.org' must be * or begin with http:// or https://"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ConfigError) as refused:
        ServeConfig(**settings)
    assert message in str(refused.value)


def test_an_address_that_is_taken_is_one_clear_error():
    with listen(ServeConfig(port=0)) as opened:
        port = opened.getsockname()[1]
        with pytest.raises(
            ConfigError, match=rf"cannot listen on 127.0.0.1:{port}: .*; choose another --host or --port"
        ):
            listen(ServeConfig(port=port))


def test_the_parts_of_an_answer_do_not_wait_for_each_other():
    with listen(ServeConfig(port=0)) as opened, socket.create_connection(opened.getsockname()):
        accepted, _ = opened.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_token_comes_from_the_command_line_or_the_environment(monkeypatch):
    monkeypatch.setenv("REVISER_TOKEN", "there")
    assert (read_token(None), read_token("here")) == ("there", "here")
    monkeypatch.setenv("REVISER_TOKEN", "")
    assert read_token(None) is None


def test_no_thread_is_left_behind():
    before = threading.active_count()
    with serving(WRITER) as served:
        complete(served)
    wait_until(lambda: threading.active_count() <= before)
