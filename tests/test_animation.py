"""The picture that moves: well-formed whatever is written, nothing in it runs, and its last frame is the text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from chromium import BROWSER, Browser
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import ScriptedWriter
from test_viewer_browser import byte_tokenizer, trajectories
from test_viewer_html import HOSTILE, draw

from reviser.cli import main
from reviser.decoding.writer import Writer
from reviser.errors import ConfigError, DataError
from reviser.orders.record import Trajectory
from reviser.tokenizer import load
from reviser.viewer.animation import COLUMNS, MAX_ACTIONS, MAX_LINES, LastFrame, animation, write_animation
from reviser.viewer.replay_page import Example
from reviser.viewer.text_lines import find_place, make_cells, printed, wrap

SVG = "{http://www.w3.org/2000/svg}"
ROOT = Path(__file__).parents[1]
BEYOND = ("http:", "https:", "url(", "@import", "javascript", "data:", "<!", "<?")
TEXTS = st.text(
    alphabet="ab \n\té漢🙂\u0301\u200d\ufe0f🇫🇷👩🚀ع\u202e\u2066\ufeff\x00\x85<&\r\ufffe]>ᄀ\u1161", max_size=60
)


def frames_of(svg: str) -> list[ET.Element]:
    return ET.fromstring(svg).findall(f"{SVG}g[@class='f']")


def text_of(frame: ET.Element) -> str:
    """What a frame shows of the text, without what has just gone."""
    [shown] = frame.findall(f"{SVG}g[@class='t']")
    return "".join(each.text or "" for each in shown if each.get("class") != "d")


def heading_of(frame: ET.Element) -> str:
    return frame[0].text or ""


def check_alone(svg: str) -> None:
    """Only shapes and text, no reference to anything, and nothing that runs."""
    root = ET.fromstring(svg)
    assert {each.tag.removeprefix(SVG) for each in root.iter()} <= {
        "svg", "title", "desc", "style", "g", "rect", "text",
    }  # fmt: skip
    names = {name for each in root.iter() for name in each.attrib}
    assert not [name for name in names if name.startswith("on") or "href" in name or name == "src"]
    outside = svg.replace('xmlns="http://www.w3.org/2000/svg"', "", 1)
    style = root.findtext(f"{SVG}style") or ""
    assert not [word for word in BEYOND if word in style]
    assert not re.search(r"<[!?]", outside)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufffe\uffff]", svg)


@given(trajectories(), st.text(max_size=20) | st.just(HOSTILE))
@settings(max_examples=25)
def test_any_trajectory_is_well_formed_and_ends_in_its_text(trajectory: Trajectory, title: str) -> None:
    tokenizer, n = byte_tokenizer(), len(trajectory.actions)
    svg = animation([Example(trajectory, title, (-0.5,) * n)], tokenizer, title)
    assert svg == animation([Example(trajectory, title, (-0.5,) * n)], tokenizer, title)
    check_alone(svg)
    frames = frames_of(svg)
    assert len(frames) == n + 1
    for frame, state in zip(frames, trajectory.states(), strict=True):
        assert text_of(frame) == printed(tokenizer.decode(state.tokens))
    assert frames[-1].get("id") == "last"
    assert heading_of(frames[-1]) == "STOP"
    assert "p 0.607" in "".join(frames[-1].itertext())


@given(TEXTS, st.integers(2, 12))
def test_lines_hold_all_of_a_text_and_no_line_is_too_wide(text: str, width: int) -> None:
    cells = make_cells([(text[:5], "a"), (text[5:], "b")])
    lines = wrap(cells, width)
    assert [cell for line in lines for cell in line] == cells
    assert "".join(cell.text for cell in cells) == printed(text)
    assert max(sum(cell.width for cell in line) for line in lines) <= width + 1
    places = [find_place(lines, end) for end in range(len(text) + 1)]
    assert places == sorted(places)


def test_a_long_text_is_shown_around_its_cursor_and_no_larger() -> None:
    words = " ".join(f"word{i}" for i in range(200))
    trajectory = draw(words, prefix=len(words) - 30, order="left-to-right")
    frames = frames_of(animation([Example(trajectory)], byte_tokenizer(), ""))
    shown = text_of(frames[-1])
    assert shown in words
    assert words.endswith(shown)
    assert len(shown) <= (COLUMNS + 1) * MAX_LINES
    assert [each.text for each in frames[-1] if each.get("class") == "m"] == ["⋮"]


def test_what_goes_and_what_comes_is_marked() -> None:
    [line] = (ROOT / "docs" / "demo.jsonl").read_text("utf-8").splitlines()
    svg = make_svg(line)
    marked = {
        heading_of(frame): {each.get("class"): each.text for each in frame.iter(f"{SVG}text") if each.get("class")}
        for frame in frames_of(svg)
    }
    assert marked["REPLACE"]["p"] == " new"
    assert marked['INSERT " every"'] | {"q": ""} == {
        "a": 'INSERT " every"', "q": "", "d": " ev", "n": " every",
    }  # fmt: skip
    assert marked['INSERT "ew"']["w"] == " kn"
    assert marked["DELETE"]["d"]
    assert len(svg.encode()) < 60_000


def make_svg(line: str) -> str:
    from reviser.orders.record import from_record, parse_record

    record = parse_record(line)
    return animation([Example(from_record(record), "", tuple(record["log_probabilities"]))], load("default"), "demo")


def test_examples_follow_each_other_and_an_ending_comes_last() -> None:
    one, two = draw("first"), draw("second")
    ending = LastFrame("2 edits", (("sec", False), ("und", True)))
    frames = frames_of(animation([Example(one, "one"), Example(two, "two")], byte_tokenizer(), "", ending))
    assert [heading_of(frame) for frame in frames].count("STOP") == 2
    assert [heading_of(frames[0]), heading_of(frames[len(one.actions) + 1])] == ["one", "two"]
    assert (heading_of(frames[-1]), text_of(frames[-1])) == ("2 edits", "secund")


def test_what_cannot_be_shown_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^an animation needs at least one example$"):
        animation([], byte_tokenizer(), "")
    with pytest.raises(ConfigError, match=rf"^an animation shows at most {MAX_ACTIONS} actions, and these are 351; "):
        animation([Example(draw("x" * 350, order="left-to-right"))], byte_tokenizer(), "")
    with pytest.raises(DataError, match=r"^cannot write .*: Is a directory; give another file$"):
        write_animation(tmp_path, [Example(draw("abc"))], byte_tokenizer(), "t")


def test_a_trajectory_file_is_shown_with_its_probabilities(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo, out = ROOT / "docs" / "demo.jsonl", tmp_path / "demo.svg"
    assert main(["trajectory", "show", str(demo), "--svg", str(out)]) == 0
    assert capsys.readouterr() == ("", f"wrote {out}\n")
    svg = out.read_text("utf-8")
    check_alone(svg)
    assert (
        text_of(frames_of(svg)[-1]) == "The keeper lighted the lamp every night until morning, and nobody knew why."
    )
    assert svg.count(">p 0.") + svg.count(">p 1.") == 14
    for bad in ('"much"', "[1.5]", '["x"]'):
        broken = tmp_path / "broken.jsonl"
        text = re.sub(r'"log_probabilities": \[.*?\]', f'"log_probabilities": {bad}', demo.read_text("utf-8"))
        broken.write_text(re.sub(r', "sha256": "[0-9a-f]+"}$', "}", text.rstrip()), "utf-8")
        assert main(["trajectory", "show", str(broken), "--svg", str(out)]) == 2
        assert "log_probabilities must be a list of numbers of at most 0" in capsys.readouterr().err


def test_the_commands_write_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = ScriptedWriter()
    monkeypatch.setattr(Writer, "from_pretrained", lambda *_, **__: writer)
    monkeypatch.chdir(tmp_path)
    assert main(["edit", "Read teh mail, and teh rest.", "--min-probability", "0", "--svg", "edit.svg"]) == 0
    out, err = capsys.readouterr()
    assert "edit.svg: open it in a browser, or show it as an image" in err
    frames = frames_of(Path("edit.svg").read_text("utf-8"))
    assert text_of(frames[-1]) == out.rstrip("\n") == "Read the mail, and the rest."
    headings = [heading_of(frame) for frame in frames]
    assert headings[-1] == "2 edits"
    assert [name for name in headings if name.startswith("reading")] == ["reading 1", "reading 2"]
    Path("a.txt").write_text("teh")
    assert main(["edit", "a.txt", "a.txt", "--check", "--svg", "edit.svg"]) == 2
    assert "--svg shows how one text is edited, and these are 2; give one" in capsys.readouterr().err
    Path("b.md").write_text("`teh`\n")
    assert main(["edit", "b.md", "--svg", "edit.svg"]) == 2
    assert "--svg has nothing to show: nothing in this text may change" in capsys.readouterr().err
    assert main(["edit", "teh", "--svg", "."]) == 2
    assert "--svg . is a folder; give a file" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert main(["infill", "The ___ lighthouse.", "--n", "2", "--max-tokens", "5", "--svg", "infill.svg"]) == 0
    wanted = capsys.readouterr().out.rstrip("\n").split("\n---\n")
    frames = frames_of(Path("infill.svg").read_text("utf-8"))
    names = [heading_of(each) for each in frames if heading_of(each).startswith("text ")]
    assert names == ["text 1 of 2", "text 2 of 2"]
    assert text_of(frames[-1]) == printed(wanted[-1])


def test_the_picture_in_the_docs_is_the_shipped_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "viewer.md").read_text("utf-8")
    [text] = re.findall(r"^reviser edit '(.*)' --svg docs/edit.svg$", page, re.M)
    assert main(["edit", text, "--svg", str(tmp_path / "edit.svg")]) == 0
    made, kept = (path.read_text("utf-8") for path in (tmp_path / "edit.svg", ROOT / "docs" / "edit.svg"))

    def actions(svg: str) -> list[tuple[str, str]]:
        # Probabilities may differ in their last digit on another machine.
        return [(heading_of(frame), text_of(frame)) for frame in frames_of(svg)]

    assert actions(made) == actions(kept)
    assert text_of(frames_of(kept)[-1]) == capsys.readouterr().out.rstrip("\n")
    assert len(kept.encode()) < 60_000


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium; on Debian: apt-get install -y chromium")
def test_frames_follow_each_other_in_a_browser(browser: Browser) -> None:
    browser.resize(500, 300)
    browser.open((ROOT / "docs" / "edit.svg").as_uri())
    frames = frames_of((ROOT / "docs" / "edit.svg").read_text("utf-8"))
    go = "document.getAnimations().forEach((each) => {{ each.pause(); each.currentTime = {} }})"
    visible = (
        "[...document.querySelectorAll('.f')].flatMap((each, i) => "
        "getComputedStyle(each).visibility === 'visible' ? [i] : [])"
    )
    duration = browser.run("document.getAnimations()[0].effect.getTiming().duration")
    assert len(frames) == browser.run("document.getAnimations().length")
    for lap in (0, 1):
        for number in range(len(frames)):
            browser.run(go.format(lap * duration + 1000 * number + 500))
            assert browser.run(visible) == [number]
    browser.run(go.format(duration - 1))
    assert browser.run(visible) == [len(frames) - 1]
    shown = "[...document.querySelectorAll('#last .t text')].map((each) => each.textContent).join('')"
    assert browser.run(shown) == text_of(frames[-1])
    box = browser.run("(() => { const b = document.querySelector('#last .t').getBBox(); return [b.x, b.width] })()")
    assert box[0] >= 0
    assert box[0] + box[1] <= 496
    assert browser.complaints() == []
    browser.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    assert browser.run("document.getAnimations().length") == 0
    assert browser.run(visible) == [len(frames) - 1]
