// The page: a list of examples, the canvas after an action, and every way to go to another action.

const find = (selector) => document.querySelector(selector);
const data = JSON.parse(find("#data").textContent);
const vocabulary = new Vocabulary(data);
const replays = new Map();
const number = new Intl.NumberFormat("en");
const view = { index: 0, at: 0, replay: null, timer: null };
const canvas = new CanvasView(find("#canvas"), find("#paper"), find("#arc"), seek);
const plot = new Plot(find("#path"), seek);

function replayOf(index) {
  if (!replays.has(index)) replays.set(index, new Replay(data.examples[index], vocabulary));
  return replays.get(index);
}

function textOf(state) {
  return vocabulary.pieces(state.cells).join("");
}

function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

// ---- going to an action

function go(at) {
  view.at = Math.min(Math.max(at, 0), view.replay.length);
  const state = view.replay.state(view.at);
  canvas.show(state, view.replay);
  plot.mark(view.at);
  showStep(state);
  const scrubber = find("#scrubber"), isAtEnd = view.at === view.replay.length;
  scrubber.value = view.at;
  scrubber.style.setProperty("--share", view.at / Math.max(view.replay.length, 1));
  scrubber.setAttribute("aria-valuetext", `${view.at} of ${view.replay.length}: ${nameOf(view.at)}`);
  const count = `${number.format(view.at)} / ${number.format(view.replay.length)}`;
  find("#count").textContent = count;
  find("#now").replaceChildren(labelOf(view.at), make("span", "", count));
  find("#first").disabled = find("#back").disabled = view.at === 0;
  find("#last").disabled = find("#forward").disabled = isAtEnd;
}

function seek(at) {
  pause();
  go(at);
}

function play() {
  if (view.at === view.replay.length) go(0);
  clearInterval(view.timer);
  view.timer = setInterval(advance, 1000 / Number(find("#speed").value));
  showPlaying(true);
}

function advance() {
  go(view.at + 1);
  if (view.at === view.replay.length) pause();
}

function pause() {
  clearInterval(view.timer);
  view.timer = null;
  showPlaying(false);
}

function toggle() {
  if (view.timer === null) play();
  else pause();
}

function showPlaying(isPlaying) {
  document.body.classList.toggle("playing", isPlaying);
  find("#play").setAttribute("aria-label", isPlaying ? "Pause" : "Play");
  find("#step").setAttribute("aria-live", isPlaying ? "off" : "polite");
}

// ---- the action

function nameOf(at) {
  if (at === 0) return "draft";
  const action = view.replay.example.actions[at - 1];
  return label(action, view.replay.state(at - 1).cells).textContent;
}

// An action on these cells: what it inserts, or where it jumps to.
function label(action, cells) {
  const [operator, operand] = vocabulary.effect(action), quote = (token) => readableLine(vocabulary.quote(token));
  const parts = [make("span", "operator", vocabulary.name(action))];
  if (operator === "insert") parts.push(" ", make("bdi", "piece", quote(action)));
  // The row that all JUMPs share: how probable they are together.
  if (operator === "jump" && action < vocabulary.firstJump) parts.push(make("span", "words", " somewhere"));
  else if (operator === "jump") {
    const isInside = operand > 0 && operand < cells.length;
    const words = isInside ? " after " : operand === 0 ? " to the front" : " to the end";
    parts.push(make("span", "words", words), ...(isInside ? [make("bdi", "piece", quote(cells[operand - 1].token))] : []));
  }
  return make("span", "label", ...parts);
}

function labelOf(at) {
  if (at > 0) return label(view.replay.example.actions[at - 1], view.replay.state(at - 1).cells);
  return make("span", "label", make("span", "operator", view.replay.example.draft.length ? "GIVEN TEXT" : "EMPTY"));
}

function showStep(state) {
  const step = find("#step"), isSeed = view.at === 0;
  const { action, score, pairs, isNoise } = isSeed ? { score: null, pairs: [] } : view.replay.choice(view.at);
  step.querySelector(".eyebrow").textContent = isSeed ? "Before the first action" : `Action ${number.format(view.at)}`;
  const tags = isNoise ? [make("span", "tag", "noise, not learned")] : [];
  step.querySelector(".action").replaceChildren(labelOf(view.at), ...tags);
  step.querySelector(".chances").replaceChildren(...chances(action, score, pairs));
  step.querySelector("dl").replaceChildren(...facts(state).flatMap(([term, value]) => [make("dt", "", term), make("dd", "", value)]));
}

function chances(action, score, pairs) {
  if (score === null) return [];
  const isListed = pairs.some(([each]) => each === action);
  const rows = isListed ? pairs : [...pairs, [action, score]], { cells } = view.replay.state(view.at - 1);
  const list = make("ol", "", ...rows.map(([each, chance]) => chanceRow(label(each, cells), chance, each === action)));
  if (!isListed && pairs.length) list.lastElementChild.classList.add("apart");
  return [make("h3", "", pairs.length ? "Considered" : "Probability"), list];
}

function chanceRow(named, score, isChosen) {
  const chance = Math.exp(score), row = make("li", isChosen ? "chosen" : "", named, make("span", "percent", percent(chance)));
  if (isChosen) row.setAttribute("aria-current", "true");
  row.style.setProperty("--chance", chance);
  return row;
}

function percent(chance) {
  if (chance >= 0.9995) return "100%";
  return chance < 0.0005 ? "<0.1%" : `${(chance * 100).toFixed(1)}%`;
}

