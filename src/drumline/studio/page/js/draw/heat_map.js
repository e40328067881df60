/** Rank by time: one row a rank, one column a span of time; a pointer on it is one on every tab. */

import { once } from "../api.js";
import { clock, measure, moment } from "../format.js";
import { html, useEffect, useRef, useSignal } from "../lib.js";
import { channelsOf, colourOf, fit, onTheme } from "./colours.js";
import { chooseMost, makeRamp, paintCells } from "./heat_pixels.js";

const LABEL_WIDTH = 34;
const SMALLEST_LABEL = 11;
const ROW_HEIGHTS = [1, 20];
const WANTED_HEIGHT = 330;
const WIDEST_FAILURE = 12;
const MARKS_APART = 4;

/** The value of the last colour: of 512 ranks over 300 s there are 150,000 to look through. */
export const mostOf = once((/** @type {SystemAnswer} */ data) => {
  const known = data.measures.find((one) => one.key === data.measure);
  return chooseMost(data.rows.map((one) => one.values), known?.most, known?.unit);
});

/**
 * @param {object} props
 * @param {SystemAnswer} props.data
 * @param {Signal<number | null>} props.time the pointed one, in milliseconds since 1970
 * @param {{rank: number, time: number | null} | null} [props.failed] the rank that failed first, and when
 * @param {(rank: number | null, time: number) => void} [props.onOpen] a cell was chosen
 */
export function HeatMap({ data, time, failed = null, onOpen }) {
  const map = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const over = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const width = useSignal(0);
  const row = useSignal(/** @type {number | null} */ (null));
  const begin = moment(data.begin) ?? 0;
  const end = Math.max(moment(data.end) ?? 0, begin + 1);
  const known = data.measures.find((one) => one.key === data.measure);
  const most = mostOf(data);
  const [least, highest] = ROW_HEIGHTS;
  const height = Math.max(least, Math.min(highest, Math.floor(WANTED_HEIGHT / Math.max(1, data.rows.length)))) * data.rows.length;

  useEffect(() => {
    const frame = map.current?.parentElement;
    if (!frame) return undefined;
    const watcher = new ResizeObserver(() => (width.value = frame.clientWidth));
    watcher.observe(frame);
    return () => watcher.disconnect();
  }, []);
  useEffect(() => {
    if (!width.value) return undefined;
    const redraw = () => drawMap(map.current, width.peek(), height, data, most, failed);
    redraw();
    return onTheme(redraw);
  }, [data, width.value, height, failed?.rank, failed?.time]);
  useEffect(() => {
    if (width.value) drawOver(over.current, width.value, height, data, time.value, row.value);
  }, [data, width.value, height, time.value, row.value]);

  /** @param {PointerEvent} event */
  const point = (event) => {
    const box = /** @type {HTMLElement} */ (event.currentTarget).getBoundingClientRect();
    const part = (event.clientX - box.left - LABEL_WIDTH) / (box.width - LABEL_WIDTH);
    row.value = Math.max(0, Math.min(data.rows.length - 1, Math.floor(((event.clientY - box.top) / box.height) * data.rows.length)));
    time.value = begin + Math.max(0, Math.min(1, part)) * (end - begin);
  };
  const leave = () => {
    row.value = null;
    time.value = null;
  };
  const step = data.bin_s * 1000 || (end - begin) / 100;
  /** @type {Record<string, () => void>} */
  const moves = {
    ArrowRight: () => (time.value = Math.min(end, (time.value ?? begin) + step)),
    ArrowLeft: () => (time.value = Math.max(begin, (time.value ?? end) - step)),
    ArrowDown: () => (row.value = Math.min(data.rows.length - 1, (row.value ?? -1) + 1)),
    ArrowUp: () => (row.value = Math.max(0, (row.value ?? data.rows.length) - 1)),
    Enter: () => onOpen?.(data.rows[row.value ?? 0]?.rank ?? null, time.value ?? begin),
  };
  /** A finger has pointed at nothing before: its first touch points. @param {PointerEvent} event */
  const open = (event) => event.pointerType !== "touch" && moves.Enter();
  /** @param {KeyboardEvent} event */
  const key = (event) => {
    if (!moves[event.key]) return;
    event.preventDefault();
    moves[event.key]();
  };
  const said = describe(data, row.value, time.value, begin, known);
  return html`<div
      class="heat"
      tabindex="0"
      role="img"
      aria-label=${`${known?.title ?? data.measure} of ${data.rows.length} ranks over time. Arrows move the pointer, enter opens the log there.`}
      onPointerMove=${point}
      onPointerLeave=${leave}
      onClick=${open}
      onKeyDown=${key}
      data-test="heat-map"
    >
      <canvas ref=${map}></canvas><canvas class="over" ref=${over}></canvas>
    </div>
    <div class="axis">
      <span>${clock(begin / 1000)}</span>
      <span class="marks" role="status" data-test="heat-pointed">${said || describeMarks(data)}</span>
      <span>${clock(end / 1000)}</span>
    </div>`;
}

/**
 * @param {SystemAnswer} data @param {number | null} row @param {number | null} time @param {number} begin
 * @param {{unit: string} | undefined} known
 */
