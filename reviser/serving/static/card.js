// The card of one suggestion, beside its word: what would change, how sure the model is, and other ways.

import { byId, make, percent, showChange, tellChange } from "./dom.js";

const RULES = {
  REVISER_SPELLING: "Spelling", REVISER_CASING: "Capitals", REVISER_PUNCTUATION: "Punctuation", REVISER_WHITESPACE: "Spaces",
  REVISER_MISSING_WORD: "A missing word", REVISER_EXTRA_WORD: "A word too many", REVISER_WORDING: "Wording",
};
const CLOSE_MS = 350;

export class Card {
  /** `act` has accept, acceptAs, reject and keep, each for a suggestion. */
  constructor(editor, proofreader, act) {
    [this.editor, this.proofreader, this.act, this.shown, this.timer] = [editor, proofreader, act, null, 0];
    this.box = byId("card");
    this.box.addEventListener("pointerenter", () => clearTimeout(this.timer));
    this.box.addEventListener("pointerleave", () => this.leave());
  }

  get id() {
    return this.shown?.id ?? null;
  }

  open(suggestion) {
    clearTimeout(this.timer);
    if (this.shown?.id === suggestion.id && !this.box.hidden) return;
    this.shown = suggestion;
    this.#draw(suggestion);
    this.box.hidden = false;
    byId("said").textContent = `Suggestion: ${tellChange(suggestion.before, suggestion.after)}, ${percent(suggestion.probability)} sure`;
    this.place();
    this.#addWays(suggestion);
  }

  /** Close soon, unless the pointer comes. */
  leave() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { if (!this.box.contains(document.activeElement)) this.close(); }, CLOSE_MS);
  }

  close() {
    clearTimeout(this.timer);
    if (this.box.contains(document.activeElement)) this.editor.field.focus({ preventScroll: true });
    this.box.hidden = true;
    this.shown = null;
  }

  /** Beside its word, inside of the sheet; on a phone the style sheet puts it at the bottom. */
  place() {
    const mark = this.shown && this.editor.find(this.shown.id);
    if (!mark) return;
    const sheet = this.box.parentElement.getBoundingClientRect(), word = mark.getClientRects()[0] ?? mark.getBoundingClientRect();
    const left = Math.min(Math.max(word.left - sheet.left - 16, 8), sheet.width - this.box.offsetWidth - 8);
    const below = word.bottom - sheet.top + 4, above = word.top - sheet.top - this.box.offsetHeight - 26;
    const hasRoom = word.bottom + this.box.offsetHeight + 12 < innerHeight || above < 60 - sheet.top;
    this.box.style.left = `${Math.max(left, 8)}px`;
    this.box.style.top = `${hasRoom ? below : above}px`;
  }

  #draw(suggestion) {
    const { before, after, probability, rule } = suggestion;
    const fill = make("i");
    fill.style.width = percent(probability);
    const words = before.match(/[\p{L}\p{N}'’-]+/gu) ?? [];
    const button = (name, className, run) => make("button", { type: "button", className, onclick: run }, name);
    this.box.setAttribute("aria-label", `Suggestion: ${tellChange(before, after)}`);
    this.box.replaceChildren(
      showChange(before, after),
      make("div", { className: "meter", "aria-hidden": "true" }, fill),
      make("p", { className: "why" }, `${RULES[rule] ?? "Wording"}, ${percent(probability)} sure`),
      make("div", { className: "ways" }),
      make("div", { className: "row" },
        button("Accept", "primary", () => this.act.accept(suggestion)),
        button("Reject", "small", () => this.act.reject(suggestion)),
        words.length ? button(`Keep “${words.join(" ")}”`, "small", () => this.act.keep(suggestion, words)) : null),
    );
  }

  async #addWays(suggestion) {
    const box = this.box.querySelector(".ways");
    box.textContent = "Looking for other ways…";
    let ways = [];
    try {
      ways = await this.proofreader.findWays(suggestion);
    } catch { /* a card without them is complete */ }
    if (this.shown?.id !== suggestion.id || !box.isConnected) return;
    if (!ways.length) {
      box.textContent = "The model considered nothing else.";
      return;
    }
    const choose = (way) => make("button", { type: "button", onclick: () => this.act.accept({ ...suggestion, after: way.after }) },
      way.after.trim() || "nothing", make("small", {}, percent(way.probability)));
    box.replaceChildren("or", ...ways.map(choose));
    this.place();
  }
}
