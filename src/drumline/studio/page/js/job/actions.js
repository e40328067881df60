/** What can be done with a job: buttons that ask before they end or change something. */

import { get, post } from "../api.js";
import { html } from "../lib.js";
import { FINAL } from "../parts/badge.js";
import { ask } from "../parts/dialog.js";
import { Menu } from "../parts/menu.js";
import { attempt, tell } from "../parts/toast.js";
import { go, jobPath, withQuery } from "../router.js";

const COMPARE = "Compare with last good";

/** @param {{info: JobInfo}} props */
export function Actions({ info }) {
  const { row } = info;
  const isOver = FINAL.has(row.status);
  const hasFailed = row.status === "Failed"; // What changed since it last went well is the next question.
  const items = [
    ...(hasFailed ? [] : [{ title: COMPARE, run: () => compare(row), test: "compare-good" }]),
    { title: "Compare with …", run: () => compareWith(row), test: "compare-with" },
    ...(isOver ? [] : [{ title: "Preempt …", run: () => preempt(row), off: row.type === "command" ? undefined : "only of a command", test: "preempt" }]),
    ...(isOver ? [] : [{ title: "Kill at once …", run: () => cancel(info, true), danger: true, test: "kill" }]),
    { title: row.archived ? "Restore" : "Archive", run: () => archive(row), off: isOver || row.archived ? undefined : "it still runs", test: "archive" },
  ];
  return html`<div class="buttons" data-test="actions">
    ${!isOver && html`<button type="button" class="button main" onClick=${() => cancel(info, false)} data-test="cancel">Cancel</button>`}
    <button type="button" class=${`button ${isOver ? "main" : ""}`} onClick=${() => rerun(row)} data-test="rerun">Rerun</button>
    ${hasFailed && html`<button type="button" class="button" onClick=${() => compare(row)} data-test="compare-good">${COMPARE}</button>`}
    <a class="button" href=${withQuery("/submit", { from: row.name })} data-test="yaml">YAML</a>
    <${Menu} label="More" items=${items} test="more" />
  </div>`;
}

/** @param {string} name */
function api(name) {
  return `/jobs/${encodeURIComponent(name)}`;
}

/** @param {JobInfo} info @param {boolean} at_once */
async function cancel(info, at_once) {
  const { row, commands } = info;
  const question = at_once
    ? { title: `Kill ${row.name} at once?`, text: "Its ranks get SIGKILL, with no time to save what they have.", action: "Kill it" }
    : { title: `Cancel ${row.name}?`, text: "Its ranks get SIGTERM, and the grace period to save what they have.", action: "Cancel it" };
  const base = commands.cancel ?? `drumline job cancel -n ${row.name}`;
  const command = at_once ? `${base} --at-once` : base;
  if (await ask({ ...question, danger: true, command })) {
    await attempt(() => post(`${api(row.name)}/cancel`, { at_once }), `${row.name} is being ${at_once ? "killed" : "canceled"}`);
  }
}

/** @param {Row} row */
async function preempt(row) {
  const body = html`<label class="field">Node <input name="node" type="number" min="0" max=${(row.nodes ?? 1) - 1} placeholder="all nodes" data-test="preempt-node" /></label>`;
  const text = "Its ranks are asked to save what they have; a job that may restart then goes on from its checkpoint.";
  const values = await ask({ title: `Preempt ${row.name}?`, text, body, action: "Preempt it", danger: true, command: `drumline job preempt -n ${row.name}` });
  if (!values) return;
  const node = values.get("node");
  await attempt(() => post(`${api(row.name)}/preempt`, { node: node ? Number(node) : null }), `${row.name} is being preempted`);
}

/** @param {Row} row */
async function archive(row) {
  const verb = row.archived ? "restore" : "archive";
  await attempt(() => post(`${api(row.name)}/${verb}`), `${row.name} is ${verb}d`);
}

/** @param {Row} row */
async function rerun(row) {
  const body = html`<label class="field">
      Code
      <select name="code" data-test="rerun-code">
        <option value="">as it was then, if it was stored</option>
        <option value="then">as it was then</option>
        <option value="now">as it is now</option>
      </select>
    </label>
    <label class="field">
      Changes, one a line
      <textarea name="set" rows="3" spellcheck="false" placeholder="inputs.lr=0.01" data-test="rerun-set"></textarea>
    </label>
    <label class="field">Compute <input name="compute" placeholder=${row.compute} data-test="rerun-compute" /></label>`;
  const check = (/** @type {FormData} */ given) => readChanges(String(given.get("set") ?? "")).wrong;
  const values = await ask({ title: `Run ${row.name} again`, body, check, action: "Submit", command: `drumline job rerun ${row.name}` });
  if (!values) return;
  const { set } = readChanges(String(values.get("set") ?? ""));
  const request = { set, code: values.get("code") || null, compute: values.get("compute") || null };
  const answer = await attempt(() => post(`${api(row.name)}/rerun`, request), (done) => `submitted ${done.name}`);
  if (answer) go(jobPath(answer.name));
}

/**
 * @param {string} text lines KEY=VALUE
 * @returns {{set: Record<string, string>, wrong: string}} wrong: why one of them is not
 */
export function readChanges(text) {
  /** @type {Record<string, string>} */
  const set = {};
  for (const line of text.split("\n").filter((one) => one.trim())) {
    const at = line.indexOf("=");
    if (at < 1) return { set, wrong: `"${line.trim()}" must be KEY=VALUE, such as inputs.lr=0.01` };
    set[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return { set, wrong: "" };
}

/** @param {Row} row */
async function compare(row) {
  const query = { experiment: row.experiment, type: row.type, status: "Completed", sort: "-created", limit: 100 };
  const answer = await attempt(() => get("/jobs", query));
  if (!answer) return;
  const others = /** @type {Row[]} */ (answer.jobs).filter((one) => one.name !== row.name);
  const good = others.find((one) => (one.created ?? "") < (row.created ?? "")) ?? others[0];
  if (good) go(withQuery("/diff", { a: good.name, b: row.name }));
  else tell(`no other job of ${row.experiment} has completed`, { hint: "choose one: Compare with …" });
}

/** @param {Row} row */
async function compareWith(row) {
  const body = html`<label class="field">The other job <input name="other" required placeholder="@last, or a unique beginning of its name" data-test="other-job" /></label>`;
  const values = await ask({ title: "Compare with", body, action: "Compare" });
  const other = String(values?.get("other") ?? "").trim();
  if (other) go(withQuery("/diff", { a: other, b: row.name }));
}
