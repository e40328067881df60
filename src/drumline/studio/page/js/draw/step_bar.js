/** Where a step goes: a bar of its parts in the order of time. */

import { number } from "../format.js";
import { html } from "../lib.js";

/** @typedef {{key: string, title: string, seconds: number}} Part */

/** The colours of parts, in their order. */
const COLOURS = /** @type {Record<string, string>} */ ({
  ...{ input: "2", forward: "0", backward: "4", exchange: "3", waiting: "w", other: "6" },
  ...{ communication: "3", idle: "w", computing: "0" },
});

/** @param {Part[]} parts */
export function sum(parts) {
  return parts.reduce((total, one) => total + one.seconds, 0);
}

/** @param {{parts: Part[], whole: number, tell?: (seconds: number) => string, test?: string}} props whole: seconds of the widest bar beside it */
export function StepBar({ parts, whole, tell = milliseconds, test }) {
  let at = 0;
  const said = parts.map((one) => `${one.title} ${tell(one.seconds)}`).join(", ");
  return html`<div class="lane-track step-bar" role="img" aria-label=${said} data-test=${test}>
    ${parts.map((one) => {
      const left = (100 * at) / whole;
      at += one.seconds;
      return html`<i key=${one.key} class=${`lane-bar c${COLOURS[one.key]}`} style=${{ left: `${left}%`, width: `${(100 * one.seconds) / whole}%` }} title=${`${one.title} ${tell(one.seconds)}`}>${one.title}</i>`;
    })}
  </div>`;
}

/** @param {{parts: Part[], tell?: ((seconds: number) => string) | null}} props tell: null for no times */
export function StepLegend({ parts, tell = null }) {
  return html`<p class="legend">
    ${parts.map((one) => html`<span key=${one.key}><i class=${`swatch s${COLOURS[one.key]}`}></i>${one.title}${tell && html` <b>${tell(one.seconds)}</b>`}</span>`)}
  </p>`;
}

/** @param {number} seconds */
export function milliseconds(seconds) {
  return `${number(1000 * seconds)} ms`;
}
