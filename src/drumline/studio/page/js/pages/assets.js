/** What is registered: data, environments, models, components. */

import { useResource } from "../api.js";
import { plural, when } from "../format.js";
import { html } from "../lib.js";
import { Card } from "../parts/card.js";
import { Command } from "../parts/command.js";
import { Segments } from "../parts/menu.js";
import { Table } from "../parts/table.js";
import { setQuery, withQuery } from "../router.js";

const KINDS = [
  { value: "", title: "all" },
  { value: "data", title: "data" },
  { value: "environment", title: "environments" },
  { value: "model", title: "models" },
  { value: "component", title: "components" },
  { value: "datastore", title: "datastores" },
];

/** @param {{query: Record<string, string>}} props */
export function Page({ query }) {
  const kind = KINDS.some((one) => one.value === query.kind) ? query.kind : "";
  const found = useResource("/assets", { kind }, { every: 10_000 }).value;
  const assets = (found.data?.assets ?? []).filter((/** @type {any} */ one) => matches(one, query.q ?? ""));
  const sentence = found.data?.sentence ?? "\u00a0";
  const empty = { text: kind ? `No ${kind} is registered.` : "Nothing is registered yet.", command: `drumline ${kind || "data"} create --file ${kind || "data"}.yml` };
  return html`<div class="stack" data-test="assets">
    <h1 class="hidden">Assets</h1>
    <p class="page-sentence">${sentence}</p>
    <div class="panel-tools">
      <${Segments} label="kind" value=${kind} options=${KINDS} onChange=${(/** @type {string} */ value) => setQuery({ kind: value })} test="asset-kind" />
      <input class="input" type="search" placeholder="name or tag" aria-label="name or tag" value=${query.q ?? ""} onInput=${(/** @type {any} */ event) => setQuery({ q: event.target.value })} />
    </div>
    <${Card} title="Assets" note=${plural(assets.length, "version")} resource=${found} height=${120} empty=${() => !assets.length && empty}>
      ${() => html`<${Table} columns=${COLUMNS} rows=${assets} rowKey=${(/** @type {any} */ row) => `${row.kind}:${row.name}:${row.version}`} label="assets" test="asset-table" />`}
    <//>
    <${Command} line=${`drumline ${kind || "data"} list`} />
  </div>`;
}

/** @param {any} asset @param {string} words */
function matches(asset, words) {
  const text = `${asset.name} ${asset.description ?? ""} ${Object.entries(asset.tags ?? {}).flat().join(" ")}`.toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

const COLUMNS = [
  { key: "kind", title: "Kind" },
  { key: "name", title: "Name", cell: (/** @type {any} */ row) => html`<b class="mono">${row.name}</b>` },
  { key: "version", title: "Version" },
  { key: "created", title: "Created", cell: (/** @type {any} */ row) => when(row.created) },
  { key: "description", title: "Description", cell: (/** @type {any} */ row) => row.description ?? "" },
  {
    key: "tags",
    title: "Tags",
    cell: (/** @type {any} */ row) =>
      Object.entries(row.tags ?? {}).map(([name, value]) => html`<a key=${name} class="chip" href=${withQuery("/assets", { q: name })}>${name}${value ? `: ${value}` : ""}</a> `),
  },
];
