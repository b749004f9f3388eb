// Talking to the server: requests, streams of events, a token, and errors as one plain line with what to do.

const TOKEN = "reviser.token";
const headers = () => {
  const token = sessionStorage.getItem(TOKEN);
  return { "Content-Type": "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}) };
};

export const setToken = (token) => sessionStorage.setItem(TOKEN, token);
export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;

/** What the server answered instead of what was asked for; status 0 where it did not answer at all. */
export class ServerError extends Error {
  constructor(status, message, retryAfterS = 0) {
    super(message);
    this.status = status;
    this.retryAfterS = retryAfterS;
  }

  /** Whether the same request may succeed later. */
  get isPassing() {
    return this.status === 0 || this.status === 429 || this.status === 503;
  }
}

/** One line for the user: what happened, and what to do. */
export function explain(error) {
  const said = `${error.message.charAt(0).toUpperCase()}${error.message.slice(1)}`.replace(/\.?$/, ".");
  switch (error.status) {
    case 0: return "The server does not answer. Your text is safe in this browser; start the server again.";
    case 401: return hasToken() ? "The server does not know this token. Type another one." : "This server asks for a token. Type it in to go on.";
    case 413: return `This is more than the server takes: ${error.message}.`;
    case 421: return `This address is not one the server expects. ${said}`;
    case 429: return "The server is busy. It will be asked again in a moment.";
    case 501: return said;
    case 503: return "The server is shutting down. Your text is safe in this browser; start the server again.";
    case 504: return "The server took too long. Ask for less: select a shorter part of the text.";
    default: return error.status >= 500 ? `The server failed: ${error.message}. Try again.` : said;
  }
}

async function fetchOk(path, init) {
  let response;
  try {
    response = await fetch(path, { cache: "no-store", ...init });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(0, "no answer");
  }
  if (response.ok) return response;
  const text = await response.text();
  let message = text.slice(0, 300);
  try { message = JSON.parse(text).error.message; } catch { /* it was no JSON */ }
  throw new ServerError(response.status, message, Number(response.headers.get("Retry-After")) || 0);
}

const post = (path, body, signal) => fetchOk(path, { method: "POST", headers: headers(), body: JSON.stringify(body), signal });

export async function get(path) {
  return (await fetchOk(path, { headers: headers() })).json();
}

export async function ask(path, body, signal) {
  return (await post(path, body, signal)).json();
}

export async function askText(path, body) {
  return (await post(path, body)).text();
}

/** Kind and content of each server-sent event. */
export async function* watch(path, body, signal) {
  const response = await post(path, body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ServerError(0, "the answer broke off");
    }
    if (part.done) return;
    const events = (rest + part.value.replaceAll("\r\n", "\n")).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const field = (name) => event.split("\n").find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
      if (field("event") && field("data")) yield [field("event"), JSON.parse(field("data"))];
    }
  }
}

/** The error inside a stream. */
export function streamError(content) {
  const { message, type } = content.error ?? {};
  const status = { rate_limit_error: 429, invalid_request_error: 400 }[type] ?? (/shutting down/.test(message) ? 503 : 500);
  return new ServerError(status, message ?? "no reason given");
}
