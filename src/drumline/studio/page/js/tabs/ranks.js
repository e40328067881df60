/** Ranks: the grid of states, one rank's facts, and the heat map of all ranks over time. */

import { once, useResource } from "../api.js";
import { milliseconds, StepBar, StepLegend, sum } from "../draw/step_bar.js";
import { clock, measure, moment, plural } from "../format.js";
import { html } from "../lib.js";
import { HeatMap, mostOf } from "../draw/heat_map.js";
import { findOutlier } from "../draw/heat_pixels.js";
import { endOf, RankGrid, sizeOf, STATES } from "../draw/rank_grid.js";
import { Card } from "../parts/card.js";
import { Pick } from "../parts/menu.js";
import { Sentence } from "../parts/sentence.js";
import { go, jobPath, route, setQuery } from "../router.js";

export const key = "ranks";
export const title = "Ranks";

const SHADES = [
  { value: "lateness", title: "lateness", unit: "ms" },
  { value: "cpu", title: "CPU", unit: "%" },
  { value: "memory", title: "memory", unit: "B" },
  { value: "gpu", title: "GPU", unit: "%" },
  { value: "step", title: "step time", unit: "ms" },
];

const COLUMNS = 300;
const ROOM = 200;

/** @param {{job: Job}} props */
export function Tab({ job }) {
  const path = `/jobs/${encodeURIComponent(job.name)}`;
  const attempt = job.attempt.value;
  const ranks = useResource(`${path}/ranks`, { attempt }, { live: [job.live.events, job.live.system], keep: true });
  const { query } = route.value;
  const chosen = query.rank === undefined ? null : Number(query.rank);
  const first = ranks.value.data?.ranks.find((/** @type {RankInfo} */ one) => one.state === "failed_first");
  const failed = first ? { rank: first.rank, time: moment(first.ended) } : null;
  const isLate = ranks.value.data?.ranks.some((/** @type {RankInfo} */ one) => one.lateness !== null);
  const isWide = sizeOf(ranks.value.data?.ranks.length ?? 0, 0) === "tiny-cells";
  return html`<div class=${`ranks ${isWide ? "wide" : ""}`} data-test="ranks">
    <div class="stack">
      <${GridCard} job=${job} resource=${ranks.value} chosen=${chosen} shade=${query.shade} />
      <${StepCard} job=${job} />
    </div>
    <${HeatCard} job=${job} path=${ranks.value.state === "loading" ? null : path} attempt=${attempt} failed=${failed} chosen=${query.measure ?? (isLate ? "lateness" : "cpu")} />
  </div>`;
}

/** @param {{job: Job, resource: Resource<RankAnswer>, chosen: number | null, shade?: string}} props */
function GridCard({ job, resource, chosen, shade }) {
  const ranks = resource.data?.ranks ?? [];
  const has = (/** @type {string} */ name) => ranks.some((one) => typeof (/** @type {any} */ (one)[name]) === "number");
  const options = SHADES.filter((one) => has(one.value));
  const current = options.find((one) => one.value === shade) ?? options[0] ?? SHADES[0];
  const rank = ranks.find((one) => one.rank === chosen);
  const tools = options.length > 0 && html`<${Pick} label="shade" value=${current.value} options=${options} onChange=${(/** @type {string} */ value) => setQuery({ shade: value })} showLabel test="shade" />`;
  return html`<${Card} title="Ranks" note="colour: state" tools=${tools} resource=${resource} height=${ROOM} empty=${findEmpty} test="card-ranks">
    ${(/** @type {RankAnswer} */ data) => html`
      <${RankGrid} data=${data} shade=${current.value} unit=${current.unit} chosen=${chosen} onChoose=${(/** @type {number | null} */ one) => setQuery({ rank: one })} />
      ${data.sentence && !isTold(data, job) && html`<p class="small quiet"><${Sentence} text=${data.sentence} job=${job.name} /></p>`}
      ${rank && html`<${RankFacts} job=${job} rank=${rank} node=${data.nodes.find((one) => one.index === rank.node)} />`}
    `}
  <//>`;
}

/** Whether the head of the page says the same. @param {RankAnswer} data @param {Job} job */
function isTold(data, job) {
  return data.sentence === job.info.value.data?.hang?.sentence || data.ranks.some((one) => one.state === "failed_first");
}

/** @param {RankAnswer} data */
function findEmpty(data) {
  return data.ranks.length ? null : { text: "This job has no ranks yet: they appear when its nodes are there." };
}

/** @param {{job: Job, rank: RankInfo, node?: {name: string}}} props */
function RankFacts({ job, rank, node }) {
  const query = { ranks: rank.rank, attempt: job.attempt.value };
  const rows = [
    ["state", `${STATES[rank.state] ?? rank.state}${endOf(rank) ? `, ${endOf(rank)}` : ""}`],
    ["node", `${node?.name ?? rank.node}, local rank ${rank.local_rank}`],
    ["process", rank.pid === null ? null : String(rank.pid)],
    ["ran", rank.began ? `${clock(rank.began)} to ${rank.ended ? clock(rank.ended) : "now"}` : null],
    ["CPU", rank.cpu === null ? null : measure(rank.cpu, "%")],
    ["memory", rank.memory === null ? null : measure(rank.memory, "B")],
    ["GPU", rank.gpu === null ? null : measure(rank.gpu, "%")],
    ["step", rank.step === null ? null : `${measure(rank.step, "ms")}${rank.lateness === null ? "" : `, ${measure(rank.lateness, "ms")} later than the others`}`],
  ];
  return html`<div data-test="rank-facts">
    <dl class="rank-facts">
      <dt><b>rank ${rank.rank}</b></dt>
      <dd>
        <a href=${jobPath(job.name, "logs", query)} data-test="rank-logs">logs</a>${" · "}
        <a href=${jobPath(job.name, "environment", query)}>environment</a>${" · "}
        <a href=${jobPath(job.name, "system", query)}>system</a>
      </dd>
      ${rows.filter(([, value]) => value).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}
      ${rank.last_line && html`<dt>last line</dt><dd><code>${rank.last_line}</code></dd>`}
    </dl>
  </div>`;
}

