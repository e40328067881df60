/** How one file differs, as a unified diff: signs before the lines, and not colours alone. */

import { html } from "../lib.js";

const MOST_LINES = 2000;

/** @param {{file: {path: string, change: string, diff: string | null}, open: boolean}} props */
export function FileDiff({ file, open }) {
  const lines = (file.diff ?? "").replace(/\n$/, "").split("\n").slice(2);
  return html`<details class="file-diff" open=${open} data-test="file-diff" data-path=${file.path}>
    <summary><code>${file.path}</code> <span class="quiet">${file.change}</span></summary>
    ${file.diff === null
      ? html`<p class="quiet">This file is binary or large; only that it differs is known.</p>`
      : html`<pre class="code">${lines.slice(0, MOST_LINES).map((line, index) => html`<span key=${index} class=${classOf(line)}>${line + "\n"}</span>`)}</pre>
          ${lines.length > MOST_LINES && html`<p class="quiet">${lines.length - MOST_LINES} lines more</p>`}`}
  </details>`;
}

/** @param {string} line */
function classOf(line) {
  if (line.startsWith("@@")) return "place";
  return line.startsWith("+") ? "plus" : line.startsWith("-") ? "minus" : "";
}
