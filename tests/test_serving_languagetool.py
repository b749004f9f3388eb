"""LanguageTool's protocol with a scripted proofreader: offsets in UTF-16, annotated text, rules, a real client."""

import json
import unicodedata

import language_tool_python
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import ScriptedWriter, fix
from served import ScriptedService, make_writer, serving

from reviser.errors import DataError
from reviser.proofreading.edits import Edit
from reviser.proofreading.proofread import Edited
from reviser.serving.protocols.annotated import AnnotatedText, Utf16, widen
from reviser.serving.protocols.edit_rules import RuleChoice, make_matches, rule_of


@pytest.fixture(scope="module")
def served():
    with serving(ScriptedWriter(), ScriptedService, max_characters=2000) as running:
        yield running


def check(served, status=200, **fields):
    response = served.http.post("/v2/check", data={"language": "en-US"} | fields)
    assert response.status_code == status
    return response.json() if status == 200 else response.text


def apply_matches(text, matches):
    """What a client makes of a text, which it holds in UTF-16."""
    units = text.encode("utf-16-le")
    for match in sorted(matches, key=lambda each: -each["offset"]):
        begin, end = 2 * match["offset"], 2 * (match["offset"] + match["length"])
        units = units[:begin] + match["replacements"][0]["value"].encode("utf-16-le") + units[end:]
    return units.decode("utf-16-le")


@pytest.mark.parametrize(
    "text", ["I 😀 recieve teh book.", "a\u0301 👩‍👩‍👧 teh 🇩🇪 dont", "teh", "All is well.", "", " \n"]
)
def test_matches_lead_to_the_corrected_text(served, text):
    found = check(served, text=text)
    assert apply_matches(text, found["matches"]) == fix(text)
    for match in found["matches"]:
        context = match["context"]
        units = context["text"].encode("utf-16-le")
        shown = units[2 * context["offset"] : 2 * (context["offset"] + context["length"])].decode("utf-16-le")
        begin = 2 * match["offset"]
        assert shown == text.encode("utf-16-le")[begin : begin + 2 * match["length"]].decode("utf-16-le")
        assert match["sentence"] in text
        assert set(match["rule"]) >= {"id", "description", "issueType", "category"}


def test_markup_stays_where_it_is(served):
    parts = [{"text": "I "}, {"markup": "<b>"}, {"text": "recieve 😀"}, {"markup": "</b><br>", "interpretAs": "\n"},
             {"text": "teh book"}]  # fmt: skip
    document = "".join(part.get("text", part.get("markup")) for part in parts)
    found = check(served, data=json.dumps({"annotation": parts}))
    assert apply_matches(document, found["matches"]) == "I <b>receive 😀</b><br>the book"
    assert check(served, data=json.dumps({"text": "teh"}))["matches"][0]["length"] == 3


def test_rules_can_be_disabled_and_chosen(served):
    text = "I recieve some of teh books, very very late."
    ids = [match["rule"]["id"] for match in check(served, text=text)["matches"]]
    assert ids == ["REVISER_SPELLING", "REVISER_SPELLING", "REVISER_EXTRA_WORD"]
    rest = check(served, text=text, disabledRules="REVISER_SPELLING,OTHER")
    assert [match["rule"]["id"] for match in rest["matches"]] == ["REVISER_EXTRA_WORD"]
    assert rest["notes"] == ["no such rules here: OTHER"]
    only = check(served, text=text, enabledCategories="TYPOS", enabledOnly="true")
    assert {match["rule"]["id"] for match in only["matches"]} == {"REVISER_SPELLING"}
    assert check(served, text=text, disabledCategories="TYPOS,GRAMMAR")["matches"] == []


def test_what_does_nothing_is_noted(served):
    notes = check(served, text="teh", level="picky", motherTongue="de", language="auto")["notes"]
    assert notes == ["level=picky is ignored: the model has one level", "motherTongue is ignored"]
    assert check(served, text="teh", level="default")["notes"] == ["level is ignored"]


