/** Speed-up over nodes, both in powers of two: the ideal is a straight line. */

import { number, plural } from "../format.js";
import { html } from "../lib.js";

const [WIDTH, HEIGHT] = [720, 340];
const [LEFT, RIGHT, TOP, BOTTOM] = [44, 16, 14, 40];
const LEAST = 0.5;

/** @typedef {{nodes: number, ranks: number, job: string, refused: string, is_guess: boolean, step_s: number | null, low_s: number | null, high_s: number | null, speed_up: number | null, efficiency: number | null, phases: import("./step_bar.js").Part[]}} Size */

/** @param {{measured: Size[], predicted: Size[]}} props */
export function SpeedUp({ measured, predicted }) {
  const rows = measured.filter((one) => one.speed_up && !one.refused);
  if (!rows.length) return html`<p class="quiet">No size was measured whose figures can be trusted.</p>`;
  const first = rows[0].nodes;
  const last = Math.max(2 * first, ...[...rows, ...predicted].map((one) => one.nodes));
  const span = Math.log2(last / first);
  const x = (/** @type {number} */ nodes) => LEFT + ((WIDTH - LEFT - RIGHT) * Math.log2(nodes / first)) / span;
  const y = (/** @type {number | null} */ speed) => {
    const part = Math.log2(Math.max(speed ?? LEAST, LEAST)) / span;
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * Math.max(-0.1, Math.min(1.05, part));
  };
  const path = (/** @type {[number, number | null][]} */ points) => points.map(([nodes, speed]) => `${x(nodes).toFixed(1)},${y(speed).toFixed(1)}`).join(" ");
  const line = (/** @type {Size} */ one) => /** @type {[number, number | null]} */ ([one.nodes, one.speed_up]);
  const start = line(rows[rows.length - 1]);
  // A step that takes longer is a smaller speed-up.
  const edge = (/** @type {"low_s" | "high_s"} */ side) =>
    predicted.map((one) => /** @type {[number, number]} */ ([one.nodes, ((one.speed_up ?? 0) * (one.step_s ?? 0)) / Math.max(one[side] ?? 0, (one.step_s ?? 0) / 10, 1e-9)]));
  const ticks = Array.from({ length: Math.floor(span + 1e-9) + 1 }, (_, power) => 2 ** power);
  return html`<svg class="speed-up" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label="speed-up over nodes: measured, predicted and ideal">
      ${ticks.map(
        (times) => html`<g key=${times}>
          <path class="grid" d=${`M${x(first * times)} ${TOP}V${HEIGHT - BOTTOM}M${LEFT} ${y(times)}H${WIDTH - RIGHT}`} />
          <text x=${x(first * times)} y=${HEIGHT - BOTTOM + 18} text-anchor="middle">${first * times}</text>
          <text x=${LEFT - 8} y=${y(times) + 4} text-anchor="end">${times}</text>
        </g>`,
      )}
      <text x=${(LEFT + WIDTH) / 2} y=${HEIGHT - 4} text-anchor="middle">nodes</text>
      <polyline class="ideal" points=${path([[first, 1], [last, last / first]])} />
      ${predicted.length > 0 && html`<polygon points=${path([start, ...edge("low_s"), ...edge("high_s").reverse()])} /><polyline class="predicted" points=${path([start, ...predicted.map(line)])} />`}
      <polyline points=${path(rows.map(line))} />
      ${[...rows, ...predicted].map((one) => html`<circle key=${`${one.nodes} ${one.job}`} class=${one.job ? "" : "predicted"} cx=${x(one.nodes)} cy=${y(one.speed_up)} r="4"><title>${`${plural(one.nodes, "node")}: ${number(one.speed_up)} times as fast${one.is_guess ? ", a guess" : ""}`}</title></circle>`)}
    </svg>
    <p class="legend">
      <span><i class="swatch s0"></i>measured</span>${predicted.length > 0 && html`<span><i class="swatch s2"></i>predicted, with its band</span>`}<span><i class="swatch s6"></i>ideal</span>
    </p>`;
}
