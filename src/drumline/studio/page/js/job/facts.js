/** The head of a job's page: name, status, and the facts that fit in a line. */

import { age, duration, moment, number, when } from "../format.js";
import { html, useEffect, useSignal } from "../lib.js";
import { Badge, FINAL } from "../parts/badge.js";
import { CopyButton } from "../parts/command.js";
import { jobPath, withQuery } from "../router.js";

/** @param {{info: JobInfo, children?: any}} props */
export function Title({ info, children }) {
  const { row } = info;
  const hasOwn = row.display_name && row.display_name !== row.name;
  return html`<div class="title-line">
    <h1 class="job-title" data-test="job-title">${hasOwn ? row.display_name : row.name}</h1>
    <${Badge} status=${row.status} hangs=${row.hangs} />
    ${row.archived && html`<span class="badge tone-quiet">archived</span>`}
    <span class="space"></span>
    ${children}
  </div>`;
}

/** @param {{info: JobInfo, progress?: string}} props */
export function Facts({ info, progress }) {
  const { row, page } = info;
  const hasOwn = row.display_name && row.display_name !== row.name;
  return html`<div class="facts" data-test="facts">
    ${hasOwn && html`<span class="mono">${row.name} <${CopyButton} text=${row.name} label="Copy the name" /></span>`}
    <a href=${withQuery("/jobs", { experiment: row.experiment })}><b>${row.experiment}</b></a>
    ${row.parent && html`<span>of <a href=${jobPath(row.parent)}><b>${row.parent}</b></a></span>`}
    <${Shape} row=${row} />
    <${Ran} row=${row} />
    ${row.most_attempts !== null && row.most_attempts > 1 && html`<span>attempt <b>${row.attempt}</b> of 0-${row.most_attempts - 1}</span>`}
    ${progress && html`<span data-test="progress">${progress}</span>`}
    ${row.metric && html`<span>${row.metric.name} <b>${number(row.metric.value)}</b></span>`}
    ${row.started ? html`<span>started <b>${when(row.started)}</b></span>` : html`<span>submitted <b>${when(row.created)}</b></span>`}
    ${Object.entries(info.services ?? {}).map(([name, one]) => html`<${Service} key=${name} name=${name} url=${one.url ?? one.endpoint} />`)}
    ${Object.entries(row.tags ?? {}).map(
      ([key, value]) => html`<a class="tag" key=${key} href=${withQuery("/jobs", { tag: value ? `${key}=${value}` : key })}>${value ? `${key}: ${value}` : key}</a>`,
    )}
    ${page?.pruned?.length > 0 && html`<span>pruned: <b>${page.pruned.join(", ")}</b></span>`}
  </div>`;
}

/** @param {{row: Row}} props */
function Shape({ row }) {
  if (!row.processes) return row.compute ? html`<span>on <b>${row.compute}</b></span>` : null;
  const nodes = row.nodes ?? 1;
  const each = row.processes / nodes;
  const on = row.compute && html` on <b>${row.compute}</b>`;
  if (!Number.isInteger(each)) return html`<span><b>${row.processes}</b> ranks${on}</span>`;
  return html`<span><b>${nodes}</b> node${nodes === 1 ? "" : "s"} × <b>${each}</b> rank${each === 1 ? "" : "s"}${on}</span>`;
}

/** @param {{row: Row}} props */
function Ran({ row }) {
  const now = useSignal(Date.now());
  const began = moment(row.started);
  const isRunning = began !== null && !FINAL.has(row.status);
  useEffect(() => {
    if (!isRunning) return undefined;
    const timer = setInterval(() => !document.hidden && (now.value = Date.now()), 1000);
    return () => clearInterval(timer);
  }, [isRunning]);
  if (isRunning) return html`<span>running for <b>${duration(Math.max(0, now.value - began) / 1000)}</b></span>`;
  if (began !== null) return html`<span>ran <b>${duration(row.duration)}</b></span>`;
  const created = moment(row.created);
  return created === null || FINAL.has(row.status) ? null : html`<span>waits for <b>${age((now.value - created) / 1000)}</b></span>`;
}

/**
 * A link only where the address is one that a browser opens: a job chooses the text.
 * @param {{name: string, url?: string}} props
 */
function Service({ name, url = "" }) {
  if (/^https?:\/\//i.test(url)) return html`<a href=${url} target="_blank" rel="noreferrer noopener"><b>${name}</b> ↗</a>`;
  return html`<span>${name} ${url && html`<code>${url}</code>`}</span>`;
}