function facts(state) {
  const known = view.replay.example.scores?.slice(0, view.at) ?? [];
  const facts = [
    ["Cursor", `${number.format(state.cursor)} of ${number.format(state.cells.length)} tokens`],
    ["Backward revisions", `${view.replay.revisions.filter((at) => at <= view.at).length} of ${view.replay.revisions.length}`],
  ];
  if (known.length) facts.push(["Log-probability so far", known.reduce((sum, score) => sum + (score ?? 0), 0).toFixed(2)]);
  if (state.clipboard.length) {
    const cells = state.clipboard.map((token) => ({ token }));
    facts.push(["Clipboard", make("bdi", "piece", readableLine(vocabulary.pieces(cells).join("")))]);
  }
  return facts;
}

// ---- examples

function open(index, at) {
  pause();
  view.index = index;
  view.replay = replayOf(index);
  const { example, length, final, revisions, highest } = view.replay;
  canvas.clear();
  find("#ghost").replaceChildren(...readable(textOf(final)));
  find("#about h2").textContent = example.title;
  find("#about h2").hidden = example.title === "";
  find("#about p").textContent = summary(view.replay);
  find("#scrubber").max = length;
  find("#revision").disabled = revisions.length === 0;
  find("#key-given").hidden = example.draft.every((_, place) => example.marks[place + 1] & FIXED);
  find("#key-protected").hidden = !view.replay.hasMarks;
  find("#key-jump").hidden = find("#key-leap").hidden = view.replay.jumps.length === 0;
  find("#key-band").hidden = view.replay.guarded.length === 0;
  find("#key-pending").hidden = !example.actions.some((action) => vocabulary.effect(action)[0] === "replace");
  find("#key-removed").hidden = view.replay.removals.length === 0;
  find("#key-revision").hidden = revisions.length === 0;
  find("#key-score").hidden = !example.scores;
  find("#path").setAttribute("aria-label", `The cursor over ${length} actions, in a text of up to ${highest} tokens`);
  for (const [each, button] of document.querySelectorAll("#examples button").entries()) {
    button.setAttribute("aria-current", String(each === index));
    if (each === index) button.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  plot.show(view.replay);
  go(at ?? length);
}

function summary({ example, length, final, revisions, prefix, suffix, numInserts, numInside }) {
  const count = (n, word) => `${number.format(n)} ${word}${n === 1 ? "" : "s"}`;
  const tokens = final.cells.length - prefix - suffix;
  const parts = [`${count(length, "action")} for ${count(tokens, "token")}`, count(revisions.length, "backward revision")];
  if (numInserts) parts.push(`${Math.round(100 * numInside / numInserts)}% of insertions not at the end`);
  if (example.log_q !== undefined) parts.push(`log q ${example.log_q.toFixed(2)}`);
  return parts.join(" · ");
}

function titleOf(index) {
  const { title } = data.examples[index];
  if (title) return title;
  const text = readableLine(textOf(replayOf(index).final).trim().slice(0, 90).replace(/\s+/g, " "));
  return text || "(empty)";
}

function listExamples() {
  document.body.classList.toggle("single", data.examples.length === 1);
  const rows = data.examples.map((example, index) => {
    const count = `${number.format(example.actions.length)} actions`;
    const button = make("button", "", make("bdi", "title", titleOf(index)), make("span", "count", count));
    button.type = "button";
    button.addEventListener("click", () => open(index));
    return make("li", "", button);
  });
  find("#examples ol").replaceChildren(...rows);
}

// ---- keys, buttons, the page's own dark and light

const KEYS = {
  " ": toggle,
  ArrowLeft: () => seek(view.at - 1),
  ArrowRight: () => seek(view.at + 1),
  Home: () => seek(0),
  End: () => seek(view.replay.length),
  n: () => seek(view.replay.nextRevision(view.at)),
};

function press(event) {
  const isOurs = event.key in KEYS && !event.ctrlKey && !event.metaKey && !event.altKey;
  const takes = { " ": "button, select", n: "select" }[event.key] ?? "input, select";
  if (!isOurs || event.target.closest?.(takes)) return;
  event.preventDefault();
  KEYS[event.key]();
}

function turnTheme() {
  const root = document.documentElement, isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const shown = root.style.colorScheme || (isDark ? "dark" : "light");
  root.style.colorScheme = shown === "dark" ? "light" : "dark";
}

function listen() {
  const clicks = {
    "#first": KEYS.Home, "#back": KEYS.ArrowLeft, "#play": toggle, "#forward": KEYS.ArrowRight, "#last": KEYS.End,
    "#revision": KEYS.n, "#theme": turnTheme,
  };
  for (const [selector, act] of Object.entries(clicks)) find(selector).addEventListener("click", act);
  find("#scrubber").addEventListener("input", (event) => seek(Number(event.target.value)));
  find("#speed").addEventListener("change", () => view.timer !== null && play());
  document.addEventListener("keydown", press);
}

listExamples();
listen();
open(0);

// For scripts and tests: what is shown, any state, and the way there.
window.reviser = {
  open, go: seek, play, pause,
  shown: () => ({ example: view.index, action: view.at, isPlaying: view.timer !== null }),
  revisions: (index) => replayOf(index).revisions,
  state(index, at) {
    const { cells, cursor, clipboard, isReplacing, isStopped } = replayOf(index).state(at);
    return { tokens: cells.map((cell) => cell.token), cursor, clipboard, isReplacing, isStopped, text: textOf({ cells }) };
  },
};
