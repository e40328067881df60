/** The part of the axis that charts show: chosen with a wheel or two fingers, the same for all with one pointer. */

import { readPart, writePart } from "../draw/part.js";
import { trackFingers } from "../draw/span.js";

const WHEEL = 0.002; // A notch of a wheel, 100 pixels, is a fifth.
const CLOSEST = 1e-3; // Of the whole axis.

/**
 * Zoom where the pointer is. Without ctrl, which a pinch on a touchpad sends too, the page scrolls.
 * @param {any} chart @param {WheelEvent} event
 */
export function turn(chart, event) {
  if (!event.ctrlKey && !event.metaKey) return;
  event.preventDefault();
  zoom(chart, event.clientX, event.clientX, Math.exp(WHEEL * event.deltaY));
}

/** @param {any} chart */
export function listenToFingers(chart) {
  const fingers = trackFingers();
  chart.over.addEventListener("pointerdown", fingers.down);
  chart.over.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    const found = fingers.move(event);
    if (found) zoom(chart, found.from, found.to, found.by);
  });
  for (const end of ["pointerup", "pointercancel"]) chart.over.addEventListener(end, fingers.up);
}

/**
 * Show a part `by` as long as now, with what is at one place of the screen at another one.
 * @param {any} chart @param {number} from @param {number} to @param {number} by
 */
function zoom(chart, from, to, by) {
  const { min, max } = chart.scales.x;
  const [first, last] = endsOf(chart);
  if (!(last > first) || (max - min) * by < CLOSEST * (last - first)) return;
  const box = chart.over.getBoundingClientRect();
  const begin = chart.posToVal(from - box.left, "x") - ((to - box.left) / box.width) * (max - min) * by;
  const part = (/** @type {number} */ x) => Math.max(0, Math.min(1, (x - first) / (last - first)));
  narrow(chart, part(begin), part(begin + (max - min) * by));
}

/** @param {any} chart @param {Signal<boolean>} zoomed */
export function noteZoom(chart, zoomed) {
  const isClose = isZoomed(chart);
  // One of all charts that show the same part. One that is only just drawn has chosen none.
  if (chart.group?.plots[0] === chart && (isClose || zoomed.peek())) writePart(isClose ? [chart.scales.x.min, chart.scales.x.max] : null);
  zoomed.value = isClose;
}

/** Show what the address says. @param {any} chart */
export function showPart(chart) {
  const [first, last] = endsOf(chart);
  const [from, to] = readPart() ?? [first, last];
  if (from < last && to > first && to - from < last - first) chart.setScale("x", { min: Math.max(first, from), max: Math.min(last, to) });
}

/**
 * Have all charts with the same pointer show a part of their axis, from 0 to 1.
 * @param {any} chart @param {number} from @param {number} to
 */
export function narrow(chart, from, to) {
  for (const one of chart.group.plots) {
    const [first, last] = endsOf(one);
    one.setScale("x", { min: first + from * (last - first), max: to < 1 ? first + to * (last - first) : last });
  }
}

/** @param {any} chart @returns {[number, number]} */
function endsOf(chart) {
  const x = chart.data[0];
  return [x[0] ?? 0, x[x.length - 1] ?? 0];
}

/** @param {any} chart */
export function isZoomed(chart) {
  const x = chart.data[0];
  return x.length > 0 && (chart.scales.x.min > x[0] || chart.scales.x.max < x[x.length - 1]);
}