@pytest.mark.parametrize(
    "fields, status, message",
    [
        ({"text": "a", "language": "xx"}, 400, "language is 'xx'; languages are en, en-US"),
        ({}, 400, "give either text or data"),
        ({"text": "a", "data": "{}"}, 400, "give either text or data"),
        ({"data": "{"}, 400, "data is not JSON"),
        ({"data": "[]"}, 400, "data must be an object with a list named annotation"),
        ({"data": "{}"}, 400, "data must be an object with a list named annotation"),
        ({"data": '{"annotation": [{"text": 1}]}'}, 400, "part 0 of annotation must have a text, or markup"),
        ({"text": "a", "enabledOnly": "true"}, 400, "enabledOnly needs enabledRules or enabledCategories"),
        ({"text": "a" * 2001}, 413, "text has 2001 characters, and at most 2000 are allowed"),
        ({f"f{number}": "" for number in range(70)}, 400, "the form has more than 64 fields; send fewer"),
    ],
)
def test_errors_are_lines_of_text(served, fields, status, message):
    assert check(served, status, **fields).startswith(f"Error: {message}")


def test_other_bodies_are_refused(served):
    assert "the body is application/json; send" in served.http.post("/v2/check", json={"text": "a"}).text
    bad = served.http.post(
        "/v2/check", content=b"text=%ff&language=en", headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert (bad.status_code, bad.text) == (400, "Error: the form is not UTF-8; encode it so")
    assert (
        served.http.get("/v2/check", params={"text": "teh 😀", "language": "en"}).json()["matches"][0]["offset"] == 0
    )


def test_a_model_that_cannot_edit_says_so():
    with serving(make_writer("move")) as other:
        said = check(other, 501, text="teh")
        assert said.startswith("Error: tiny cannot edit: it has the operators move, and editing needs delete or")


def test_a_real_model_gives_what_the_writer_gives():
    writer = make_writer("jump", "delete", "replace")
    with serving(writer) as other:
        found = check(other, text="He go home.")
        assert apply_matches("He go home.", found["matches"]) == writer.edit("He go home.").text


def test_the_python_client_works_with_it(served):
    with language_tool_python.LanguageTool("en-US", remote_server=served.url) as tool:
        text = "I 😀 recieve a book of teh man."
        matches = tool.check(text)
        assert [match.replacements for match in matches] == [["receive"], ["the"]]
        assert [text[match.offset : match.offset + match.error_length] for match in matches] == ["recieve", "teh"]
        assert tool.correct("I recieve a book of teh man.") == "I receive a book of the man."
        tool.disabled_rules = {"REVISER_SPELLING"}
        assert tool.check(text) == []


CHARACTERS = st.text(st.sampled_from("ab \u0301👩\u200d👧🏽🇩🇪\r\n.ñ漢\ufe0f"), max_size=12)


@settings(max_examples=60)
@given(CHARACTERS, st.data())
def test_widened_spans_hold_something_and_cut_no_character_in_two(text, data):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    first, last = widen(text, start, end, (0, len(text)))
    assert first <= start <= end <= last
    assert first < last or not text
    for place in {first, last} - {0, len(text)}:
        assert unicodedata.category(text[place]) not in ("Mn", "Me", "Mc")
        assert "\u200d" not in text[place - 1 : place + 1]
    units = Utf16(text)
    assert [units.count(place) for place in range(len(text) + 1)] == [
        len(text[:place].encode("utf-16-le")) // 2 for place in range(len(text) + 1)
    ]


@settings(max_examples=60)
@given(CHARACTERS, st.data())
def test_any_edits_can_be_made_from_matches(text, data):
    """Of disjoint edits with something between them, in a text with markup around every part."""
    places = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=4)))
    spans = [(a, b) for a, b in zip(places[::2], places[1::2], strict=False)]
    edits = tuple(Edit(a, b, text[a:b], data.draw(CHARACTERS), 0.9) for a, b in spans)
    edited = Edited(text, edits)
    matches = make_matches(AnnotatedText.of(text), edited, RuleChoice())
    if len(edits) < 2:  # two that widen over one character both hold it
        assert apply_matches(text, matches) == edited.text


@pytest.mark.parametrize(
    "before, after, name",
    [
        ("teh", "the", "SPELLING"), ("i", "I", "CASING"), ("", ",", "PUNCTUATION"), ("its", "it's", "PUNCTUATION"),
        ("  ", " ", "WHITESPACE"), ("", " the", "MISSING_WORD"), (" very", "", "EXTRA_WORD"),
        ("go", "went", "WORDING"),
    ],
)  # fmt: skip
def test_every_rule_has_its_edits(before, after, name):
    assert rule_of(Edit(0, len(before), before, after, 0.9)).id == f"REVISER_{name}"


def test_annotation_must_be_a_list_of_parts():
    for bad in (None, {}, [{"markup": 1}], [{"text": "a", "markup": "b"}], [{"markup": "a", "interpretAs": 3}]):
        with pytest.raises(DataError):
            AnnotatedText.parse(bad)
