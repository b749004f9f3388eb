// Continue and revise, watched live: every action comes as an event and is shown with the cursor where it happened.
// The text stays as it was until the user keeps the result.

import { askText, streamError, watch } from "./api.js";
import { byId, linkTo, make, plural, tellChange, wait } from "./dom.js";
import { findSplice } from "./editor.js";
import { applyChanges, findChanges } from "./exports.js";
import { cutSentences, cutWhole } from "./proofreader.js";
import { store } from "./store.js";

const PATH = "/v1/trajectories";
const PACE_MS = { INSERT: 30, JUMP: 180, MOVE: 90, DELETE: 70, REPLACE: 90, STOP: 0 };
const LEAST_NEW = 8;
const MOST_NEW = 120;
const CHUNK = 700;
const AROUND = 400;
const MOST_LISTED = 6;
const MOST_SENT = 4000;
const STOP = 3;

/** What a run does: requests, and where in the text the result of each goes. */
export function planContinue(text, [start, end]) {
  const hasText = text.slice(end).trim() !== "";
  const prefix = text.slice(0, start).replace(/ +$/, ""), [near] = cutWhole(text, prefix.length - MOST_SENT, start);
  const sent = prefix.slice(near), suffix = text.slice(end, cutWhole(text, end, end + MOST_SENT)[1]);
  const given = hasText ? { prefix: sent, suffix } : { prompt: sent };
  const body = { ...given, canvas: true, clip: true, min_tokens: LEAST_NEW, max_tokens: hasText ? MOST_NEW / 2 : MOST_NEW };
  return [{ start: prefix.length, end, body }];
}

/** Chunks of whole sentences, each with the text around it. */
export function planRevise(text, [start, end]) {
  const [from, to] = start < end ? cutWhole(text, start, end) : [0, text.length], chunks = [];
  for (const sentence of cutSentences(text)) {
    if (sentence.end <= from || sentence.start >= to) continue;
    const last = chunks.at(-1);
    const isBeside = last && !/\n/.test(text.slice(last.end, sentence.start)) && sentence.end - last.start <= CHUNK;
    if (isBeside) last.end = sentence.end;
    else chunks.push({ start: sentence.start, end: sentence.end });
  }
  return chunks.map((chunk) => {
    const [left, right] = cutWhole(text, chunk.start - AROUND, chunk.end + AROUND);
    const body = {
      text: text.slice(chunk.start, chunk.end), prefix: text.slice(left, chunk.start), suffix: text.slice(chunk.end, right),
      words: store.words, canvas: true, clip: true,
    };
    return { ...chunk, body };
  });
}

export class Runs {
  constructor(editor, task) {
    [this.editor, this.task, this.job, this.seed, this.list] = [editor, task, null, 0, []];
    this.live = byId("live");
    byId("keep").onclick = () => this.#end(true);
    byId("discard").onclick = () => this.#end(false);
    byId("again").onclick = () => this.start(this.job.kind, this.job.selection);
  }

  get isOpen() {
    return this.job !== null;
  }

  async start(kind, selection = this.editor.selection) {
    const { text } = this.editor, plan = kind === "continue" ? planContinue(text, selection) : planRevise(text, selection);
    if (!plan.length) return;
    this.seed += 1;
    byId("result").hidden = true;
    document.body.classList.add("is-live");
    this.job = { kind, selection, text, done: [], parts: [], isStopped: false };
    this.live.hidden = false;
    this.live.focus({ preventScroll: true });
    const name = kind === "continue" ? "Writing" : "Revising";
    const isOver = await this.task(name, (signal) => this.#follow(plan, signal), () => { this.job.isStopped = true; });
    if (!isOver && !this.job?.isStopped) this.#close();
    else this.#showResult();
  }

  async #follow(plan, signal) {
    // Also where a busy server made it begin again.
    [this.job.done, this.job.parts] = [[], []];
    let growth = 0;
    for (const part of plan) {
      const shown = { start: part.start + growth, end: part.end + growth };
      const result = await this.#followOne(part, shown, signal);
      growth += result.text.length - (part.end - part.start);
      if (this.job.isStopped) break;
    }
    return true;
  }

