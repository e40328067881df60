/** The code that the job ran, as it was stored. */

import { html } from "../lib.js";
import { Browser } from "../files/browser.js";
import { Command } from "../parts/command.js";

export const key = "code";
export const title = "Code";

/** @param {{job: Job}} props */
export function Tab({ job }) {
  const empty = { text: "The code of this job is not stored." };
  return html`<div class="stack" data-test="code">
    <${Browser} path=${`/jobs/${encodeURIComponent(job.name)}/code`} title="Code" empty=${empty} />
    <${Command} line=${`drumline job open -n ${job.name} code`} />
  </div>`;
}
