/** Parallel coordinates on a canvas: one axis a column, one line a row, and a brush along each axis. */

import { html, useEffect, useRef, useSignal } from "../lib.js";
import { number } from "../format.js";
import { fit, onTheme } from "./colours.js";
import { fade, readInk } from "./ink.js";

/** @typedef {{name: string, values: any[]}} Axis */
/** @typedef {{name: string, place: (value: any) => number | null, ticks: {at: number, text: string}[]}} Scale places and ticks from 0, the bottom, to 1 */

const HEIGHT = 260;
const [TOP, BOTTOM, SIDE] = [26, 12, 54];
const MOST_WORDS = 12;

/**
 * @param {object} props
 * @param {Axis[]} props.axes the last one is what came of it
 * @param {string[]} props.ids of the lines
 * @param {string} props.best
 * @param {boolean} props.least whether less is better
 * @param {Signal<string>} props.pointed
 * @param {(chosen: Set<string> | null) => void} props.onBrush
 * @param {string} props.label
 */
export function Parallel({ axes, ids, best, least, pointed, onBrush, label }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const brushes = useSignal(/** @type {Map<number, [number, number]>} */ (new Map()));
  const width = useSignal(0);
  const scales = axes.map(scaleOf);
  const lines = ids.map((id, row) => ({ id, places: scales.map((scale, at) => scale.place(axes[at].values[row])) }));
  const chosen = lines.filter((line) => [...brushes.value].every(([axis, [low, high]]) => isWithin(line.places[axis], low, high)));
  const chosenIds = chosen.map((line) => line.id).join("\n");
  useEffect(() => onBrush(brushes.value.size ? new Set(chosenIds.split("\n")) : null), [brushes.value, chosenIds]);
  const draw = () => {
    if (canvas.current && width.value) paint(canvas.current, { scales, lines, chosen: new Set(chosen), best, least, pointed: pointed.value, brushes: brushes.value });
  };
  useEffect(draw);
  useEffect(() => onTheme(draw), [axes, brushes.value, width.value]);
  useEffect(() => {
    const size = new ResizeObserver(() => (width.value = canvas.current?.clientWidth ?? 0));
    if (canvas.current) size.observe(canvas.current);
    return () => size.disconnect();
  }, []);
  const drag = useRef(/** @type {{axis: number, from: number} | null} */ (null));
  /** @param {PointerEvent} event */
  const down = (event) => {
    const at = locate(event, axes.length);
    if (!at.isOnAxis) return;
    /** @type {HTMLElement} */ (event.target).setPointerCapture(event.pointerId);
    drag.current = { axis: at.axis, from: at.place };
  };
  /** @param {PointerEvent} event */
  const move = (event) => {
    const at = locate(event, axes.length);
    if (!drag.current) {
      pointed.value = nearest(lines, event, axes.length) ?? "";
      return;
    }
    const { axis, from } = drag.current;
    const next = new Map(brushes.value);
    if (Math.abs(at.place - from) > 0.015) next.set(axis, [Math.min(from, at.place), Math.max(from, at.place)]);
    else next.delete(axis);
    brushes.value = next;
  };
  /** @param {PointerEvent} event */
  const up = (event) => {
    move(event);
    drag.current = null;
  };
  return html`<div class="parallel">
    <canvas ref=${canvas} height=${HEIGHT} role="img" aria-label=${label} style=${{ height: `${HEIGHT}px` }} onPointerDown=${down} onPointerMove=${move} onPointerUp=${up} onPointerLeave=${() => (pointed.value = "")} data-test="parallel-canvas"></canvas>
    ${brushes.value.size > 0 && html`<button type="button" class="button" onClick=${() => (brushes.value = new Map())}>Show all</button>`}
  </div>`;
}

/** @param {number | null} place @param {number} low @param {number} high */
function isWithin(place, low, high) {
  return place !== null && place >= low && place <= high;
}

/** Numbers have a linear or, over more than two powers of ten, a logarithmic scale; words stand one above the other. @param {Axis} axis @returns {Scale} */
function scaleOf({ name, values }) {
  const known = values.filter((one) => one !== null && one !== undefined);
  const isNumeric = known.length > 0 && known.every((one) => typeof one === "number" && Number.isFinite(one));
  if (!isNumeric) {
    const words = [...new Set(known.map(String))].sort();
    const at = (/** @type {number} */ index) => (words.length > 1 ? index / (words.length - 1) : 0.5);
    const shown = words.length > MOST_WORDS ? [words[0], words[words.length - 1]] : words;
    return { name, place: (value) => (words.includes(String(value)) ? at(words.indexOf(String(value))) : null), ticks: shown.map((text) => ({ at: at(words.indexOf(text)), text })) };
  }
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const isLog = low > 0 && high / low > 100;
  const turn = (/** @type {number} */ value) => (isLog ? Math.log(value) : value);
  const back = (/** @type {number} */ value) => (isLog ? Math.exp(value) : value);
  const span = turn(high) - turn(low);
  const ticks = span ? [0, 0.25, 0.5, 0.75, 1].map((at) => ({ at, text: number(back(turn(low) + at * span)) })) : [{ at: 0.5, text: number(low) }];
  return { name, place: (value) => (typeof value !== "number" || !Number.isFinite(value) ? null : span ? (turn(value) - turn(low)) / span : 0.5), ticks };
}

