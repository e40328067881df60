/** What happened to a job, and who asked for it: a list beside the charts that have it as dashed lines. */

import { clock, moment } from "../format.js";
import { html } from "../lib.js";
import { Card } from "../parts/card.js";

/** @typedef {SystemAnswer["marks"][0]} Mark */

/** The first failure, which is red; -1: none. @param {Mark[]} marks */
export function findFailed(marks) {
  return marks.findIndex((one) => one.kind === "failed");
}

/** @param {{job: Job, marks: Mark[], note?: string}} props */
export function Marks({ job, marks, note = "dashed lines in the charts" }) {
  if (!marks.length) return null;
  const failed = findFailed(marks);
  return html`<${Card} title="What happened" note=${note} test="marks">
    <ol class="marks" onPointerLeave=${() => (job.time.value = null)}>
      ${marks.map(
        (one, index) => html`<li key=${index} class=${index === failed ? "first" : ""} onPointerEnter=${() => (job.time.value = moment(one.time))}>
          <time>${clock(one.time, 1)}</time> ${one.text}
        </li>`,
      )}
    </ol>
  <//>`;
}
