/** All reports that jobs were run for: how far they scale, and which failures they survive. */

import { useResource } from "../api.js";
import { plural, when } from "../format.js";
import { html } from "../lib.js";
import { Card } from "../parts/card.js";
import { Table } from "../parts/table.js";
import { jobPath } from "../router.js";

const AGAIN_MS = 30_000;

export function Page() {
  const found = useResource("/reports", {}, { every: AGAIN_MS }).value;
  return html`<div class="stack" data-test="reports">
    <h1 class="hidden">Reports</h1>
    ${PARTS.map(
      ({ name, title, columns, empty }) => html`<${Card} key=${name} title=${title} note=${found.data ? plural(found.data[name].length, "report") : ""} resource=${found} height=${60} empty=${(/** @type {any} */ data) => !data[name].length && empty} test=${`reports-${name}`}>
        ${(/** @type {any} */ data) => html`<${Table} columns=${columns} rows=${data[name]} rowKey=${(/** @type {any} */ one) => one.job} label=${title} />`}
      <//>`,
    )}
  </div>`;
}

/** @param {string} tab */
const job = (tab) => ({ key: "job", title: "Job", cell: (/** @type {any} */ one) => html`<a href=${`${jobPath(one.job)}/${tab}`}>${one.title}</a>` });
const made = { key: "made", title: "Made", right: true, cell: (/** @type {any} */ one) => when(one.made) };

const PARTS = [
  {
    name: "scaling",
    title: "How far jobs scale",
    empty: { text: "No job was measured at several sizes.", command: "drumline scale -f job.yml --nodes 1,2,4" },
    columns: [
      job("scale"),
      { key: "nodes", title: "Nodes", cell: (/** @type {any} */ one) => one.nodes.join(", ") },
      { key: "efficiency", title: "Efficiency", right: true, cell: (/** @type {any} */ one) => (one.efficiency === null ? "" : `${Math.round(100 * one.efficiency)} %`) },
      { key: "scaling", title: "Scaling", cell: (/** @type {any} */ one) => one.scaling + (one.refused ? `, ${one.refused} not trusted` : "") },
      made,
    ],
  },
  {
    name: "rehearsals",
    title: "Which failures jobs survive",
    empty: { text: "No failure of a job was rehearsed.", command: "drumline rehearse -f job.yml" },
    columns: [
      job("rehearsal"),
      { key: "drills", title: "Survived", cell: (/** @type {any} */ one) => `${one.survived} of ${plural(one.drills, "drill")}` },
      { key: "ok", title: "Result", cell: (/** @type {any} */ one) => (one.ok ? "all as expected" : "not as expected") },
      made,
    ],
  },
];
