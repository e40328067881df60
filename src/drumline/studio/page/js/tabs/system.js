/** What nodes and ranks use, over the time of the job; what happened meanwhile stands as marks. */

import { useResource } from "../api.js";
import { findFailed, Marks } from "../charts/marks.js";
import { Plot } from "../charts/plot.js";
import { measure as format, moment, plural, rankList } from "../format.js";
import { html, useMemo } from "../lib.js";
import { Card } from "../parts/card.js";
import { Command } from "../parts/command.js";
import { Segments } from "../parts/menu.js";
import { Typed } from "../parts/typed.js";
import { route, setQuery } from "../router.js";

export const key = "system";
export const title = "System";

const POINTS = 400;
const MOST_CURVES = 16;
const EVERY_MS = 2000;

/** @param {{job: Job}} props */
export function Tab({ job }) {
  const { query } = route.value;
  const by = query.by === "rank" ? "rank" : "node";
  const path = `/jobs/${encodeURIComponent(job.name)}/system`;
  const attempt = job.attempt.value ?? undefined;
  const first = useResource(path, { measure: "cpu", points: POINTS, attempt }, { live: job.live.system, every: EVERY_MS }).value;
  const measures = /** @type {SystemAnswer["measures"]} */ (first.data?.measures ?? []);
  return html`<div class="stack" data-test="system">
    <div class="panel-tools">
      <${Segments} label="one curve for" value=${by} options=${[{ value: "node", title: "nodes" }, { value: "rank", title: "ranks" }]} onChange=${(/** @type {string} */ value) => setQuery({ by: value === "node" ? null : value })} test="system-by" />
      ${by === "rank" && html`<label class="log-field"><span class="quiet">ranks</span><${Typed} class="input narrow" value=${query.ranks} placeholder="0-3,7" onChange=${(/** @type {any} */ event) => setQuery({ ranks: event.target.value.trim() })} data-test="system-ranks" /></label>`}
    </div>
    <div class="charts">
      ${measures.length
        ? measures.map((one) => html`<${Chart} key=${one.key} job=${job} path=${path} attempt=${attempt} measure=${one} by=${by} ranks=${query.ranks ?? ""} />`)
        : html`<${Card} title="Use of the machine" resource=${first} height=${220} empty=${{ text: "Samples appear about a second after the first rank starts." }}><//>`}
    </div>
    ${first.data && html`<${Marks} job=${job} marks=${first.data.marks} />`}
    <${Command} line=${`drumline job top ${job.name}`} />
  </div>`;
}

/** @param {{job: Job, path: string, attempt: number | undefined, measure: SystemAnswer["measures"][0], by: string, ranks: string}} props */
function Chart({ job, path, attempt, measure, by, ranks }) {
  const found = useResource(path, { measure: measure.key, points: POINTS, attempt }, { live: job.live.system, every: EVERY_MS }).value;
  const drawing = useMemo(() => (found.data ? draw(found.data, measure, by, ranks) : null), [found.data, by, ranks]);
  const isEmpty = !drawing?.curves.some((one) => one.values.some((value) => value !== null));
  return html`<${Card}
    title=${measure.title}
    note=${found.data ? `${measure.unit ? `${measure.unit} · ` : ""}one point ${Number(found.data.bin_s.toFixed(2))} s` : ""}
    resource=${found}
    height=${220}
    test=${`system-${measure.key}`}
    empty=${() => isEmpty && { text: `No samples of ${measure.title} yet: ranks and nodes are looked at about once a second.` }}
  >
    ${() => html`<${Plot} drawing=${drawing} sync="time" pointed=${job.time} label=${`${measure.title} over time`} />`}
  <//>`;
}

/**
 * @param {SystemAnswer} answer
 * @param {SystemAnswer["measures"][0]} measure
 * @param {string} by
 * @param {string} ranks
 * @returns {import("../charts/plot.js").Drawing}
 */
function draw(answer, measure, by, ranks) {
  const begin = (moment(answer.begin) ?? 0) / 1000;
  const count = Math.max(0, ...answer.rows.map((row) => row.values.length));
  const x = Array.from({ length: count }, (_, index) => begin + index * answer.bin_s);
  const end = (moment(answer.end) ?? 0) / 1000;
  if (count && end > x[count - 1]) x.push(end); // All charts end with the job; there are no values there.
  const wanted = parseRanks(ranks);
  // Some measures are known of ranks alone, others of nodes alone.
  const chosen = answer.rows.filter((row) => (by === "node") === (row.rank === null));
  const own = chosen.some((row) => row.values.some((value) => value !== null)) ? chosen : answer.rows;
  const rows = own.filter((row) => row.rank === null || !wanted.size || wanted.has(row.rank));
  const unit = measure.unit.startsWith("%") ? "%" : measure.unit;
  const range = /** @type {[number, number] | "zero"} */ (measure.unit === "%" && measure.most ? [0, Math.max(measure.most, 1)] : "zero");
  const failed = findFailed(answer.marks);
  const marks = answer.marks.map((one, index) => ({ x: (moment(one.time) ?? 0) / 1000, text: one.text, first: index === failed }));
  return {
    x,
    time: true,
    range,
    marks,
    yText: (value) => format(value, unit),
    steps: unit.startsWith("B") || unit.startsWith("bytes") ? POWERS_OF_TWO : undefined,
    curves: rows.length <= MOST_CURVES ? rows.map((row, index) => ({ label: nameOf(row), colour: index, values: padTo(row.values, x.length) })) : [foldRows(rows, x.length)],
  };
}

/** Between the figures of an axis of bytes, which are in MiB. */
const POWERS_OF_TWO = Array.from({ length: 51 }, (_, power) => 2 ** power);

/** @param {SystemAnswer["rows"][0]} row */
function nameOf({ rank, label }) {
  return rank === null || /\D/.test(label) ? label : `rank ${label}`;
}

/** @param {(number | null)[]} values @param {number} count */
function padTo(values, count) {
  return values.length < count ? [...values, ...new Array(count - values.length).fill(null)] : values;
}

/** Many curves as one: their median, and a band from the least to the most. @param {SystemAnswer["rows"]} rows @param {number} count */
function foldRows(rows, count) {
  /** @type {(number | null)[][]} */
  const [low, values, high] = [[], [], []];
  for (let at = 0; at < count; at += 1) {
    const known = /** @type {number[]} */ (rows.map((row) => row.values[at] ?? null).filter((one) => one !== null)).sort((a, b) => a - b);
    low.push(known[0] ?? null);
    values.push(known[known.length >> 1] ?? null);
    high.push(known[known.length - 1] ?? null);
  }
  const ranks = rows.flatMap((row) => (row.rank === null ? [] : [row.rank]));
  const who = ranks.length ? `ranks ${rankList(ranks)}` : plural(rows.length, "node");
  return { label: `${who}: median, least and most`, colour: 0, low, values, high };
}

/** @param {string} text `0-3,7` */
export function parseRanks(text) {
  /** @type {Set<number>} */
  const found = new Set();
  for (const [, first, last] of text.matchAll(/(\d+)(?:-(\d+))?/g)) {
    const end = Math.min(Number(last ?? first), Number(first) + 100_000);
    for (let rank = Number(first); rank <= end; rank += 1) found.add(rank);
  }
  return found;
}
