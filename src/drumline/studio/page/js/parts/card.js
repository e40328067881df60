/** A panel: what is drawn, how, and its five states: empty, loading, live, stale, error. */

import { html } from "../lib.js";
import { clock } from "../format.js";
import { Command } from "./command.js";

/**
 * The title says what is drawn; the note at the right how: unit, bin, smoothing. No chart stands without both.
 *
 * @param {object} props
 * @param {any} props.title
 * @param {any} [props.note]
 * @param {any} [props.tools] buttons and pickers, right of the note
 * @param {Resource} [props.resource] what the panel shows; without it the children are drawn as they are
 * @param {Empty | null | false | ((data: any) => Empty | null | false)} [props.empty] what would fill the panel, in place of the children
 * @param {number} [props.height] of the body in pixels, at least: the layout stands still while it loads
 * @param {string} [props.test] its data-test
 * @param {string} [props.class]
 * @param {any} [props.children] or a function from the resource's data to them
 */
export function Card({ title, note, tools, resource, empty, height, test, class: extra = "", children }) {
  const busy = resource?.busy ? "true" : undefined;
  return html`<section class=${`card ${extra}`} data-test=${test} aria-busy=${busy}>
    <header class="card-head">
      <h2>${title}</h2>
      ${note && html`<span class="note">${note}</span>`}
      ${tools && html`<span class="tools">${tools}</span>`}
    </header>
    ${resource?.state === "stale" && html`<${Stale} resource=${resource} />`}
    <div class="card-body" style=${height ? { minHeight: `${height}px` } : undefined}>
      ${resource ? drawState(resource, empty, children) : drawChildren(null, empty, children)}
    </div>
  </section>`;
}

/**
 * @param {Resource} resource @param {any} empty @param {any} children
 */
function drawState(resource, empty, children) {
  if (resource.data !== null) return drawChildren(resource.data, empty, children);
  if (resource.state === "error") return html`<${Problem} error=${resource.error} />`;
  return html`<p class="loading" role="status"><span class="quiet">loading</span></p>`;
}

/** @param {any} data @param {any} empty @param {any} children */
function drawChildren(data, empty, children) {
  const told = typeof empty === "function" ? empty(data) : empty;
  if (told) return html`<${EmptyState} ...${told} />`;
  const draw = Array.isArray(children) && children.length === 1 ? children[0] : children;
  return typeof draw === "function" ? draw(data) : draw;
}

/**
 * What would fill a panel, and the line of code or the command that does.
 * @param {Empty} props
 */
export function EmptyState({ text, code, command }) {
  return html`<div class="empty" data-test="empty">
    <p>${text}</p>
    ${code && html`<pre class="code">${code}</pre>`}
    ${command && html`<${Command} line=${command} />`}
  </div>`;
}

/** @param {{error: any}} props */
export function Problem({ error }) {
  return html`<div class="problem" role="alert" data-test="error">
    <p>${error?.message ?? "unknown error"}</p>
    ${error?.hint && html`<p class="quiet">${error.hint}</p>`}
  </div>`;
}

/** @param {{resource: Resource}} props */
export function Stale({ resource }) {
  const why = resource.error ? resource.error.message : "the connection was lost";
  const since = resource.since ? ` · as of ${clock(resource.since / 1000)}` : "";
  return html`<p class="stale" role="status" data-test="stale">${why}${since}</p>`;
}
