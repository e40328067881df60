/**
 * What changes, as the server tells it: one stream for the whole page, closed while nobody looks at it.
 *
 * A browser keeps at most six connections to a server over HTTP/1.1, so tabs in the background must not hold one each.
 */

import { batch, signal } from "./lib.js";
import { route, withQuery } from "./router.js";

const HIDDEN_MS = 5000;
const RETRY_MS = 2000;
const LONGEST_RETRY_MS = 30_000;
const MOST_ROWS = 500;
const GATHER_MS = 50;

/**
 * Whether the server talks to us, and since when (milliseconds since 1970) that is so. isOver: it does not know us any
 * more, as after a restart.
 */
export const connected = signal({ ok: true, since: Date.now(), isOver: false });

/** The newest row of each job that has changed since the page was loaded, by name. */
export const rows = signal(/** @type {ReadonlyMap<string, Row>} */ (new Map()));

/** When each of them came. @type {Map<string, number>} */
const arrived = new Map();

/**
 * The row of a job, if the stream told it after an answer came.
 * @param {string} name
 * @param {number | null} since milliseconds since 1970
 */
export function newerRow(name, since) {
  const row = rows.value.get(name);
  return row && (arrived.get(name) ?? 0) > (since ?? 0) ? row : undefined;
}

/** Counts changes of any job: a reason to ask for a list again. */
export const changes = signal(0);

/** @type {Map<string, Watched & {count: number}>} */
const watched = new Map();

/** @type {EventSource | null} */
let stream = null;
let target = "";
let pause = RETRY_MS;
/** @type {number | undefined} */
let later;

/**
 * Have the server tell of a job's events, output and samples too. Each signal counts: a change is a reason to ask.
 * @param {string} name
 * @returns {Watched}
 */
export function watch(name) {
  let one = watched.get(name);
  if (!one) {
    one = { count: 0, events: signal(0), log: signal(0), system: signal(0), grown: signal(new Map()) };
    watched.set(name, one);
  }
  one.count += 1;
  openSoon();
  return one;
}

/** @param {string} name */
export function unwatch(name) {
  const one = watched.get(name);
  if (one && --one.count <= 0) {
    watched.delete(name);
    openSoon();
  }
}

/** Begin to listen; the page calls it once. */
export function start() {
  document.addEventListener("visibilitychange", () => {
    clearTimeout(later);
    later = setTimeout(open, document.hidden ? HIDDEN_MS : 0);
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", openSoon);
  route.subscribe(openSoon); // Of another workspace there is another stream.
  open();
}

function openSoon() {
  clearTimeout(later);
  later = setTimeout(open, GATHER_MS);
}

function close() {
  stream?.close();
  stream = null;
}

function open() {
  if (document.hidden) return close();
  const query = { workspace: route.peek().query.workspace, jobs: [...watched.keys()].sort().join(",") };
  const wanted = withQuery("/api/v1/stream", query);
  if (stream && wanted === target && stream.readyState !== EventSource.CLOSED) return;
  close();
  target = wanted;
  stream = listen(wanted);
}

/** @param {string} url */
function listen(url) {
  const source = new EventSource(url);
  source.onopen = () => {
    pause = RETRY_MS;
    if (!connected.peek().ok) connected.value = { ok: true, since: Date.now(), isOver: false };
    askAgain(); // Nobody told us what happened until now.
  };
  source.onerror = () => {
    if (source !== stream) return;
    if (connected.peek().ok) connected.value = { ok: false, since: Date.now(), isOver: false };
    if (source.readyState === EventSource.CLOSED) retry();
  };
  for (const [kind, take] of Object.entries(TAKE)) {
    source.addEventListener(kind, (event) => take(JSON.parse(/** @type {MessageEvent} */ (event).data)));
  }
  return source;
}

/** The browser does so itself where the connection broke; not where the server has refused. */
async function retry() {
  later = setTimeout(open, pause);
  pause = Math.min(2 * pause, LONGEST_RETRY_MS);
  const answer = await fetch("/api/v1/me", { credentials: "same-origin" }).catch(() => null);
  if (answer?.status === 401 && !connected.peek().ok) connected.value = { ...connected.peek(), isOver: true };
}

/** @type {Record<string, (data: any) => void>} */
const TAKE = {
  row(data) {
    arrived.set(data.name, Date.now());
    batch(() => {
      const known = new Map(rows.peek());
      known.delete(data.name); // To the end: the oldest go.
      for (const name of [...known.keys()].slice(0, Math.max(0, known.size - MOST_ROWS))) known.delete(name);
      rows.value = known.set(data.name, data);
      changes.value += 1;
    });
    bump(data.name, "events");
  },
  event: (data) => bump(data.job, "events"),
  system: (data) => bump(data.job, "system"),
  log(data) {
    const one = watched.get(data.job);
    if (!one) return;
    const sizes = Object.entries(data.sizes).map(([rank, size]) => /** @type {const} */ ([Number(rank), Number(size)]));
    batch(() => {
      one.log.value += 1;
      one.grown.value = new Map([...one.grown.peek(), ...sizes]);
    });
  },
  gone: () => (changes.value += 1),
  reset: () => askAgain(),
};

/** @param {string} name @param {"events" | "log" | "system"} kind */
function bump(name, kind) {
  const one = watched.get(name);
  if (one) one[kind].value += 1;
}

function askAgain() {
  batch(() => {
    changes.value += 1;
    for (const name of watched.keys()) for (const kind of /** @type {const} */ (["events", "log", "system"])) bump(name, kind);
  });
}
