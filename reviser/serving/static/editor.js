// The text area and the mirror behind it: the same text in the same place, in which marks are drawn.
//
// Marks never change the layout, so that nothing moves while one types. What replaces a word stands above it. All
// changes go through the browser's own editing, so that its undo takes them back.

import { make } from "./dom.js";

export class Editor extends EventTarget {
  constructor(field, mirror) {
    super();
    [this.field, this.mirror, this.marks, this.value] = [field, mirror, [], field.value];
    field.addEventListener("input", () => this.#note());
  }

  get text() {
    return this.field.value;
  }

  /** Where the selection begins and ends. */
  get selection() {
    return [this.field.selectionStart, this.field.selectionEnd];
  }

  /** The text at the start, before there is anything to undo. */
  open(text) {
    this.field.value = text;
    this.value = text;
    this.draw(this.marks);
  }

  /** Put a text in the place of characters, as one step of undo. The focus stays where it is. */
  replace(start, end, text, caret = start + text.length) {
    const { field } = this, before = document.activeElement, [x, y] = [scrollX, scrollY];
    const isElsewhere = before !== field;
    // Without this a phone would show its keyboard.
    if (isElsewhere) field.inputMode = "none";
    field.focus({ preventScroll: true });
    field.setSelectionRange(start, end);
    const isDone = text || start < end ? document.execCommand(text ? "insertText" : "delete", false, text) : true;
    if (!isDone || field.value.slice(start, start + text.length) !== text) {
      field.setRangeText(text, start, end, "end");
      this.#note();
    }
    field.setSelectionRange(caret, caret);
    if (isElsewhere) {
      field.blur();
      field.inputMode = "";
      if (before?.isConnected) before.focus({ preventScroll: true });
    }
    scrollTo(x, y);
  }

  undo() {
    const before = document.activeElement;
    this.field.inputMode = before === this.field ? "" : "none";
    this.field.focus({ preventScroll: true });
    const isDone = document.execCommand("undo");
    this.field.inputMode = "";
    return isDone;
  }

  /** Tell what has changed: characters `start` to `end` gave way to `text`. */
  #note() {
    const [old, now] = [this.value, this.field.value];
    if (old === now) return;
    const splice = findSplice(old, now);
    this.value = now;
    this.marks = shiftAll(this.marks, splice);
    this.draw(this.marks);
    this.dispatchEvent(new CustomEvent("change", { detail: splice }));
  }

  /** Draw marks, which are in order and disjoint: {start, end, kind, above, id}. */
  draw(marks) {
    this.marks = marks;
    const parts = [], text = this.text;
    let place = 0;
    for (const mark of marks) {
      if (mark.start < place || mark.end > text.length) continue;
      parts.push(text.slice(place, mark.start), this.#element(mark, text));
      place = mark.end;
    }
    // A last line that is empty has its height only if something stands there.
    parts.push(text.slice(place), "\u200b");
    this.mirror.replaceChildren(...parts);
  }

  #element(mark, text) {
    const element = make("mark", { className: mark.kind }, text.slice(mark.start, mark.end));
    if (mark.id) element.dataset.id = mark.id;
    if (mark.start === mark.end) element.classList.add("inserted");
    if (mark.above) element.append(make("span", { className: "above" }, mark.above));
    return element;
  }

  /** The element of a mark. */
  find(id) {
    return [...this.mirror.querySelectorAll("mark")].find((each) => each.dataset.id === id) ?? null;
  }

  /** The mark under a point of the window. */
  hit(x, y) {
    for (const element of this.mirror.querySelectorAll("mark[data-id]")) {
      const boxes = [...element.getClientRects(), ...(element.querySelector(".above")?.getClientRects() ?? [])];
      if (boxes.some((box) => x >= box.left - 3 && x <= box.right + 3 && y >= box.top - 2 && y <= box.bottom + 2)) {
        return element.dataset.id;
      }
    }
    return null;
  }
}

/** The one stretch in which two texts differ. */
export function findSplice(old, now) {
  let start = 0;
  const most = Math.min(old.length, now.length);
  while (start < most && old[start] === now[start]) start += 1;
  let end = 0;
  while (end < most - start && old[old.length - 1 - end] === now[now.length - 1 - end]) end += 1;
  return { start, end: old.length - end, text: now.slice(start, now.length - end) };
}

const isWord = (character) => /^[\p{L}\p{N}'’]/u.test(character);

/** Ranges after a splice; those that it changed are gone. */
export function shiftAll(ranges, { start, end, text }) {
  const growth = text.length - (end - start), kept = [];
  for (const each of ranges) {
    if (each.end < start || (each.end === start && !isWord(text.slice(0, 1)))) kept.push(each);
    else if (each.start > end || (each.start === end && !isWord(text.slice(-1)))) {
      kept.push({ ...each, start: each.start + growth, end: each.end + growth });
    }
  }
  return kept;
}
