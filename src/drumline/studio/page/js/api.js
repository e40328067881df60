/** Questions to the server, and their answers as signals. */

import { computed, useEffect, useMemo, signal } from "./lib.js";
import { connected } from "./live.js";
import { route, withQuery } from "./router.js";

const ROOT = "/api/v1";
const SHORTEST_PAUSE_MS = 1000;

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
  let answer;
  try {
    answer = await fetch(url, { ...request, credentials: "same-origin", redirect: "error" });
  } catch (error) {
    if (request.signal?.aborted) throw error;
    throw new ApiError("the studio does not answer", "start it again: drumline studio");
  }
  const data = await answer.json().catch(() => null);
  if (answer.ok && data !== null) return data;
  const told = data?.error ?? {};
  const hint = told.hint ?? (answer.status === 401 ? "open the page again: drumline studio" : "");
  throw new ApiError(told.message ?? `the server answered ${answer.status}`, hint, answer.status);
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
  useEffect(() => (url === null ? undefined : keepAsking(url, own, signals, { every, keep })), [url, own, every, ...signals]);
  return result;
}

/** @type {Resource} */
const EMPTY = { state: "loading", data: null, error: null, busy: false, since: null };

/** The last answers to some questions, the latest last. @type {Map<string, Resource>} */
const kept = new Map();
const MOST_KEPT = 6;
const KEPT_MS = 60_000;

/** @param {string} url @param {Resource} answer */
function remember(url, answer) {
  kept.delete(url);
  kept.set(url, answer);
  if (kept.size > MOST_KEPT) kept.delete(/** @type {string} */ (kept.keys().next().value));
}

/** @param {string | null} url @returns {Resource} */
function recall(url) {
  const answer = kept.get(url ?? "");
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

  async function question() {
    asked = Date.now();
    isAsking = true;
    isDue = false;
    if (own.peek().data !== null) own.value = { ...own.peek(), busy: true };
    try {
      const data = await ask(url, { signal: stop.signal });
      if (stop.signal.aborted) return;
      own.value = { state: "ready", data, error: null, busy: false, since: Date.now() };
      if (keep) remember(url, own.value);
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
