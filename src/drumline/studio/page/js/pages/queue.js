/** What runs and what waits on this machine's queue, and for what. */

import { useResource } from "../api.js";
import { age, duration, moment, plural, size, when } from "../format.js";
import { html } from "../lib.js";
import { changes } from "../live.js";
import { Card } from "../parts/card.js";
import { Command } from "../parts/command.js";
import { Sentence } from "../parts/sentence.js";
import { Table } from "../parts/table.js";
import { jobPath } from "../router.js";

const EVERY_MS = 3000;

/** @typedef {{cores?: number | null, gpus?: number | null, memory?: number | null}} Needs */

export function Page() {
  const found = useResource("/queue", {}, { live: changes, every: EVERY_MS }).value;
  const { data } = found;
  return html`<div class="stack" data-test="queue">
    <h1 class="hidden">Queue</h1>
    <p class="page-sentence" data-test="queue-sentence">${data ? html`<${Sentence} text=${data.sentence} />` : "\u00a0"}</p>
    <${Card} title="Waiting" note=${data?.waiting.length ? `${plural(data.waiting.length, "job")}, the next one first` : ""} resource=${found} height=${60} empty=${(/** @type {any} */ answer) => !answer.waiting.length && { text: "Nothing waits: a job that is submitted now starts at once, if it fits." }}>
      ${(/** @type {any} */ answer) => html`<${Table} columns=${WAITING} rows=${answer.waiting} rowKey=${nameOf} label="waiting jobs" test="waiting" />`}
    <//>
    <${Card} title="Running" note=${data ? noteOf(data) : ""} resource=${found} height=${60} empty=${(/** @type {any} */ answer) => !answer.running.length && { text: "Nothing runs.", command: "drumline run --nodes 2 --procs 2 -- python train.py" }}>
      ${(/** @type {any} */ answer) => html`<${Use} data=${answer} /><${Table} columns=${RUNNING} rows=${answer.running} rowKey=${nameOf} label="running jobs" test="running" />`}
    <//>
    <${Command} line="drumline ps" />
  </div>`;
}

const nameOf = (/** @type {{name: string}} */ row) => row.name;
const link = (/** @type {{name: string}} */ row) => html`<a class="job-name" href=${jobPath(row.name)}>${row.name}</a>`;

const WAITING = [
  { key: "position", title: "", right: true, cell: (/** @type {any} */ row) => row.position },
  { key: "name", title: "Job", cell: link },
  { key: "needs", title: "Needs", cell: (/** @type {any} */ row) => needsOf(row.needs) },
  { key: "sentence", title: "Why it waits", cell: (/** @type {any} */ row) => html`<${Sentence} text=${row.sentence ?? ""} />` },
];

const RUNNING = [
  { key: "name", title: "Job", cell: link },
  { key: "cores", title: "Cores", right: true },
  { key: "gpus", title: "GPUs", right: true },
  { key: "since", title: "Since", cell: (/** @type {any} */ row) => html`<span title=${when(row.since)}>${age((Date.now() - (moment(row.since) ?? Date.now())) / 1000)}</span>` },
  { key: "ends", title: "Ends", cell: (/** @type {any} */ row) => endOf(row.ends_about) },
];

/** @param {string | null} time */
function endOf(time) {
  const at = moment(time);
  if (at === null) return html`<span class="quiet">not known</span>`;
  return at <= Date.now() ? "any moment" : `in about ${duration((at - Date.now()) / 1000)}`;
}

/** @param {Needs | string | null} needs */
function needsOf(needs) {
  if (!needs || typeof needs === "string") return needs ?? "";
  const parts = [];
  if (needs.cores) parts.push(plural(needs.cores, "core"));
  if (needs.gpus) parts.push(plural(needs.gpus, "GPU"));
  if (needs.memory) parts.push(size(needs.memory));
  return parts.join(", ");
}

/** @param {any} data */
function noteOf(data) {
  const { cores, gpus, memory } = data.capacity ?? {};
  return `of ${needsOf({ cores, gpus, memory })}`;
}

/** Which share of the cores each job has. @param {{data: any}} props */
function Use({ data }) {
  const cores = data.capacity?.cores;
  if (!cores) return null;
  const used = data.running.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + (one.cores ?? 0), 0);
  return html`<div class="share" role="img" aria-label=${`${used} of ${cores} cores are in use`}>
    ${data.running.map((/** @type {any} */ one, /** @type {number} */ index) => html`<i key=${one.name} class=${`s${index % 8}`} style=${{ width: `${((one.cores ?? 0) / Math.max(cores, used)) * 100}%` }} title=${`${one.name}: ${plural(one.cores ?? 0, "core")}`}></i>`)}
  </div>`;
}
