/** What the job has written and read: outputs, logs and inputs, to look at and to save. */

import { address } from "../api.js";
import { Browser } from "../files/browser.js";
import { html } from "../lib.js";
import { Command } from "../parts/command.js";
import { Segments } from "../parts/menu.js";
import { route, setQuery } from "../router.js";

export const key = "outputs";
export const title = "Outputs";

const AREAS = [
  { value: "outputs", title: "outputs" },
  { value: "logs", title: "logs" },
  { value: "inputs", title: "inputs" },
];
/** @type {Record<string, Empty>} */
const EMPTY = {
  outputs: { text: "Nothing is in the outputs yet. Files that the script writes there appear here:", code: 'open("outputs/model.txt", "w").write("...")' },
  logs: { text: "There are no logs yet." },
  inputs: { text: "This job has no inputs on this machine.", code: "inputs:\n  data:\n    type: uri_folder\n    path: ./data" },
};

/** @param {{job: Job}} props */
export function Tab({ job }) {
  const area = EMPTY[route.value.query.area ?? ""] ? route.value.query.area : "outputs";
  const path = `/jobs/${encodeURIComponent(job.name)}/files`;
  const change = (/** @type {string} */ value) => setQuery({ area: value === "outputs" ? null : value, path: null, line: null });
  return html`<div class="stack" data-test="outputs">
    <${Segments} label="area" value=${area} options=${AREAS} onChange=${change} test="area" />
    <${Browser} key=${area} path=${path} query=${{ area }} title=${area} empty=${EMPTY[area]} live=${job.live.events} download=${(/** @type {string} */ file) => address(`${path}/content`, { area, path: file })} />
    <${Command} line=${`drumline job download -n ${job.name} --all`} />
  </div>`;
}
