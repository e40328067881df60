/** How the job started, node by node: what it waited for, and how long. */

import { address, useResource } from "../api.js";
import { findFailed, Marks } from "../charts/marks.js";
import { barOf, Ruler } from "../draw/lanes.js";
import { useChosen, useZoom } from "../draw/zoom.js";
import { clock, duration, moment } from "../format.js";
import { html } from "../lib.js";
import { Card } from "../parts/card.js";
import { Command } from "../parts/command.js";
import { Sentence } from "../parts/sentence.js";
import { jobPath } from "../router.js";

export const key = "timeline";
export const title = "Timeline";

/** @param {{job: Job}} props */
export function Tab({ job }) {
  const path = `/jobs/${encodeURIComponent(job.name)}/timeline`;
  const attempt = job.attempt.value ?? undefined;
  const found = useResource(path, { attempt }, { live: job.live.events }).value;
  const marks = useResource(`/jobs/${encodeURIComponent(job.name)}/marks`, {}, { live: job.live.events }).value.data?.marks ?? [];
  const chosen = useChosen(attempt);
  const tools = html`${chosen.value && html`<button type="button" class="button" onClick=${() => (chosen.value = null)} data-test="timeline-whole">Show all</button>`}
    <a class="button" href=${address(`${path}/trace`)} download data-test="trace" title="opens in ui.perfetto.dev">Perfetto trace</a>`;
  return html`<div class="stack" data-test="timeline">
    <${Whole} job=${job} marks=${marks} />
    <${Card} title="From submission to the first step" note=${found.data ? noteOf(found.data) : ""} tools=${tools} resource=${found} height=${110} test="timeline-phases">
      ${(/** @type {any} */ data) => html`<${Phases} data=${data} job=${job} chosen=${chosen} />`}
    <//>
    <${Card} title="Nodes and ranks" note="one lane each, the same axis · drag along it for a part" resource=${found} height=${60} test="timeline-lanes" empty=${(/** @type {any} */ data) => !data.lanes?.length && { text: "No agent has joined yet: a lane appears for each node that does." }}>
      ${(/** @type {any} */ data) => html`<${Lanes} data=${data} job=${job} chosen=${chosen} />`}
    <//>
    <${Marks} job=${job} marks=${marks} note="in all attempts, and who asked for it" />
    <${Command} line=${`drumline job show -n ${job.name} --timeline${attempt === undefined ? "" : ` --attempt ${attempt}`}`} />
  </div>`;
}

/** @param {any} data */
function noteOf(data) {
  const { longest, total_s: total } = data;
  const parts = [];
  if (total !== null && total !== undefined) parts.push(`${duration(total)} in all`);
  if (longest) parts.push(`longest: ${longest.phase}, ${duration(longest.seconds)}`);
  return parts.join(" · ");
}

/** All attempts on one axis, with what happened to them. @param {{job: Job, marks: import("../charts/marks.js").Mark[]}} props */
function Whole({ job, marks }) {
  const attempts = job.info.value.data?.attempts ?? [];
  if (!attempts.some((one) => one.began) || (attempts.length < 2 && marks.length < 2)) return null;
  const failed = findFailed(marks);
  const times = attempts.flatMap((one) => [moment(one.began), moment(one.ended)]).filter((one) => one !== null);
  const begin = Math.min(...times);
  const isOpen = attempts.some((one) => one.ended === null);
  const end = isOpen ? Date.now() : Math.max(...times);
  const shown = job.attempt.value ?? attempts[attempts.length - 1].number;
  const title = attempts.length > 1 ? "Attempts" : "The whole job";
  const count = attempts.length > 1 ? `${attempts.length} of them, over ` : "";
  return html`<${Card} title=${title} note=${`${count}${duration((end - begin) / 1000)}`} test="timeline-attempts">
    <div class="lane-track tall">
      ${attempts.map((one) => {
        const style = barOf(moment(one.began) ?? begin, moment(one.ended) ?? end, begin, end);
        return html`<a key=${one.number} class=${`lane-bar attempt ${one.number === shown ? "shown" : ""}`} style=${style} title=${one.sentence} href=${jobPath(job.name, key, { attempt: one.number })}>${one.number}</a>`;
      })}
      ${marks.map((one, index) => html`<i key=${index} class=${`lane-now ${one.kind} ${index === failed ? "first" : ""}`} style=${barOf(moment(one.time) ?? 0, moment(one.time) ?? 0, begin, end)} title=${`${clock(one.time, 1)} ${one.text}`} data-test="timeline-mark"></i>`)}
    </div>
    <${Ruler} begin=${begin} end=${end} />
    <ol class="attempt-list">
      ${attempts.length > 1 && attempts.map((one) => html`<li key=${one.number} value=${one.number}><b>${one.number}</b> <${Sentence} text=${one.sentence || one.kind || "still runs"} job=${job.name} attempt=${one.number} /></li>`)}
    </ol>
  <//>`;
}

