// The text as others take it: with its changes in Markdown, and as a patch. Changes are {start, end, before, after}
// of one text, disjoint and in order.

const CONTEXT = 3;
const NO_NEWLINE = "\\ No newline at end of file";

/** A text after some changes of it. */
export function applyChanges(text, changes) {
  let place = 0;
  const parts = [];
  for (const { start, end, after } of changes) {
    parts.push(text.slice(place, start), after);
    place = end;
  }
  return parts.join("") + text.slice(place);
}

/** CriticMarkup: {--old--}{++new++}. */
export function toCriticMarkup(text, changes) {
  let place = 0;
  const parts = [];
  for (const { start, end, before, after } of changes) {
    parts.push(text.slice(place, start), before && `{--${before}--}`, after && `{++${after}++}`);
    place = end;
  }
  return parts.join("") + text.slice(place);
}

const splitLines = (text) => text.match(/[^\n]*\n|[^\n]+$/g) ?? [];

/** Pairs of equal items of two lists, in order: a longest common subsequence. */
function findCommon(old, now) {
  let head = 0, tail = 0;
  const most = Math.min(old.length, now.length);
  while (head < most && old[head] === now[head]) head += 1;
  while (tail < most - head && old[old.length - 1 - tail] === now[now.length - 1 - tail]) tail += 1;
  const rows = old.length - head - tail, columns = now.length - head - tail, width = columns + 1;
  const best = new Uint32Array((rows + 1) * width);
  for (let i = rows - 1; i >= 0; i -= 1) {
    for (let j = columns - 1; j >= 0; j -= 1) {
      best[i * width + j] = old[head + i] === now[head + j] ? best[(i + 1) * width + j + 1] + 1
        : Math.max(best[(i + 1) * width + j], best[i * width + j + 1]);
    }
  }
  const pairs = Array.from({ length: head }, (_, at) => [at, at]);
  for (let i = 0, j = 0; i < rows && j < columns;) {
    if (old[head + i] === now[head + j]) pairs.push([head + i++, head + j++]);
    else if (best[(i + 1) * width + j] >= best[i * width + j + 1]) i += 1;
    else j += 1;
  }
  for (let at = tail; at > 0; at -= 1) pairs.push([old.length - at, now.length - at]);
  return pairs;
}

/** What to do to turn one list into another: [sign, item, place in the old, place in the new]. */
function listSteps(old, now) {
  const steps = [];
  let i = 0, j = 0;
  for (const [a, b] of [...findCommon(old, now), [old.length, now.length]]) {
    while (i < a) steps.push(["-", old[i], i++, j]);
    while (j < b) steps.push(["+", now[j], i, j++]);
    if (a < old.length) steps.push([" ", old[i], i++, j++]);
  }
  return steps;
}

/** A unified diff that patch and git apply; empty where nothing differs. */
export function toPatch(old, now, name = "text.txt") {
  const steps = listSteps(splitLines(old), splitLines(now));
  const near = steps.map((_, at) => steps.slice(Math.max(at - CONTEXT, 0), at + CONTEXT + 1).some(([sign]) => sign !== " "));
  const lines = [];
  for (let at = 0; at < steps.length; at += 1) {
    if (!near[at]) continue;
    let end = at;
    while (end < steps.length && near[end]) end += 1;
    const hunk = steps.slice(at, end);
    const count = (sign) => hunk.filter((step) => step[0] !== sign).length;
    const range = (place, size) => `${size ? place + 1 : place},${size}`;
    lines.push(`@@ -${range(hunk[0][2], count("+"))} +${range(hunk[0][3], count("-"))} @@\n`);
    for (const [sign, line] of hunk) lines.push(line.endsWith("\n") ? sign + line : `${sign}${line}\n${NO_NEWLINE}\n`);
    at = end;
  }
  return lines.length ? `--- a/${name}\n+++ b/${name}\n${lines.join("")}` : "";
}

/** The changes from one text to another, by words. */
export function findChanges(old, now) {
  const split = (text) => text.match(/[\p{L}\p{N}'’]+|\s+|[^]/gu) ?? [];
  const changes = [];
  let place = 0;
  for (const [sign, item] of listSteps(split(old), split(now))) {
    const last = changes.at(-1);
    if (sign === " ") {
      place += item.length;
      continue;
    }
    const isNext = last && last.end === place;
    const change = isNext ? last : { start: place, end: place, before: "", after: "" };
    if (!isNext) changes.push(change);
    if (sign === "-") {
      change.before += item;
      place += item.length;
      change.end = place;
    } else {
      change.after += item;
    }
  }
  return changes;
}

/** Put a text on the clipboard, also where the page is not from this machine and the browser is strict. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    const isDone = document.execCommand("copy");
    field.remove();
    if (!isDone) throw new Error("the browser did not allow it");
  }
}
