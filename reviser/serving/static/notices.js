// What is said about work: a line for errors with what to do, a field for a token, progress, and a button to stop.

import { ServerError, explain, get, setToken } from "./api.js";
import { byId, wait } from "./dom.js";

const SLOW_MS = 1500;
const QUICK_MS = 250;

export class Notices {
  constructor() {
    [this.isWarm, this.running, this.idle, this.retry] = [true, null, "", null];
    byId("notice-close").onclick = () => this.clear();
    byId("notice-act").onclick = () => { const { retry } = this; this.clear(); retry?.(); };
    byId("stop").onclick = () => { this.running?.onStop?.(); this.running?.control.abort(); };
    byId("token").onsubmit = (event) => {
      event.preventDefault();
      setToken(byId("token-field").value.trim());
      byId("token-field").value = "";
      const { retry } = this;
      this.clear();
      retry?.();
    };
  }

  clear() {
    byId("notice").hidden = true;
  }

  /** One line; `retry` is what the button does, or what follows a token. */
  show(error, retry = null) {
    if (!(error instanceof ServerError)) throw error;
    const needsToken = error.status === 401;
    byId("notice").querySelector("p").textContent = explain(error);
    byId("token").hidden = !needsToken;
    byId("notice-act").hidden = needsToken || retry === null || error.status === 413;
    byId("notice-act").textContent = "Try again";
    this.retry = retry;
    byId("notice").hidden = false;
    if (needsToken) byId("token-field").focus();
  }

  /** What is said while nothing runs. */
  rest(text) {
    this.idle = text;
    if (this.running === null) byId("status").textContent = text;
  }

  busy(isBusy) {
    document.body.classList.toggle("is-busy", isBusy || this.running !== null);
  }

  /** Do some work that a button can stop: what it gives, or undefined where it failed or was stopped. */
  async task(name, work, onStop = null, retry = null) {
    if (name === null) {
      try { return await work(); } catch (error) { this.show(error); return undefined; }
    }
    this.running?.control.abort();
    const job = { control: new AbortController(), onStop };
    this.running = job;
    this.clear();
    this.busy(true);
    byId("status").textContent = `${name}…`;
    const soon = setTimeout(() => { byId("stop").hidden = false; }, QUICK_MS);
    const slow = setTimeout(() => {
      if (!this.isWarm) byId("status").textContent = `${name}… The model is getting ready, which takes up to a minute the first time.`;
    }, SLOW_MS);
    try {
      const result = await this.#insist(work, job.control.signal);
      this.isWarm = true;
      return result;
    } catch (error) {
      if (error.name !== "AbortError") this.show(error, retry);
      return undefined;
    } finally {
      clearTimeout(soon);
      clearTimeout(slow);
      if (this.running === job) {
        this.running = null;
        byId("stop").hidden = true;
        this.busy(false);
        byId("status").textContent = this.idle;
      }
    }
  }

  /** Do work that a busy server turns away again and again, until it takes it or nobody wants it any more. */
  async #insist(work, signal) {
    while (true) {
      try {
        const result = await work(signal);
        this.clear();
        return result;
      } catch (error) {
        if (error.status !== 429) throw error;
        this.show(error);
        await wait(Math.max(error.retryAfterS * 1000, QUICK_MS));
        signal.throwIfAborted();
      }
    }
  }

  /** What the model can do; asks for a token where it must, and again where there is no answer. */
  async findJobs() {
    while (true) {
      try {
        const found = await get("/v1/jobs");
        this.clear();
        return found;
      } catch (error) {
        await new Promise((again) => {
          this.show(error, again);
          if (error.isPassing) setTimeout(again, 3000);
        });
      }
    }
  }
}
