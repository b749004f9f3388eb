"""Many clients of every protocol come and go at once: each gets its own text, and nothing is left behind."""

import asyncio
import random
import re

import httpx
import pytest
from served import make_writer, serving, wait_until

WRITER = make_writer("jump", "delete", "replace", context=120)
PATIENCE_S = (0.02, 0.2, 60, 60)


async def ask(client, draw):
    """One request of a random kind: its path, its fields, and what came back, None where the client left."""
    seed, kind = draw.randrange(5), draw.randrange(5)
    path, fields = (
        ("/v1/completions", {"prompt": "ab", "seed": seed, "temperature": 0.3 + draw.randrange(6) / 10}),
        ("/v1/completions", {"prompt": "ab", "suffix": "z", "seed": seed, "stream": True}),
        ("/v1/trajectories", {"prompt": "ab", "seed": seed, "max_actions": 30}),
        ("/infill", {"input_prefix": "ab", "input_suffix": "z", "seed": seed}),
        ("/v2/check", {"text": "He go home. " * 3, "language": "en"}),
    )[kind]
    await asyncio.sleep(draw.random())
    body = {"data": fields} if path == "/v2/check" else {"json": fields}
    try:
        async with asyncio.timeout(draw.choice(PATIENCE_S)):
            return path, fields, await client.post(path, **body)
    except TimeoutError:
        return path, fields, None


async def crowd(url, count):
    draw = random.Random(0)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=httpx.Limits(max_connections=count)) as client:
        return await asyncio.gather(*(ask(client, draw) for _ in range(count)))


@pytest.mark.slow
def test_a_crowd_is_served_as_each_would_be_alone():
    with serving(WRITER, rows=4, concurrency=8, queue=60) as served:
        answers = asyncio.run(crowd(served.url, 120))
        wait_until(lambda: served.service.num_admitted == 0)
        assert (served.service.scheduler.num_decoding, served.service.scheduler.num_waiting) == (0, 0)
        come = [each for each in answers if each[2] is not None]
        assert {response.status_code for _, _, response in come} <= {200, 429}
        assert any(response.status_code == 200 for _, _, response in come)
        for path, fields, response in come:
            if response.status_code == 200 and path == "/infill":
                [alone] = WRITER.infill("ab", "z", seed=fields["seed"])
                assert response.json()["content"] == alone.new
            elif response.status_code == 200 and path != "/v2/check":
                # Alone now, for nobody else is left.
                again = served.post(path, **fields)
                assert _strip(again.text) == _strip(response.text)


def _strip(answer):
    """Without what differs from answer to answer: its name, its time, and how often the connection was kept alive."""
    return re.sub(r'"id": ?"cmpl-\w+"|"created": ?\d+|: ping.*', "", answer)
