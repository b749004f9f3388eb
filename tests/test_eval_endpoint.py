"""A chat endpoint on its bad days: no judgment is lost, doubled or paid twice, and the key stays hidden."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from chat_server import KEY, Answer, Server, fail, judge_rightly, say, serve
from hypothesis import given
from hypothesis import strategies as st
from judged import arena_command, make_many, right_verdict

from reviser.errors import ConfigError, MissingPackageError
from reviser.evaluation.judges.arena import Judgment, JudgmentFile, hold, read_judgments
from reviser.evaluation.judges.chat import ChatJudge
from reviser.evaluation.judges.endpoint import Endpoint, UnansweredError, read_key
from reviser.evaluation.judges.endpoint import _retry_after_s as retry_after_s
from reviser.evaluation.judges.messages import REMINDER

pytest.importorskip("httpx")


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def open_judge(server: Server, concurrency: int = 4, **settings: Any) -> ChatJudge:
    settings = {"key": KEY, "wait_s": 0.01, "timeout_s": 5.0} | settings
    return ChatJudge(Endpoint(server.url, "some-judge", **settings), concurrency)


MOODS: list[Callable[[dict[str, Any]], Answer | None]] = [
    lambda body: fail(500, f"broken, and your key was {KEY}"),
    lambda body: fail(429, "slower please", Retry_After="0.02"),
    lambda body: (200, {}, b'{"choices": [{"mess'),
    lambda body: (200, {}, b'{"error": {"message": "overloaded"}}'),
    lambda body: say(["no", "text"]),
    lambda body: None,
    lambda body: (502, {}, b"<html>Bad Gateway</html>"),
    lambda body: (time.sleep(0.7), judge_rightly(body))[1],
]
"""What a server does on its bad days; the last one is slower than the time-out."""


@pytest.mark.parametrize("concurrency", [pytest.param(1, marks=pytest.mark.slow), 6])
def test_a_server_on_its_bad_days_loses_and_doubles_no_judgment(concurrency: int, tmp_path: Path) -> None:
    tries: Counter[str] = Counter()

    def script(number: int, body: dict[str, Any]) -> Answer | None:
        message = body["messages"][0]["content"]
        tries[message] += 1  # the third try of a pair goes well
        return judge_rightly(body) if tries[message] > 2 else MOODS[number % len(MOODS)](body)

    pairs, path = make_many(12, both_orders=True), tmp_path / "judgments.jsonl"
    with serve(script) as server:
        judge = open_judge(server, concurrency, timeout_s=0.4, retries=12)
        file = JudgmentFile(path, judge.name)
        assert hold(judge, pairs, file, lambda done: None, lambda: None)
    assert len(path.read_text().splitlines()) == len(pairs)
    judgments = {each.key: each for each in read_judgments(path)}
    assert {pair.key: right_verdict(pair) for pair in pairs} == {key: each.verdict for key, each in judgments.items()}
    assert set(server.keys) == {f"Bearer {KEY}"}
    assert set(server.num_keys) == {1}
    assert len(server.bodies) >= 2 * len(pairs)
    assert KEY not in path.read_text()


def test_a_reply_without_a_winner_is_asked_once_more_and_then_failed() -> None:
    def script(number: int, body: dict[str, Any]) -> Answer:
        if "better 1\n" in body["messages"][0]["content"]:
            return say(None if len(body["messages"]) == 1 else "Hard to say.")
        return say("Both are fine.") if len(body["messages"]) == 1 else judge_rightly(body)

    pairs = make_many(4)
    with serve(script) as server:
        judgments = {each.prompt_id: each for each in open_judge(server).judge(pairs)}
    assert judgments["p1"].verdict == "failed"
    assert judgments["p1"].reply == "Hard to say."
    assert [judgments[f"p{p}"].verdict for p in (0, 2, 3)] == [right_verdict(pairs[p]) for p in (0, 2, 3)]
    assert len(server.bodies) == 8
    last = server.bodies[-1]["messages"]
    assert [each["role"] for each in last] == ["user", "assistant", "user"]
    assert last[2]["content"] == REMINDER


def test_the_request_is_a_greedy_chat_completion_and_takes_more_fields() -> None:
    with serve(lambda number, body: judge_rightly(body)) as server:
        list(
            open_judge(server, body={"max_tokens": None, "max_completion_tokens": 9, "user": "me"}).judge(
                make_many(1)
            )
        )
        list(open_judge(server, key="").judge(make_many(1)))
    changed, plain = server.bodies
    assert set(changed) == {"model", "messages", "temperature", "max_completion_tokens", "user"}
    assert (plain["model"], plain["temperature"], plain["max_tokens"]) == ("some-judge", 0, 512)
    assert server.keys == [f"Bearer {KEY}", None]


class Waits(threading.Event):
    """An event that notes how long it was waited for, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        return False


