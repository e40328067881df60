/** The list of jobs: filters in the address, a sentence that answers "what runs?", and rows that stay new. */

import { useResource } from "../api.js";
import { plural } from "../format.js";
import { BulkBar } from "../jobs/bulk.js";
import { columnsOf } from "../jobs/columns.js";
import { Filters, listCommand } from "../jobs/filters.js";
import { useKeys } from "../keys.js";
import { html, useEffect, useRef, useSignal } from "../lib.js";
import { changes, newerRow } from "../live.js";
import { EmptyState, Problem, Stale } from "../parts/card.js";
import { Command } from "../parts/command.js";
import { Table } from "../parts/table.js";
import { go, jobPath, setQuery, withQuery } from "../router.js";

const PAGE_ROWS = 100;
const REST_MS = 1500;
const MOST_ASKED = 20;

/** @param {{query: Record<string, string>}} props */
export function Page({ query }) {
  const { workspace, ...asked } = query;
  const sort = query.sort ?? "-created";
  const offset = Number(query.offset) || 0;
  const resource = useResource("/jobs", { ...asked, sort, offset, limit: PAGE_ROWS, spark: 1 }, { live: changes }).value;
  const list = resource.data;
  const rows = (list?.jobs ?? []).map((/** @type {Row} */ row) => mergeRow(row, newerRow(row.name, resource.since)));
  const marked = useSignal(/** @type {ReadonlySet<string>} */ (new Set()));
  const pointed = useSignal(0);
  useListKeys(rows, pointed, marked);
  useRest(list);
  useEffect(() => {
    pointed.value = 0;
    marked.value = new Set();
  }, [JSON.stringify(query)]);

  return html`<div class="title-line">
      <h1 class="page-sentence" data-test="sentence">
        ${list ? html`<${Answer} text=${list.sentence} rows=${rows} />` : html`<span class="quiet">Jobs</span>`}
      </h1>
      <span class="space"></span>
      <a class="button main" href="/submit" data-test="submit">Submit a job</a>
    </div>
    <${Filters} query=${query} counts=${list?.counts ?? {}} />
    ${resource.state === "stale" && html`<${Stale} resource=${resource} />`}
    ${resource.state === "error" && html`<${Problem} error=${resource.error} />`}
    <${BulkBar} marked=${marked} rows=${rows} />
    <div class="list" aria-busy=${resource.busy} data-test="jobs">
      ${list && !rows.length && html`<${Nothing} total=${list.total} />`}
      ${rows.length > 0 &&
      html`<${Table}
        label="Jobs"
        columns=${columnsOf(marked)}
        rows=${rows}
        rowKey=${(/** @type {Row} */ row) => row.name}
        rowClass=${(/** @type {Row} */ row) => (row.archived ? "archived" : "")}
        isPointed=${(/** @type {Row} */ row) => rows[pointed.value]?.name === row.name}
        onPoint=${(/** @type {Row} */ row) => (pointed.value = rows.indexOf(row))}
        sort=${sort}
        onSort=${(/** @type {string} */ key) => setQuery({ sort: key, offset: null })}
      />`}
      ${!list && resource.state === "loading" && html`<div class="list-loading" role="status"><span class="quiet">loading</span></div>`}
    </div>
    ${list && html`<${Pager} offset=${offset} shown=${rows.length} matched=${list.matched} total=${list.total} />`}
    <${Command} line=${listCommand(query)} />`;
}

/**
 * The sentence of the list: the jobs that it counts or names are links.
 * @param {{text: string, rows: Row[]}} props
 */
function Answer({ text, rows }) {
  const names = new Set(rows.map((row) => row.name));
  return text.split(/(\d[\d,]* (?:jobs? )?(?:runs?|waits?)\b|[\w-]{6,})/).map((piece) => {
    if (names.has(piece)) return html`<a class="link" href=${jobPath(piece)}>${piece}</a>`;
    if (!/^\d[\d,]* /.test(piece)) return piece;
    return html`<a class="link" href=${withQuery("/jobs", { status: /run/.test(piece) ? "Running" : "Queued" })}>${piece}</a>`;
  });
}

/**
 * Ask again for curves, and for jobs, that the server had no time to read.
 * @param {{jobs: Row[], pending?: number} | null} list
 */
function useRest(list) {
  const asked = useRef(0);
  useEffect(() => {
    const isWhole = !list || (!list.pending && !list.jobs.some((row) => row.metric && row.spark === null));
    if (isWhole || asked.current >= MOST_ASKED) return undefined;
    asked.current += 1;
    const timer = setTimeout(() => (changes.value += 1), REST_MS);
    return () => clearTimeout(timer);
  }, [list]);
}

/**
 * What the stream told is newer than the list, but has no curve.
 * @param {Row} row @param {Row | undefined} newer @returns {Row}
 */
function mergeRow(row, newer) {
  return newer ? { ...newer, spark: row.spark } : row;
}

/**
 * @param {Row[]} rows @param {Signal<number>} pointed @param {Signal<ReadonlySet<string>>} marked
 */
function useListKeys(rows, pointed, marked) {
  const move = (/** @type {number} */ by) => {
    pointed.value = Math.max(0, Math.min(rows.length - 1, pointed.peek() + by));
  };
  useKeys({
    j: { run: () => move(1), text: "next job" },
    k: { run: () => move(-1), text: "job before" },
    Enter: { run: () => rows[pointed.peek()] && go(jobPath(rows[pointed.peek()].name)), text: "open the job" },
    x: { run: () => rows[pointed.peek()] && toggle(marked, rows[pointed.peek()].name), text: "mark the job" },
    Escape: { run: () => (marked.value = new Set()), text: "mark none" },
    n: { run: () => go("/submit"), text: "submit a job" },
  });
}

/** @param {Signal<ReadonlySet<string>>} marked @param {string} name */
function toggle(marked, name) {
  const names = new Set(marked.peek());
  if (!names.delete(name)) names.add(name);
  marked.value = names;
}

/** @param {{total: number}} props */
function Nothing({ total }) {
  if (total) {
    return html`<${EmptyState} text=${html`No job matches these filters. <a href="/jobs">Show all ${total.toLocaleString("en-US")}</a>`} />`;
  }
  const text = "There are no jobs yet. This command runs a script as two nodes with two ranks each:";
  return html`<${EmptyState} text=${text} command="drumline run --nodes 2 --procs 2 -- python train.py" />`;
}

/** @param {{offset: number, shown: number, matched: number, total: number}} props */
function Pager({ offset, shown, matched, total }) {
  const all = matched === total ? plural(total, "job") : `${matched.toLocaleString("en-US")} of ${plural(total, "job")}`;
  const to = (/** @type {number} */ place) => setQuery({ offset: place || null }, { replace: false });
  return html`<div class="pager" data-test="pager">
    <span class="quiet">${shown < matched ? `${offset + 1} to ${offset + shown} of ${all}` : all}</span>
    ${offset > 0 && html`<button type="button" class="button" onClick=${() => to(Math.max(0, offset - PAGE_ROWS))} data-test="before">Newer</button>`}
    ${offset + shown < matched && html`<button type="button" class="button" onClick=${() => to(offset + PAGE_ROWS)} data-test="next">Older</button>`}
  </div>`;
}
