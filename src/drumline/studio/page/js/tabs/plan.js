/** What was asked for, and what became of it: the job's file and its plan, rank by rank. */

import { useResource } from "../api.js";
import { number } from "../format.js";
import { html } from "../lib.js";
import { Card } from "../parts/card.js";
import { Command, CopyButton } from "../parts/command.js";

export const key = "plan";
export const title = "Plan";

/** @param {{job: Job}} props */
export function Tab({ job }) {
  const path = `/jobs/${encodeURIComponent(job.name)}`;
  const spec = useResource(`${path}/spec`).value;
  const plan = useResource(`${path}/plan`).value;
  const copy = spec.data && html`<${CopyButton} text=${spec.data.yaml} label="Copy the file">Copy<//>`;
  return html`<div class="two" data-test="plan">
    <${Card} title="Job file" note="as it was understood" tools=${copy} resource=${spec} height=${300}>
      ${(/** @type {{yaml: string}} */ data) => html`<pre class="code tall" data-test="spec">${data.yaml}</pre>`}
    <//>
    <${Card} title="Plan" note="one row a rank" resource=${plan} height=${300} empty=${(/** @type {any} */ data) => !data.plan && { text: "There is no plan yet: it is made when the job is submitted." }}>
      ${(/** @type {any} */ data) => html`<${Facts} plan=${data.plan} /><${Ranks} nodes=${data.plan.nodes ?? []} />
        <details><summary>The whole plan</summary><pre class="code tall">${JSON.stringify(data.plan, null, 2)}</pre></details>`}
    <//>
    <${Command} line=${`drumline job show -n ${job.name} -o yaml`} />
  </div>`;
}

/** @param {{plan: any}} props */
function Facts({ plan }) {
  const facts = [
    ["distribution", plan.distribution],
    ["engine", plan.engine],
    ["program", (plan.argv ?? []).join(" ")],
    ["folder", plan.cwd],
    ["grace period", plan.grace_s && `${number(plan.grace_s)} s`],
    ["restarts", plan.max_restarts],
    ["hang after", plan.hang_after_s && `${number(plan.hang_after_s)} s`],
  ].filter(([, value]) => value !== undefined && value !== null && value !== "");
  return html`<dl class="plan-facts">
    ${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd><code>${String(value)}</code></dd></div>`)}
  </dl>`;
}

/** @param {{nodes: any[]}} props */
function Ranks({ nodes }) {
  return html`<div class="table-frame">
    <table class="table" aria-label="ranks of the plan">
      <thead><tr><th scope="col">rank</th><th scope="col">node</th><th scope="col">cores</th><th scope="col" class="right">GPUs</th><th scope="col">of its own</th></tr></thead>
      <tbody>
        ${nodes.flatMap((node) =>
          (node.ranks ?? []).map(
            (/** @type {any} */ rank) => html`<tr key=${rank.rank}>
              <td>${rank.label ?? rank.rank}</td>
              <td>node-${node.node}</td>
              <td>${(node.cores ?? []).join(",") || "all"}</td>
              <td class="right">${node.gpu_count ?? 0}</td>
              <td><code class="clip">${Object.entries(rank.env ?? {}).map(([name, value]) => `${name}=${value}`).join(" ")}</code></td>
            </tr>`,
          ),
        )}
      </tbody>
    </table>
  </div>`;
}
