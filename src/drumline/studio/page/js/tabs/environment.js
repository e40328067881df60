/** The variables of every rank: what they share, and where they differ. */

import { useResource } from "../api.js";
import { plural, rankList } from "../format.js";
import { html } from "../lib.js";
import { Card } from "../parts/card.js";
import { Command, CopyButton } from "../parts/command.js";
import { Sentence } from "../parts/sentence.js";
import { route, setQuery } from "../router.js";

export const key = "environment";
export const title = "Environment";

/** @typedef {{ranks: number[], value: string | null}} Value */
/** @typedef {{sentence: string, ranks: number[], common: Record<string, string>, differing: {name: string, values: Value[]}[]}} Answer */

/** @param {{job: Job}} props */
export function Tab({ job }) {
  const found = useResource(`/jobs/${encodeURIComponent(job.name)}/environment`, {}, { live: job.live.events }).value;
  const data = /** @type {Answer | null} */ (found.data);
  const filter = route.value.query.name ?? "";
  const matches = (/** @type {string} */ name) => name.toLowerCase().includes(filter.toLowerCase());
  const field = html`<input class="input" type="search" placeholder="name of a variable" aria-label="name of a variable" value=${filter} onInput=${(/** @type {any} */ event) => setQuery({ name: event.target.value })} data-test="variable-filter" />`;
  return html`<div class="stack" data-test="environment">
    ${data && html`<p class="answer"><${Sentence} text=${data.sentence} job=${job.name} /></p>`}
    <${Card} title="What differs from rank to rank" note=${data ? plural(data.differing.length, "variable") : ""} tools=${field} resource=${found} height=${120} empty=${(/** @type {Answer} */ answer) => !answer.differing.length && { text: "All ranks have the same variables." }}>
      ${(/** @type {Answer} */ answer) => html`<${Differing} answer=${answer} matches=${matches} />`}
    <//>
    <${Card} title="The same in every rank" note="secrets are never shown here" resource=${found} height=${200} empty=${(/** @type {Answer} */ answer) => !Object.keys(answer.common).length && { text: "The ranks share no variables." }}>
      ${(/** @type {Answer} */ answer) => {
        const names = Object.keys(answer.common).sort().filter(matches);
        return html`<dl class="variables" data-test="common">
          ${names.map(
            (name) => html`<div key=${name} data-name=${name}>
              <dt>${name}</dt>
              <dd><${Text} text=${answer.common[name]} /></dd>
            </div>`,
          )}
        </dl>`;
      }}
    <//>
    <${Command} line=${`drumline job exec -n ${job.name} --rank 0 -- env`} />
  </div>`;
}

/** One column a value where few ranks differ, else one line a value. @param {{answer: Answer, matches: (name: string) => boolean}} props */
function Differing({ answer, matches }) {
  const shown = answer.differing.filter((one) => matches(one.name));
  return html`<dl class="variables" data-test="differing">
    ${shown.map(
      (one) => html`<div key=${one.name} data-name=${one.name}>
        <dt>${one.name}</dt>
        <dd class=${isMany(one.values) ? "many" : ""}>
          ${one.values.map(
            (value, index) => html`<p key=${index} class=${value.value === null ? "quiet" : ""}>
              <span class="who">${rankList(value.ranks)}</span>
              ${value.value === null ? "not set" : html`<${Text} text=${value.value} />`}
            </p>`,
          )}
        </dd>
      </div>`,
    )}
  </dl>`;
}

/** Whether the values fit beside one another. @param {Value[]} values */
function isMany(values) {
  return values.length > 4 && values.every((one) => (one.value ?? "not set").length <= 12);
}

/** @param {{text: string}} props */
function Text({ text }) {
  return html`<code>${text}</code>${text.length > 60 && html`<${CopyButton} text=${text} label="Copy the value" />`}`;
}
