/** How far a job scales: the report of `drumline scale`, for which this job was measured. */

import { useResource } from "../api.js";
import { SpeedUp } from "../draw/speed_up.js";
import { milliseconds, StepBar, StepLegend, sum } from "../draw/step_bar.js";
import { number, plural } from "../format.js";
import { html } from "../lib.js";
import { Card } from "../parts/card.js";
import { Sentence } from "../parts/sentence.js";
import { Table } from "../parts/table.js";
import { jobPath } from "../router.js";

export const key = "scale";
export const title = "Scale";

/** @typedef {import("../draw/speed_up.js").Size} Size */
/** @typedef {{title: string, scaling: string, sentences: string[], measured: Size[], predicted: Size[]}} Report */

/** @param {{job: Job}} props */
export function Tab({ job }) {
  const found = useResource(`/jobs/${encodeURIComponent(job.name)}/scale`, {}, { live: job.live.events }).value;
  const report = /** @type {Report | null} */ (found.data);
  return html`<div class="stack" data-test="scale">
    ${report &&
    html`<div class="two">
        <${Card} title="Speed-up" note="times as fast as the first size · both axes in powers of two" test="scale-curve"><${SpeedUp} measured=${report.measured} predicted=${report.predicted} /><//>
        <${Card} title="Where a step goes" note="median, measured" test="scale-steps"><${Steps} sizes=${report.measured} /><//>
      </div>`}
    <${Card} title=${`How far ${report?.title || job.name} scales`} note=${report ? `${report.scaling} scaling` : ""} resource=${found} height=${60} test="scale-sentences">
      ${(/** @type {Report} */ data) => html`<ul class="sentences">${data.sentences.map((one, at) => html`<li key=${at}><${Sentence} text=${one} /></li>`)}</ul>`}
    <//>
    ${report && html`<${Card} title="Sizes" note=${plural(report.measured.length, "measured one")}><${Table} columns=${COLUMNS} rows=${[...report.measured, ...report.predicted]} rowKey=${keyOf} label="sizes" test="scale-sizes" /><//>`}
  </div>`;
}

/** @param {{sizes: Size[]}} props */
function Steps({ sizes }) {
  const shown = sizes.filter((one) => one.phases.length);
  if (!shown.length) return html`<p class="quiet">No step was measured.</p>`;
  const whole = Math.max(...shown.map((one) => sum(one.phases))) || 1;
  return html`${shown.map(
      (one) => html`<div key=${keyOf(one)} class="lane size"><span class="lane-name">${plural(one.nodes, "node")}</span><${StepBar} parts=${one.phases} whole=${whole} /><span class="lane-time">${milliseconds(one.step_s ?? sum(one.phases))}</span></div>`,
    )}
    <${StepLegend} parts=${shown[0].phases} />`;
}

/** @param {Size} one */
const keyOf = (one) => `${one.nodes} ${one.job}`;

/** @param {Size} one */
function howOf(one) {
  if (!one.job) return one.is_guess ? "a guess" : "predicted";
  const link = html`<a class="job-name" href=${jobPath(one.job)}>${one.job}</a>`;
  return one.refused ? html`${link} <span class="quiet">not trusted: ${one.refused}</span>` : link;
}

const COLUMNS = [
  { key: "nodes", title: "Nodes", right: true },
  { key: "ranks", title: "Ranks", right: true },
  { key: "step_s", title: "Step", right: true, cell: (/** @type {Size} */ one) => (one.step_s === null ? "" : milliseconds(one.step_s)) },
  { key: "band", title: "From, to", right: true, cell: (/** @type {Size} */ one) => (one.low_s === null || one.high_s === null ? "" : `${number(1000 * one.low_s)} – ${milliseconds(one.high_s)}`) },
  { key: "speed_up", title: "Speed-up", right: true, cell: (/** @type {Size} */ one) => (one.speed_up === null ? "" : one.speed_up.toFixed(2)) },
  { key: "efficiency", title: "Efficiency", right: true, cell: (/** @type {Size} */ one) => (one.efficiency === null ? "" : `${Math.round(100 * one.efficiency)} %`) },
  { key: "job", title: "Measured by", cell: howOf },
];