  /** One request; what it leads to is in the job after every action, so that a stop loses nothing. */
  async #followOne(part, shown, signal) {
    const { job } = this, run = { steps: 0, back: 0, text: job.text.slice(part.start, part.end), actions: [], scores: [], ranked: [] };
    const before = applyParts(job.text, job.parts).slice(0, shown.start), behind = job.text.slice(part.end);
    job.done.push(run);
    job.parts.push({ start: part.start, end: part.end, run });
    let canvas = null, around = [0, 0], fresh = [], last = 0;
    const draw = (at) => this.#draw(before, run.text, fresh, at === null ? null : at - around[0], behind);
    draw(null);
    try {
      for await (const [kind, content] of watch(PATH, { ...part.body, seed: this.seed }, signal)) {
        if (kind === "error") throw streamError(content);
        if (kind === "draft") {
          [canvas, around, last] = [content.text, content.around, content.at];
          run.trajectory = content.trajectory;
          run.text = canvas.slice(around[0], canvas.length - around[1]);
          fresh = new Array(run.text.length).fill(false);
          draw(content.at);
        } else if (kind === "action") {
          const text = content.text.slice(around[0], content.text.length - around[1]);
          const change = findSplice(run.text, text);
          fresh.splice(change.start, change.end - change.start, ...new Array(change.text.length).fill(true));
          note(run, content, content.at < last);
          last = content.at;
          run.text = text;
          draw(content.at);
          await this.#pace(content);
        } else if (kind === "done") {
          run.trajectory = content.trajectory;
          run.endedBy = content.ended_by;
        }
      }
    } catch (error) {
      if (error.name !== "AbortError" || !job.isStopped) throw error;
    }
    draw(null);
    return run;
  }

  /** Slow enough to see, but not where nobody looks or nothing may move. */
  async #pace({ action }) {
    const isStill = document.hidden || matchMedia("(prefers-reduced-motion: reduce)").matches;
    const ms = PACE_MS[action.split(" ")[0]] ?? 60;
    if (!isStill && ms) await wait(this.job.kind === "revise" ? ms * 2.2 : ms);
  }

  #draw(before, text, fresh, at, behind) {
    const parts = [make("span", { className: "old" }, before)];
    const caret = () => make("span", { className: "caret" });
    for (let place = 0; place < text.length;) {
      let end = place + 1;
      while (end < text.length && end !== at && fresh[end] === fresh[place]) end += 1;
      if (place === at) parts.push(caret());
      parts.push(make("span", { className: fresh[place] ? "written" : "old" }, text.slice(place, end)));
      place = end;
    }
    if (at !== null && at >= text.length) parts.push(caret());
    parts.push(make("span", { className: "old" }, behind));
    this.live.replaceChildren(...parts);
    const mark = this.live.querySelector(".caret")?.getBoundingClientRect();
    if (mark && (mark.bottom > innerHeight - 60 || mark.top < 70)) scrollBy({ top: mark.top - innerHeight * 0.55 });
  }

  #showResult() {
    const { job } = this;
    const changes = job.parts.flatMap(({ start, end, run }) => findChanges(job.text.slice(start, end), run.text)
      .map((change) => ({ ...change, start: change.start + start, end: change.end + start })));
    job.changes = changes;
    this.#drawResult();
    const runs = job.done.filter((run) => run.trajectory);
    if (runs.length) this.add({ name: job.kind === "continue" ? "Continued" : "Revised", runs: runs.map(finish) });
    const [steps, back] = [sum(runs, "steps"), sum(runs, "back")];
    byId("result").querySelector(".note").textContent = `${plural(steps, "action")}, ${
      back ? `went back ${back === 1 ? "once" : `${back} times`}` : "never went back"}${
      job.isStopped ? "; you stopped it" : runs.at(-1)?.endedBy === "length" ? "; it reached its limit" : ""}.`;
    byId("result").hidden = false;
    document.body.classList.add("has-choice");
    (byId("keep").hidden ? byId("discard") : byId("keep")).focus({ preventScroll: true });
  }

  /** The text with its changes; each of a revision can be left out. */
  #drawResult() {
    const { job } = this, parts = [], wanted = job.changes.filter((change) => !change.isOff);
    let place = 0;
    for (const change of job.changes) {
      const { start, end, before, after, isOff } = change;
      const shown = [before && make("del", {}, before), after && make("ins", {}, after)].filter(Boolean);
      const flip = () => {
        change.isOff = !isOff;
        const at = job.changes.indexOf(change);
        this.#drawResult();
        this.live.querySelectorAll(".flip")[at].focus({ preventScroll: true });
      };
      const about = { type: "button", className: "flip", "aria-pressed": String(!isOff), "aria-label": tellChange(before, after), title: isOff ? "Left out" : "Click to leave it out", onclick: flip };
      parts.push(job.text.slice(place, start), ...(job.kind === "revise" ? [make("button", about, ...shown)] : shown));
      place = end;
    }
    this.live.replaceChildren(...parts, job.text.slice(place));
    job.result = applyChanges(job.text, wanted);
    byId("result-title").textContent = titleOf(job, wanted);
    byId("keep").hidden = job.result === job.text;
  }

  /** Keep the result as one step of undo, or leave the text alone. */
  #end(isKept) {
    const { job } = this;
    this.#close();
    if (!isKept || job.result === job.text) return;
    const splice = findSplice(job.text, job.result);
    this.editor.replace(splice.start, splice.end, splice.text);
    let growth = 0;
    const ranges = job.changes.filter((change) => !change.isOff).map(({ start, end, before, after }) => {
      const range = { start: start + growth, end: start + growth + after.length, before };
      growth += after.length - (end - start);
      return range;
    });
    this.editor.dispatchEvent(new CustomEvent("applied", { detail: ranges }));
  }

  #close() {
    this.job = null;
    this.live.hidden = true;
    byId("result").hidden = true;
    document.body.classList.remove("is-live", "has-choice");
    this.editor.field.focus({ preventScroll: true });
    this.editor.dispatchEvent(new Event("marks"));
  }

  stopOrClose() {
    if (byId("result").hidden) byId("stop").click();
    else this.#end(false);
  }

  /** Put runs into the list, with their page and their file. */
  async add({ name, runs }) {
    const title = `${name} with ${document.title.split(" · ")[1] ?? "reviser"}`;
    const fields = ({ trajectory, log_probabilities, alternatives }) => ({ trajectory, log_probabilities, alternatives, title: trajectory.text ?? name });
    const lines = runs.map((run) => `${JSON.stringify(run.trajectory)}\n`).join("");
    const number = this.list.length ? this.list[0].number + 1 : 1;
    const page = await this.task(null, () => askText("/v1/replays", { title, runs: runs.map(fields) }));
    if (!page) return;
    this.list = [{ number, name, runs, page, lines }, ...this.list].slice(0, MOST_LISTED);
    byId("runs").hidden = false;
    byId("runs").querySelector("ul").replaceChildren(...this.list.map(listRun));
  }
}