def test_waits_double_and_retry_after_is_heeded() -> None:
    script = [fail(503, "down"), fail(503, "down"), fail(503, "down"), fail(429, "slow", Retry_After="77")]
    with serve(lambda number, body: script[number] if number < 4 else say("[[A]]")) as server:
        endpoint = Endpoint(server.url, "m", KEY, wait_s=2.0)
        endpoint.closing = waits = Waits()
        assert endpoint.ask([{"role": "user", "content": "?"}]) == "[[A]]"
    paused = [each for each in waits.seconds if each > 0]
    for seconds, expected in zip(paused, (2.0, 4.0, 8.0, 77.0), strict=False):
        assert 0.7 * expected <= seconds <= 1.3 * expected
    # The limit holds for all threads: the next request of any of them waits as well.
    assert paused[4] == pytest.approx(77, abs=2)


def test_an_endpoint_that_wants_a_day_is_given_up_at_once() -> None:
    with serve(lambda number, body: fail(429, "quota spent", Retry_After="86400")) as server:
        endpoint = Endpoint(server.url, "m", KEY)
        with pytest.raises(UnansweredError, match="429 quota spent, after 1 of 7 tries"):
            endpoint.ask([{"role": "user", "content": "?"}])


def test_retry_after_is_seconds_or_a_date() -> None:
    assert retry_after_s("3") == 3
    assert retry_after_s("-3") == 0
    assert retry_after_s(None) == 0
    assert retry_after_s("soon") == 0
    assert retry_after_s("nan") == 0
    assert retry_after_s("Mon, 01 Jan 0001 00:00:00 -0000") == 0
    assert retry_after_s(formatdate(time.time() + 1000, usegmt=True)) == pytest.approx(1000, abs=30)


@given(st.text())
def test_any_retry_after_is_a_number_of_seconds(value: str) -> None:
    assert retry_after_s(value) >= 0


@pytest.mark.parametrize(
    "answer, text",
    [
        (fail(401, f"Incorrect API key provided: {KEY}."), r"rejects the key: 401 Incorrect .*: \[key\]"),
        (fail(403, "not for you"), "rejects the key: 403 not for you"),
        (
            fail(404, "no model some-judge"),
            "has no model some-judge: 404 no model some-judge; check --url and --model",
        ),
        (fail(307, "there", Location="http://127.0.0.1:1/"), "redirects elsewhere: 307 there; give --url the final"),
        (fail(400, "temperature must be 1"), "rejects the first request: 400 temperature must be 1; check --body"),
    ],
)
def test_what_every_request_would_meet_ends_the_run_in_one_line(answer: Answer, text: str) -> None:
    with serve(lambda number, body: answer) as server, pytest.raises(ConfigError, match=text) as caught:
        list(open_judge(server, concurrency=1).judge(make_many(5)))
    assert len(server.bodies) == 1
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_error_that_ends_the_run_first_hands_over_what_was_under_way() -> None:
    def script(number: int, body: dict[str, Any]) -> Answer:
        if number < 8:
            time.sleep(0.05 * (number % 4))
            return judge_rightly(body)
        return fail(401, "revoked")

    heard: list[Judgment] = []
    with serve(script) as server, pytest.raises(ConfigError, match="401 revoked"):  # noqa: PT012
        for judgment in open_judge(server).judge(make_many(30)):
            heard.append(judgment)
    assert len(heard) == 8 == sum(server.given.values())
    assert len(server.bodies) <= 8 + 4


def test_a_request_refused_later_fails_its_pair_alone() -> None:
    def script(number: int, body: dict[str, Any]) -> Answer:
        is_long = "better 2\n" in body["messages"][0]["content"]
        return fail(400, "too long") if is_long else judge_rightly(body)

    pairs = make_many(5)
    with serve(script) as server:
        judgments = {each.prompt_id: each for each in open_judge(server, concurrency=1).judge(pairs)}
    assert (judgments["p2"].verdict, judgments["p2"].reply) == ("failed", "refused: 400 too long")
    assert [judgments[f"p{p}"].verdict for p in (0, 1, 3, 4)] == [right_verdict(pairs[p]) for p in (0, 1, 3, 4)]


