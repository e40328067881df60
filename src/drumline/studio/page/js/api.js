/** Questions to the server, and their answers as signals. */

import { computed, signal, useLayoutEffect, useMemo } from "./lib.js";
import { connected } from "./live.js";
import { route, withQuery } from "./router.js";

const ROOT = "/api/v1";
const SHORTEST_PAUSE_MS = 1000;
const EARLY_MS = 10_000;

/** An answer other than 2xx, or none: one sentence, and a hint. */
export class ApiError extends Error {
  /**
   * @param {string} message
   * @param {string} hint
   * @param {number} status of HTTP; 0: no answer
   */
  constructor(message, hint = "", status = 0) {
    super(message);
    this.hint = hint;
    this.status = status;
  }
}

/**
 * Return the address of an endpoint, as for a download. The workspace of the page goes along.
 * @param {string} path
 * @param {Query} [query]
 */
export function address(path, query = {}) {
  return withQuery(ROOT + path, { workspace: route.peek().query.workspace, ...query });
}

/**
 * @param {string} path such as `/jobs/NAME/ranks`; encode names with encodeURIComponent
 * @param {Query} [query]
 * @param {AbortSignal} [until]
 * @returns {Promise<any>} Rejects with an ApiError.
 */
export function get(path, query, until) {
  return ask(address(path, query), { signal: until });
}

/**
 * @param {string} path
 * @param {object} [body]
 * @returns {Promise<any>} Rejects with an ApiError.
 */
