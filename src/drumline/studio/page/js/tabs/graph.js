/** The steps of a pipeline and what each needs, from left to right. */

import { useResource } from "../api.js";
import { layOut } from "../draw/layers.js";
import { duration, moment, plural } from "../format.js";
import { html, useMemo } from "../lib.js";
import { changes } from "../live.js";
import { Badge, toneOf, wordOf } from "../parts/badge.js";
import { Card } from "../parts/card.js";
import { Sentence } from "../parts/sentence.js";
import { Table } from "../parts/table.js";
import { jobPath } from "../router.js";

export const key = "graph";
export const title = "Graph";

const [WIDTH, HEIGHT, GAP_X, GAP_Y] = [190, 54, 56, 18];

/** @typedef {{name: string, job: string | null, status: string, type: string, sentence: string, began: string | null, ended: string | null, reused: boolean}} Step */
/** @typedef {{nodes: Step[], edges: [string, string][]}} Answer */

/** @param {{job: Job}} props */
export function Tab({ job }) {
  const found = useResource(`/jobs/${encodeURIComponent(job.name)}/graph`, {}, { live: [job.live.events, changes] }).value;
  return html`<div class="stack" data-test="graph">
    <${Card} title="Steps" note=${found.data ? noteOf(found.data) : ""} resource=${found} height=${120} empty=${(/** @type {Answer} */ data) => !data.nodes.length && { text: "This job has no steps." }}>
      ${(/** @type {Answer} */ data) => html`<${Drawing} data=${data} />`}
    <//>
    ${found.data?.nodes.length > 0 && html`<${Card} title="The same as a table" note="in the order of the file">
      <${Table} columns=${COLUMNS} rows=${found.data.nodes} rowKey=${(/** @type {Step} */ one) => one.name} label="steps" test="steps" />
    <//>`}
  </div>`;
}

/** @param {Answer} data */
function noteOf({ nodes }) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const one of nodes) counts.set(one.status, (counts.get(one.status) ?? 0) + 1);
  return [plural(nodes.length, "step"), ...[...counts].map(([status, count]) => `${count} ${wordOf(status).toLowerCase()}`)].join(" · ");
}

/** @param {{data: Answer}} props */
function Drawing({ data }) {
  const names = data.nodes.map((one) => one.name);
  const shape = JSON.stringify([names, data.edges]);
  const { places, layers, rows } = useMemo(() => layOut(names, data.edges), [shape]);
  const x = (/** @type {string} */ name) => (places.get(name)?.layer ?? 0) * (WIDTH + GAP_X);
  const y = (/** @type {string} */ name) => (places.get(name)?.row ?? 0) * (HEIGHT + GAP_Y);
  const width = layers * (WIDTH + GAP_X) - GAP_X;
  const height = rows * (HEIGHT + GAP_Y) - GAP_Y;
  const edges = data.edges.filter(([from, to]) => places.has(from) && places.has(to));
  return html`<div class="graph" tabindex="0" role="group" aria-label="graph of the steps">
    <div class="graph-sheet" style=${{ width: `${width}px`, height: `${height + 4}px` }}>
      <svg width=${width} height=${height} aria-hidden="true">
        ${edges.map(([from, to]) => html`<path key=${`${from} ${to}`} d=${curve(x(from) + WIDTH, y(from) + HEIGHT / 2, x(to), y(to) + HEIGHT / 2)} />`)}
      </svg>
      ${data.nodes.map((one) => html`<${Node} key=${one.name} step=${one} left=${x(one.name)} top=${y(one.name)} />`)}
    </div>
  </div>`;
}

/** @param {number} x @param {number} y @param {number} toX @param {number} toY */
function curve(x, y, toX, toY) {
  const bend = Math.max(20, (toX - x) / 2);
  return `M${x} ${y}C${x + bend} ${y} ${toX - bend} ${toY} ${toX} ${toY}`;
}

/** @param {{step: Step, left: number, top: number}} props */
function Node({ step, left, top }) {
  const inside = html`<b>${step.name}</b>
    <span class="quiet"><i class="dot"></i> ${step.reused ? "reused" : wordOf(step.status)}${took(step) && ` · ${took(step)}`}</span>`;
  const props = {
    class: `graph-node tone-${toneOf(step.status)}${step.reused ? " reused" : ""}`,
    style: { left: `${left}px`, top: `${top}px`, width: `${WIDTH}px`, height: `${HEIGHT}px` },
    title: step.sentence,
    "data-step": step.name,
    "data-status": step.status,
  };
  return step.job ? html`<a ...${props} href=${jobPath(step.job)}>${inside}</a>` : html`<div ...${props}>${inside}</div>`;
}

/** @param {Step} step */
function took(step) {
  const began = moment(step.began);
  return began === null ? "" : duration(((moment(step.ended) ?? Date.now()) - began) / 1000);
}

const COLUMNS = [
  { key: "name", title: "Step", cell: (/** @type {Step} */ one) => (one.job ? html`<a class="job-name" href=${jobPath(one.job)}>${one.name}</a>` : one.name) },
  { key: "status", title: "Status", cell: (/** @type {Step} */ one) => html`<${Badge} status=${one.status} />${one.reused ? " reused" : ""}` },
  { key: "took", title: "Took", right: true, cell: took },
  { key: "sentence", title: "Why", cell: (/** @type {Step} */ one) => html`<${Sentence} text=${one.sentence ?? ""} job=${one.job ?? undefined} />` },
];
