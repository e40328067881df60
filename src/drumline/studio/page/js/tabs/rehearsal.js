/** Which failures a job survives: the table of `drumline rehearse`, for which this job ran. */

import { useResource } from "../api.js";
import { duration, number } from "../format.js";
import { html } from "../lib.js";
import { Card } from "../parts/card.js";
import { Sentence } from "../parts/sentence.js";
import { Table } from "../parts/table.js";
import { jobPath } from "../router.js";

export const key = "rehearsal";
export const title = "Rehearsal";

/** @param {{job: Job}} props */
export function Tab({ job }) {
  const found = useResource(`/jobs/${encodeURIComponent(job.name)}/rehearsal`, {}, { live: job.live.events }).value;
  const { data } = found;
  return html`<div class="stack" data-test="rehearsal">
    <${Card} title=${`What ${data?.title || job.name} survives`} note=${data ? (data.ok ? "all as expected" : "not all as expected") : ""} resource=${found} height=${60} test="rehearsal-drills">
      ${(/** @type {any} */ { drills, undisturbed: calm }) => html`<p>Undisturbed: ${linkOf(calm)} ${calm.status.toLowerCase()}${calm.seconds === null ? "" : ` after ${duration(calm.seconds)}`}${calm.final === null ? "" : `, ${calm.metric} ${number(calm.final)}`}</p>
        <${Table} columns=${COLUMNS} rows=${drills} rowKey=${(/** @type {any} */ one) => `${one.drill} ${one.job}`} label="drills" />`}
    <//>
    ${data && html`<ul class="sentences" data-test="rehearsal-sentences">${listSentences(data).map((one, at) => html`<li key=${at}><${Sentence} text=${one} /></li>`)}</ul>`}
  </div>`;
}

/** @param {any} data @returns {string[]} */
function listSentences({ undisturbed, drills, left_out }) {
  const told = drills.flatMap((/** @type {any} */ one) => [...one.sentences, ...one.left_behind].map((text) => `${one.drill}: ${text}`));
  return [...undisturbed.sentences, ...told, ...left_out.map((/** @type {string} */ one) => `left out: ${one}`)];
}

/** @param {any} one */
const linkOf = (one) => html`<a class="job-name" href=${jobPath(one.job)}>${one.job}</a>`;

const COLUMNS = [
  { key: "drill", title: "Drill" },
  { key: "what", title: "What" },
  { key: "job", title: "Job", cell: linkOf },
  { key: "result", title: "Result", cell: (/** @type {any} */ one) => `${one.result}${one.ok && one.result !== "survived" ? ", as expected" : ""}` },
  { key: "lost_s", title: "Lost", right: true, cell: (/** @type {any} */ one) => (one.lost_s === null ? "" : `${number(one.lost_s)} s`) },
  { key: "repeated", title: "Steps again", right: true },
  { key: "same", title: "Same metric", cell: (/** @type {any} */ one) => ({ true: "yes", false: "no" })[String(one.same_metric)] },
  { key: "left", title: "Left behind", right: true, cell: (/** @type {any} */ one) => one.left_behind.length || "nothing" },
];
