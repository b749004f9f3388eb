// A trajectory replayed: canvas.py's executor again, and the tokenizer's way from bytes to text.

const SNAPSHOT_EVERY = 32;

// Names, effects and bytes of all actions of a page.
class Vocabulary {
  constructor(data) {
    this.numText = data.num_text;
    this.special = data.special;
    this.firstJump = data.num_text + data.special.length;
    this.spelled = data.pieces;
    this.known = new Map();
  }

  // What an action does: its operator, and how far it moves, where it jumps to or how many tokens it takes.
  effect(action) {
    if (action < this.numText) return ["insert", 0];
    if (action >= this.firstJump) return ["jump", action - this.firstJump];
    const [, operator, operand] = this.special[action - this.numText];
    return [operator, operand];
  }

  name(action) {
    const [operator, operand] = this.effect(action);
    if (operator === "insert") return "INSERT";
    return this.special[action - this.numText]?.[0] ?? `JUMP ${operand}`;
  }

  // The bytes of a token, and its text where they are whole characters; some vocabularies spell the first token anew.
  piece(token, isFirst) {
    const key = isFirst ? -1 - token : token;
    if (!this.known.has(key)) this.known.set(key, this.read(token, isFirst));
    return this.known.get(key);
  }

  read(token, isFirst) {
    const spelled = this.spelled[token];
    const latin = typeof spelled === "string" ? spelled : spelled[isFirst ? 1 : 0];
    const bytes = Uint8Array.from(latin, (character) => character.charCodeAt(0));
    if (!bytes.length) return { bytes, text: null };
    try {
      return { bytes, text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes) };
    } catch {
      return { bytes, text: null };
    }
  }

  // One token as a person reads it; bytes that are no whole character as <E2 82>.
  quote(token) {
    const { bytes, text } = this.piece(token, false);
    if (text !== null || !bytes.length) return text ?? "";
    return `<${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(" ").toUpperCase()}>`;
  }

  // One string per cell, joined the exact text: a character spread over several tokens stands in the last of them.
  pieces(cells) {
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    let isOpen = false;
    const texts = cells.map((cell, index) => {
      const { bytes, text } = this.piece(cell.token, index === 0);
      if (text === null) {
        isOpen = true;
        return decoder.decode(bytes, { stream: true });
      }
      const unfinished = isOpen ? decoder.decode() : "";
      isOpen = false;
      return unfinished + text;
    });
    if (isOpen) texts[texts.length - 1] += decoder.decode();
    return texts;
  }
}

const GRAPHEMES = "Segmenter" in Intl ? new Intl.Segmenter(undefined, { granularity: "grapheme" }) : null;

// The same text in pieces that never part what a reader sees as one character: an accent from its letter, a flag.
function joinGraphemes(pieces) {
  const text = pieces.join("");
  if (GRAPHEMES === null || !/[^\x00-\x7f]/.test(text)) return pieces;
  const bounds = [...Array.from(GRAPHEMES.segment(text), (segment) => segment.index), text.length];
  let end = 0, from = 0, next = 0;
  return pieces.map((piece) => {
    end += piece.length;
    while (bounds[next + 1] <= end) next += 1;
    const part = text.slice(from, bounds[next]);
    from = bounds[next];
    return part;
  });
}

// Marks of a cell, as in canvas.py: the token may not be changed; nothing may be put behind it.
const FIXED = 1, CLOSED = 2;

// A cell is a token, the number of the action that put it there (0 for what was given) and its mark (0 for what was not).
function makeState(cells, cursor, clipboard, fresh = [0, 0]) {
  return { cells, cursor, clipboard, fresh, from: null, isReplacing: false, isStopped: false };
}

function splice(cells, from, to, between) {
  return [...cells.slice(0, from), ...between, ...cells.slice(to)];
}

// The state after action number `at`; `fresh` are the cells it changed, `from` is where a JUMP began.
function execute(state, action, at, vocabulary) {
  const { cells, cursor: u, clipboard } = state;
  const [operator, operand] = vocabulary.effect(action);
  switch (operator) {
    case "insert": {
      const from = state.isReplacing ? u - 1 : u;
      return makeState(splice(cells, from, u, [{ token: action, born: at, mark: 0 }]), from + 1, clipboard, [from, from + 1]);
    }
    case "move": return makeState(cells, u + operand, clipboard);
    case "jump": return { ...makeState(cells, operand, clipboard), from: u };
    case "delete": return makeState(splice(cells, u - 1, u, []), u - 1, clipboard);
    case "swap": return makeState(splice(cells, u - 2, u, [cells[u - 1], cells[u - 2]]), u, clipboard, [u - 2, u]);
    case "cut": return makeState(splice(cells, u - operand, u, []), u - operand, tokensOf(cells, u - operand, u));
    case "copy": return makeState(cells, u, tokensOf(cells, u - operand, u));
    case "paste": {
      const pasted = clipboard.map((token) => ({ token, born: at, mark: 0 }));
      return makeState(splice(cells, u, u, pasted), u + pasted.length, clipboard, [u, u + pasted.length]);
    }
    case "replace": return { ...state, fresh: [0, 0], from: null, isReplacing: true };
    default: return { ...state, fresh: [0, 0], from: null, isStopped: true };
  }
}

