/** What the ranks have printed: all of them merged, or some, over any number of lines. */

import { address, get } from "../api.js";
import { html, useEffect, useMemo, useSignal } from "../lib.js";
import { Lines } from "../logs/lines.js";
import { Place } from "../logs/place.js";
import { Tools } from "../logs/tools.js";
import { Viewer } from "../logs/viewer.js";
import { duration, moment, rankList } from "../format.js";
import { Card, Problem } from "../parts/card.js";
import { Command } from "../parts/command.js";
import { FINAL } from "../parts/badge.js";
import { Sentence } from "../parts/sentence.js";
import { route, setQuery } from "../router.js";

/** @typedef {import("../logs/lines.js").Line} Line */

export const key = "logs";
export const title = "Logs";

const GROW_MS = 200;
const CONTEXT = 2;

/** @param {{job: Job}} props */
export function Tab({ job }) {
  const query = route.value.query;
  const chosen = chooseLines(job, query);
  const id = JSON.stringify(chosen);
  const path = `/jobs/${encodeURIComponent(job.name)}/logs`;
  const { lines, place } = useMemo(() => open(path, chosen), [path, id]);
  const told = useSignal("");
  const times = useSignal(false);
  const line = query.line ? Number(query.line) - 1 : null;
  useEffect(() => () => lines.close(), [lines]);
  useEffect(() => findTime(path, chosen, line === null ? query.at : undefined), [query.at, id]);
  useEffect(() => begin(lines, place, line, isOver(job)), [lines]);
  useEffect(() => (line === null ? undefined : place.show(line)), [line, lines]);
  useEffect(() => (line !== null && chosen.fold ? unfoldFor(lines, place, line) : undefined), [line, lines]);
  useEffect(() => follow(job, lines), [job.live, lines]);
  /** @param {number} n */
  const jump = (n) => {
    setQuery({ line: n + 1 });
    place.show(n);
  };
  return html`<${Card}
    title=${chosen.ranks || chosen.nodes ? `Log of ${describe(chosen)}` : "Log, all ranks merged"}
    note=${html`<${Note} place=${place} folded=${chosen.fold === 1} />`}
    test="logs"
    class="log-card"
  >
    <${Tools} job=${job} chosen=${chosen} place=${place} jump=${jump} tell=${(/** @type {string} */ text) => (told.value = text)} times=${times} />
    ${told.value && html`<p class="log-told" role="status" data-test="log-told"><${Sentence} text=${told.value} job=${job.name} /></p>`}
    <${Body} job=${job} place=${place} line=${line} times=${times.value} find=${chosen.q ? "" : query.q} regex=${query.regex === "1"} />
    <div class="log-foot">
      <${Command} line=${commandOf(job.name, chosen, query.q)} />
      ${rawLinks(path, chosen)}
    </div>
  <//>`;
}

/**
 * @typedef {object} Chosen what the server is asked for
 * @property {string} [ranks]
 * @property {string} [nodes]
 * @property {string | number} [attempt]
 * @property {0 | 1} fold
 * @property {string} [q]
 * @property {string} [regex]
 * @property {string | number} [context]
 */

/**
 * @param {Job} job
 * @param {Record<string, string>} query
 * @returns {Chosen}
 */
function chooseLines(job, query) {
  const only = query.only === "1" && query.q ? { q: query.q, regex: query.regex, context: query.context ?? CONTEXT } : {};
  const attempt = job.attempt.value ?? undefined;
  return { ranks: query.ranks, nodes: query.nodes, attempt, fold: query.fold === "0" || only.q ? 0 : 1, ...only };
}

/** @param {string} path @param {Chosen} chosen */
function open(path, chosen) {
  /** @type {Place} */
  let place;
  const lines = new Lines((query) => get(path, { ...chosen, ...query }), () => place.redraw(), { filtered: Boolean(chosen.q), folded: chosen.fold === 1 });
  place = new Place(lines);
  return { lines, place };
}

/** @param {Job} job */
function isOver(job) {
  return FINAL.has(job.info.peek().data?.row.status ?? "");
}

/**
 * Stand where somebody who has just come wants to look: at the line of the address, else where it failed, else the end.
 * @param {Lines} lines
 * @param {Place} place
 * @param {number | null} line
 * @param {boolean} over
 */
function begin(lines, place, line, over) {
  if (line !== null || lines.filtered) {
    place.follows = false;
    return;
  }
  if (!over && route.peek().query.error !== "1") return;
  const stop = place.count.subscribe(() => {
    if (!lines.known) return;
    queueMicrotask(() => stop());
    if (lines.firstError !== null && place.follows) place.show(lines.firstError);
  });
  return stop;
}

/**
 * Go to the first line of a time, as that of a cell of the heat map.
 * @param {string} path
 * @param {Chosen} chosen
 * @param {string | undefined} at
 */
function findTime(path, { ranks, nodes, attempt }, at) {
  if (!at) return undefined;
  const stop = new AbortController();
  get(path, { ranks, nodes, attempt, at, count: 1 }, stop.signal).then(
    (answer) => !stop.signal.aborted && setQuery({ at: null, line: answer.total ? answer.line + 1 : null }),
    () => undefined, // The panel itself says why there are no lines.
  );
  return () => stop.abort();
}

/**
 * Fold no more when the line of the address is hidden below an equal one of another rank.
 * @param {Lines} lines
 * @param {Place} place
 * @param {number} line
 */
