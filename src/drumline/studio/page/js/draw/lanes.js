/** Spans of time on one axis, as elements. */

import { clock, duration } from "../format.js";
import { html } from "../lib.js";

/**
 * Where a bar stands on a track, as a style; times in milliseconds.
 * @param {number} from
 * @param {number} to
 * @param {number} begin
 * @param {number} end
 */
export function barOf(from, to, begin, end) {
  if (to < begin || from > end) return { display: "none" };
  const span = Math.max(1, end - begin);
  const left = clamp(((from - begin) / span) * 100);
  const right = clamp(((to - begin) / span) * 100);
  return { left: `${left}%`, width: `${right - left}%` };
}

/** @param {number} percent */
function clamp(percent) {
  return Math.min(100, Math.max(0, percent));
}

/** @param {{begin: number, end: number, inset?: boolean}} props */
export function Ruler({ begin, end, inset = false }) {
  return html`<div class=${inset ? "ruler inset" : "ruler"}>
    <span>${clock(begin / 1000)}</span><span>${duration((end - begin) / 2000)}</span><span>${clock(end / 1000)}</span>
  </div>`;
}
