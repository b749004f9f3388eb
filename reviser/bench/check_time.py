"""How long a check takes from a client's request to its answer, and what of that is HTTP alone.

An empty text is answered without the model, so its time is that of the connection, the protocol and the framework. A
checker may remember sentences it has seen: the first time that a text is checked is told apart from the others.
"""

from __future__ import annotations

import http.client
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

PARAGRAPHS = (
    "When we arived at the station the train had already left, so we was forced to wait for a hour in the cold. "
    "My brother, who hate waiting, went to look for coffee and come back with too cups of tea. Nobody had told "
    "him that the shop close at six. In the end the next train were late as well.",
    "The new libary opened last monday after three years of work. It have more than forty thousand books, and "
    "their is a room for children with low shelfs. Some visitors complained about the noise, but most of them was "
    "happy. The mayor said that she had never saw such a line of people.",
    "Gardening is a slow hobby. You plants a seed, you water it every days, and for weeks nothing happen. Than "
    "one morning a green point looks out of the earth. My grandmother always said that a good garden need a "
    "patient owner and a bad memory, becuase you forget how much work it were.",
    "Our team have tested the pump for six month without any problems. The pressure were stable, the filter dont "
    "need to be changed more then twice a year, and the noise is lower as we expected. We recomend to use it in "
    "small houses. For larger buildings we would need a another test.",
    "She writed her first story at the age of nine, on the back of a old calender. It was about a dog which could "
    "speak, but only on tuesdays. Her teacher liked it so much that he read it loud to the class. Since then she "
    "have published eleven novel, and a dog appears in each of them.",
    "The weather on the island change quickly. In the morning you can sit in the sun, and by noon the wind have "
    "turned and the sea is grey. Fishermen knows the signs, tourists does not. Every summer the lifeboat must "
    "bring back somebody which thought that the clouds was far away.",
)
SENTENCE = "He go to school by bus every days, and his sister walk."
TEXTS: dict[str, tuple[str, ...]] = {
    "nothing": ("",), "a word": ("school",), "a sentence": (SENTENCE,), "a paragraph": PARAGRAPHS,
}  # fmt: skip
Check = Callable[[str], object]


def measure_checks(port: int, repeats: int, peer: Check | None = None) -> list[dict[str, Any]]:
    """A row for each length of text: milliseconds over HTTP and, where there is one, of the peer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def check(text: str) -> int:
        body = urlencode({"text": text, "language": "en-US"})
        connection.request("POST", "/v2/check", body, {"Content-Type": "application/x-www-form-urlencoded"})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise ValueError(f"the server answered {answer.status}: {content[:200]!r}")
        return len(json.loads(content)["matches"])

    try:
        return [_measure(name, texts, repeats, check, peer) for name, texts in TEXTS.items()]
    finally:
        connection.close()


def _measure(
    name: str, texts: Sequence[str], repeats: int, check: Check, peer: Check | None = None
) -> dict[str, Any]:
    warm = "A warm cup of tea stand on teh table, and nobody drinked it."
    row: dict[str, Any] = {
        "text": name,
        "texts": len(texts),
        "words": sum(len(text.split()) for text in texts) / len(texts),
        "reviser_ms": time_each(check, texts, repeats, warm),
    }
    if peer is not None and name != "nothing":
        row["harper_ms"] = time_each(peer, texts, repeats, warm)
    return row


def time_each(check: Check, texts: Sequence[str], repeats: int, warm: str) -> dict[str, float | int]:
    """Milliseconds: the median of the first checks of the texts, and median and worst of all later ones."""
    for _ in range(3):
        check(warm)
    first = [_time(check, text) for text in texts]
    later = [_time(check, text) for _ in range(repeats) for text in texts]
    return {"first": statistics.median(first), "p50": statistics.median(later), "most": max(later), "n": len(later)}


def _time(check: Check, text: str) -> float:
    begin = time.perf_counter()
    check(text)
    return (time.perf_counter() - begin) * 1e3
