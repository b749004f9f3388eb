// Gaps: a selection, or ___ anywhere; several fillings to choose from, the best first.

import { ask } from "./api.js";
import { byId, make, plural } from "./dom.js";
import { cutWhole } from "./proofreader.js";

const GAP = /_{3,}/g;
const NUM_ASKED = 8;
const NUM_SHOWN = 5;
const LONGEST = { short: 10, long: 40 };
const SHOWN_AROUND = 24;
const MOST_SENT = 4000;

/** The gaps that are meant: those of the selection or of the text, or else the selection itself. */
export function findGaps(text, [start, end]) {
  const all = [...text.matchAll(GAP)].map((found) => ({ start: found.index, end: found.index + found[0].length }));
  const inside = all.filter((gap) => gap.start >= start && gap.end <= end);
  if (start < end) return inside.length ? inside : [{ start, end }];
  return all;
}

/** The parts around gaps; the space before a gap is left to the gap, as most tokens begin with one. */
export function cutParts(text, gaps) {
  const wide = gaps.map((gap) => (text[gap.start - 1] === " " ? { ...gap, start: gap.start - 1 } : gap));
  const parts = wide.map((gap, at) => text.slice(at ? wide[at - 1].end : 0, gap.start));
  parts[0] = parts[0].slice(cutWhole(parts[0], parts[0].length - MOST_SENT, parts[0].length)[0]);
  const last = text.slice(wide.at(-1).end);
  return { wide, parts: [...parts, last.slice(0, cutWhole(last, 0, MOST_SENT)[1])] };
}

export class Fillings {
  /** `task` shows progress and errors of work; `keep` puts a run into the list of runs. */
  constructor(editor, task, keep) {
    [this.editor, this.task, this.keep, this.seed, this.asked] = [editor, task, keep, 0, null];
    this.box = byId("fillings");
    byId("more-fillings").onclick = () => this.#ask();
    byId("close-fillings").onclick = () => this.close(true);
    this.size = "short";
    for (const each of this.box.querySelectorAll("input")) each.onchange = () => { this.size = each.value; this.#ask(); };
  }

  get isOpen() {
    return !this.box.hidden;
  }

  async open() {
    const gaps = findGaps(this.editor.text, this.editor.selection);
    if (!gaps.length) return false;
    this.asked = { text: this.editor.text, gaps };
    this.editor.dispatchEvent(new Event("marks"));
    await this.#ask();
    return true;
  }

  close(isByUser = false) {
    this.box.hidden = true;
    document.body.classList.remove("has-choice");
    this.asked = null;
    this.editor.dispatchEvent(new Event("marks"));
    if (isByUser) this.editor.field.focus({ preventScroll: true });
  }

  async #ask() {
    const { text, gaps } = this.asked, { wide, parts } = cutParts(text, gaps);
    this.seed += 1;
    const body = { parts, n: NUM_ASKED, best_of: 1, seed: this.seed, max_tokens: LONGEST[this.size] };
    const name = gaps.length > 1 ? `Filling ${gaps.length} gaps` : "Filling the gap";
    const answer = await this.task(name, (signal) => ask("/v1/fillings", body, signal));
    if (!answer || this.editor.text !== text) return;
    // Those that came to their own end first; the others were cut off.
    const isCut = (filling) => filling.ended_by !== "model";
    const ranked = answer.fillings.toSorted((a, b) => isCut(a) - isCut(b)).slice(0, NUM_SHOWN);
    this.#show(ranked, wide, gaps.length);
  }

  #show(fillings, wide, count) {
    const list = this.box.querySelector("ol");
    byId("fillings-note").textContent = fillings.length
      ? `${plural(fillings.length, "way")} to fill ${count > 1 ? `${count} gaps` : "the gap"}. The best fit comes first.`
      : "Nothing was found. Try again, or give more text around the gap.";
    list.replaceChildren(...fillings.map((filling, at) => make("li", {}, this.#option(filling, wide, at))));
    this.box.hidden = false;
    document.body.classList.add("has-choice");
    (list.querySelector("button") ?? byId("more-fillings")).focus({ preventScroll: true });
  }

  #option(filling, wide, at) {
    const { text } = this.asked, parts = [];
    const near = (from, to, isLeft) => {
      const whole = text.slice(from, to).replace(/\s+/g, " ");
      if (whole.length <= SHOWN_AROUND) return whole;
      return isLeft ? `…${whole.slice(-SHOWN_AROUND)}` : `${whole.slice(0, SHOWN_AROUND)}…`;
    };
    wide.forEach((gap, number) => {
      const from = number ? wide[number - 1].end : 0;
      const given = number && gap.start - from <= 2 * SHOWN_AROUND ? text.slice(from, gap.start) : near(from, gap.start, true);
      parts.push(make("span", { className: "around" }, given), make("ins", {}, filling.gaps[number] || " (nothing)"));
    });
    parts.push(make("span", { className: "around" }, near(wide.at(-1).end, text.length, false)));
    const fit = at === 0 && filling.fit !== null ? make("span", { className: "fit" }, "best fit") : null;
    return make("button", { type: "button", className: "filling", onclick: () => this.#use(filling, wide) }, ...parts, fit);
  }

  /** Put all gaps at once, so that one undo takes them back. */
  #use(filling, wide) {
    const { text } = this.asked, start = wide[0].start, end = wide.at(-1).end;
    const filled = wide.map((gap, number) => filling.gaps[number] + text.slice(gap.end, wide[number + 1]?.start ?? gap.end));
    this.close();
    this.editor.field.focus({ preventScroll: true });
    this.editor.replace(start, end, filled.join(""));
    this.keep({ name: "Filled", runs: [{ ...filling, title: "Filled" }] });
    let place = start;
    const ranges = filled.map((part, number) => {
      const range = { start: place, end: place + filling.gaps[number].length };
      place += part.length;
      return range;
    });
    this.editor.dispatchEvent(new CustomEvent("fresh", { detail: ranges }));
  }
}