/** @param {number} width @param {number} count @param {number} axis */
function xOf(width, count, axis) {
  return count > 1 ? SIDE + (axis * (width - 2 * SIDE)) / (count - 1) : width / 2;
}

/** @param {number | null} place */
function yOf(place) {
  return HEIGHT - BOTTOM - (place ?? 0) * (HEIGHT - TOP - BOTTOM);
}

/** @param {PointerEvent} event @param {number} count */
function locate(event, count) {
  const rect = /** @type {HTMLElement} */ (event.target).getBoundingClientRect();
  const x = event.clientX - rect.left;
  const step = count > 1 ? (rect.width - 2 * SIDE) / (count - 1) : 1;
  const axis = Math.min(count - 1, Math.max(0, Math.round((x - SIDE) / step)));
  const place = Math.min(1, Math.max(0, (HEIGHT - BOTTOM - (event.clientY - rect.top)) / (HEIGHT - TOP - BOTTOM)));
  return { axis, place, isOnAxis: Math.abs(xOf(rect.width, count, axis) - x) < 22 };
}

/** @param {{id: string, places: (number | null)[]}[]} lines @param {PointerEvent} event @param {number} count */
function nearest(lines, event, count) {
  const { axis, place } = locate(event, count);
  let found = null;
  let least = 0.04;
  for (const line of lines) {
    const own = line.places[axis];
    if (own !== null && Math.abs(own - place) < least) [found, least] = [line.id, Math.abs(own - place)];
  }
  return found;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {{scales: Scale[], lines: {id: string, places: (number | null)[]}[], chosen: Set<any>, best: string, least: boolean, pointed: string, brushes: Map<number, [number, number]>}} what
 */
function paint(canvas, { scales, lines, chosen, best, least, pointed, brushes }) {
  const ink = readInk();
  const width = canvas.clientWidth;
  const pen = fit(canvas, width, HEIGHT);
  const x = scales.map((_, axis) => xOf(width, scales.length, axis));
  const order = (/** @type {{id: string}} */ line) => (line.id === pointed ? 3 : line.id === best ? 2 : chosen.has(line) ? 1 : 0);
  for (const line of [...lines].sort((a, b) => order(a) - order(b))) {
    const value = line.places[line.places.length - 1];
    const good = value === null ? 0 : least ? 1 - value : value;
    const rank = order(line);
    pen.strokeStyle = rank === 0 ? fade(ink.dim, 0.12) : rank === 1 ? fade(ink.run, 0.2 + 0.7 * good) : rank === 2 ? ink.accent : ink.ink;
    pen.lineWidth = rank > 1 ? 2.4 : 1.2;
    trace(pen, line.places, x);
  }
  scales.forEach((scale, axis) => drawAxis(pen, ink, scale, x[axis], brushes.get(axis)));
}

/** A line has a gap where a value is not known. @param {CanvasRenderingContext2D} pen @param {(number | null)[]} places @param {number[]} x */
function trace(pen, places, x) {
  pen.beginPath();
  let isDown = false;
  places.forEach((place, axis) => {
    if (place === null) isDown = false;
    else if (isDown) pen.lineTo(x[axis], yOf(place));
    else {
      pen.moveTo(x[axis], yOf(place));
      isDown = true;
    }
  });
  pen.stroke();
}

/** @param {CanvasRenderingContext2D} pen @param {import("./ink.js").Ink} ink @param {Scale} scale @param {number} x @param {[number, number] | undefined} brush */
function drawAxis(pen, ink, scale, x, brush) {
  pen.fillStyle = ink.dim;
  pen.fillRect(x, TOP, 1, HEIGHT - TOP - BOTTOM);
  pen.font = `600 11px ${ink.mono}`;
  pen.textAlign = "center";
  pen.fillStyle = ink.ink;
  pen.fillText(clip(scale.name, 18), x, 14);
  pen.font = `10px ${ink.mono}`;
  pen.textAlign = "right";
  for (const { at, text } of scale.ticks) {
    const y = yOf(at);
    pen.fillStyle = fade(ink.panel, 0.8);
    const wide = pen.measureText(clip(text, 10)).width;
    pen.fillRect(x - 7 - wide, y - 6, wide + 4, 12);
    pen.fillStyle = ink.dim;
    pen.fillText(clip(text, 10), x - 5, y + 3);
  }
  if (!brush) return;
  pen.fillStyle = fade(ink.accent, 0.35);
  pen.fillRect(x - 6, yOf(brush[1]), 13, yOf(brush[0]) - yOf(brush[1]));
}

/** @param {string} text @param {number} most */
function clip(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
