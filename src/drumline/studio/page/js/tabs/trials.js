/** The trials of a sweep: each a line through its parameters to its metric, and a row. */

import { useResource } from "../api.js";
import { Parallel } from "../draw/parallel.js";
import { duration, number, plural } from "../format.js";
import { html, useMemo, useSignal } from "../lib.js";
import { changes } from "../live.js";
import { Badge } from "../parts/badge.js";
import { Card } from "../parts/card.js";
import { Sentence } from "../parts/sentence.js";
import { Table } from "../parts/table.js";
import { jobPath, route, setQuery } from "../router.js";

export const key = "trials";
export const title = "Trials";

/** @typedef {{name: string, job: string | null, status: string, parameters: Record<string, any>, metric: number | null, duration: number | null}} Trial */
/** @typedef {{sentence: string, goal: string, metric?: string, parameters: {name: string, kind: string}[], trials: Trial[], best: any}} Answer */

/** @param {{job: Job}} props */
export function Tab({ job }) {
  const found = useResource(`/jobs/${encodeURIComponent(job.name)}/trials`, {}, { live: [job.live.events, job.live.system, changes] }).value;
  const data = /** @type {Answer | null} */ (found.data);
  const brushed = useSignal(/** @type {Set<string> | null} */ (null));
  const pointed = useSignal("");
  return html`<div class="stack" data-test="trials">
    <p class="answer">${data ? html`<${Sentence} text=${data.sentence} />` : "\u00a0"}</p>
    <${Card} title="Parameters and what came of them" note=${data ? noteOf(data) : ""} resource=${found} height=${280} test="parallel" empty=${(/** @type {Answer} */ answer) => !answer.trials.length && { text: "No trial has started yet. Each one becomes a line here." }}>
      ${(/** @type {Answer} */ answer) => html`<${Lines} answer=${answer} brushed=${brushed} pointed=${pointed} />`}
    <//>
    ${data && data.trials.length > 0 && html`<${Rows} answer=${data} brushed=${brushed.value} pointed=${pointed} />`}
  </div>`;
}

/** @param {Answer} data */
function noteOf({ trials, goal, metric }) {
  return [plural(trials.length, "trial"), goal && `${goal} ${metric ?? "the metric"}`, "drag along an axis to choose"].filter(Boolean).join(" · ");
}

/** The best trial, by its job. @param {Answer} answer */
function bestOf({ best }) {
  return typeof best === "string" ? best : (best?.job ?? best?.trial ?? best?.name ?? "");
}

/** @param {Trial} trial */
const idOf = (trial) => trial.job ?? trial.name;

/** @param {{answer: Answer, brushed: Signal<Set<string> | null>, pointed: Signal<string>}} props */
function Lines({ answer, brushed, pointed }) {
  const axes = useMemo(() => {
    const columns = answer.parameters.map(({ name }) => ({ name, values: answer.trials.map((one) => one.parameters[name] ?? null) }));
    return [...columns, { name: answer.metric ?? "metric", values: answer.trials.map((one) => one.metric) }];
  }, [answer]);
  const ids = useMemo(() => answer.trials.map(idOf), [answer]);
  return html`<${Parallel}
    axes=${axes}
    ids=${ids}
    best=${bestOf(answer)}
    least=${answer.goal === "minimize"}
    pointed=${pointed}
    onBrush=${(/** @type {Set<string> | null} */ chosen) => (brushed.value = chosen)}
    label=${`${plural(ids.length, "trial")} over ${plural(axes.length - 1, "parameter")}`}
  />`;
}

/** @param {{answer: Answer, brushed: Set<string> | null, pointed: Signal<string>}} props */
function Rows({ answer, brushed, pointed }) {
  const sort = route.value.query.sort || (answer.goal === "maximize" ? "-metric" : "metric");
  const best = bestOf(answer);
  const rows = answer.trials.filter((one) => !brushed || brushed.has(idOf(one))).sort(compareBy(sort));
  const columns = [
    { key: "name", title: "Trial", sort: true, cell: (/** @type {Trial} */ one) => html`${one.job ? html`<a class="job-name" href=${jobPath(one.job)}>${one.name}</a>` : one.name}${idOf(one) === best ? html` <b class="best">best</b>` : ""}` },
    { key: "status", title: "Status", sort: true, cell: (/** @type {Trial} */ one) => html`<${Badge} status=${one.status} />` },
    { key: "metric", title: answer.metric ?? "metric", sort: true, right: true, cell: (/** @type {Trial} */ one) => number(one.metric) },
    ...answer.parameters.map(({ name }) => ({ key: `p.${name}`, title: name, sort: true, right: true, cell: (/** @type {Trial} */ one) => show(one.parameters[name]) })),
    { key: "duration", title: "Ran", sort: true, right: true, cell: (/** @type {Trial} */ one) => duration(one.duration) },
  ];
  return html`<${Card} title="Trials" note=${brushed ? `${rows.length} of ${answer.trials.length} chosen` : plural(rows.length, "trial")}>
    <${Table}
      columns=${columns}
      rows=${rows}
      rowKey=${idOf}
      rowClass=${(/** @type {Trial} */ one) => (idOf(one) === best ? "best-row" : undefined)}
      isPointed=${(/** @type {Trial} */ one) => idOf(one) === pointed.value}
      onPoint=${(/** @type {Trial} */ one) => (pointed.value = idOf(one))}
      sort=${sort}
      onSort=${(/** @type {string} */ next) => setQuery({ sort: next })}
      label="trials"
      test="trial-table"
    />
  <//>`;
}

/** @param {any} value */
function show(value) {
  return typeof value === "number" ? number(value) : value === undefined || value === null ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** @param {string} sort */
function compareBy(sort) {
  const down = sort.startsWith("-");
  const name = sort.replace(/^-/, "");
  const read = (/** @type {any} */ one) => (name.startsWith("p.") ? one.parameters[name.slice(2)] : one[name]) ?? null;
  return (/** @type {Trial} */ one, /** @type {Trial} */ other) => {
    const [a, b] = [read(one), read(other)];
    if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
    const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
    return down ? -order : order;
  };
}
