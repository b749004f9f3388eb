"""OpenAI's and llama.cpp's protocols and trajectories, over a real connection."""

from dataclasses import replace

import httpx
import openai
import pytest
from served import make_writer, serving

from reviser.decoding.presets import DEFAULT
from reviser.orders.record import from_record

MOVER, EDITOR = make_writer("move"), make_writer("jump", "delete", "replace")


@pytest.fixture(scope="module")
def served():
    with serving(MOVER, max_texts=8, max_characters=200) as running:
        yield running


@pytest.fixture(scope="module")
def client(served):
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0)


def refuse(response, status):
    """The message of an error in OpenAI's shape."""
    assert response.status_code == status
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error["message"]


def test_a_completion_is_what_the_command_line_writes(served, client):
    made = client.completions.create(model="tiny", prompt=["ab", "c"], n=2, seed=5, max_tokens=9)
    texts = MOVER.generate(["ab", "c"], n=2, seed=5, max_tokens=9)
    assert [choice.text for choice in made.choices] == [text.new for text in texts]
    assert [choice.index for choice in made.choices] == [0, 1, 2, 3]
    assert made.usage.completion_tokens == sum(text.num_tokens for text in texts)
    assert made.usage.prompt_tokens == 3
    assert made.model == "tiny"
    kinds = {True: "stop", False: "length"}
    assert [choice.finish_reason for choice in made.choices] == [kinds[text.has_stopped] for text in texts]


def test_a_suffix_makes_it_a_gap(served, client):
    made = client.completions.create(model="tiny", prompt="ab", suffix="yz", n=3, seed=1, temperature=0.7, top_p=0.9)
    texts = MOVER.infill("ab", "yz", n=3, best_of=1, seed=1, sampling=replace(DEFAULT, temperature=0.7, top_p=0.9))
    assert [choice.text for choice in made.choices] == [text.new for text in texts]


@pytest.mark.parametrize("n, best_of", [(1, 4), (2, 4), (3, 1)])
def test_a_gap_gets_the_best_of_several_where_so_many_are_allowed(served, client, n, best_of):
    assert served.service.config.max_texts == 8
    made = client.completions.create(model="tiny", prompt="ab", suffix="yz", n=n, seed=4, max_tokens=9)
    texts = MOVER.infill("ab", "yz", n=n, best_of=best_of, seed=4, max_tokens=9)
    assert [choice.text for choice in made.choices] == [text.new for text in texts]
    others = MOVER.infill("ab", "yz", n=n, best_of=5 - best_of, seed=4, max_tokens=9)
    assert [text.new for text in others] != [text.new for text in texts]


def test_echo_and_stop_shape_the_text(served, client):
    [whole] = MOVER.generate("ab", seed=3, max_tokens=12)
    stop = whole.new[2:4]
    made = client.completions.create(
        model="tiny", prompt="ab", seed=3, max_tokens=12, echo=True, stop=[stop, "never"]
    )
    assert made.choices[0].text == "ab" + whole.new[: whole.new.index(stop)]
    assert made.choices[0].finish_reason == "stop"


def test_logprobs_are_those_of_the_actions_that_wrote_the_tokens(served, client):
    made = client.completions.create(model="tiny", prompt="ab", seed=3, max_tokens=12, logprobs=3)
    [text] = MOVER.generate("ab", seed=3, max_tokens=12)
    found = made.choices[0].logprobs
    assert "".join(found.tokens) == text.new
    assert len(found.tokens) == len(found.token_logprobs) == len(found.top_logprobs) == len(found.text_offset)
    inserted = [
        score
        for action, score in zip(text.decoded.actions, text.decoded.log_probabilities, strict=True)
        if action < 257
    ]
    assert sorted(found.token_logprobs) == pytest.approx(sorted(inserted), abs=1e-5)
    assert all(len(best) <= 3 for best in found.top_logprobs)