function listRun({ number, name, runs, page, lines }) {
  const count = plural(runs.reduce((all, run) => all + run.trajectory.actions.length, 0), "action");
  const file = `reviser-run-${number}`, { href } = linkTo(page, "text/html", "");
  return make("li", {}, make("span", {}, `${name}, ${count}`),
    make("a", { href, target: "_blank", "aria-label": `Replay run ${number}` }, "Replay"),
    make("a", { href, download: `${file}.html`, "aria-label": `Save run ${number} as a page` }, "Save page"),
    make("a", { ...linkTo(lines, "application/x-ndjson", `${file}.jsonl`), "aria-label": `Save run ${number} as a trajectory` }, "Save JSON"));
}

/** Take an action into a run's account. */
function note(run, { id, action, log_probability, alternatives }, isBack) {
  run.steps += 1;
  run.back += isBack && /^(JUMP|MOVE)/.test(action) ? 1 : 0;
  run.actions.push(id);
  run.scores.push(log_probability);
  run.ranked.push(alternatives.map((each) => [each.id, each.log_probability]));
}

/** A run as the replay takes it; one that was stopped gets its STOP. */
function finish(run) {
  const record = run.trajectory;
  if (!record.actions.length) {
    const stop = record.num_text + STOP, pending = record.num_text + 24;
    const actions = run.actions.at(-1) === pending ? run.actions.slice(0, -1) : run.actions;
    record.actions = actions.at(-1) === stop ? actions : [...actions, stop];
    record.text = run.text;
  }
  const count = record.actions.length;
  return { trajectory: record, log_probabilities: run.scores.slice(0, count), alternatives: run.ranked.slice(0, count) };
}

const sum = (items, name) => items.reduce((all, item) => all + item[name], 0);

function applyParts(text, parts) {
  let place = 0;
  const pieces = [];
  for (const { start, end, run } of parts) {
    pieces.push(text.slice(place, start), run.text);
    place = end;
  }
  return pieces.join("") + text.slice(place);
}

function titleOf({ kind, changes, parts }, wanted) {
  if (!changes.length) return kind === "continue" ? "Nothing was written" : "Nothing to change";
  if (kind === "revise") return wanted.length < changes.length ? `${wanted.length} of ${plural(changes.length, "change")}` : plural(wanted.length, "change");
  return plural((parts[0].run.text.match(/[\p{L}\p{N}'’]+/gu) ?? []).length, "new word");
}