def test_pairs_that_are_never_answered_do_not_stop_the_others_but_a_dead_endpoint_does() -> None:
    def script(number: int, body: dict[str, Any]) -> Answer:
        is_cursed = any(f"better {p}\n" in body["messages"][0]["content"] for p in cursed)
        return fail(500, "dead") if is_cursed or is_dead.is_set() else judge_rightly(body)

    cursed, is_dead, pairs = (2, 5, 8, 11), threading.Event(), make_many(20)
    with serve(script) as server:
        judgments = list(open_judge(server, 1, retries=1).judge(pairs[:12]))
        expected = ["unanswered" if p in cursed else right_verdict(pairs[p]) for p in range(12)]
        assert [each.verdict for each in judgments] == expected
        assert judgments[2].reply == "500 dead, after 2 of 2 tries"
        heard, judge = [], open_judge(server, 1, retries=1)
        with pytest.raises(ConfigError, match=r"does not answer: 500 dead.*earlier judgments are kept"):  # noqa: PT012
            for judgment in judge.judge(pairs[12:]):
                heard.append(judgment.verdict)
                is_dead.set()
    assert heard == [right_verdict(pairs[12]), *["unanswered"] * 3]


def test_no_endpoint_is_one_line_and_soon() -> None:
    with serve(lambda number, body: None) as server:
        pass
    with pytest.raises(
        ConfigError, match=r"does not answer: no connection \(Connection refused\), after 2 of 7 tries"
    ):
        list(open_judge(server).judge(make_many(9)))


def test_the_key_follows_no_redirect_and_shows_in_no_repr() -> None:
    with serve(lambda number, body: say("[[A]]")) as thief:
        with serve(lambda number, body: (302, {"Location": thief.url}, b"")) as server:  # noqa: SIM117
            with pytest.raises(ConfigError, match="redirects elsewhere: 302 Found"):
                list(open_judge(server).judge(make_many(1)))
        assert thief.keys == []
    assert KEY not in repr(Endpoint("http://host/v1", "m", KEY))


@pytest.mark.parametrize(
    "url",
    ["ftp://host", "host:80/v1", "http://", "", "http://host:65536", "http://host:0", "http://host:port",
     "http://[::1", "http://[x]/", "http://ho st/v1", "http://host/v 1", "http://host/v1\n", "http://\ud800/", "http://xn--a\u00df.\u200d/"],
)  # fmt: skip
def test_an_url_that_is_none_is_named(url: str) -> None:
    with pytest.raises(ConfigError, match=r"is not an http\(s\) address; give one such as") as caught:
        Endpoint(url, "m")
    assert str(caught.value).isprintable()


@given(st.text() | st.text(alphabet="htps:/[]@%.1a\\ ").map("http://".__add__))
def test_any_url_is_taken_or_refused_in_one_line(url: str) -> None:
    with suppress(ConfigError):
        assert Endpoint(url, "m").url.endswith("/chat/completions")


def test_an_address_may_be_ipv6_or_complete() -> None:
    assert Endpoint("http://[::1]:8000/v1/", "m").url == "http://[::1]:8000/v1/chat/completions"
    assert Endpoint("https://host/chat/completions/", "m").url == "https://host/chat/completions"


