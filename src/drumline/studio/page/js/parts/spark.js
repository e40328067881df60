/** A curve of a word's size, with no axes: only its shape. */

import { html } from "../lib.js";

/**
 * @param {object} props
 * @param {(number | null)[]} props.values
 * @param {number} [props.width]
 * @param {number} [props.height]
 * @param {string} [props.label]
 */
export function Spark({ values, width = 84, height = 20, label = "" }) {
  const known = /** @type {number[]} */ (values.filter((one) => one !== null && Number.isFinite(one)));
  if (known.length < 2) return null;
  const low = Math.min(...known);
  const span = Math.max(...known) - low || 1;
  const x = (/** @type {number} */ i) => (1 + (i * (width - 2)) / (values.length - 1)).toFixed(1);
  const y = (/** @type {number} */ value) => (height - 2 - ((value - low) * (height - 4)) / span).toFixed(1);
  const points = values.map((one, i) => (one !== null && Number.isFinite(one) ? `${x(i)},${y(one)}` : "")).filter(Boolean);
  return html`<svg class="spark" viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height} role="img" aria-label=${label}>
    <polyline points=${points.join(" ")} />
  </svg>`;
}