function unfoldFor(lines, place, line) {
  return place.count.subscribe(() => {
    const row = lines.known ? lines.at(line) : null;
    if (row && !row.loading && row.n !== line) queueMicrotask(() => setQuery({ fold: 0 }));
  });
}

/**
 * Ask for what has come, as soon as there is some, and not more often than anybody could read.
 * @param {Job} job
 * @param {Lines} lines
 */
function follow(job, lines) {
  let isDue = false;
  /** @type {number | undefined} */
  let timer;
  const grow = () => {
    isDue = false;
    lines.grow();
    timer = setTimeout(() => {
      timer = undefined;
      if (isDue) grow();
    }, GROW_MS);
  };
  let isFirst = true;
  const stop = job.live.log.subscribe(() => {
    if (isFirst) isFirst = false;
    else if (timer === undefined) grow();
    else isDue = true;
  });
  return () => {
    stop();
    clearTimeout(timer);
  };
}

/** @param {{place: Place, folded: boolean}} props */
function Note({ place, folded }) {
  void place.count.value;
  const { lines } = place;
  if (!lines.known) return null;
  const count = lines.total.toLocaleString("en-US");
  if (lines.filtered) {
    const found = lines.found.filter((one) => !one.context).length.toLocaleString("en-US");
    return html`<span data-test="log-note">${found}${lines.complete ? "" : "+"} of ${count} lines match</span>`;
  }
  const order = lines.exact || !lines.within ? "" : ` · in order of time within ${duration(lines.within)}`;
  return html`<span data-test="log-note">${count} lines${folded ? " · equal lines folded" : ""}${order}</span>`;
}

/** @param {{job: Job, place: Place, line: number | null, times: boolean, find: string | undefined, regex: boolean}} props */
function Body({ job, place, line, times, find, regex }) {
  void place.count.value;
  const { lines } = place;
  const mark = useMemo(() => (find && !regex ? new RegExp(find.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gi") : null), [find, regex]);
  if (lines.error && !lines.known) return html`<${Problem} error=${lines.error} />`;
  if (lines.known && !lines.total) return html`<${Nothing} job=${job} />`;
  if (lines.complete && lines.filtered && !lines.found.length) return html`<p class="empty" data-test="empty">No line matches.</p>`;
  /** @param {Line | null} row */
  const point = (row) => {
    job.time.value = moment(row?.time ?? null);
  };
  return html`<${Viewer}
    place=${place}
    who=${(/** @type {Line} */ row) => whoOf(row, lines.nodes)}
    pick=${(/** @type {Line} */ row) => setQuery({ ranks: rankList(row.ranks ?? (row.rank === null ? [] : [row.rank])), line: null })}
    chosen=${line}
    choose=${(/** @type {number} */ n) => setQuery({ line: n + 1 })}
    point=${point}
    times=${times}
    mark=${mark}
  />`;
}

/** @param {{job: Job}} props */
function Nothing({ job }) {
  return html`<div class="empty" data-test="empty">
    <p>${isOver(job) ? "The ranks chosen have printed nothing." : "No rank has printed anything yet. Lines appear here as they come."}</p>
    <pre class="code">print("step", step, flush=True)</pre>
  </div>`;
}

/** As the command line does: `4-7|node-1`. @param {Line} row @param {Map<number, string | number>} nodes */
function whoOf(row, nodes) {
  if (row.rank === null && !row.ranks?.length) return "drumline";
  const isOne = (row.ranks?.length ?? 1) < 2;
  const ranks = isOne ? (row.label ?? row.rank) : rankList(row.ranks ?? []);
  const places = new Set((row.ranks ?? []).map((rank) => nodes.get(rank)));
  if (row.node === null || row.node === undefined || places.size > 1) return ranks;
  return `${ranks}|${typeof row.node === "number" ? `node-${row.node}` : row.node}`;
}

/** @param {Chosen} chosen */
function describe({ ranks, nodes }) {
  const parts = [];
  if (ranks) parts.push(`${/^\d+$/.test(ranks) ? "rank" : "ranks"} ${ranks}`);
  if (nodes) parts.push(`${/^\d+$/.test(nodes) ? "node" : "nodes"} ${nodes}`);
  return parts.join(", ");
}

/** @param {string} name @param {Chosen} chosen @param {string | undefined} q */
function commandOf(name, chosen, q) {
  const words = [`drumline job logs -n ${name}`];
  if (chosen.ranks) words.push(`--rank ${chosen.ranks}`);
  if (chosen.nodes) words.push(`--node ${chosen.nodes}`);
  if (chosen.attempt !== undefined) words.push(`--attempt ${chosen.attempt}`);
  if (q) words.push(`--grep '${q.replaceAll("'", "'\\''")}'`);
  return words.join(" ");
}

/** @param {string} path @param {Chosen} chosen */
function rawLinks(path, { ranks, nodes, attempt }) {
  const isOne = /^\d+$/.test(ranks ?? "");
  const link = address(`${path}/raw`, isOne ? { rank: ranks, attempt } : { ranks, nodes, attempt });
  const whose = isOne ? ` of rank ${ranks}` : ranks || nodes ? ` of ${describe({ ranks, nodes, fold: 0 })}` : ", all ranks merged";
  return html`<a class="button" href=${link} download data-test="log-raw">Raw log${whose}</a>`;
}