def test_a_host_that_cannot_be_looked_up_is_no_connection() -> None:
    with pytest.raises(UnansweredError, match=r"no connection \(.+\), after 1 of 1 tries"):
        Endpoint(f"http://{'a' * 300}", "m", retries=0).ask([])


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"timeout_s": float("nan")}, "--timeout nan must be a finite number of seconds above 0"),
        ({"timeout_s": float("inf")}, "--timeout inf must be a finite number of seconds above 0"),
        ({"timeout_s": 0.0}, "--timeout 0 must be a finite number of seconds above 0"),
        ({"retries": -1}, "--retries -1 must be at least 0"),
        ({"reply_tokens": 0}, "--reply-tokens 0 must be at least 1"),
        ({"body": {"stop": {1, 2}}}, "--body cannot be written as JSON"),
        ({"key": f"{KEY}\n"}, "the key contains characters that a header cannot hold"),
        ({"key": f"{KEY} "}, "the key contains characters that a header cannot hold"),
    ],
)
def test_settings_out_of_range_are_named(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        Endpoint("http://host/v1", "m", **settings)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("proxy", ["ftp://host", "http://host:port", "socks5://host"])
def test_a_proxy_that_cannot_be_used_is_one_line(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(ConfigError, match=r"names a proxy that cannot be used \(.*correct or unset HTTP_PROXY"):
        Endpoint("http://host/v1", "m")


def test_without_httpx_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(MissingPackageError, match=r"needs the package httpx.*pip install 'reviser\[eval\]'"):
        Endpoint("http://host/v1", "m")


def test_replies_nested_too_deeply_or_half_encoded_do_no_harm(tmp_path: Path) -> None:
    deep = b'{"error": ' + b"[" * 100_000
    script = [(200, {}, deep), (500, {}, deep), say("\ud83d so [[A]]")]
    pairs, path = make_many(1), tmp_path / "judgments.jsonl"
    with serve(lambda number, body: script[number]) as server:
        judge = open_judge(server, 1)
        assert hold(judge, pairs, JudgmentFile(path, judge.name))
    [judgment] = read_judgments(path)
    assert (judgment.verdict, judgment.reply) == ("first", "\ud83d so [[A]]")
    assert path.read_bytes().isascii()


@pytest.mark.parametrize("url", [f"http://me:{KEY}@host/v1", f"http://host/v1?key={KEY}"])
def test_a_key_in_the_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError, match="--url must not contain a user name, key, query or fragment") as caught:
        Endpoint(url, "m")
    assert KEY not in str(caught.value)


def test_the_key_comes_from_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_key(None) == ""
    monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
    assert read_key(None) == KEY
    with pytest.raises(ConfigError, match="--key-env MY_KEY: that environment variable is missing"):
        read_key("MY_KEY")
    monkeypatch.setenv("MY_KEY", f"{KEY}\nX-Header: y")
    with pytest.raises(ConfigError, match="the key in MY_KEY contains characters") as caught:
        read_key("MY_KEY")
    assert KEY not in str(caught.value)


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_judged_and_no_pair_is_paid_twice(tmp_path: Path) -> None:
    """The real command, a real signal, a slow endpoint that echoes the key."""

    def script(number: int, body: dict[str, Any]) -> Answer:
        time.sleep(0.1)
        code, headers, data = judge_rightly(body)
        return code, headers, data.replace(b"I find", f"With {KEY} I find".encode())

    pairs = make_many(40)
    with serve(script) as server:
        words = arena_command(tmp_path, pairs, "--judge", "http", "--url", server.url, "--model", "m")
        command = [sys.executable, "-m", "reviser", *words, "--key-env", "JUDGE_KEY", "--out", tmp_path / "out.json"]
        env = {**os.environ, "JUDGE_KEY": KEY}
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while len(server.bodies) < 10:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said, complaint = process.communicate(timeout=60)
        assert process.returncode == 130
        assert said == ""
        assert "run the command again to resume" in complaint
        kept = read_judgments(tmp_path / "judgments.jsonl")
        assert len(kept) == sum(server.given.values()) < 40
        again = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60)
    assert set(server.given.values()) == {1}
    assert len(server.given) == 40
    judgments = {each.key: each.verdict for each in read_judgments(tmp_path / "judgments.jsonl")}
    assert judgments == {pair.key: right_verdict(pair) for pair in pairs}
    assert again.stdout.splitlines()[2].split()[-1] == "40"
    written = "".join(path.read_text() for path in tmp_path.iterdir())
    assert "[key]" in written
    for text in (said, complaint, again.stdout, again.stderr, written):
        assert KEY not in text


def test_the_second_ctrl_c_leaves_at_once_without_a_traceback(tmp_path: Path) -> None:
    is_over = threading.Event()

    def script(number: int, body: dict[str, Any]) -> Answer:
        is_over.wait(60)
        return judge_rightly(body)

    with serve(script) as server:
        words = arena_command(tmp_path, make_many(9), "--judge", "http", "--url", server.url, "--model", "m")
        process = subprocess.Popen([sys.executable, "-m", "reviser", *words], stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        while len(server.bodies) < 4:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said = ""
        while "Ctrl-C again" not in said:
            piece = process.stderr.read(1)
            assert piece, said
            said += piece
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=60)
        assert not is_over.is_set()
        is_over.set()
    assert process.returncode == 130
    for word in ("Traceback", "Task", "Error"):
        assert word not in said + complaint


def test_a_wrong_key_is_one_line_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from reviser.cli import main

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serve(lambda number, body: fail(401, f"bad key\n{KEY}")) as server:
        words = arena_command(tmp_path, make_many(2), "--judge", "http", "--url", server.url, "--model", "m")
        assert main(words) == 2
        for more, text in ((["--body", "[]"], "is not a JSON object"), (["--timeout", 0], "--timeout 0 "),
                           (["--timeout", "nan"], "--timeout nan must be"),
                           (["--concurrency", 0], "--concurrency 0 must be at least 1")):  # fmt: skip
            assert main([*words, *map(str, more)]) == 2
            assert text in capsys.readouterr().err.splitlines()[-1]
    assert KEY not in "".join(path.read_text() for path in tmp_path.iterdir())


def test_two_runs_do_not_write_to_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from reviser.cli import main
    from reviser.files import locked

    with serve(lambda number, body: judge_rightly(body)) as server:
        words = arena_command(tmp_path, make_many(2), "--judge", "http", "--url", server.url, "--model", "m")
        with locked(tmp_path / "judgments.jsonl"):
            assert main(words) == 2
        assert "another run writes judgments to it" in capsys.readouterr().err
        assert server.bodies == []
        assert main([*words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["rows"][0]["wins"] == 1
        assert main(words) == 0
        assert len(server.bodies) == 2
