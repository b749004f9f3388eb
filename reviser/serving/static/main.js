// The page: what the buttons do, which marks are drawn, and what is remembered.

import { ask } from "./api.js";
import { Card } from "./card.js";
import { byId, make, percent, plural, showChange, tellChange, toast } from "./dom.js";
import { Editor, shiftAll } from "./editor.js";
import { applyChanges, copy, toCriticMarkup, toPatch } from "./exports.js";
import { Fillings } from "./fillings.js";
import { Notices } from "./notices.js";
import { Proofreader } from "./proofreader.js";
import { Runs } from "./runs.js";
import { flush, remember, store } from "./store.js";

const SAMPLES = {
  proofread: "The commitee have decided to postpone there meeting untill next week. Many of the members was ill, and nobody had "
    + "recieved the the agenda in time.\n\nWe is sorry for the trouble. Please let us know weather you can come on thursday.",
  fill: "The old lighthouse ___ until morning, when the fishermen ___ to the harbour.",
  continue: "The museum was opened in 1924 and",
};
const ABOUT = {
  proofread: ["Proofread", "Finds spelling, grammar and punctuation that looks wrong, while you write."],
  fill: ["Fill", "Writes what is missing where you type ___ or select words, and gives you several ways."],
  continue: ["Continue", "Writes on at the cursor, between what stands before and behind it."],
  revise: ["Revise", "Goes through the text, or through what you have selected, and corrects it before your eyes."],
};
const TYPING_MS = 1200;

const editor = new Editor(byId("text"), byId("mirror"));
const notices = new Notices();
const proofreader = new Proofreader(editor);
const runs = new Runs(editor, (name, work, onStop) => notices.task(name, work, onStop, () => redo?.()));
const fillings = new Fillings(editor, (name, work) => notices.task(name, work, null, () => redo?.()), (run) => runs.add(run));
const card = new Card(editor, proofreader, { accept, reject, keep });

let jobs = null;
let redo = null;
let fresh = [];
let decision = null;
let typedAt = 0;
let shown = [];

/* Marks and lists */

function draw() {
  shown = proofreader.suggestions.filter((each) => !isBeingTyped(each));
  const marks = shown.map((each) => ({
    start: each.start, end: each.end, id: each.id, above: each.after.trim(),
    kind: `gone${each.probability < 0.5 ? " unsure" : ""}${each.id === card.id ? " active" : ""}`,
  }));
  const isFree = (range) => marks.every((mark) => mark.end <= range.start || mark.start >= range.end);
  const blanks = (fillings.asked?.gaps ?? [...editor.text.matchAll(/_{3,}/g)].map((found) => (
    { start: found.index, end: found.index + found[0].length }))).map((gap) => ({ ...gap, kind: "blank" }));
  const others = [...blanks, ...fresh.map((range) => ({ ...range, kind: "fresh" }))].filter(isFree);
  editor.draw([...marks, ...others].sort((a, b) => a.start - b.start || a.end - b.end));
  if (card.id && !shown.some((each) => each.id === card.id)) card.close();
  listSuggestions();
  listWords();
  tell();
  const isEmpty = editor.text === "" && jobs !== null && !runs.isOpen;
  byId("samples").hidden = byId("intro").hidden = !isEmpty;
  byId("cannot").hidden = isEmpty || !byId("cannot").textContent;
}

/** A word that is still being typed is no mistake. */
function isBeingTyped({ start, end }) {
  const [caret] = editor.selection;
  return document.activeElement === editor.field && caret >= start && caret <= end + 1 && Date.now() - typedAt < TYPING_MS;
}

function listSuggestions() {
  const box = byId("suggestions"), focused = document.activeElement?.closest("#suggestions li")?.dataset.id;
  const rows = shown.map((each) => {
    const said = tellChange(each.before, each.after);
    const button = (className, name, path, run) => {
      const icon = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
      icon.setAttribute("viewBox", "0 0 24 24");
      icon.setAttribute("aria-hidden", "true");
      line.setAttribute("d", path);
      icon.append(line);
      return make("button", { type: "button", className: `quiet ${className}`, title: name, "aria-label": `${name}: ${said}`, onclick: () => stepOn(each.id, run) }, icon);
    };
    const show = make("button", { type: "button", className: "show", "aria-label": `Show: ${said}, ${percent(each.probability)} sure`, onclick: () => goTo(each) },
      showChange(each.before, each.after), make("span", { className: "chance" }, `${percent(each.probability)} sure`));
    const row = make("li", { className: `suggestion${each.id === card.id ? " active" : ""}` }, show,
      make("span", {}, button("yes", "Accept", "m5.5 12.5 4.3 4.3L18.5 8", () => accept(each)), button("no", "Reject", "m7 7 10 10M17 7 7 17", () => reject(each))));
    row.dataset.id = each.id;
    return row;
  });
  byId("suggestions-title").textContent = plural(shown.length, "suggestion");
  box.querySelector("ol").replaceChildren(...rows);
  box.hidden = !shown.length;
  if (focused) [...box.querySelectorAll("li")].find((row) => row.dataset.id === focused)?.querySelector(".yes").focus({ preventScroll: true });
}