function tokensOf(cells, from, to) {
  return cells.slice(from, to).map((cell) => cell.token);
}

// The places of spans whose inner boundaries are all closed: [first token, end).
function spansOf(marks) {
  const spans = [];
  marks.slice(1).forEach((mark, place) => {
    if (!(mark & FIXED)) return;
    const last = spans.at(-1);
    if (last?.[1] === place && marks[place] & CLOSED) last[1] = place + 1;
    else spans.push([place, place + 1]);
  });
  return spans;
}

// One example, played through once: where the cursor went, what landed where, which actions are backward revisions.
class Replay {
  constructor(example, vocabulary) {
    this.example = example;
    this.vocabulary = vocabulary;
    this.length = example.actions.length;
    this.snapshots = [];
    this.cursors = [];
    this.lengths = [];
    this.landings = [];
    this.removals = [];
    this.revisions = [];
    this.jumps = [];
    this.numInserts = this.numInside = 0;
    const { draft, marks } = example;
    this.hasMarks = marks.length > 0;
    // Tokens before the first open boundary and behind the last: the cursor never gets there.
    this.prefix = Math.max(marks.findIndex((mark) => !(mark & CLOSED)), 0);
    this.suffix = Math.max([...marks].reverse().findIndex((mark) => !(mark & CLOSED)), 0);
    const isBetween = ([from, to]) => from >= this.prefix && to <= draft.length - this.suffix;
    this.guarded = spansOf(marks).filter(isBetween).map((span) => ({ size: span[1] - span[0], starts: [span[0]] }));
    this.follow();
  }

  follow() {
    const { draft, marks, cursor } = this.example, { prefix, suffix } = this;
    let state = makeState(draft.map((token, place) => ({ token, born: 0, mark: marks[place + 1] ?? 0 })), cursor, []);
    let hasMovedBack = false;
    this.note(state, 0);
    this.example.actions.forEach((action, index) => {
      const [operator, operand] = this.vocabulary.effect(action), at = index + 1;
      if (operator === "move" && operand < 0 || operator === "jump" && operand < state.cursor) hasMovedBack = true;
      if (operator === "jump") this.jumps.push([at, state.cursor, operand]);
      if (operator === "insert" && !state.isReplacing) {
        const isInside = state.cursor < state.cells.length - suffix;
        this.numInserts += 1;
        this.numInside += isInside;
        if (isInside && hasMovedBack) {
          this.revisions.push(at);
          hasMovedBack = false;
        }
      }
      const before = state;
      state = execute(state, action, at, this.vocabulary);
      this.note(state, at);
      this.push(before.cursor, state.cells.length - before.cells.length);
      if (operator === "insert" || operator === "paste") this.landings.push([at, state.cursor]);
      if (operator === "delete" || operator === "cut") this.removals.push([at, state.cursor]);
    });
    this.highest = this.lengths.reduce((most, length) => Math.max(most, length - prefix - suffix), 1);
    this.final = state;
  }

  note(state, at) {
    if (at % SNAPSHOT_EVERY === 0) this.snapshots.push(state);
    this.cursors.push(state.cursor);
    this.lengths.push(state.cells.length);
  }

  // Protected spans right of an edit move with the text.
  push(cursor, grown) {
    for (const { starts } of this.guarded) starts.push(starts.at(-1) + (starts.at(-1) >= cursor ? grown : 0));
  }

  // The state after `at` actions.
  state(at) {
    let number = at - at % SNAPSHOT_EVERY;
    let state = this.snapshots[number / SNAPSHOT_EVERY];
    while (number < at) {
      state = execute(state, this.example.actions[number], number + 1, this.vocabulary);
      number += 1;
    }
    return state;
  }

  nextRevision(at) {
    return this.revisions.find((each) => each > at) ?? this.revisions[0] ?? at;
  }

  // Action `at` with its log-probability and what else was considered, where known.
  choice(at) {
    const { actions, scores, alternatives, noise } = this.example, index = at - 1;
    const listed = alternatives?.[index] ?? [];
    const pairs = [];
    for (let i = 0; i < listed.length; i += 2) pairs.push([listed[i], listed[i + 1]]);
    return { action: actions[index], score: scores?.[index] ?? null, pairs, isNoise: noise?.includes(index) ?? false };
  }
}
