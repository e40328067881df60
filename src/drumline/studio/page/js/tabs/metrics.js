/** What the job has logged, as curves; other jobs beside it. */

import { useResource } from "../api.js";
import { Marks } from "../charts/marks.js";
import { ChartCard } from "../charts/metric.js";
import { plural } from "../format.js";
import { html, loadPlot, useMemo, useSignal } from "../lib.js";
import { Card } from "../parts/card.js";
import { Command } from "../parts/command.js";
import { Pick, Segments } from "../parts/menu.js";
import { route, setQuery } from "../router.js";

export const key = "metrics";
export const title = "Metrics";

const FIRST = 12;
const LOGGING = `import mlflow
mlflow.log_metric("loss", loss, step=step)`;

/** @param {{job: Job}} props */
export function Tab({ job }) {
  const query = route.value.query;
  const path = `/jobs/${encodeURIComponent(job.name)}/metrics`;
  const listed = useResource(path, { brief: 1 }, { live: [job.live.events, job.live.system], every: 5000 }).value;
  const more = useSignal(FIRST);
  useMemo(loadPlot, []); // While the server looks.
  const others = (query.with ?? "").split(",").filter(Boolean);
  const view = viewOf(query);
  const marks = useResource(`/jobs/${encodeURIComponent(job.name)}/marks`, {}, { live: job.live.events }).value.data?.marks ?? [];
  return html`<div class="metrics" data-test="metrics">
    <${Tools} view=${view} others=${others} filter=${query.metric ?? ""} />
    <${Card}
      title="What has been logged"
      note=${listed.data ? plural(listed.data.metrics.length, "metric") : ""}
      resource=${listed}
      height=${40}
      class="plain"
      empty=${(/** @type {any} */ data) => !data.metrics.length && { text: "This job has logged no metrics. MLflow or TensorBoard's files fill this panel:", code: LOGGING }}
    >
      ${(/** @type {any} */ data) => {
        const names = choose(data.metrics, query.metric ?? "");
        return html`<div class="charts">
            ${names.slice(0, more.value).map((name) => html`<${ChartCard} key=${name} job=${job} jobs=${[job.name, ...others]} metric=${name} view=${view} />`)}
          </div>
          ${!names.length && html`<p class="quiet">No metric matches.</p>`}
          ${names.length > more.value &&
          html`<button type="button" class="button" onClick=${() => (more.value += FIRST)} data-test="more-metrics">Show ${Math.min(FIRST, names.length - more.value)} of ${names.length - more.value} more</button>`}`;
      }}
    <//>
    <${Marks} job=${job} marks=${marks} />
    <${Command} line=${`drumline job metrics -n ${[job.name, ...others].join(" ")}`} />
  </div>`;
}

/** @typedef {{x: "step" | "time" | "relative", smoothing: number, log: boolean}} View */

/** @param {Record<string, string>} query @returns {View} */
function viewOf(query) {
  const x = query.x === "time" || query.x === "relative" ? query.x : "step";
  const smoothing = Math.min(0.99, Math.max(0, Number(query.smooth ?? 0) || 0));
  return { x, smoothing, log: query.log === "1" };
}

/**
 * @param {{name: string}[]} metrics
 * @param {string} filter words that a name must have, or one name
 */
function choose(metrics, filter) {
  const names = [...new Set(metrics.map((one) => one.name))];
  if (names.includes(filter)) return [filter];
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  return names.filter((name) => words.every((word) => name.toLowerCase().includes(word)));
}

const AXES = [
  { value: "step", title: "step" },
  { value: "relative", title: "since start" },
  { value: "time", title: "time" },
];

/** @param {{view: View, others: string[], filter: string}} props */
function Tools({ view, others, filter }) {
  return html`<div class="panel-tools">
    <input class="input" type="search" placeholder="name of a metric" aria-label="name of a metric" value=${filter} onInput=${(/** @type {any} */ event) => setQuery({ metric: event.target.value })} data-test="metric-filter" />
    <${Segments} label="axis" value=${view.x} options=${AXES} onChange=${(/** @type {string} */ x) => setQuery({ x: x === "step" ? null : x, part: null })} test="metric-x" />
    <label class="check"><input type="checkbox" checked=${view.log} onChange=${(/** @type {any} */ event) => setQuery({ log: event.target.checked ? 1 : null })} data-test="metric-log" />log scale</label>
    <label class="check"
      >smoothing
      <input type="range" min="0" max="0.99" step="0.01" value=${view.smoothing} onInput=${(/** @type {any} */ event) => setQuery({ smooth: Number(event.target.value) || null })} data-test="metric-smooth" />
      <output>${view.smoothing.toFixed(2)}</output></label
    >
    <span class="space"></span>
    ${others.map((name) => html`<span class="chosen" key=${name}>${name} <button type="button" class="icon" aria-label=${`leave out ${name}`} onClick=${() => setQuery({ with: others.filter((one) => one !== name).join(",") })}>×</button></span>`)}
    <${Add} others=${others} />
  </div>`;
}

/** @param {{others: string[]}} props */
function Add({ others }) {
  const jobs = useResource("/jobs", { limit: 30, sort: "-created", type: "command" }).value.data?.jobs ?? [];
  const options = [{ value: "", title: "compare with ..." }];
  for (const row of jobs) {
    if (!others.includes(row.name) && row.name !== route.value.parts[1]) options.push({ value: row.name, title: `${row.name}${row.experiment ? ` · ${row.experiment}` : ""}` });
  }
  return html`<${Pick} label="compare with" value="" options=${options} onChange=${(/** @type {string} */ name) => name && setQuery({ with: [...others, name].join(",") })} test="metric-with" />`;
}