/** Do something with a suggestion of the list, and go on to the one that takes its place. */
function stepOn(id, run) {
  const at = shown.findIndex((each) => each.id === id);
  run();
  const rows = [...byId("suggestions").querySelectorAll("li .yes")];
  if (rows.length) rows[Math.min(at, rows.length - 1)].focus({ preventScroll: true });
  else editor.field.focus({ preventScroll: true });
}

function listWords() {
  byId("words").hidden = !store.words.length || !proofreader.isOn;
  byId("words").querySelector("ul").replaceChildren(...store.words.map((word) => make("li", {},
    make("button", { type: "button", "aria-label": `No longer keep ${word}`, onclick: () => proofreader.release(word) }, word))));
}

function tell() {
  const words = editor.text.match(/[\p{L}\p{N}][\p{L}\p{N}'’-]*/gu)?.length ?? 0;
  byId("count").textContent = plural(words, "word");
  const { missing, total } = proofreader.progress;
  notices.busy(!notices.isWarm || (proofreader.isWorking && missing > 0));
  if (jobs === null) return;
  const ready = notices.isWarm ? "" : " The model is getting ready, which takes up to a minute the first time.";
  if (proofreader.isOn && missing && proofreader.isWorking) {
    notices.rest(total > 3 ? `Reading… ${total - missing} of ${total} sentences.${ready}` : `Reading…${ready}`);
  } else if (ready || !proofreader.isOn || !words) notices.rest(ready.trim());
  else if (!missing) notices.rest(shown.length ? "" : "Nothing to correct.");
}

/* What can be done with a suggestion */

function accept({ start, end, before, after }) {
  card.close();
  decision = null;
  editor.replace(start, end, after);
  track([{ start, end: start + after.length, before }]);
}

function acceptAll() {
  const all = shown, [first, last] = [all[0], all.at(-1)];
  const moved = all.map((each) => ({ ...each, start: each.start - first.start, end: each.end - first.start }));
  const text = applyChanges(editor.text.slice(first.start, last.end), moved);
  decision = null;
  card.close();
  editor.replace(first.start, last.end, text);
  let growth = 0;
  track(all.map(({ start, end, before, after }) => {
    const range = { start: start + growth, end: start + growth + after.length, before };
    growth += after.length - (end - start);
    return range;
  }));
  toast(`${plural(all.length, "suggestion")} accepted.`, () => editor.undo());
  editor.field.focus({ preventScroll: true });
}

/** Remember what was accepted, for copies with changes, and show it for a moment. */
function track(ranges) {
  remember({ accepted: [...store.accepted, ...ranges].sort((a, b) => a.start - b.start) });
  fresh = ranges.filter((range) => range.start < range.end);
  proofreader.schedule(50);
  draw();
}

function reject(suggestion) {
  card.close();
  decide(proofreader.reject(suggestion), "Rejected.");
}

function keep(suggestion, words) {
  card.close();
  decide(proofreader.keep(words), `“${words.join(" ")}” is kept from now on.`);
}

/** Something that changed no text; the next undo takes it back. */
function decide(back, said) {
  decision = () => { decision = null; byId("toast").hidden = true; back(); };
  draw();
  toast(said, () => decision?.());
}

function goTo(suggestion) {
  typedAt = 0;
  editor.field.focus({ preventScroll: true });
  editor.field.setSelectionRange(suggestion.start, suggestion.start);
  card.open(suggestion);
  draw();
  editor.find(suggestion.id)?.scrollIntoView({ block: "nearest" });
  card.place();
}

function goOn(step) {
  if (!shown.length) return;
  const [caret] = editor.selection, open = shown.findIndex((each) => each.id === card.id);
  let at = open + step;
  if (open < 0) at = step > 0 ? shown.findIndex((each) => each.start >= caret) : shown.findLastIndex((each) => each.end <= caret);
  goTo(shown[(at + shown.length) % shown.length] ?? shown[0]);
}

/* Buttons and keys */

function refuse(name) {
  const { can, why } = jobs.jobs[name];
  if (!can) toast(why);
  return !can;
}

function runJob(name) {
  if (jobs === null || runs.isOpen || refuse(name)) return;
  redo = () => runJob(name);
  card.close();
  if (name === "proofread") {
    turnProofreading(!proofreader.isOn);
  } else if (name === "fill") {
    fillings.open().then((hasGaps) => { if (!hasGaps) { toast("Type ___ where words are missing, or select the words to replace."); editor.field.focus(); } });
  } else if (name === "revise" && !editor.text.trim()) {
    toast("There is nothing to revise yet.");
  } else {
    if (fillings.isOpen) fillings.close();
    runs.start(name);
    draw();
  }
}

function turnProofreading(isOn) {
  byId("proofread").setAttribute("aria-pressed", String(isOn));
  byId("keys").hidden = !isOn;
  remember({ isProofreading: isOn });
  proofreader.turn(isOn);
}

function undo() {
  if (decision) decision();
  else editor.undo();
}

async function copyOut(kind) {
  const pending = shown.map(({ start, end, before, after }) => ({ start, end, before, after }));
  const done = store.accepted.map(({ start, end, before }) => ({ start, end, before, after: editor.text.slice(start, end) }))
    .filter((each) => pending.every((other) => other.end <= each.start || other.start >= each.end));
  const changes = [...pending, ...done].sort((a, b) => a.start - b.start || a.end - b.end);
  const original = applyChanges(editor.text, done.map((each) => ({ ...each, after: each.before })));
  const text = { text: editor.text, changes: toCriticMarkup(editor.text, changes), patch: toPatch(original, applyChanges(editor.text, pending)) }[kind];
  byId("copies").hidePopover();
  if (kind !== "text" && !changes.length) return toast("There are no changes to copy.");
  try {
    await copy(text);
    return toast("Copied.");
  } catch (error) {
    return toast(`Nothing was copied: ${error.message}.`);
  }
}

function onKey(event) {
  const isAlt = event.altKey && !event.ctrlKey && !event.metaKey;
  if (isAlt && (event.key === "ArrowDown" || event.key === "ArrowUp")) goOn(event.key === "ArrowDown" ? 1 : -1);
  else if (isAlt && event.key === "Enter" && card.shown) accept(card.shown);
  else if (isAlt && event.key === "Backspace" && card.shown) reject(card.shown);
  else if (event.key === "Escape" && runs.isOpen) runs.stopOrClose();
  else if (event.key === "Escape" && card.shown) card.close();
  else if (event.key === "Escape" && fillings.isOpen) fillings.close(true);
  else if (event.key.toLowerCase() === "z" && (event.ctrlKey || event.metaKey) && !event.shiftKey && decision) decision();
  else return;
  event.preventDefault();
}

/** Arrow keys move along the tools and the menu. */
function moveAlong(box, keys) {
  box.addEventListener("keydown", (event) => {
    const step = keys.indexOf(event.key) < 0 ? 0 : keys.indexOf(event.key) ? 1 : -1;
    const buttons = [...box.querySelectorAll("button:not(:disabled)")], at = buttons.indexOf(document.activeElement);
    if (!step || at < 0) return;
    buttons[(at + step + buttons.length) % buttons.length].focus();
    event.preventDefault();
  });
}

function showScheme() {
  document.documentElement.style.colorScheme = store.scheme;
}

function listen() {
  editor.addEventListener("change", ({ detail }) => {
    [typedAt, decision] = [Date.now(), null];
    fresh = shiftAll(fresh, detail);
    remember({ text: editor.text, accepted: shiftAll(store.accepted, detail) }, true);
    if (fillings.isOpen) fillings.close();
    proofreader.schedule();
    draw();
    setTimeout(draw, TYPING_MS + 50);
  });
  editor.addEventListener("marks", draw);
  editor.addEventListener("fresh", ({ detail }) => { fresh = detail.filter((range) => range.start < range.end); draw(); });
  editor.addEventListener("applied", ({ detail }) => track(detail));
  proofreader.addEventListener("answer", draw);
  proofreader.addEventListener("trouble", ({ detail }) => notices.show(detail, () => proofreader.schedule(0)));
  for (const name of Object.keys(ABOUT)) byId(name).onclick = () => runJob(name);
  byId("accept-all").onclick = acceptAll;
  byId("undo").onclick = undo;
  byId("help").onclick = () => byId("about").showModal();
  byId("theme").onclick = () => {
    const isDark = (store.scheme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    remember({ scheme: isDark ? "light" : "dark" });
    showScheme();
  };
  for (const each of document.querySelectorAll("[data-copy]")) each.onclick = () => copyOut(each.dataset.copy);
  byId("copies").addEventListener("toggle", (event) => { if (event.newState === "open") byId("copies").querySelector("button").focus(); });
  for (const each of document.querySelectorAll("[data-sample]")) each.onclick = () => trySample(each.dataset.sample);
  moveAlong(byId("tools"), ["ArrowLeft", "ArrowRight"]);
  moveAlong(byId("copies"), ["ArrowUp", "ArrowDown"]);
  document.addEventListener("keydown", onKey);
  listenToPointer();
}

function listenToPointer() {
  const open = (id) => {
    const found = shown.find((each) => each.id === id);
    if (!found) return;
    card.open(found);
    draw();
  };
  editor.field.addEventListener("pointermove", ({ clientX, clientY, pointerType, buttons }) => {
    if (pointerType !== "mouse" || buttons) return;
    const id = editor.hit(clientX, clientY);
    if (id && id !== card.id) open(id);
    else if (!id && card.id) card.leave();
  });
  editor.field.addEventListener("pointerleave", () => { if (card.id) card.leave(); });
  document.addEventListener("selectionchange", () => {
    if (document.activeElement !== editor.field) return;
    const [start, end] = editor.selection;
    if (start !== end) return;
    const found = shown.find((each) => each.start <= start && start <= each.end);
    if (found) open(found.id);
    else if (card.id) card.leave();
  });
  // The sheet is a text area down to its lower edge.
  byId("sheet").addEventListener("click", (event) => { if (event.target === event.currentTarget) editor.field.focus(); });
  addEventListener("resize", () => card.place());
}

function trySample(name) {
  const text = SAMPLES[name];
  editor.field.focus({ preventScroll: true });
  editor.replace(0, editor.text.length, text);
  if (name !== "proofread") runJob(name);
  else if (!proofreader.isOn) runJob(name);
}

/* What the model can do */

function showJobs() {
  const model = jobs.model.split(/[\\/]/).filter(Boolean).at(-1);
  document.title = `reviser · ${model}`;
  byId("about-model").textContent = `The model is ${model}. Everything runs on the server that sent this page.`;
  const describe = ([name, [title, said]]) => {
    const { can, why, note } = jobs.jobs[name];
    return make("div", {}, make("dt", {}, title, can ? "" : make("span", { className: "cannot" }, ", not with this model")),
      make("dd", { className: "note" }, can ? `${said} ${note ?? ""}` : why));
  };
  for (const id of ["about-jobs", "intro"]) {
    const list = id === "intro" ? byId(id).querySelector("dl") : byId(id);
    list.replaceChildren(...Object.entries(ABOUT).map(describe));
  }
  byId("intro-limits").textContent = jobs.limits.slice(0, -1).join(" ");
  byId("about-limits").replaceChildren(make("ul", {}, ...jobs.limits.map((line) => make("li", {}, line))),
    jobs.card ? make("p", { className: "note" }, `Its maker says: ${jobs.card.replaceAll("`", "")}`) : "");
  for (const [name, { can, why }] of Object.entries(jobs.jobs)) {
    const button = byId(name);
    button.disabled = false;
    button.title = can ? ABOUT[name][1] : why;
    if (!can) {
      button.setAttribute("aria-disabled", "true");
      button.setAttribute("aria-label", `${ABOUT[name][0]}, not with this model: ${why}`);
    }
  }
  const missing = Object.keys(ABOUT).filter((name) => !jobs.jobs[name].can);
  byId("cannot").textContent = missing.length
    ? `${missing.map((name) => ABOUT[name][0]).join(" and ")}: not with this model. ${jobs.jobs[missing[0]].why}` : "";
  for (const each of document.querySelectorAll("[data-sample]")) each.hidden = !jobs.jobs[each.dataset.sample].can;
}

/** Let the server compile what it needs while the user looks around. */
async function warm() {
  notices.isWarm = jobs.is_warm;
  if (jobs.is_warm) return;
  try {
    await ask("/v1/completions", { prompt: "A", max_tokens: 2, seed: 1 });
  } catch { /* whoever asks next is told */ }
  notices.isWarm = true;
  draw();
}

async function begin() {
  showScheme();
  editor.open(store.text);
  listen();
  draw();
  if (!flush()) byId("kept").textContent = "This browser keeps nothing: copy the text before you leave";
  jobs = await notices.findJobs();
  showJobs();
  const canProofread = jobs.jobs.proofread.can;
  byId("keys").hidden = true;
  warm();
  if (canProofread) turnProofreading(store.isProofreading);
  draw();
  editor.field.focus({ preventScroll: true });
}

begin();
