/** The fields and buttons above a log: which ranks, which lines, and where to go. */

import { get } from "../api.js";
import { html, useSignal } from "../lib.js";
import { Typed } from "../parts/typed.js";
import { route, setQuery } from "../router.js";

/** @typedef {import("./place.js").Place} Place */

/**
 * @param {object} props
 * @param {Job} props.job
 * @param {import("../tabs/logs.js").Chosen} props.chosen
 * @param {Place} props.place
 * @param {(n: number) => void} props.jump
 * @param {(text: string) => void} props.tell
 * @param {Signal<boolean>} props.times
 */
export function Tools({ job, chosen, place, jump, tell, times }) {
  const query = route.value.query;
  const rank = useSignal("");
  const path = `/jobs/${encodeURIComponent(job.name)}/logs`;
  const selected = { ranks: chosen.ranks, nodes: chosen.nodes, attempt: chosen.attempt };
  /** @param {boolean} back */
  const find = (back) => findNext(path, selected, place, jump, tell, back);
  /** @param {KeyboardEvent} event */
  const press = (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    setQuery({ q: /** @type {HTMLInputElement} */ (event.target).value, line: query.only === "1" ? null : query.line });
    if (query.only !== "1") find(event.shiftKey);
  };
  const leave = async () => {
    const number = rank.value || firstOf(chosen.ranks);
    const answer = await ask(() => get(`${path}/divergence`, { rank: number, attempt: chosen.attempt }), tell);
    if (!answer) return;
    tell(answer.sentence);
    if (answer.n === null || answer.n === undefined) return;
    setQuery({ ranks: null, nodes: null, only: null, fold: null, line: answer.n + 1 });
  };
  return html`<div class="log-tools">
    <${Field} label="ranks" value=${query.ranks} hint="0-3,7" set=${(/** @type {string} */ ranks) => setQuery({ ranks, line: null })} />
    <${Field} label="nodes" value=${query.nodes} hint="1" set=${(/** @type {string} */ nodes) => setQuery({ nodes, line: null })} />
    <${Typed} class="input wide" type="search" placeholder="find in the log" aria-label="find in the log" value=${query.q} onKeyDown=${press} data-test="log-find" />
    <span class="log-group">
      <button type="button" class="button" title="the match before (shift enter)" aria-label="the match before" disabled=${!query.q || query.only === "1"} onClick=${() => find(true)}>↑</button>
      <button type="button" class="button" title="the next match (enter)" aria-label="the next match" disabled=${!query.q || query.only === "1"} onClick=${() => find(false)} data-test="log-next">↓</button>
    </span>
    <${Check} label="regex" on=${query.regex === "1"} set=${(/** @type {boolean} */ on) => setQuery({ regex: on ? 1 : null })} />
    <${Check} label="only these" on=${query.only === "1"} set=${(/** @type {boolean} */ on) => setQuery({ only: on ? 1 : null, line: null })} />
    ${query.only === "1" && html`<${Field} label="context" value=${query.context ?? "2"} hint="2" set=${(/** @type {string} */ context) => setQuery({ context })} />`}
    <${Check} label="fold equal" on=${chosen.fold === 1} set=${(/** @type {boolean} */ on) => setQuery({ fold: on ? null : 0 })} />
    <${Check} label="times" on=${times.value} set=${(/** @type {boolean} */ on) => (times.value = on)} />
    <span class="space"></span>
    <${FirstError} place=${place} jump=${jump} />
    <span class="log-group">
      <button type="button" class="button" onClick=${leave} data-test="log-leaves">Where rank</button>
      <input class="input narrow" aria-label="rank" placeholder=${firstOf(chosen.ranks)} value=${rank.value} onInput=${(/** @type {any} */ event) => (rank.value = event.target.value.trim())} data-test="log-leaves-rank" />
      <span class="quiet">leaves the others</span>
    </span>
    <${Follow} place=${place} />
  </div>`;
}

/** @param {{place: Place, jump: (n: number) => void}} props */
function FirstError({ place, jump }) {
  void place.count.value;
  const { firstError } = place.lines;
  if (firstError === null) return null;
  return html`<button type="button" class="button" onClick=${() => jump(firstError)} data-test="log-error">First error</button>`;
}

/** @param {{place: Place}} props */
function Follow({ place }) {
  void place.count.value;
  const seen = useSignal(0);
  const { lines } = place;
  if (place.follows) seen.value = lines.total;
  const fresh = lines.total - seen.peek();
  const words = fresh > 0 && seen.peek() ? `↓ ${fresh.toLocaleString("en-US")} new lines` : "↓ End";
  return html`<button type="button" class="button" aria-pressed=${place.follows} onClick=${() => place.follow()} data-test="log-follow">
    ${place.follows ? "At the end" : words}
  </button>`;
}

/** @param {{label: string, value: string | undefined, hint: string, set: (text: string) => void}} props */
function Field({ label, value, hint, set }) {
  return html`<label class="log-field"
    ><span class="quiet">${label}</span>
    <${Typed} class="input narrow" value=${value} placeholder=${hint} data-test=${`log-${label}`} onChange=${(/** @type {any} */ event) => set(event.target.value.trim())}
  /></label>`;
}

/** @param {{label: string, on: boolean, set: (on: boolean) => void}} props */
function Check({ label, on, set }) {
  return html`<label class="check"><input type="checkbox" checked=${on} onChange=${(/** @type {any} */ event) => set(event.target.checked)} data-test=${`log-${label.replace(" ", "-")}`} />${label}</label>`;
}

/** @param {string | undefined} ranks */
function firstOf(ranks) {
  return ranks?.match(/\d+/)?.[0] ?? "0";
}

/**
 * @param {string} path
 * @param {Query} selected
 * @param {Place} place
 * @param {(n: number) => void} jump
 * @param {(text: string) => void} tell
 * @param {boolean} back
 */
async function findNext(path, selected, place, jump, tell, back) {
  const { q, regex, line } = route.peek().query;
  if (!q) return;
  const here = line ? Number(line) - 1 : place.first - (back ? 0 : 1);
  const from = back ? here - 1 : here + 1;
  const missed = `no line ${back ? "before" : "after"} ${here + 1} matches`;
  if (from < 0) return tell(missed);
  const query = { ...selected, q, regex: regex === "1" ? 1 : undefined, from, back: back ? 1 : undefined, limit: 1 };
  const answer = await ask(() => get(`${path}/search`, query), tell);
  if (!answer) return;
  const [found] = answer.matches;
  tell(found ? "" : answer.timed_out ? "the search took too long and was given up; choose fewer ranks" : missed);
  if (found) jump(found.n);
}

/**
 * @param {() => Promise<any>} work
 * @param {(text: string) => void} tell
 */
async function ask(work, tell) {
  try {
    return await work();
  } catch (error) {
    const { message, hint } = /** @type {{message: string, hint?: string}} */ (error);
    tell(hint ? `${message}: ${hint}` : message);
    return null;
  }
}
