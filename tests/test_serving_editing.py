"""Our own endpoints for editors: edits with their places, other ways, fillings, replays, and what a model can do."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import ScriptedWriter, fix
from served import ScriptedService, make_writer, serving

from reviser.config import ModelConfig
from reviser.decoding.gap_filling import GapLimits
from reviser.errors import ConfigError
from reviser.orders.record import from_record
from reviser.proofreading.choices import Proofreading
from reviser.proofreading.other_ways import find_ways
from reviser.serving.app import page_policy
from reviser.serving.protocols.abilities import describe_jobs
from reviser.serving.protocols.clipping import clip_parts
from reviser.serving.protocols.edit_requests import Places
from reviser.tokenizer import load

SCRIPTED = ScriptedWriter()


@pytest.fixture(scope="module")
def scripted():
    with serving(SCRIPTED, ScriptedService, max_characters=2000) as running:
        yield running


@pytest.fixture(scope="module")
def editor():
    with serving(make_writer("jump", "delete", "replace", context=120)) as running:
        yield running


def apply_units(text, edits):
    """What a client makes of a text that it holds in UTF-16."""
    units = text.encode("utf-16-le")
    for edit in reversed(edits):
        units = units[: 2 * edit["start"]] + edit["after"].encode("utf-16-le") + units[2 * edit["end"] :]
    return units.decode("utf-16-le")


def check(served, **fields):
    return served.post("/v1/edits", **{"min_probability": 0.0, "reread": False} | fields)


@pytest.mark.parametrize(
    "text", ["I 😀 recieve teh book.", "a\u0301 👩‍👩‍👧 teh 🇩🇪 dont", "teh\r\nteh", "All is well.", "", " \n"]
)
def test_edits_lead_to_the_corrected_text_in_both_units(scripted, text):
    plain = check(scripted, text=text).json()
    units = check(scripted, text=text, units="utf-16").json()
    assert plain["text"] == units["text"] == fix(text)
    assert apply_units(text, units["edits"]) == fix(text)
    for edit in plain["edits"]:
        assert text[edit["start"] : edit["end"]] == edit["before"]
        assert set(edit) == {"start", "end", "before", "after", "probability", "rule", "message"}
        assert edit["rule"].startswith("REVISER_")


def test_only_a_stretch_is_proofread_and_words_stay(scripted):
    text = "😀 teh one. I recieve teh book. teh end."
    start, end = text.index("I rec"), text.index(" teh end")
    found = check(scripted, text=text, within=[start, end]).json()
    assert found["text"] == "😀 teh one. I receive the book. teh end."
    units = check(scripted, text=text, within=[start + 1, end + 1], units="utf-16").json()
    assert units["text"] == found["text"]
    kept = check(scripted, text=text, words=["teh"]).json()
    assert kept["text"] == "😀 teh one. I receive teh book. teh end."


@given(
    st.lists(st.sampled_from(["teh", "I", "recieve", "book", ".", "\n", "very very", "😀"]), max_size=14), st.data()
)
@settings(max_examples=25)
def test_nothing_outside_of_a_stretch_changes(words, data):
    text = " ".join(words)
    start, end = sorted(data.draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
    edited = SCRIPTED.edit(text, within=(start, end))
    assert edited.text.startswith(text[:start])
    assert edited.text.endswith(text[end:])
    assert SCRIPTED.edit(text, within=(0, len(text))) == SCRIPTED.edit(text)


def test_a_stretch_is_counted_in_the_original_where_lines_end_otherwise():
    text = "teh\r\nteh\r\nteh"
    assert ScriptedWriter().edit(text, within=(5, 8)).text == "teh\r\nthe\r\nteh"
    with pytest.raises(ConfigError, match=r"within=\(3, 1\) must be two places in the text"):
        Proofreading(within=(3, 1))


@pytest.mark.parametrize(
    "fields, status, message",
    [
        ({"text": "x" * 2001}, 413, "text has 2001 characters, and at most 2000 are allowed"),
        ({"text": "a😀b", "within": [0, 2], "units": "utf-16"}, 400, "within=2 is inside of a character"),
        ({"text": "ab", "within": [0, 3]}, 400, "within=3 is not in the text, which ends at 2"),
        ({"text": "ab", "units": "bytes"}, 400, "units: "),
        ({"text": "ab", "format": "docx"}, 400, "no format 'docx'"),
        ({"text": "ab", "min_probability": 2}, 400, "min_probability: "),
        ({"text": "ab", "other": 1}, 400, "other is not supported"),
    ],
)
def test_what_cannot_be_proofread_is_refused(scripted, fields, status, message):
    response = scripted.post("/v1/edits", **fields)
    assert response.status_code == status
    assert message in response.json()["error"]["message"]


@given(st.text("aé漢😀🇩\u0301", max_size=12))
@settings(max_examples=60)
def test_places_go_there_and_back(text):
    for is_utf16 in (False, True):
        places = Places(text, is_utf16)
        assert [places.read("start", places.tell(place)) for place in range(len(text) + 1)] == list(
            range(len(text) + 1)
        )


class Ranked:
    """An attempt that knows what else was considered."""

    def __init__(self, actions, alternatives):
        self.actions, self.alternatives = tuple(actions), tuple(alternatives)
        self.log_probabilities = tuple(math.log(0.5) for _ in actions)
        self.ended_by = "model"


def test_other_ways_are_what_was_considered_at_the_place():
    tokenizer = load("default")
    config = ModelConfig(
        num_text=tokenizer.num_text, pad=tokenizer.pad, num_layers=1, width=16, num_heads=1, ff_width=16, context=160,
        max_length=160, operators=("jump", "delete", "replace"),
    )  # fmt: skip
    alphabet = config.alphabet
    [go], [went], [goes], [home] = (tokenizer.encode(word) for word in (" go", " went", " goes", " home"))
    seen = []

    def ask(draft):
        seen.append(draft)
        place = draft.tokens.index(go) + 1
        ranked = ((went, math.log(0.5)), (goes, math.log(0.3)), (alphabet.stop, math.log(0.1)))
        return Ranked(
            [alphabet.jump(place), alphabet.replace, went, alphabet.jump(place + 1), alphabet.stop], [(), (), ranked]
        )

    text = "She left. He go home. All slept."
    ways = find_ways(text, (13, 15), ask, tokenizer, config)
    assert [(way.start, way.end, way.before, way.after) for way in ways] == [
        (13, 15, "go", "went"),
        (13, 15, "go", "goes"),
    ]
    assert ways[0].probability > ways[1].probability > 0
    assert home in seen[0].tokens
    assert find_ways(text, (16, 20), ask, tokenizer, config) == []
    with pytest.raises(ConfigError, match="characters 5 to 99 are not in a text of 32"):
        find_ways(text, (5, 99), ask, tokenizer, config)


def test_ways_come_from_a_real_model_too(editor):
    text = "He go home."
    edits = editor.service.writer.edit(text, min_probability=0.0, reread=False, passes=1).edits
    for start, end in {(edit.start, edit.end) for edit in edits} | {(3, 5)}:
        answer = editor.post("/v1/edits/ways", text=text, start=start, end=end)
        assert answer.status_code == 200
        assert all(0 < way["probability"] <= 1 for way in answer.json()["ways"])
    refused = editor.post("/v1/edits/ways", text=text, start=0, end=40)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "end")


def test_fillings_are_those_of_the_writer_and_differ(editor):
    writer = editor.service.writer
    answer = editor.post("/v1/fillings", text="ab ___ cd ___ ef", n=3, seed=5, max_tokens=4).json()["fillings"]
    alone = writer.fill(["ab", " cd", " ef"], GapLimits(4), 3, None, seed=5)
    assert [tuple(each["gaps"]) for each in answer] == [text.fillings for text in alone]
    assert len({tuple(each["gaps"]) for each in answer}) == len(answer)
    for each, text in zip(answer, alone, strict=True):
        assert from_record(each["trajectory"]) == text.trajectory
        assert each["fit"] == text.fit
    same = editor.post("/v1/fillings", parts=["ab", " cd", " ef"], n=3, seed=5, max_tokens=4).json()["fillings"]
    assert same == answer


@pytest.mark.parametrize(
    "fields, message",
    [
        ({}, "give either a text with ___ in it, or parts"),
        ({"text": "no gap"}, "the text has no gap; write ___"),
        ({"parts": ["a"]}, "0 gaps; give 1 to 32"),
        ({"text": "___", "n": 99}, "n times best_of is 99, and at most 64 are allowed"),
        ({"text": "___", "max_tokens": 0}, "max_tokens=0 must be at least 1"),
        ({"parts": ["a" * 300, "b"], "clip": False}, "shorten it"),
    ],
)
def test_gaps_that_cannot_be_filled_are_refused(editor, fields, message):
    response = editor.post("/v1/fillings", **fields)
    assert response.status_code == 400
    assert message in response.json()["error"]["message"]


def test_a_long_text_is_cut_at_its_far_ends(editor):
    config, tokenizer = editor.service.writer.config, editor.service.writer.tokenizer
    before, behind = "First one. " * 30 + "Last words", " next. " + "More here. " * 30
    left, right = clip_parts([before, behind], tokenizer, config)
    assert before.endswith(left)
    assert behind.startswith(right)
    assert len(left) + len(right) <= min(config.context, config.max_length) // 2 + 1
    assert left.lstrip().startswith("First one.")
    assert clip_parts(["a", "mid", "b"], tokenizer, config) == ["a", "mid", "b"]
    assert editor.post("/v1/fillings", parts=[before, behind], n=1).status_code == 200
    events = list(editor.events("/v1/trajectories", prefix=before, suffix=behind, clip=True, canvas=True))
    assert events[0][1]["around"] == [len(left), len(right)]
    assert events[-1][0] == "done"


CONFIG = make_writer("move").model.config


@given(st.lists(st.text("ab. \n😀", max_size=60), min_size=2, max_size=4))
@settings(max_examples=60)
def test_clipped_parts_are_ends_of_what_was_given(parts):
    clipped = clip_parts(parts, load("bytes"), CONFIG)
    assert clipped[1:-1] == parts[1:-1]
    assert parts[0].endswith(clipped[0])
    assert parts[-1].startswith(clipped[-1])


def test_a_text_is_edited_between_others_and_the_cursor_is_told(editor):
    fields = {"prefix": "😀 left ", "text": "teh x.org", "suffix": " right", "words": ["teh"], "canvas": True}
    events = list(editor.events("/v1/trajectories", **fields, max_actions=6))
    kind, draft = events[0]
    assert (kind, draft["around"]) == ("draft", [8, 6])
    assert draft["text"] == "😀 left teh x.org right"
    for kind, content in events[1:]:
        if kind == "action":
            # What is around and the word that is kept stay.
            assert content["text"].startswith("😀 left ")
            assert content["text"].endswith(" right")
            assert "teh" in content["text"]
            assert 0 <= content["at"] <= len(content["text"].encode("utf-16-le")) // 2
    record = draft["trajectory"] | {"actions": [editor.service.writer.tokenizer.alphabet.stop]}
    assert from_record(record).draft.cursor == draft["cursor"]
    response = editor.post("/v1/trajectories", prompt="a", suffix="b")
    assert "give one of" in response.json()["error"]["message"]
    refused = editor.post("/v1/trajectories", prefix="a ", text="teh", suffix=" b", words=["teh"])
    assert "all of the text is protected" in refused.json()["error"]["message"]


def test_runs_become_a_page_that_needs_nothing_else(editor):
    events = list(editor.events("/v1/trajectories", prompt="ab", max_actions=9))
    actions = [content for kind, content in events if kind == "action"]
    run = {
        "trajectory": events[-1][1]["trajectory"],
        "log_probabilities": [each["log_probability"] for each in actions],
        "alternatives": [
            [[other["id"], other["log_probability"]] for other in each["alternatives"]] for each in actions
        ],
    }
    page = editor.post("/v1/replays", title="<b>", runs=[run, run])
    assert page.headers["content-type"].startswith("text/html")
    assert "&lt;b&gt;" in page.text
    data = json.loads(page.text.split('id="data">')[1].split("</script>")[0])
    assert [example["actions"] for example in data["examples"]] == [run["trajectory"]["actions"]] * 2
    bad = run | {"trajectory": run["trajectory"] | {"actions": [10**9]}}
    assert editor.post("/v1/replays", runs=[bad]).status_code == 400
    long = run | {"trajectory": {"actions": [0] * 10_001}}
    assert editor.post("/v1/replays", runs=[long]).status_code == 413
    assert editor.post("/v1/replays", runs=[]).status_code == 400


@pytest.mark.parametrize(
    "operators, jobs, can",
    [
        (("move",), "infill=0.4", {"fill", "continue"}),
        (("move",), "infill=0.0", {"continue"}),
        (("jump", "delete"), "infill=0.4 edit=0.5", {"proofread", "fill", "continue", "revise"}),
        (("jump", "delete"), "infill=0.4 edit=0.0", {"fill", "continue"}),
        (("jump", "delete"), "", {"proofread", "fill", "continue", "revise"}),
    ],
)
def test_a_model_says_what_it_can_do_and_why_not(operators, jobs, can):
    writer = make_writer(*operators)
    writer.jobs = jobs
    found = describe_jobs(writer)
    assert {name for name, job in found.items() if job["can"]} == can
    assert all(bool(job["why"]) != job["can"] for job in found.values())


def test_what_a_model_can_do_is_told(editor, scripted):
    told = editor.http.get("/v1/jobs").json()
    assert told["model"] == "tiny"
    assert told["jobs"]["proofread"] == {"can": True, "why": ""}
    assert told["max_characters"] == 100_000
    assert "It is small" in told["limits"][0]
    assert isinstance(told["is_warm"], bool)
    with serving(make_writer("move")) as mover:
        refused = mover.post("/v1/edits", text="teh")
        assert (refused.status_code, mover.post("/v1/edits/ways", text="teh", start=0, end=3).status_code) == (
            501,
            501,
        )
        assert "cannot edit" in refused.json()["error"]["message"]


def test_the_page_is_under_a_strict_policy(editor):
    page = editor.http.get("/")
    policy = page.headers["content-security-policy"]
    assert policy == page_policy()
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert " style=" not in page.text
    assert "onclick" not in page.text
    for name in ("main.js", "page.css", "icon.svg"):
        assert editor.http.get(f"/static/{name}").status_code == 200
