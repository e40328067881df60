/** One job: the verdict in words first, then the tabs with its evidence. */

import { useResource } from "../api.js";
import { Actions } from "../job/actions.js";
import { Facts, Title } from "../job/facts.js";
import { HangBanner, Verdict } from "../job/verdict.js";
import { clock, moment } from "../format.js";
import { useKeys } from "../keys.js";
import { html, useComputed, useEffect, useMemo, useSignal } from "../lib.js";
import { unwatch, watch } from "../live.js";
import { FINAL } from "../parts/badge.js";
import { EmptyState, Problem, Stale } from "../parts/card.js";
import { Command } from "../parts/command.js";
import { Lazy } from "../parts/lazy.js";
import { Tabs } from "../parts/tabs.js";
import { tell } from "../parts/toast.js";
import { go, jobPath, route, setQuery } from "../router.js";

/** @type {Record<string, {title: string, load: () => Promise<any>}>} */
const TABS = {
  ranks: { title: "Ranks", load: () => import("../tabs/ranks.js") },
  logs: { title: "Logs", load: () => import("../tabs/logs.js") },
  timeline: { title: "Timeline", load: () => import("../tabs/timeline.js") },
  metrics: { title: "Metrics", load: () => import("../tabs/metrics.js") },
  system: { title: "System", load: () => import("../tabs/system.js") },
  stacks: { title: "Stacks", load: () => import("../tabs/stacks.js") },
  environment: { title: "Environment", load: () => import("../tabs/environment.js") },
  code: { title: "Code", load: () => import("../tabs/code.js") },
  outputs: { title: "Outputs", load: () => import("../tabs/outputs.js") },
  plan: { title: "Plan", load: () => import("../tabs/plan.js") },
  scale: { title: "Scale", load: () => import("../tabs/scale.js") },
  rehearsal: { title: "Rehearsal", load: () => import("../tabs/rehearsal.js") },
  graph: { title: "Graph", load: () => import("../tabs/graph.js") },
  trials: { title: "Trials", load: () => import("../tabs/trials.js") },
};

const STEPS_MS = 2000;
const COMMON = ["metrics", "code", "outputs", "plan"];

/** By type of job, in the order of the bar; the first one is shown first. @type {Record<string, string[]>} */
const TABS_OF = {
  command: ["ranks", "logs", "timeline", "metrics", "system", "stacks", "environment", "code", "outputs", "plan", "scale", "rehearsal"],
  pipeline: ["graph", ...COMMON],
  sweep: ["trials", ...COMMON],
};

/** @param {{parts: string[], query: Record<string, string>}} props */
export function Page({ parts, query }) {
  return html`<${JobPage} key=${parts[1]} name=${parts[1]} tab=${parts[2] ?? ""} query=${query} />`;
}

/** @param {{name: string, tab: string, query: Record<string, string>}} props */
function JobPage({ name, tab, query }) {
  const live = useMemo(() => watch(name), [name]);
  useEffect(() => () => unwatch(name), [name]);
  const info = useResource(`/jobs/${encodeURIComponent(name)}`, {}, { live: live.events });
  const time = useSignal(/** @type {number | null} */ (moment(query.at)));
  const attempt = useComputed(() => readAttempt(route.value.query.attempt));
  const { data } = info.value;
  const isRunning = data !== null && !FINAL.has(data.row.status);
  const steps = useResource(data?.row.type === "command" ? `/jobs/${encodeURIComponent(name)}/steps` : null, { attempt: attempt.value }, { live: live.events, every: isRunning ? STEPS_MS : undefined });
  const job = useMemo(() => ({ name, info, attempt, time, live, steps, tell }), [name, info, steps]);
  if (!data) return html`<${Waiting} name=${name} resource=${info.value} />`;

  const keys = (TABS_OF[data.row.type] ?? TABS_OF.command).filter((key) => (key !== "scale" || data.has_scale) && (key !== "rehearsal" || data.has_rehearsal));
  const current = tab || keys[0];
  return html`<${Title} info=${data}><${Actions} info=${data} /><//>
    <${Facts} info=${data} progress=${steps.value.data?.progress} />
    ${info.value.state === "stale" && html`<${Stale} resource=${info.value} />`}
    <${Verdict} info=${data} />
    <${HangBanner} info=${data} />
    <${Attempts} info=${data} chosen=${attempt.value} />
    <${TabBar} name=${name} keys=${keys} current=${current} query=${query} />
    <div class="tab" data-test=${`panel-${current}`}>
      ${TABS[current] ? html`<${Lazy} key=${current} load=${TABS[current].load} job=${job} query=${query} />` : html`<${NoTab} name=${name} tab=${current} />`}
    </div>
    <${Command} line=${data.commands.show} />`;
}

/**
 * Attempts count from 0.
 * @param {string | undefined} text
 */
function readAttempt(text) {
  return text && /^\d+$/.test(text) ? Number(text) : null;
}

/** @param {{name: string, resource: Resource}} props */
function Waiting({ name, resource }) {
  return html`<div class="title-line"><h1 class="job-title">${name}</h1></div>
    ${resource.state === "error" ? html`<${Problem} error=${resource.error} />` : html`<div class="job-loading" role="status"><span class="quiet">loading</span></div>`}`;
}

/**
 * The bar keeps the attempt and the ranks: they mean the same in every tab.
 * @param {{name: string, keys: string[], current: string, query: Record<string, string>}} props
 */
function TabBar({ name, keys, current, query }) {
  const kept = { attempt: query.attempt, ranks: query.ranks };
  const tabs = keys.map((key) => ({ key, title: TABS[key].title, href: jobPath(name, key === keys[0] ? "" : key, kept) }));
  const move = (/** @type {number} */ by) => {
    const at = keys.indexOf(current);
    go(tabs[(at + by + tabs.length) % tabs.length].href);
  };
  useKeys({
    "]": { run: () => move(1), text: "next tab" },
    "[": { run: () => move(-1), text: "tab before" },
    l: { run: () => go(jobPath(name, "logs", kept)), text: "logs" },
    m: { run: () => go(jobPath(name, "metrics", kept)), text: "metrics" },
    u: { run: () => go("/jobs"), text: "back to the jobs" },
  });
  return html`<${Tabs} tabs=${tabs} current=${current} label="Parts of this job" />`;
}

/** @param {{info: JobInfo, chosen: number | null}} props */
function Attempts({ info, chosen }) {
  const { attempts } = info;
  if (attempts.length < 2) return null;
  const shown = chosen ?? attempts[attempts.length - 1].number;
  const told = attempts.find((one) => one.number === shown);
  return html`<div class="attempts" data-test="attempts">
    <span class="quiet">attempt</span>
    <span class="segments" role="group" aria-label="Attempt">
      ${attempts.map(
        (one) => html`<button
          key=${one.number}
          type="button"
          aria-pressed=${one.number === shown}
          title=${one.sentence}
          onClick=${() => setQuery({ attempt: one.number === attempts[attempts.length - 1].number ? null : one.number })}
          data-test=${`attempt-${one.number}`}
        >
          ${one.number}
        </button>`,
      )}
    </span>
    ${told && html`<span class="quiet attempt-said">${told.began && `${clock(told.began)} `}${told.sentence}</span>`}
  </div>`;
}

/** @param {{name: string, tab: string}} props */
function NoTab({ name, tab }) {
  return html`<${EmptyState} text=${html`A job has no part ${tab}. <a href=${jobPath(name)}>Show the job</a>`} />`;
}