export function post(path, body = {}) {
  return ask(address(path), {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
}

/**
 * @param {string} url
 * @param {RequestInit} request
 */
async function ask(url, request) {
  return (await read(url, request)).data;
}

/**
 * @param {string} url
 * @param {RequestInit} request
 * @returns {Promise<{data: any, text: string}>} Rejects with an ApiError.
 */
async function read(url, request) {
  let answer;
  try {
    answer = await (takeEarly(url, request) ?? fetch(url, { ...request, credentials: "same-origin", redirect: "error" }));
  } catch (error) {
    if (request.signal?.aborted) throw error;
    throw new ApiError("the studio does not answer", "start it again: drumline studio");
  }
  const text = await answer.text().catch(() => "");
  const data = parse(text);
  if (answer.ok && data !== null) return { data, text };
  const told = data?.error ?? {};
  const hint = told.hint ?? (answer.status === 401 ? "open the page again: drumline studio" : "");
  throw new ApiError(told.message ?? `the server answered ${answer.status}`, hint, answer.status);
}

/** @param {string} text */
function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/**
 * The answer to what first.js has asked, once, and while it is new.
 * @param {string} url
 * @param {RequestInit} request
 */
function takeEarly(url, request) {
  const answer = request.method === undefined && performance.now() < EARLY_MS ? window.early?.get(url) : undefined;
  window.early?.delete(url);
  return answer;
}

/**
 * Make a function that works something out of an answer once, however often that is drawn.
 * @template {object} T
 * @template R
 * @param {(data: T) => R} make
 * @returns {(data: T) => R}
 */
export function once(make) {
  /** @type {WeakMap<T, {made: R}>} */
  const known = new WeakMap();
  return (data) => {
    const found = known.get(data) ?? { made: make(data) };
    known.set(data, found);
    return found.made;
  };
}

/**
 * Ask the server, and again when something changes. The component is drawn again with each answer.
 *
 * - state `loading`: no answer yet; `ready`; `stale`: the last answer that there was, from before the connection was
 *   lost or the last question failed; `error`: no answer at all.
 * - `busy`: a newer answer is on its way, as after a change of the query: `data` is the one before.
 *
 * @param {string | null} path null: ask nothing yet
 * @param {Query} [query]
 * @param {{live?: ReadonlySignal<any> | ReadonlySignal<any>[], every?: number, keep?: boolean}} [options]
 *     live: signals whose change is a reason to ask again, at most once a second, such as `job.live.events`;
 *     every: milliseconds between questions while the page can be seen, for what no signal tells;
 *     keep: whoever comes back within a minute sees the last answer until the next one is there
 * @returns {ReadonlySignal<Resource>}
 */
export function useResource(path, query = {}, { live, every, keep } = {}) {
  const workspace = route.value.query.workspace;
  const url = path === null ? null : withQuery(ROOT + path, { workspace, ...query });
  const own = useMemo(() => signal(keep ? recall(url) : EMPTY), [path, workspace]);
  const result = useMemo(
    () => computed(() => (connected.value.ok || own.value.state !== "ready" ? own.value : markStale(own.value))),
    [own],
  );
  const signals = live === undefined ? [] : Array.isArray(live) ? live : [live];
  useLayoutEffect(() => (url === null ? undefined : keepAsking(url, own, signals, { every, keep })), [url, own, every, ...signals]);
  return result;
}

/** @type {Resource} */
const EMPTY = { state: "loading", data: null, error: null, busy: false, since: null };

/** The last answers to some questions, the latest last. @type {Map<string, {answer: Resource, text: string}>} */
const kept = new Map();
const MOST_KEPT = 6;
const KEPT_MS = 60_000;

/** @param {string} url @param {Resource} answer @param {string} text */
function remember(url, answer, text) {
  kept.delete(url);
  kept.set(url, { answer, text });
  if (kept.size > MOST_KEPT) kept.delete(/** @type {string} */ (kept.keys().next().value));
}

/** @param {string | null} url @returns {Resource} */
function recall(url) {
  const answer = kept.get(url ?? "")?.answer;
  return answer && Date.now() - (answer.since ?? 0) < KEPT_MS ? { ...answer, busy: true } : EMPTY;
}

/** @param {Resource} resource @returns {Resource} */
function markStale(resource) {
  return { ...resource, state: "stale", since: connected.value.since };
}

/**
 * @param {string} url
 * @param {Signal<Resource>} own
 * @param {ReadonlySignal<any>[]} signals
 * @param {{every?: number, keep?: boolean}} how
 * @returns {() => void} Stop it.
 */
function keepAsking(url, own, signals, { every, keep }) {
  const stop = new AbortController();
  let asked = 0;
  let isAsking = false;
  let isDue = false;
  /** @type {number | undefined} */
  let timer;

  const last = keep ? kept.get(url) : undefined;
  let told = last && last.answer.data === own.peek().data ? last.text : "";

  async function question() {
    asked = Date.now();
    isAsking = true;
    isDue = false;
    const before = own.peek();
    if (before.data !== null && !before.busy) own.value = { ...before, busy: true };
    try {
      const { data, text } = await read(url, { signal: stop.signal });
      if (stop.signal.aborted) return;
      // What is drawn of the same answer need not be drawn again.
      own.value = { state: "ready", data: text === told ? own.peek().data : data, error: null, busy: false, since: Date.now() };
      told = text;
      if (keep) remember(url, own.value, text);
    } catch (error) {
      if (!stop.signal.aborted) own.value = fail(own.peek(), /** @type {Error} */ (error));
    }
    isAsking = false;
    if (isDue) again();
  }

  /** Ask soon: not more than once a second, not twice at once, and not while nobody looks. */
  function again() {
    isDue = true;
    if (isAsking || timer !== undefined || stop.signal.aborted) return;
    timer = setTimeout(
      () => {
        timer = undefined;
        if (!document.hidden) question();
      },
      Math.max(0, asked + SHORTEST_PAUSE_MS - Date.now()),
    );
  }

  question();
  const undo = signals.map((one) => {
    let isFirst = true;
    return one.subscribe(() => (isFirst ? (isFirst = false) : again()));
  });
  const clock = every ? setInterval(again, every) : undefined;
  const see = () => isDue && !document.hidden && again();
  document.addEventListener("visibilitychange", see);
  return () => {
    stop.abort();
    clearTimeout(timer);
    clearInterval(clock);
    document.removeEventListener("visibilitychange", see);
    undo.forEach((one) => one());
  };
}

/** @param {Resource} before @param {Error} error @returns {Resource} */
function fail(before, error) {
  const known = error instanceof ApiError ? error : new ApiError(String(error?.message ?? error));
  return { ...before, state: before.data === null ? "error" : "stale", error: known, busy: false };
}
