/** The filters of the list, which stand in the address, and views of it that are kept in the browser. */

import { html, signal } from "../lib.js";
import { toneOf, wordOf } from "../parts/badge.js";
import { ask } from "../parts/dialog.js";
import { Menu, Pick } from "../parts/menu.js";
import { go, setQuery, withQuery } from "../router.js";

const ORDER = ["Running", "Queued", "Failed", "Completed", "Canceled"];
const SINCE = [
  { value: "", title: "any time" },
  { value: "1h", title: "last hour" },
  { value: "24h", title: "last day" },
  { value: "7d", title: "last week" },
  { value: "30d", title: "last 30 days" },
];
const TYPES = [
  { value: "", title: "all types" },
  { value: "command", title: "commands" },
  { value: "pipeline", title: "pipelines" },
  { value: "sweep", title: "sweeps" },
];
const KEPT = "drumline.views";

/** @param {{query: Record<string, string>, counts: Record<string, number>}} props */
export function Filters({ query, counts }) {
  const chosen = (query.status ?? "").split(",").filter(Boolean);
  const known = [...new Set([...ORDER, ...Object.keys(counts), ...chosen])];
  const shown = known.filter((one) => counts[one] || chosen.includes(one));
  const set = (/** @type {Record<string, string | null>} */ changes) => setQuery({ ...changes, offset: null });
  return html`<div class="filters" data-test="filters">
    <span class="chips" role="group" aria-label="Status">
      ${shown.map((status) => {
        const isOn = chosen.includes(status);
        const next = isOn ? chosen.filter((one) => one !== status) : [...chosen, status];
        return html`<button
          key=${status}
          type="button"
          class=${`chip tone-${toneOf(status)}`}
          aria-pressed=${isOn}
          onClick=${() => set({ status: next.join(",") })}
          data-test=${`status-${status}`}
        >
          <i class="dot" aria-hidden="true"></i>${wordOf(status)} <span class="quiet">${(counts[status] ?? 0).toLocaleString("en-US")}</span>
        </button>`;
      })}
    </span>
    <${Pick} label="Type" value=${query.type ?? ""} options=${TYPES} onChange=${(/** @type {string} */ type) => set({ type })} test="type" />
    <${Pick} label="Submitted" value=${query.since ?? ""} options=${withOwn(SINCE, query.since)} onChange=${(/** @type {string} */ since) => set({ since })} test="since" />
    <${Given} query=${query} />
    <label class="check"><input type="checkbox" checked=${Boolean(query.archived)} onChange=${() => set({ archived: query.archived ? null : "all" })} data-test="archived" /> archived too</label>
    <${Views} query=${query} />
  </div>`;
}

/** @param {{value: string, title: string}[]} options @param {string | undefined} value */
function withOwn(options, value) {
  return value && !options.some((one) => one.value === value) ? [...options, { value, title: `since ${value}` }] : options;
}

/** Filters that came from elsewhere, each to be taken off. @param {{query: Record<string, string>}} props */
function Given({ query }) {
  const keys = ["q", "experiment", "tag", "compute", "parent"].filter((key) => query[key]);
  return keys.map(
    (key) => html`<button type="button" class="chip" aria-label=${`Remove ${key} ${query[key]}`} onClick=${() => setQuery({ [key]: null, offset: null })} data-test=${`given-${key}`}>
      <span class="quiet">${key === "q" ? "text" : key}</span> ${query[key]} <span aria-hidden="true">×</span>
    </button>`,
  );
}

// views

/** @typedef {{name: string, query: Record<string, string>}} View */

const views = signal(readViews());

/** @returns {View[]} */
function readViews() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT) ?? "[]");
    return Array.isArray(kept) ? kept.filter((one) => typeof one?.name === "string" && typeof one?.query === "object") : [];
  } catch {
    return [];
  }
}

/** @param {View[]} next */
function keepViews(next) {
  views.value = next;
  try {
    localStorage.setItem(KEPT, JSON.stringify(next));
  } catch {
    // A browser that keeps nothing: the views last as long as the page.
  }
}

/** @param {{query: Record<string, string>}} props */
function Views({ query }) {
  const { offset, workspace, ...kept } = query;
  const here = JSON.stringify(kept);
  const current = views.value.find((one) => JSON.stringify(one.query) === here);
  const save = async () => {
    const body = html`<label class="field">Name <input name="name" required maxlength="60" data-test="view-name" /></label>`;
    const answer = await ask({ title: "Save this view", text: "This browser keeps the filters and the order.", body, action: "Save" });
    const name = String(answer?.get("name") ?? "").trim();
    if (name) keepViews([...views.peek().filter((one) => one.name !== name), { name, query: kept }]);
  };
  const items = [
    ...views.value.map((one) => ({ title: one.name, run: () => go(withQuery("/jobs", one.query)) })),
    { title: "Save this view …", run: save, test: "save-view" },
    ...(current ? [{ title: `Forget ${current.name}`, run: () => keepViews(views.peek().filter((one) => one !== current)), test: "forget-view" }] : []),
    ...(here === "{}" ? [] : [{ title: "All jobs", run: () => go("/jobs") }]),
  ];
  return html`<${Menu} label=${current?.name ?? "Views"} items=${items} test="views" />`;
}

/**
 * The command that prints the same list.
 * @param {Record<string, string>} query
 */
export function listCommand(query) {
  const words = ["drumline job list"];
  if (query.status) words.push(`--status ${query.status}`);
  if (query.experiment) words.push(`--experiment ${quote(query.experiment)}`);
  if (query.parent) words.push(`--parent-job-name ${quote(query.parent)}`);
  if (query.compute) words.push(`--compute ${quote(query.compute)}`);
  if (query.tag) words.push(`--tag ${quote(query.tag)}`);
  if (query.since) words.push(`--since ${quote(query.since)}`);
  if (query.archived) words.push(query.archived === "all" ? "--include-archived" : "--archived-only");
  if (query.workspace) words.push(`-w ${quote(query.workspace)}`);
  return words.join(" ");
}

/** @param {string} text */
function quote(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
