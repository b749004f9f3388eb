// Suggestions while one types. The text is cut into sentences; what has been found in a sentence is remembered by its
// words, so only sentences that changed are asked for again, each with the text around it.

import { ServerError, ask } from "./api.js";
import { wait } from "./dom.js";
import { remember, store } from "./store.js";

const PAUSE_MS = 650;
const MOST_AT_ONCE = 600;
const AROUND = 300;
const LONGEST = 1500;
const TRIES_LATER_MS = 3000;
const SENTENCE = /[^]*?[.!?…]+["'”’)\]]*(?=\s|$)\s*|[^]+$/g;
const WORD = /[\p{L}\p{N}]/u;

let last = { text: null, found: [] };

/** The sentences of a text: {start, end, text}, without those that hold no words. */
export function cutSentences(text) {
  if (text !== last.text) last = { text, found: findSentences(text) };
  return last.found;
}

function findSentences(text) {
  const found = [];
  let place = 0;
  for (const line of text.split("\n")) {
    let start = place;
    for (const [sentence] of line.matchAll(SENTENCE)) {
      const kept = sentence.trimEnd();
      for (let at = 0; at < kept.length; at += LONGEST) {
        const part = kept.slice(at, at + LONGEST);
        if (WORD.test(part)) found.push({ start: start + at, end: start + at + part.length, text: part });
      }
      start += sentence.length;
    }
    place += line.length + 1;
  }
  return found;
}

const around = (text, start, end) => `${text.slice(Math.max(start - 12, 0), start)}|${text.slice(end, end + 12)}`;

export class Proofreader extends EventTarget {
  constructor(editor) {
    super();
    [this.editor, this.isOn, this.found, this.ways] = [editor, false, new Map(), new Map()];
    [this.timer, this.asking, this.current, this.isWorking, this.numDone] = [0, null, [], false, 0];
  }

  turn(isOn) {
    this.isOn = isOn;
    if (!isOn) this.asking?.abort();
    this.schedule(0);
    this.#tell();
  }

  /** Look at the text again, once nobody has typed for a while. */
  schedule(delay = PAUSE_MS) {
    clearTimeout(this.timer);
    if (this.current.length && !this.#isWanted(this.current)) this.asking?.abort();
    if (this.isOn) this.timer = setTimeout(() => this.#work(), delay);
  }

  #isWanted(sentences) {
    const there = new Set(cutSentences(this.editor.text).map((each) => each.text));
    return sentences.some((each) => there.has(each.text));
  }

  get #missing() {
    return this.isOn ? cutSentences(this.editor.text).filter((each) => !this.found.has(each.text)) : [];
  }

  /** How many sentences are still to be read, and of how many. */
  get progress() {
    const missing = this.#missing.length;
    return { missing, total: missing + this.numDone };
  }

  async #work() {
    if (this.isWorking) return;
    this.isWorking = true;
    this.numDone = 0;
    let missing;
    while ((missing = this.#missing).length && this.isOn) {
      this.#tell();
      const batch = this.#choose(missing);
      try {
        await this.#check(batch);
        this.numDone += batch.length;
      } catch (error) {
        if (error.name === "AbortError") break;
        if (!(error instanceof ServerError)) throw error;
        this.dispatchEvent(new CustomEvent("trouble", { detail: error }));
        if (!error.isPassing) break;
        await wait(Math.max(error.retryAfterS * 1000, error.status === 429 ? 0 : TRIES_LATER_MS));
      }
    }
    this.isWorking = false;
    this.#tell();
    // Something may have been typed after an end that came early.
    if (this.asking?.signal.aborted && this.isOn) this.schedule();
  }

  /** The sentence at the cursor first, with its neighbours in the same line. */
  #choose(missing) {
    const [caret] = this.editor.selection;
    const near = missing.findIndex((each) => each.start <= caret && caret <= each.end + 1);
    const first = Math.max(near, 0), batch = [missing[first]];
    for (const next of missing.slice(first + 1)) {
      const isBeside = !this.editor.text.slice(batch.at(-1).end, next.start).trim();
      if (!isBeside || next.end - batch[0].start > MOST_AT_ONCE) break;
      batch.push(next);
    }
    return batch;
  }

  async #check(batch) {
    const { text } = this.editor, start = batch[0].start, end = batch.at(-1).end;
    const [from, to] = cutWhole(text, start - AROUND, end + AROUND);
    this.asking = new AbortController();
    this.current = batch;
    const answer = await ask("/v1/edits", {
      text: text.slice(from, to), within: [start - from, end - from], units: "utf-16", words: store.words,
    }, this.asking.signal);
    this.current = [];
    for (const sentence of batch) {
      const edits = answer.edits
        .map((edit) => ({ ...edit, start: edit.start + from - sentence.start, end: edit.end + from - sentence.start }))
        .filter((edit) => edit.start >= 0 && edit.end <= sentence.text.length);
      this.found.set(sentence.text, edits);
    }
    this.dispatchEvent(new Event("answer"));
  }

  /** All suggestions for the text as it is, in order: {id, start, end, before, after, probability, message}. */
  get suggestions() {
    if (!this.isOn) return [];
    const { text } = this.editor, rejected = new Set(store.rejected), seen = new Map(), list = [];
    for (const sentence of cutSentences(text)) {
      for (const edit of this.found.get(sentence.text) ?? []) {
        const [start, end] = [sentence.start + edit.start, sentence.start + edit.end];
        const key = `${edit.before}→${edit.after}`, number = seen.get(key) ?? 0;
        if (rejected.has(this.#sign({ ...edit, start, end })) || isKept(edit.before)) continue;
        seen.set(key, number + 1);
        list.push({ ...edit, start, end, id: `${key}#${number}` });
      }
    }
    return list;
  }

  #sign({ start, end, before, after }) {
    return `${before}→${after} ${around(this.editor.text, start, end)}`;
  }

  /** Never suggest this here again; returns what takes it back. */
  reject(suggestion) {
    const sign = this.#sign(suggestion);
    remember({ rejected: [...store.rejected, sign] });
    this.#tell();
    return () => {
      remember({ rejected: store.rejected.filter((each) => each !== sign) });
      this.#tell();
    };
  }

  /** Keep words as they are, everywhere; returns what takes it back. */
  keep(words) {
    remember({ words: [...new Set([...store.words, ...words])] });
    this.#tell();
    return () => words.forEach((word) => this.release(word));
  }

  release(word) {
    remember({ words: store.words.filter((each) => each !== word) });
    for (const sentence of this.found.keys()) if (sentence.includes(word)) this.found.delete(sentence);
    this.schedule(0);
    this.#tell();
  }

  /** Other ways to make a correction; asked for once. */
  async findWays({ start, end, before, after }) {
    const { text } = this.editor, [from, to] = cutWhole(text, start - AROUND, end + AROUND);
    const key = `${before}→${after} ${text.slice(from, to)}`;
    if (!this.ways.has(key)) {
      const body = { text: text.slice(from, to), start: start - from, end: end - from, units: "utf-16", n: 5 };
      const asked = ask("/v1/edits/ways", body).then((answer) => answer.ways.filter((way) => way.after !== after));
      this.ways.set(key, asked);
      asked.catch(() => this.ways.delete(key));
    }
    return this.ways.get(key);
  }

  #tell() {
    this.dispatchEvent(new Event("answer"));
  }
}

const isKept = (before) => store.words.some((word) => before.split(/[^\p{L}\p{N}'’-]+/u).includes(word));

/** A stretch within a text that begins and ends beside white space where that is near, and in no character. */
export function cutWhole(text, from, to) {
  from = Math.max(from, 0);
  to = Math.min(to, text.length);
  while (from > 0 && !/\s/.test(text[from - 1])) from -= 1;
  while (to < text.length && !/\s/.test(text[to])) to += 1;
  return [from, to];
}
