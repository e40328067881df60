/** What differs between two jobs: what was asked for, what ran, and what came of it. */

import { useResource } from "../api.js";
import { Plot } from "../charts/plot.js";
import { join } from "../charts/smooth.js";
import { FileDiff } from "../files/file_diff.js";
import { duration, number, plural } from "../format.js";
import { html, useMemo } from "../lib.js";
import { Badge } from "../parts/badge.js";
import { Card } from "../parts/card.js";
import { Command } from "../parts/command.js";
import { Sentence } from "../parts/sentence.js";
import { Typed } from "../parts/typed.js";
import { go, jobPath, withQuery } from "../router.js";

/** Key of the answer, title, key of the name in a difference. @type {[string, string, string][]} */
const SECTIONS = [
  ["spec", "Job file", "field"],
  ["environment", "Environment", "package"],
  ["variables", "Variables", "variable"],
  ["inputs", "Inputs", "input"],
  ["machine", "Machine", "field"],
  ["plan", "Plan", "field"],
];

/** @param {{query: Record<string, string>}} props */
export function Page({ query }) {
  const { a, b } = query;
  const found = useResource(a && b ? "/diff" : null, { a, b }).value;
  return html`<div class="stack" data-test="diff">
    <h1 class="hidden">Two jobs</h1>
    <${Choose} a=${a} b=${b} />
    ${a && b && html`<p class="page-sentence" data-test="diff-sentence">${found.data ? sentenceOf(found.data) : "\u00a0"}</p>`}
    ${a && b
      ? html`<${Card} title="The two jobs" note="A and B" resource=${found} height=${100}>${(/** @type {any} */ data) => html`<${Jobs} data=${data} />`}<//>
          ${found.data && html`<${Sections} data=${found.data} /><${Phases} rows=${found.data.phases} /><${Curves} a=${a} b=${b} metrics=${found.data.metrics} />`}
          <${Command} line=${`drumline job diff ${a} ${b}`} />`
      : html`<p class="empty" data-test="empty">Choose two jobs to see what differs between them.</p>`}
  </div>`;
}

/** @param {{a?: string, b?: string}} props */
function Choose({ a, b }) {
  const jobs = useResource("/jobs", { limit: 200, sort: "-created" }).value.data?.jobs ?? [];
  /** @param {SubmitEvent} event */
  const submit = (event) => {
    event.preventDefault();
    const values = new FormData(/** @type {HTMLFormElement} */ (event.target));
    go(withQuery("/diff", { a: String(values.get("a") ?? "").trim(), b: String(values.get("b") ?? "").trim() }));
  };
  return html`<form class="panel-tools" onSubmit=${submit} key=${`${a} ${b}`}>
    <label class="log-field"><span class="quiet">A</span><${Typed} name="a" list="all-jobs" value=${a} placeholder="the earlier job" required data-test="diff-a" /></label>
    <label class="log-field"><span class="quiet">B</span><${Typed} name="b" list="all-jobs" value=${b} placeholder="the later job" required data-test="diff-b" /></label>
    <datalist id="all-jobs">${jobs.map((/** @type {Row} */ one) => html`<option key=${one.name} value=${one.name}>${one.experiment} ${one.status}</option>`)}</datalist>
    <button class="button main" data-test="diff-go">Compare</button>
    ${a && b && html`<a class="button" href=${withQuery("/diff", { a: b, b: a })}>Swap</a>`}
  </form>`;
}

/** @param {any} data */
function sentenceOf(data) {
  const parts = SECTIONS.filter(([key]) => data[key].length).map(([key, title]) => `${title.toLowerCase()} (${data[key].length})`);
  const files = data.code.files.length + data.code.left_out;
  if (files) parts.unshift(`code (${plural(files, "file")})`);
  return parts.length ? `What differs: ${parts.join(", ")}.` : "Nothing that was asked for differs between the two jobs.";
}

/** @param {{data: any}} props */
function Jobs({ data }) {
  const [one, other] = data.jobs;
  const times = data.times.filter((/** @type {any} */ row) => row.a !== null || row.b !== null);
  return html`<table class="table" aria-label="the two jobs" data-test="diff-jobs">
    <thead><tr><th scope="col"></th><th scope="col">A: <a href=${jobPath(one.name)}>${one.name}</a></th><th scope="col">B: <a href=${jobPath(other.name)}>${other.name}</a></th></tr></thead>
    <tbody>
      <tr><td class="quiet">status</td>${[one, other].map((job) => html`<td><${Badge} status=${job.status} /> <${Sentence} text=${job.reason ?? ""} job=${job.name} /></td>`)}</tr>
      ${times.map((/** @type {any} */ row) => html`<tr key=${row.time}><td class="quiet">${TIMES[row.time] ?? row.time}</td><td>${duration(row.a)}</td><td>${duration(row.b)}${changeOf(row.a, row.b)}</td></tr>`)}
      ${data.metrics.slice(0, 40).map((/** @type {any} */ row) => html`<tr key=${`m-${row.metric}`}><td class="quiet">${row.metric}</td><td>${number(toNumber(row.a))}</td><td>${number(toNumber(row.b))}${changeOf(toNumber(row.a), toNumber(row.b))}</td></tr>`)}
    </tbody>
  </table>`;
}

