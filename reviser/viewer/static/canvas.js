// The canvas on the page: one element per token, of which only those that changed are made anew.

// Control characters, line separators, and marks that turn the direction of writing: shown as signs, since they would
// do to the page what they do to text. They stay in the page's text, so that it is the canvas's.
const SIGNS = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]/;
const SIGN = new RegExp(`(${SIGNS.source})`);

function signOf(character) {
  const code = character.codePointAt(0);
  if (character === "\n") return "⏎";
  if (character === "\t") return "⇥";
  if (code < 32) return String.fromCodePoint(0x2400 + code);
  return code === 127 ? "␡" : code.toString(16).toUpperCase().padStart(4, "0");
}

// The parts of a text as nodes, its control characters as signs.
function readable(text) {
  return text.split(SIGN).filter(Boolean).map((part) => {
    if (!SIGNS.test(part)) return document.createTextNode(part);
    const sign = document.createElement("span"), hidden = document.createElement("span");
    sign.className = "sign";
    sign.dataset.sign = signOf(part);
    if (part === "\n" || part === "\t") {
      sign.append(part);
    } else {
      hidden.hidden = true;
      hidden.append(part);
      sign.append(hidden);
    }
    return sign;
  });
}

// The same on one line, for names of actions.
function readableLine(text) {
  return text.split(SIGN).map((part) => (SIGNS.test(part) ? signOf(part) : part)).join("");
}

class CanvasView {
  constructor(element, frame, arc, go) {
    this.element = element;
    this.frame = frame;
    this.shown = [];
    this.marked = [];
    this.isFollowing = false;
    this.cursor = document.createElement("span");
    this.cursor.className = "cursor";
    this.origin = document.createElement("span");
    this.origin.className = "cursor origin";
    this.arc = arc;
    new ResizeObserver(() => this.drawArc()).observe(element);
    element.addEventListener("click", (event) => {
      const token = event.target.closest(".token");
      if (token && getSelection().isCollapsed) go(Number(token.dataset.born));
    });
  }

  show(state, replay) {
    const pieces = joinGraphemes(replay.vocabulary.pieces(state.cells));
    const start = this.countSame(state.cells, pieces, (list, i) => list[i]);
    const room = Math.min(state.cells.length, this.shown.length) - start;
    const end = Math.min(this.countSame(state.cells, pieces, (list, i) => list[list.length - 1 - i]), room);
    const after = this.shown[this.shown.length - end]?.element ?? null;
    const made = [];
    for (let i = start; i < state.cells.length - end; i += 1) {
      made.push({ cell: state.cells[i], text: pieces[i], element: this.make(state.cells, i, pieces[i], replay) });
    }
    this.cursor.remove();
    this.origin.remove();
    for (const old of this.shown.splice(start, this.shown.length - start - end, ...made)) old.element.remove();
    for (const each of made) this.element.insertBefore(each.element, after);
    this.mark(state);
  }

  // How many cells at one end are shown already; a replay makes the same cell anew, so its content is compared.
  countSame(cells, pieces, at) {
    const most = Math.min(cells.length, this.shown.length);
    const isSame = (count) => {
      const { cell, text } = at(this.shown, count), wanted = at(cells, count);
      return cell.token === wanted.token && cell.born === wanted.born && text === at(pieces, count);
    };
    let count = 0;
    while (count < most && isSame(count)) count += 1;
    return count;
  }

  make(cells, place, text, replay) {
    const element = document.createElement("span"), cell = cells[place];
    element.className = `token${cell.born === 0 ? " given" : ""}`;
    if (cell.mark & FIXED) {
      // A protected span is one box: it begins and ends where a boundary is open.
      const isInside = place > 0 && cells[place - 1].mark & CLOSED;
      element.classList.add("protected", ...(isInside ? [] : ["begins"]), ...(cell.mark & CLOSED ? [] : ["ends"]));
      element.title = "protected";
    }
    element.dataset.born = cell.born;
    if (cell.born > 0) element.style.setProperty("--t", (cell.born / replay.length).toFixed(3));
    element.append(...readable(text));
    return element;
  }

  // The cursor, what the last action changed, and what a pending REPLACE will take.
  mark(state) {
    for (const element of this.marked) element.classList.remove("fresh", "pending", "landing");
    const elements = this.shown.map((each) => each.element);
    const fresh = this.findFresh(...state.fresh), pending = state.isReplacing ? [elements[state.cursor - 1]] : [];
    for (const element of fresh) element.classList.add("fresh");
    for (const element of pending) element.classList.add("pending");
    // A JUMP points at the token left of where it lands.
    const landing = state.from !== null && state.cursor > 0 ? [elements[state.cursor - 1]] : [];
    for (const element of landing) element.classList.add("landing");
    this.marked = [...fresh, ...pending, ...landing];
    if (state.from !== null) this.element.insertBefore(this.origin, elements[state.from] ?? null);
    this.element.insertBefore(this.cursor, elements[state.cursor] ?? null);
    const before = this.shown.slice(0, state.cursor).findLast((each) => each.text !== "")?.text ?? "\n";
    this.cursor.classList.toggle("alone", state.cursor === elements.length && before.endsWith("\n"));
    this.follow();
  }

  // Half a character is seen where the whole one stands.
  findFresh(from, to) {
    let end = to;
    while (from < to && end < this.shown.length && this.shown[end - 1].text === "") end += 1;
    return this.shown.slice(from, end).map((each) => each.element);
  }

  // Once a frame, however many actions pass in it: asking where the cursor is lays the whole text out.
  follow() {
    if (this.isFollowing) return;
    this.isFollowing = true;
    requestAnimationFrame(() => {
      this.isFollowing = false;
      this.scroll();
      this.drawArc();
    });
  }

  // From the cursor's old place to the new one: over the line they share, else from one line to the other.
  drawArc() {
    this.arc.toggleAttribute("hidden", !this.origin.isConnected);
    if (!this.origin.isConnected) return;
    const box = this.element.getBoundingClientRect();
    const [from, to] = [this.origin, this.cursor].map((each) => {
      const { left, top, bottom } = each.getBoundingClientRect();
      return { x: left - box.left, top: top - box.top, bottom: bottom - box.top };
    });
    const way = Math.abs(to.x - from.x), lift = Math.min(6 + way / 8, 22), isLower = to.top > from.bottom - 1;
    // It ends above the cursor, and begins below the old place where it leads down.
    const start = isLower ? from.bottom + 3 : from.top - 2, end = to.top - 2;
    const bend = isLower ? Math.max((end - start) / 2, lift) : lift;
    const first = isLower ? start + bend : Math.min(start, end) - lift;
    const second = isLower ? end - bend : Math.min(start, end) - lift;
    const line = `M${from.x} ${start}C${from.x} ${first} ${to.x} ${second} ${to.x} ${end}`;
    this.arc.innerHTML = `<path d="${line}"/><path class="tip" d="M${to.x - 4} ${end - 5}l4 5l4 -5"/>`;
  }

  // Scrolls the frame alone, and only as far as the cursor needs.
  scroll() {
    const frame = this.frame.getBoundingClientRect(), cursor = this.cursor.getBoundingClientRect(), margin = 40;
    if (cursor.bottom > frame.bottom - margin) this.frame.scrollTop += cursor.bottom - frame.bottom + margin;
    if (cursor.top < frame.top + margin) this.frame.scrollTop += cursor.top - frame.top - margin;
  }

  clear() {
    this.element.replaceChildren();
    this.arc.toggleAttribute("hidden", true);
    this.shown = [];
    this.marked = [];
    this.frame.scrollTop = 0;
  }
}