@pytest.mark.parametrize("moves", [True, False])
@pytest.mark.parametrize("suffix", [None, "yz"])
def test_a_stream_adds_up_to_the_whole(served, client, moves, suffix):
    asked = {
        "model": "tiny",
        "prompt": "ab",
        "suffix": suffix,
        "seed": 4,
        "max_tokens": 20,
        "extra_body": {"moves": moves},
    }
    whole = client.completions.create(**asked, stop="Q")
    parts = list(client.completions.create(**asked, stop="Q", stream=True, stream_options={"include_usage": True}))
    assert "".join(part.choices[0].text for part in parts[:-1]) == whole.choices[0].text
    assert parts[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert parts[-1].usage == whole.usage
    # Only what nothing can change any more is sent early.
    assert (len(parts) > 4) == (not moves and len(whole.choices[0].text) > 4)


def test_a_stream_of_several_texts_says_which_is_which(served, client):
    parts = list(
        client.completions.create(model="tiny", prompt="ab", n=2, seed=4, max_tokens=5, echo=True, stream=True)
    )
    texts = MOVER.generate("ab", n=2, seed=4, max_tokens=5)
    assert [(part.choices[0].index, part.choices[0].text) for part in parts] == [
        (number, text.text) for number, text in enumerate(texts)
    ]


def test_the_model_is_listed_and_others_are_unknown(served, client):
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "reviser"
    with pytest.raises(openai.NotFoundError, match="no model 'gpt' here; this server has 'tiny'"):
        client.models.retrieve("gpt")
    with pytest.raises(openai.NotFoundError, match="no model 'gpt' here"):
        client.completions.create(model="gpt", prompt="a")


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"presence_penalty": 0.5}, "presence_penalty is not supported; leave it out"),
        ({"logit_bias": {"50256": -100}}, "logit_bias is not supported; leave it out"),
        ({"tools": []}, "tools is not supported; leave it out, or see /docs for what is"),
        ({"prompt": [1, 2]}, "prompt: token ids are not supported; give a text or a list of texts"),
        ({"prompt": []}, "prompt is an empty list; give at least one text"),
        ({"prompt": "a\ud800"}, "prompt holds half of a surrogate pair; send whole characters"),
        ({"n": 0}, "n=0 must be at least 1"),
        ({"n": 3, "best_of": 3}, "prompts times n times best_of is 9, and at most 8 are allowed"),
        ({"n": "many"}, "n: input should be a valid integer"),
        ({"logprobs": 9}, "logprobs: input should be less than or equal to 5"),
        ({"temperature": -1}, "temperature=-1.0 must be finite and 0 or more"),
        ({"top_p": 0}, "top_p=0.0 must be above 0 and at most 1"),
        ({"max_tokens": 0}, "max_tokens=0 must be at least 1"),
        ({"max_actions": 0}, "max_actions=0 must be at least 1"),
        ({"stop": ["", "a"]}, "stop must be up to 16 texts, none of them empty"),
        ({"stream": True, "best_of": 2}, "best_of and stream do not go together; drop one"),
        ({"prompt": "a" * 70}, "a prompt of 70 tokens leaves no room in a context of 64 positions; shorten it"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_by_name(served, fields, message):
    assert message in refuse(served.post("/v1/completions", **fields), 400)


def test_neutral_values_of_what_is_not_supported_pass(served):
    neutral = {"presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "user": "me", "suffix": None}
    assert served.post("/v1/completions", prompt="a", max_tokens=2, **neutral).status_code == 200


def test_bodies_that_are_no_json_are_refused(served):
    kind = {"Content-Type": "application/json"}
    assert refuse(served.http.post("/v1/completions", content="{", headers=kind), 400) == "the body is not JSON"
    assert "must be a JSON object" in refuse(served.http.post("/v1/completions", content="[]", headers=kind), 400)
    assert refuse(served.http.get("/v1/other"), 404) == "nothing is at /v1/other; see /docs"
    assert "GET is not possible at /v1/completions" in refuse(served.http.get("/v1/completions"), 405)


def test_infill_fills_the_gap_as_the_command_line_does(served):
    [text] = MOVER.infill("ab", "yz", seed=2, max_tokens=10)
    asked = {"input_prefix": "a", "prompt": "b", "input_suffix": "yz", "seed": 2, "n_predict": 10}
    whole = served.post("/infill", **asked, input_extra=[{"text": "more"}], cache_prompt=True).json()
    assert (whole["content"], whole["tokens_predicted"]) == (text.new, text.num_tokens)
    assert whole["stop_type"] == {True: "eos", False: "limit"}[text.has_stopped]
    assert whole["ignored"] == ["input_extra", "cache_prompt"]
    parts = [data for _, data in served.events("/infill", **asked, stream=True)]
    assert "".join(part["content"] for part in parts) == text.new
    assert [part["stop"] for part in parts] == [False] * (len(parts) - 1) + [True]
    left_to_right = [data for _, data in served.events("/infill", **asked, stream=True, moves=False)]
    assert len(left_to_right) > 2


def test_infill_has_errors_of_its_own_shape(served):
    response = served.post("/infill", input_prefix="a", n_predict=0)
    assert response.json() == {
        "error": {"code": 400, "message": "n_predict=0 must be -1 or at least 1", "type": "invalid_request_error"}
    }
    assert served.post("/infill", grammar="x").json()["error"]["message"].startswith("grammar is not supported")


@pytest.mark.parametrize("writer", [MOVER, EDITOR], ids=["mover", "editor"])
def test_a_trajectory_comes_action_by_action(writer):
    with serving(writer) as served:
        for asked, draft in (
            ({"prompt": "ab"}, writer.continuation("ab")),
            ({"prefix": "ab", "suffix": "yz"}, writer.gaps(["ab", "yz"])),
        ):
            events = list(served.events("/v1/trajectories", **asked, seed=6, number=1, max_actions=15, canvas=True))
            alone = list(writer.stream(draft, seed=6, number=1, max_actions=15))
            assert [kind for kind, _ in events] == ["draft", *["action"] * len(alone), "done"]
            actions = [data for kind, data in events if kind == "action"]
            assert [each["id"] for each in actions] == [each.action for each in alone]
            assert [each["text"] for each in actions] == [writer.tokenizer.decode(e.canvas.tokens) for e in alone]
            assert [[each["id"] for each in data["alternatives"]] for data in actions] == [
                [action for action, _ in each.alternatives] for each in alone
            ]
            assert all(0 < each["probability"] <= 1 for each in actions)
            text = writer.collect(draft, alone, 15)
            done = events[-1][1]
            assert (done["text"], done["ended_by"]) == (text.text, text.ended_by)
            assert from_record(done["trajectory"]) == text.trajectory
            assert events[0][1]["pieces"] == writer.tokenizer.pieces(draft.tokens)


def test_a_text_to_edit_is_a_trajectory_too():
    with serving(EDITOR) as served:
        events = list(served.events("/v1/trajectories", text="He go home."))
        assert events[0][1]["text"] == "He go home."
        assert events[-1][0] == "done"
        refused = served.post("/v1/trajectories", text="a", temperature=0.5)
        assert "needs temperature=0" in refuse(refused, 400)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({}, "give one of: prompt; prefix and suffix; text"),
        ({"prompt": "a", "text": "b"}, "give one of: prompt; prefix and suffix; text"),
        ({"text": "a"}, "tiny cannot edit: it has the operators move, and editing needs delete or replace"),
        ({"prompt": "a" * 70}, "a prompt of 70 tokens leaves no room in a context of 64 positions; shorten it"),
    ],
)
def test_trajectories_that_cannot_begin_are_refused(served, fields, message):
    assert message in refuse(served.post("/v1/trajectories", **fields), 400)


def test_pages_and_numbers_are_there(served):
    page = served.http.get("/docs").text
    assert "POST /v1/completions" in page
    assert "http://" not in page.replace(served.url, "")
    assert "https://" not in page
    assert set(served.http.get("/openapi.json").json()["paths"]) >= {"/infill", "/v2/check", "/v1/trajectories"}
    assert served.http.get("/static/docs.html").status_code == 200
    numbers = served.http.get("/metrics").text
    for name in (
        "reviser_requests_total",
        "reviser_actions_total",
        "reviser_rows_busy",
        "reviser_request_seconds_sum",
    ):
        assert f"\n{name}" in numbers
    assert served.http.get("/health").json() == {"status": "ok", "model": "tiny", "requests": 0}
    assert served.http.get("/health/live").status_code == httpx.codes.OK