/** @type {Record<string, string>} */
const TIMES = { until_start_s: "until its start", run_s: "ran", total_s: "in all" };

/** JSON has no nan. @param {any} value @returns {number | null} */
function toNumber(value) {
  return value === null || value === undefined ? null : Number(value);
}

/** @param {number | null} a @param {number | null} b */
function changeOf(a, b) {
  if (a === null || b === null || !a || !Number.isFinite(b / a)) return "";
  const percent = (b / a - 1) * 100;
  return html` <span class="quiet">${percent >= 0 ? "+" : "−"}${number(Math.abs(percent))} %</span>`;
}

/** @param {{data: any}} props */
function Sections({ data }) {
  const { files, left_out: more, notes } = data.code;
  return html`<${Card} title="Code" note=${files.length ? plural(files.length + more, "file") : "the same"} test="diff-code" class=${files.length || notes.length ? "" : "same"}>
      ${notes.map((/** @type {string} */ note) => html`<p key=${note} class="quiet">${note}</p>`)}
      ${files.map((/** @type {any} */ file) => html`<${FileDiff} key=${file.path} file=${file} open=${files.length <= 5} />`)}
      ${more > 0 && html`<p class="quiet">${plural(more, "file")} more</p>`}
    <//>
    ${SECTIONS.map(([key, title, name]) => html`<${Section} key=${key} id=${key} title=${title} rows=${data[key]} name=${name} />`)}`;
}

/** @param {{id: string, title: string, rows: any[], name: string}} props */
function Section({ id, title, rows, name }) {
  return html`<${Card} title=${title} note=${rows.length ? plural(rows.length, "difference") : "the same"} test=${`diff-${id}`} class=${rows.length ? "" : "same"}>
    ${rows.length > 0 &&
    html`<div class="table-frame"><table class="table diff-table" aria-label=${title}>
      <thead><tr><th scope="col">${name}</th><th scope="col">A</th><th scope="col">B</th></tr></thead>
      <tbody>${rows.map((row) => html`<tr key=${row[name]} data-name=${row[name]}><td>${row[name]}</td><td class="was">${show(row.a)}</td><td class="is">${show(row.b)}</td></tr>`)}</tbody>
    </table></div>`}
  <//>`;
}

/** @param {any} value */
function show(value) {
  if (value === null || value === undefined) return html`<span class="quiet">not set</span>`;
  return html`<code>${typeof value === "object" ? JSON.stringify(value) : String(value)}</code>`;
}

/** @param {{rows: {phase: string, a: number | null, b: number | null}[]}} props */
function Phases({ rows }) {
  if (!rows.length) return null;
  const most = Math.max(...rows.flatMap((one) => [one.a ?? 0, one.b ?? 0])) || 1;
  const cell = (/** @type {number | null} */ value, /** @type {string} */ which) =>
    html`<td class="phase">${duration(value)}<i class=${`swatch ${which}`} style=${{ width: `${((value ?? 0) / most) * 100}%` }}></i></td>`;
  return html`<${Card} title="Start, phase by phase" note="of the last attempt" test="diff-phases">
    <div class="table-frame"><table class="table" aria-label="phases of the start">
      <thead><tr><th scope="col">phase</th><th scope="col">A</th><th scope="col">B</th><th scope="col"></th></tr></thead>
      <tbody>${rows.map((one) => html`<tr key=${one.phase} data-name=${one.phase}><td>${one.phase}</td>${cell(one.a, "s0")}${cell(one.b, "s2")}<td>${changeOf(one.a, one.b)}</td></tr>`)}</tbody>
    </table></div>
  <//>`;
}

const MOST_CURVES = 6;

/** @param {{a: string, b: string, metrics: {metric: string}[]}} props */
function Curves({ a, b, metrics }) {
  const names = metrics.slice(0, MOST_CURVES).map((one) => one.metric);
  const query = { jobs: `${a},${b}`, metrics: names.join(","), points: 400, x: "step", band: 1 };
  const found = useResource(names.length ? "/series" : null, query).value;
  if (!names.length) return null;
  return html`<div class="charts">
    ${names.map((name) => html`<${Card} key=${name} title=${name} note="A and B, by step" resource=${found} height=${220}>${(/** @type {any} */ data) => html`<${Both} data=${data} a=${a} b=${b} name=${name} />`}<//>`)}
  </div>`;
}

/** @param {{data: any, a: string, b: string, name: string}} props */
function Both({ data, a, b, name }) {
  const drawing = useMemo(() => {
    const curves = data.series.filter((/** @type {any} */ one) => one.metric === name);
    const [x, ...columns] = join(curves.map((/** @type {any} */ one) => ({ x: one.x, columns: [one.mean ?? one.last] })));
    const label = (/** @type {any} */ one) => `${one.job === a ? "A" : "B"}${one.run ? ` · ${one.run}` : ""}`;
    return { x, curves: columns.map((values, at) => ({ label: label(curves[at]), colour: curves[at].job === b ? 10 : 0, values })) };
  }, [data, a, b, name]);
  return html`<${Plot} drawing=${drawing} sync="diff" label=${`${name} of both jobs`} />`;
}
