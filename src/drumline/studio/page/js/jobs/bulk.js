/** What can be done with the marked jobs together. */

import { post } from "../api.js";
import { plural } from "../format.js";
import { html } from "../lib.js";
import { FINAL } from "../parts/badge.js";
import { ask } from "../parts/dialog.js";
import { attempt, tell } from "../parts/toast.js";
import { go, withQuery } from "../router.js";

/** @param {{marked: Signal<ReadonlySet<string>>, rows: Row[]}} props */
export function BulkBar({ marked, rows }) {
  const names = [...marked.value];
  if (!names.length) return null;
  const chosen = rows.filter((row) => marked.value.has(row.name));
  const running = chosen.filter((row) => !FINAL.has(row.status)).map((row) => row.name);
  const ended = chosen.filter((row) => FINAL.has(row.status)).map((row) => row.name);
  const areArchived = chosen.length > 0 && chosen.every((row) => row.archived);
  return html`<div class="bulk" role="region" aria-label="Marked jobs" data-test="bulk">
    <b>${plural(names.length, "job")} marked</b>
    <button type="button" class="button" disabled=${!running.length} onClick=${() => cancel(running, marked)} data-test="bulk-cancel">Cancel ${running.length || ""}</button>
    <button type="button" class="button" disabled=${!ended.length} onClick=${() => archive(ended, !areArchived, marked)} data-test="bulk-archive">
      ${areArchived ? "Restore" : "Archive"} ${ended.length || ""}
    </button>
    <button type="button" class="button" disabled=${names.length !== 2} onClick=${() => compare(chosen)} data-test="bulk-compare">Compare</button>
    <button type="button" class="link" onClick=${() => (marked.value = new Set())}>Mark none</button>
  </div>`;
}

/** @param {Row[]} rows the older first */
function compare(rows) {
  const [a, b] = [...rows].sort((one, other) => String(one.created).localeCompare(String(other.created)));
  go(withQuery("/diff", { a: a.name, b: b.name }));
}

/** @param {string[]} names @param {Signal<ReadonlySet<string>>} marked */
async function cancel(names, marked) {
  const body = html`<ul class="names">${names.slice(0, 8).map((name) => html`<li class="mono">${name}</li>`)}</ul>
    ${names.length > 8 && html`<p class="quiet">and ${names.length - 8} more</p>`}`;
  const command = names.length === 1 ? `drumline job cancel -n ${names[0]}` : undefined;
  const text = "Their ranks get SIGTERM, and the grace period to save what they have.";
  if (!(await ask({ title: `Cancel ${plural(names.length, "job")}?`, text, body, action: "Cancel them", danger: true, command }))) return;
  const answer = await attempt(() => post("/jobs/cancel", { names, at_once: false }));
  report(answer, "canceled", marked);
}

/** @param {string[]} names @param {boolean} archived @param {Signal<ReadonlySet<string>>} marked */
async function archive(names, archived, marked) {
  const answer = await attempt(() => post("/jobs/archive", { names, archived }));
  report(answer, archived ? "archived" : "restored", marked);
}

/**
 * @param {{done: string[], failed: {name: string, message: string}[]} | null} answer
 * @param {string} word
 * @param {Signal<ReadonlySet<string>>} marked
 */
function report(answer, word, marked) {
  if (!answer) return;
  if (answer.done.length) tell(`${plural(answer.done.length, "job")} ${word}`);
  for (const one of answer.failed.slice(0, 2)) tell(`${one.name}: ${one.message}`, { isBad: true });
  marked.value = new Set(answer.failed.map((one) => one.name));
}
