// Small helpers: elements by id, new elements, and what is said to everyone.

export const byId = (id) => document.getElementById(id);

/** A new element; props are set as properties, or as attributes where their name has a dash. */
export function make(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name.includes("-") || name === "role") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter((each) => each !== null && each !== undefined));
  return element;
}

export const percent = (share) => `${Math.min(Math.max(Math.round(share * 100), 1), 99)}%`;
export const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
export const wait = (ms) => new Promise((done) => setTimeout(done, ms));

/** A change as tracked changes show it. */
export function showChange(before, after) {
  const gone = before.trim() || before, come = after.trim() || after;
  const parts = [];
  if (gone) parts.push(make("del", {}, gone));
  if (come.trim()) parts.push(make("ins", {}, come));
  else if (!come) parts.push(make("span", { className: "nothing" }, "nothing"));
  else parts.push(make("span", { className: "nothing" }, "a space"));
  return make("span", { className: "change" }, ...parts);
}

/** A change in words, for a screen reader. */
export function tellChange(before, after) {
  if (!before.trim()) return `insert ${after.trim() || "a space"}`;
  if (!after.trim()) return `delete ${before.trim()}`;
  return `write ${after.trim()} instead of ${before.trim()}`;
}

let hideLater = 0;
/** A line at the bottom that goes away, perhaps with a way back. */
export function toast(text, undo = null) {
  const box = byId("toast"), button = box.querySelector("button");
  box.querySelector("p").textContent = text;
  button.hidden = undo === null;
  button.onclick = () => { box.hidden = true; undo?.(); };
  box.hidden = false;
  clearTimeout(hideLater);
  hideLater = setTimeout(() => { box.hidden = true; }, undo ? 7000 : 2600);
}

/** A file for the user to save. */
export function linkTo(text, type, name) {
  return { href: URL.createObjectURL(new Blob([text], { type })), download: name };
}
