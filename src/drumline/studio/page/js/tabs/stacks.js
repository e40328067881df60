/** Where each rank is at this moment: equal stacks together, and those that differ from most. */

import { post } from "../api.js";
import { clock, plural, rankList } from "../format.js";
import { html, useSignal } from "../lib.js";
import { FINAL } from "../parts/badge.js";
import { Card, Problem } from "../parts/card.js";
import { Command, CopyButton } from "../parts/command.js";
import { Sentence } from "../parts/sentence.js";
import { jobPath } from "../router.js";

export const key = "stacks";
export const title = "Stacks";

/**
 * @typedef {object} Group
 * @property {number[]} ranks
 * @property {boolean} odd
 * @property {{file: string, line: number, function: string}[]} frames the innermost first
 * @property {string} waits_for
 * @property {string} text
 */
/** @typedef {{sentence: string, groups: Group[], missing: {rank: number, why: string}[]}} Answer */

/** @param {{job: Job}} props */
export function Tab({ job }) {
  const found = useSignal(/** @type {{at: number, data: Answer} | null} */ (null));
  const error = useSignal(/** @type {any} */ (null));
  const isAsking = useSignal(false);
  const info = job.info.value.data;
  const isOver = FINAL.has(info?.row.status ?? "");
  const take = async () => {
    isAsking.value = true;
    error.value = null;
    try {
      found.value = { data: await post(`/jobs/${encodeURIComponent(job.name)}/stacks`), at: Date.now() };
    } catch (problem) {
      error.value = problem;
    }
    isAsking.value = false;
  };
  const button = html`<button type="button" class="button main" onClick=${take} disabled=${isAsking.value || isOver} data-test="take-stacks">
    ${isAsking.value ? "Asking the nodes ..." : found.value ? "Take them again" : "Take the stacks now"}
  </button>`;
  const note = found.value ? `as of ${clock(found.value.at / 1000)} · the innermost frame first` : "equal stacks are shown once";
  const nothing = isOver
    ? { text: "This job has ended: its ranks have no stacks any more.", command: `drumline job logs -n ${job.name}` }
    : { text: "One press asks every rank which line of Python it is in. Ranks are stopped for some milliseconds, no longer." };
  return html`<div class="stack" data-test="stacks">
    <${Card} title="Stacks of all ranks" note=${note} tools=${button} height=${160} empty=${!found.value && !error.value && nothing}>
      ${error.value && html`<${Problem} error=${error.value} />`}
      ${found.value && html`<${Groups} data=${found.value.data} job=${job} />`}
    <//>
    <${Command} line=${`drumline job stacks -n ${job.name}`} />
  </div>`;
}

/** @param {{data: Answer, job: Job}} props */
function Groups({ data, job }) {
  const count = data.groups.reduce((sum, one) => sum + one.ranks.length, 0);
  return html`<p class="answer"><${Sentence} text=${data.sentence} job=${job.name} /></p>
    <p class="quiet">${plural(data.groups.length, "different stack")} of ${plural(count, "rank")}</p>
    <div class="groups">
      ${data.groups.map((one) => html`<${Shown} key=${one.ranks.join()} group=${one} job=${job} />`)}
    </div>
    ${data.missing.length > 0 &&
    html`<h3>No answer</h3>
      <ul>
        ${data.missing.map((one) => html`<li key=${one.rank}>rank ${one.rank}: ${one.why}</li>`)}
      </ul>`}`;
}

/** @param {{group: Group, job: Job}} props */
function Shown({ group, job }) {
  const { ranks, odd, frames, waits_for: waits, text } = group;
  const name = `${ranks.length === 1 ? "rank" : "ranks"} ${rankList(ranks)}`;
  return html`<section class=${odd ? "group odd" : "group"} data-test="stack-group" data-odd=${odd}>
    <header>
      <a href=${jobPath(job.name, "logs", { ranks: rankList(ranks) })}>${name}</a>
      ${odd && html`<span class="badge">elsewhere than most</span>`}
      ${waits && html`<span class="quiet">waits for ${waits}</span>`}
      <${CopyButton} text=${() => `${name}\n${textOf(group)}`} label="Copy this stack" />
    </header>
    ${frames.length
      ? html`<ol class="frames">
          ${frames.map(
            (frame, index) => html`<li key=${index} class=${isOwn(frame.file) ? "own" : ""}>
              <code>${frame.function}</code> <${Place} frame=${frame} job=${job} />
            </li>`,
          )}
        </ol>`
      : html`<pre class="code">${text}</pre>`}
  </section>`;
}

/** @param {{frame: {file: string, line: number}, job: Job}} props */
function Place({ frame, job }) {
  const place = `${frame.file}:${frame.line}`;
  if (!isOwn(frame.file)) return html`<span class="quiet">${place}</span>`;
  return html`<a href=${jobPath(job.name, "code", { path: frame.file, line: frame.line })}>${place}</a>`;
}

/** Whether a file is of the job's code, not of a library. @param {string} file */
function isOwn(file) {
  return !/(^|\/)(site-packages|dist-packages|lib\/python[\d.]+)\/|^<|^\//.test(file);
}

/** @param {Group} group */
function textOf({ frames, text }) {
  return frames.length ? frames.map((one) => `  ${one.function} (${one.file}:${one.line})`).join("\n") : text;
}
