/** The machines that jobs run on, and what is used of them. */

import { useResource } from "../api.js";
import { plural, size, when } from "../format.js";
import { html } from "../lib.js";
import { changes } from "../live.js";
import { Card } from "../parts/card.js";
import { Command } from "../parts/command.js";
import { Sentence } from "../parts/sentence.js";
import { Table } from "../parts/table.js";
import { jobPath } from "../router.js";

const EVERY_MS = 3000;
const HIDDEN = new Set(["name", "jobs", "job"]);

export function Page() {
  const found = useResource("/nodes", {}, { live: changes, every: EVERY_MS }).value;
  const { data } = found;
  return html`<div class="stack" data-test="nodes">
    <h1 class="hidden">Nodes</h1>
    <p class="page-sentence" data-test="nodes-sentence">${data ? html`<${Sentence} text=${data.sentence} />` : "\u00a0"}</p>
    <${Card} title="Nodes" note=${data ? plural(data.nodes.length, "node") : ""} resource=${found} height=${60} empty=${(/** @type {any} */ answer) => !answer.nodes.length && { text: "No job uses a node now. The nodes of running jobs appear here." }}>
      ${(/** @type {any} */ answer) => html`<${Table} columns=${columnsOf(answer.nodes)} rows=${answer.nodes} rowKey=${keyOf} label="nodes" test="node-table" />`}
    <//>
    <${Card} title="Computes" note="where a job may run" resource=${found} height=${60} empty=${(/** @type {any} */ answer) => !answer.computes.length && { text: "No compute is attached: jobs run on this machine.", command: "drumline compute attach --file compute.yml" }}>
      ${(/** @type {any} */ answer) => html`<${Table} columns=${columnsOf(answer.computes)} rows=${answer.computes} rowKey=${keyOf} label="computes" test="compute-table" />`}
    <//>
    <${Command} line="drumline compute list" />
  </div>`;
}

/** @param {any} row */
function keyOf(row) {
  return [row.compute, row.job, row.name, row.node, row.index].filter((one) => one !== undefined && one !== null).join("/");
}

/** A column for each fact that some row has. @param {any[]} rows */
function columnsOf(rows) {
  const keys = [...new Set(rows.flatMap((row) => Object.keys(row).filter((name) => isShown(row[name]))))];
  const first = keys.includes("name") ? [{ key: "name", title: "Name", cell: (/** @type {any} */ row) => html`<b class="mono">${row.name}</b>` }] : [];
  const jobs = keys.includes("jobs") || keys.includes("job") ? [{ key: "jobs", title: "Jobs", cell: jobsOf }] : [];
  const others = keys.filter((key) => !HIDDEN.has(key)).map((key) => ({
    key,
    title: key.replace(/memory_mb$/, "memory").replaceAll("_", " "),
    right: rows.every((row) => row[key] === null || typeof row[key] === "number"),
    cell: (/** @type {any} */ row) => show(key, row[key]),
  }));
  return [...first, ...others, ...jobs];
}

/** @param {any} value */
function isShown(value) {
  return value !== null && value !== undefined && value !== "" && !(Array.isArray(value) && !value.length);
}

/** @param {any} row */
function jobsOf(row) {
  const names = [row.jobs ?? row.job ?? []].flat().map((one) => (typeof one === "string" ? one : one.name));
  return names.map((name) => html`<a key=${name} class="job-name" href=${jobPath(name)}>${name}</a> `);
}

/** @param {string} key @param {any} value */
function show(key, value) {
  if (!isShown(value)) return html`<span class="quiet">–</span>`;
  if (key.endsWith("memory_mb")) return size(value * 2 ** 20);
  if (typeof value === "number") return /memory|bytes|disk/.test(key) ? size(value) : value.toLocaleString("en-US");
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.map(String).join(", ");
  if (typeof value === "object") return html`<code>${JSON.stringify(value)}</code>`;
  return /^\d{4}-\d\d-\d\dT/.test(value) ? when(value) : value;
}