function describe(data, row, time, begin, known) {
  if (time === null) return "";
  const one = row === null ? undefined : data.rows[row];
  const bin = Math.floor((time - begin) / (data.bin_s * 1000));
  const value = one?.values[Math.min(bin, one.values.length - 1)];
  return [one?.label, clock(time / 1000), one && measure(value, known?.unit ?? "")].filter(Boolean).join(" · ");
}

/** @param {SystemAnswer} data */
function describeMarks(data) {
  return data.marks.map((one) => `${one.text} ${clock(one.time)}`).slice(0, 2).join(" · ");
}

/**
 * @param {HTMLCanvasElement | null} canvas @param {number} width @param {number} height
 * @param {SystemAnswer} data @param {number} most
 * @param {{rank: number, time: number | null} | null} failed
 */
function drawMap(canvas, width, height, data, most, failed) {
  if (!canvas) return;
  const context = fit(canvas, width, height);
  const ratio = canvas.width / width;
  const left = Math.round(LABEL_WIDTH * ratio);
  const image = context.createImageData(Math.max(1, canvas.width - left), Math.max(1, canvas.height));
  const ramp = makeRamp(channelsOf("--heat-0"), channelsOf("--heat-1"), channelsOf("--heat-2"));
  const rows = data.rows.map((one) => one.values);
  paintCells(new Uint32Array(image.data.buffer), image.width, image.height, rows, most, ramp);
  context.putImageData(image, left, 0);
  drawLabels(context, height, data, failed);
  drawMarks(context, width, height, data);
  if (failed) drawFailure(context, width, height, data, failed);
}

/**
 * @param {CanvasRenderingContext2D} context @param {number} height @param {SystemAnswer} data
 * @param {{rank: number} | null} failed
 */
function drawLabels(context, height, data, failed) {
  const each = height / data.rows.length;
  const every = Math.ceil(SMALLEST_LABEL / each);
  context.font = `10px ${getComputedStyle(document.body).getPropertyValue("--mono")}`;
  context.textAlign = "right";
  context.textBaseline = "middle";
  const [dim, bad] = [colourOf("--dim"), colourOf("--bad")];
  data.rows.forEach((row, i) => {
    const isFailed = failed !== null && row.rank === failed.rank;
    if (i % every && !isFailed) return;
    context.fillStyle = isFailed ? bad : dim;
    context.fillText(row.rank === null ? `n${row.node}` : String(row.rank), LABEL_WIDTH - 8, (i + 0.5) * each + 0.5);
  });
}

/** @param {SystemAnswer} data @param {number} width */
function scale(data, width) {
  const begin = moment(data.begin) ?? 0;
  const end = Math.max(moment(data.end) ?? 0, begin + 1);
  return (/** @type {number} */ time) => LABEL_WIDTH + ((time - begin) / (end - begin)) * (width - LABEL_WIDTH);
}

/** @param {CanvasRenderingContext2D} context @param {number} width @param {number} height @param {SystemAnswer} data */
function drawMarks(context, width, height, data) {
  const x = scale(data, width);
  context.fillStyle = colourOf("--dim");
  let last = -Infinity;
  for (const at of data.marks.map((mark) => x(moment(mark.time) ?? 0)).sort((a, b) => a - b)) {
    // All ranks of a job that fails end within a second: one line says so.
    if (at < LABEL_WIDTH || at > width || at - last < MARKS_APART) continue;
    context.fillRect(Math.min(at, width - 1), 0, 1, height);
    last = at;
  }
}

/**
 * @param {CanvasRenderingContext2D} context @param {number} width @param {number} height @param {SystemAnswer} data
 * @param {{rank: number, time: number | null}} failed
 */
function drawFailure(context, width, height, data, failed) {
  const row = data.rows.findIndex((one) => one.rank === failed.rank);
  if (row < 0 || failed.time === null) return;
  const each = height / data.rows.length;
  const wide = Math.max(4, Math.min(WIDEST_FAILURE, (width - LABEL_WIDTH) / Math.max(1, data.rows[row].values.length)));
  const at = Math.max(LABEL_WIDTH, Math.min(width - wide, scale(data, width)(failed.time) - wide / 2));
  context.fillStyle = colourOf("--bad");
  context.fillRect(at, row * each, wide, Math.max(2, each - 1));
}

/**
 * The pointer, on a canvas of its own: the map below is not drawn again.
 * @param {HTMLCanvasElement | null} canvas @param {number} width @param {number} height @param {SystemAnswer} data
 * @param {number | null} time @param {number | null} row
 */
function drawOver(canvas, width, height, data, time, row) {
  if (!canvas) return;
  const context = fit(canvas, width, height);
  context.fillStyle = colourOf("--ink");
  if (time !== null) {
    const at = scale(data, width)(time);
    if (at >= LABEL_WIDTH && at <= width) context.fillRect(Math.min(at, width - 1), 0, 1, height);
  }
  if (row !== null) {
    const each = height / data.rows.length;
    context.strokeStyle = colourOf("--ink");
    context.strokeRect(LABEL_WIDTH + 0.5, row * each + 0.5, width - LABEL_WIDTH - 1, Math.max(1, each - 1));
  }
}
