// What this browser remembers: the text, words that stay, suggestions that were rejected, and choices.

const KEY = "reviser.page";
const EMPTY = { text: "", words: [], rejected: [], accepted: [], isProofreading: true, scheme: "" };
const MOST_REJECTED = 500;

function read() {
  try {
    return { ...EMPTY, ...JSON.parse(localStorage.getItem(KEY) ?? "{}") };
  } catch {
    return { ...EMPTY };
  }
}

export const store = read();
let later = 0;

/** Change something and remember it; a text that is being typed is written now and then. */
export function remember(changes, isSoon = false) {
  Object.assign(store, changes);
  store.rejected = store.rejected.slice(-MOST_REJECTED);
  clearTimeout(later);
  if (isSoon) later = setTimeout(flush, 300);
  else flush();
}

/** Whether it could be written. */
export function flush() {
  clearTimeout(later);
  try {
    localStorage.setItem(KEY, JSON.stringify(store));
    return true;
  } catch {
    return false;
  }
}

addEventListener("pagehide", flush);