/** Where a step goes, and who holds the others up. @param {{job: Job}} props */
function StepCard({ job }) {
  const { data } = job.steps.value;
  if (!data?.steps) return null;
  const { steps, sentence } = data;
  if (!data.phases.length) return null;
  const phases = steps.looks ? data.phases.map((one) => ({ ...one, seconds: one.share })) : data.phases;
  const tell = steps.looks ? percent : milliseconds;
  const note = steps.looks ? `by ${plural(steps.looks, "look")} at stacks` : `median of ${plural(data.counted, "step")}, ${milliseconds(steps.step_s ?? sum(phases))}`;
  return html`<${Card} title=${steps.looks ? "Where the time goes" : "Where a step goes"} note=${note} test="card-steps">
    <${StepBar} parts=${phases} whole=${sum(phases) || 1} tell=${tell} test="step-bar" />
    <${StepLegend} parts=${phases} tell=${tell} />
    ${sentence && html`<p data-test="latest"><${Sentence} text=${capital(sentence)} job=${job.name} /></p>`}
  <//>`;
}

/** @param {number} share */
function percent(share) {
  return `${Math.round(100 * share)} %`;
}

/** @param {string} text */
function capital(text) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

/**
 * The many numbers of the map are asked for after the grid, which would wait for them.
 * @param {{job: Job, path: string | null, attempt: number | null, failed: {rank: number, time: number | null} | null, chosen: string}} props
 */
function HeatCard({ job, path, attempt, failed, chosen }) {
  const query = { measure: chosen, points: COLUMNS, attempt };
  const resource = useResource(path && `${path}/system`, query, { live: job.live.system, keep: true }).value;
  const data = /** @type {SystemAnswer | null} */ (resource.data);
  const measures = data?.measures ?? [];
  const options = measures.map((one) => ({ value: one.key, title: one.title }));
  const tools = data && html`<${Pick} label="Measure" value=${data.measure} options=${options} onChange=${(/** @type {string} */ one) => setQuery({ measure: one })} test="measure" />`;
  const shown = measures.find((one) => one.key === data?.measure);
  const open = (/** @type {number | null} */ rank, /** @type {number} */ time) =>
    go(jobPath(job.name, "logs", { ranks: rank, at: new Date(time).toISOString(), attempt }));
  return html`<${Card} title=${`${shown?.title ?? "Use"} of each rank over time`} note=${data && html`<${HeatNote} data=${data} />`} tools=${tools} resource=${resource} height=${ROOM} empty=${findNoSamples} test="card-heat">
    ${(/** @type {SystemAnswer} */ known) => html`<${HeatMap} data=${known} time=${job.time} failed=${failed} onOpen=${open} /><${Outlier} data=${known} job=${job.name} />`}
  <//>`;
}

const outlierOf = once((/** @type {SystemAnswer} */ data) => {
  const known = data.measures.find((one) => one.key === data.measure);
  const rows = data.rows.filter((one) => one.rank !== null);
  const found = findOutlier(rows.map((one) => one.values), known?.unit);
  if (!found) return null;
  const [mean, median] = [found.mean, found.median].map((one) => measure(one, known?.unit ?? ""));
  return `Rank ${rows[found.row].rank} stands out: ${known?.title ?? data.measure} ${mean} on average, the others about ${median}`;
});

/** One rank that differs from all others may be why they wait. @param {{data: SystemAnswer, job: string}} props */
function Outlier({ data, job }) {
  const text = outlierOf(data);
  return text && html`<p class="small" data-test="stands-out"><${Sentence} text=${text} job=${job} /></p>`;
}

const hasSamples = once((/** @type {SystemAnswer} */ data) => data.rows.some((row) => row.values.some((one) => one !== null)));

/** Whether a value has the last colour and is far above it. */
const isAbove = once((/** @type {SystemAnswer} */ data) => data.rows.some((row) => row.values.some((one) => one !== null && one > mostOf(data))));

/** @param {SystemAnswer} data */
function findNoSamples(data) {
  if (hasSamples(data)) return null;
  if (data.measure === "lateness") return { text: "Lateness is known of ranks that train together with DistributedDataParallel." };
  return { text: "No samples yet: the agents take one of every rank each second while it runs." };
}

/** @param {{data: SystemAnswer}} props */
function HeatNote({ data }) {
  if (!data.bin_s) return null; // No rank has started.
  const known = data.measures.find((one) => one.key === data.measure);
  const most = mostOf(data);
  const span = data.bin_s < 1 ? `${Math.round(data.bin_s * 1000)} ms` : `${Number(data.bin_s.toPrecision(2))} s`;
  const isCut = isAbove(data);
  return html`one row a rank, one column ${span} · 0<i class="ramp"></i>${measure(most, known?.unit ?? "")}${isCut ? " or more" : ""}`;
}