/** @param {any} data @returns {{begin: number, end: number}} */
function spanOf(data) {
  const ends = data.phases.flatMap((/** @type {any} */ one) => [one.from_s, one.to_s, one.since_s]);
  const lanes = (data.lanes ?? []).flatMap((/** @type {any} */ lane) => lane.phases.flatMap((/** @type {any} */ one) => [moment(one.began), moment(one.ended)]));
  const zero = data.zero * 1000;
  const all = [0, data.now_s, data.total_s, ...ends].filter((one) => typeof one === "number").map((one) => zero + one * 1000);
  const times = [...all, ...lanes.filter((/** @type {any} */ one) => one !== null)];
  return { begin: zero, end: Math.max(zero + 1, ...times) };
}

/** @typedef {{data: any, job: Job, chosen: Signal<import("../draw/zoom.js").Span | null>}} Shown */

/** The part that a drag would choose. @param {{drag: import("../draw/zoom.js").Span | null, begin: number, end: number}} props */
function Drag({ drag, begin, end }) {
  return drag && html`<i class="lane-drag" style=${barOf(drag.begin, drag.end, begin, end)}></i>`;
}

/** @param {Shown} props */
function Phases({ data, job, chosen }) {
  const whole = spanOf(data);
  const { shown, drag, on } = useZoom(chosen, whole);
  const { begin, end } = shown;
  const zero = data.zero * 1000;
  return html`${data.cause && html`<p class="lane-cause quiet">After: <${Sentence} text=${data.cause} job=${job.name} /></p>`}
    <div class="lanes" ...${on}>
      ${data.phases.map((/** @type {any} */ one, /** @type {number} */ index) => {
        const from = zero + (one.from_s ?? 0) * 1000;
        const to = one.to_s === null ? whole.end : zero + one.to_s * 1000;
        const since = one.since_s === null ? from : zero + one.since_s * 1000;
        const note = [one.note, one.missing ? `${one.missing} not yet` : ""].filter(Boolean).join(", ");
        const isLongest = data.longest?.phase === one.phase;
        return html`<div key=${index} class="lane" data-phase=${one.phase}>
          <span class=${one.part_of ? "lane-name part" : "lane-name"}>${one.phase}</span>
          <div class="lane-track">
            ${since < from && html`<i class="lane-wait" style=${barOf(since, from, begin, end)}></i>`}
            <i class=${`lane-bar ${isLongest ? "longest" : ""} ${note.includes("cut off") ? "cut" : ""}`} style=${barOf(from, to, begin, end)} title=${`${clock(from / 1000, 3)} to ${one.to_s === null ? "now" : clock(to / 1000, 3)}`}></i>
            <${Drag} drag=${drag} begin=${begin} end=${end} />
          </div>
          <span class="lane-time">${one.took_s === null ? "..." : duration(one.took_s)}</span>
          <span class="lane-note quiet">${note}</span>
        </div>`;
      })}
    </div>
    <${Ruler} begin=${begin} end=${end} inset=${true} />`;
}

/** @param {{node: number | null, label: string}} lane @param {Job} job */
function nameOf({ node, label }, job) {
  const rank = /^rank (\S+)$/.exec(label)?.[1];
  if (!rank && node === null) return html`<span class="lane-name">${label}</span>`;
  return html`<a class="lane-name" href=${jobPath(job.name, "logs", rank ? { ranks: rank } : { nodes: node })}>${label}</a>`;
}

/** @param {Shown} props */
function Lanes({ data, job, chosen }) {
  const whole = spanOf(data);
  const { shown, drag, timeAt, on } = useZoom(chosen, whole);
  const { begin, end } = shown;
  const names = [...new Set(data.lanes.flatMap((/** @type {any} */ lane) => lane.phases.map((/** @type {any} */ one) => one.name)))];
  const colour = (/** @type {string} */ name) => names.indexOf(name) % 8;
  /** @param {PointerEvent} event */
  const point = (event) => {
    on.onPointerMove(event);
    job.time.value = timeAt(event);
  };
  const pointed = job.time.value;
  return html`<div class="lanes many" ...${on} onPointerMove=${point} onPointerLeave=${() => (job.time.value = null)}>
      ${data.lanes.map(
        (/** @type {any} */ lane) => html`<div key=${lane.label} class="lane">
          ${nameOf(lane, job)}
          <div class="lane-track">
            ${lane.phases.map((/** @type {any} */ one, /** @type {number} */ index) => {
              const from = moment(one.began) ?? whole.begin;
              const to = moment(one.ended) ?? whole.end;
              return html`<i key=${index} class=${`lane-bar c${colour(one.name)}`} style=${barOf(from, to, begin, end)} title=${[one.name, duration((to - from) / 1000), one.text].filter(Boolean).join(" · ")}>${one.name}</i>`;
            })}
            ${pointed !== null && pointed >= begin && pointed <= end && html`<i class="lane-now" style=${barOf(pointed, pointed, begin, end)}></i>`}
            <${Drag} drag=${drag} begin=${begin} end=${end} />
          </div>
          <span></span><span class="lane-note"></span>
        </div>`,
      )}
    </div>
    <${Ruler} begin=${begin} end=${end} inset=${true} />
    <p class="legend">${names.map((name, index) => html`<span key=${name}><i class=${`swatch s${index % 8}`}></i>${name}</span>`)}</p>`;
}
