/** One metric of some jobs: the answer of the server becomes curves, bands and a file. */

import { useResource } from "../api.js";
import { duration, moment, number, plural, rankList } from "../format.js";
import { html, useEffect, useMemo, useRef, useSignal } from "../lib.js";
import { Card } from "../parts/card.js";
import { Plot } from "./plot.js";
import { bandOf, join, save, smooth, toCsv } from "./smooth.js";

/** @typedef {import("../tabs/metrics.js").View} View */
/**
 * @typedef {object} Series
 * @property {string} job
 * @property {string} metric
 * @property {string} run
 * @property {number | null} rank
 * @property {number} count
 * @property {number | null} a_step how many values there are at a step
 * @property {number} runs
 * @property {{x: number, kind: string, text: string}[]} marks
 * @property {number[]} x
 * @property {(number | null)[]} min
 * @property {(number | null)[]} max
 * @property {(number | null)[]} last
 * @property {(number | null)[]} mean
 */

const POINTS = 800;

/** @param {{job: Job, jobs: string[], metric: string, view: View}} props */
export function ChartCard({ job, jobs, metric, view }) {
  const seen = useSeen();
  const query = { jobs: jobs.join(","), metrics: escapePattern(metric), points: POINTS, x: view.x, band: 1, marks: 1 };
  const found = useResource(seen.isSeen ? "/series" : null, query, { live: [job.live.events, job.live.system], every: 5000 }).value;
  const series = /** @type {Series[]} */ (found.data?.series ?? []).filter((one) => one.metric === metric && one.x.length);
  const drawing = useMemo(() => draw(series, jobs, view), [found.data, view.x, view.smoothing, view.log]);
  const download = html`<button type="button" class="link" onClick=${() => saveSeries(metric, series, view)} disabled=${!series.length} data-test="csv">CSV</button>`;
  return html`<div ref=${seen.box}>
    <${Card}
      title=${metric}
      note=${noteOf(series, view, job.info.value.data?.row.processes ?? 0)}
      tools=${download}
      resource=${found}
      height=${220}
      test="chart"
      empty=${() => !series.length && { text: `None of these jobs has values of ${metric} with finite steps.` }}
    >
      ${() => html`<${Plot} drawing=${drawing} sync=${`metrics-${view.x}`} pointed=${job.time} label=${`${metric} by ${view.x}`} />`}
    <//>
  </div>`;
}

/** Whether an element has been in sight: what nobody looks at is not asked for. */
function useSeen() {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const isSeen = useSignal(false);
  useEffect(() => {
    if (!box.current) return undefined;
    const watch = new IntersectionObserver(
      (entries) => {
        if (!entries.some((one) => one.isIntersecting)) return;
        isSeen.value = true;
        watch.disconnect();
      },
      { rootMargin: "300px" },
    );
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  return { box, isSeen: isSeen.value };
}

/** The server takes shell patterns. @param {string} name */
function escapePattern(name) {
  return name.replace(/[[*?]/g, "[$&]").replaceAll(",", "?");
}

/**
 * @param {Series[]} series
 * @param {string[]} jobs
 * @param {View} view
 * @returns {import("./plot.js").Drawing}
 */
function draw(series, jobs, view) {
  const many = series.length > jobs.length;
  const curves = series.map((one, index) => {
    const values = one.mean ?? one.last;
    const isBand = one.min.some((low, at) => low !== one.max[at]);
    const columns = [values, ...(isBand ? [one.min, one.max] : [])];
    return { one, colour: many ? index : Math.max(0, jobs.indexOf(one.job)), isBand, columns };
  });
  const marks = series.find((one) => one.job === jobs[0])?.marks ?? [];
  const failed = marks.findIndex((one) => one.kind === "failed");
  const [x, ...joined] = join(curves.map(({ one, columns }) => ({ x: one.x, columns })));
  let at = 0;
  return {
    x,
    log: view.log,
    time: view.x === "time",
    xText: view.x === "relative" ? duration : number,
    marks: marks.map((one, index) => ({ x: one.x, text: one.text, first: index === failed })),
    curves: curves.map(({ one, colour, isBand }) => {
      const raw = joined[at];
      const [low, high] = isBand ? [joined[at + 1], joined[at + 2]] : [undefined, undefined];
      at += isBand ? 3 : 1;
      const base = { label: labelOf(one, jobs), colour, low, high };
      return view.smoothing ? { ...base, raw, values: smooth(raw, view.smoothing) } : { ...base, values: raw };
    }),
  };
}

/** @param {Series} one @param {string[]} jobs */
function labelOf(one, jobs) {
  const parts = [jobs.length > 1 ? one.job : "", one.run, one.rank === null ? "" : `rank ${one.rank}`].filter(Boolean);
  return parts.join(" · ") || one.metric;
}

/** @param {Series[]} series @param {View} view @param {number} processes of the job */
function noteOf(series, view, processes) {
  if (!series.length) return "";
  const points = series.reduce((sum, one) => sum + one.count, 0);
  const isThinned = series.some((one) => one.count > one.x.length);
  const ranks = series.flatMap((one) => (one.rank === null ? [] : [one.rank]));
  return [
    plural(points, "point"),
    isThinned ? `line: mean, band: least and most${bandOf(series, processes)}` : "",
    ranks.length > 1 ? `ranks ${rankList(ranks)}` : "",
    view.smoothing ? `smoothing ${view.smoothing.toFixed(2)}` : "",
  ].filter(Boolean).join(" · ");
}

/** @param {string} metric @param {Series[]} series @param {View} view */
function saveSeries(metric, series, view) {
  /** @type {(string | number | null)[][]} */
  const rows = [["job", "metric", "run", "rank", view.x, "min", "max", "mean", "last"]];
  for (const one of series) {
    one.x.forEach((x, at) => {
      const shown = view.x === "time" ? new Date(moment(x) ?? 0).toISOString() : x;
      rows.push([one.job, one.metric, one.run, one.rank, shown, one.min[at], one.max[at], one.mean[at], one.last[at]]);
    });
  }
  save(`${series[0]?.job ?? "job"}-${metric}.csv`, toCsv(rows), "text/csv");
}
