/** The columns of the list of jobs. */

import { duration, moment, number, when } from "../format.js";
import { html, signal } from "../lib.js";
import { Badge, FINAL } from "../parts/badge.js";
import { Sentence } from "../parts/sentence.js";
import { Spark } from "../parts/spark.js";
import { jobPath } from "../router.js";

/** Ticks while it is read: durations of running jobs grow. */
const second = signal(Date.now());
setInterval(() => !document.hidden && (second.value = Date.now()), 1000);

/**
 * @param {Signal<ReadonlySet<string>>} marked
 * @returns {import("../parts/table.js").Column[]}
 */
export function columnsOf(marked) {
  return [
    { key: "mark", title: html`<span class="hidden">Mark</span>`, class: "mark", cell: (row) => html`<${Mark} row=${row} marked=${marked} />` },
    { key: "name", title: "Job", sort: true, class: "job", cell: drawName },
    { key: "status", title: "Status", sort: true, class: "status", cell: drawStatus },
    { key: "processes", title: "Ranks", right: true, class: "wide", cell: drawRanks },
    { key: "metric", title: "Metric", class: "wide metric", cell: drawMetric },
    { key: "duration", title: "Ran", sort: true, right: true, class: "ran", cell: (row) => html`<${Ran} row=${row} />` },
    { key: "created", title: "Submitted", sort: true, right: true, class: "created", cell: (row) => html`<span class="quiet">${when(row.created)}</span>` },
  ];
}

/** @param {{row: Row, marked: Signal<ReadonlySet<string>>}} props */
function Mark({ row, marked }) {
  const change = () => {
    const names = new Set(marked.peek());
    if (!names.delete(row.name)) names.add(row.name);
    marked.value = names;
  };
  return html`<input type="checkbox" checked=${marked.value.has(row.name)} onChange=${change} aria-label=${`Mark ${row.name}`} data-test="mark" />`;
}

/** @param {Row} row */
function drawName(row) {
  const hasOwn = row.display_name && row.display_name !== row.name;
  return html`<a class="job-name" href=${jobPath(row.name)} data-test="job-link">${hasOwn ? row.display_name : row.name}</a>
    <div class="quiet small">
      ${hasOwn && html`<span class="mono">${row.name}</span> · `}${row.experiment}${row.type !== "command" && ` · ${row.type}`}
      ${row.parent && html` · of <a href=${jobPath(row.parent)}>${row.parent}</a>`}
    </div>`;
}

/** @param {Row} row */
function drawStatus(row) {
  return html`<div class="state">
    <span class="state-word">
      <${Badge} status=${row.status} hangs=${row.hangs} />
      ${row.attempt > 0 && html`<span class="quiet small"> attempt ${row.attempt}</span>`}
    </span>
    ${row.sentence && html`<span class="why" title=${row.sentence}><${Sentence} text=${row.sentence} job=${row.name} /></span>`}
  </div>`;
}

/** @param {Row} row */
function drawRanks(row) {
  if (!row.processes) return "";
  const each = row.nodes ? row.processes / row.nodes : row.processes;
  const shape = Number.isInteger(each) ? `${row.nodes} × ${each}` : `${row.processes}`;
  return html`${shape}<div class="quiet small">${row.compute}</div>`;
}

/** @param {Row} row */
function drawMetric(row) {
  if (!row.metric) return "";
  const { name, value } = row.metric;
  return html`<span class="metric-line"><${Spark} values=${row.spark ?? []} label=${`${name} over time`} /><span>${number(value)}<span class="quiet small"> ${name}</span></span></span>`;
}

/** @param {{row: Row}} props */
function Ran({ row }) {
  const began = moment(row.started);
  const isRunning = began !== null && !row.ended && !FINAL.has(row.status);
  return html`${duration(isRunning ? (second.value - began) / 1000 : row.duration)}`;
}
