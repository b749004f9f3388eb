// Harper as a service: a JSON object {"text": ...} a line in, {"edits": [[start, end, replacement], ...]} a line out.
// Places count characters (code points), as Harper's spans do. The first line out says that it is ready.
// Usage: node harper.mjs FOLDER, where `npm install --prefix FOLDER harper.js` was run.

import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const home = join(resolve(process.argv[2]), "node_modules", "harper.js");
const { exports, version } = JSON.parse(readFileSync(join(home, "package.json"), "utf8"));
const load = (name) => import(pathToFileURL(join(home, exports[name].import)).href);
const [{ LocalLinter, SuggestionKind }, { binary }] = await Promise.all([load("."), load("./binary")]);

const linter = new LocalLinter({ binary });
await linter.setup();

// What a suggestion does to the text: it takes the span's place, removes it, or stands behind it.
function change(lint) {
  const [first] = lint.suggestions();
  if (!first) return null;
  const { start, end } = lint.span();
  if (first.kind() === SuggestionKind.Remove) return [start, end, ""];
  const text = first.get_replacement_text();
  return first.kind() === SuggestionKind.InsertAfter ? [end, end, text] : [start, end, text];
}

const say = (value) => process.stdout.write(JSON.stringify(value) + "\n");
say({ ready: version });
for await (const line of createInterface({ input: process.stdin })) {
  const lints = await linter.lint(JSON.parse(line).text, { language: "plaintext" });
  say({ edits: lints.map(change).filter(Boolean) });
  lints.forEach((lint) => lint.free());
}
