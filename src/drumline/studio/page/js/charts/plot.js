/** Curves on one axis, drawn by uPlot: bands, marks, one pointer for all charts of a page. */

import { onTheme } from "../draw/colours.js";
import { fade, readInk } from "../draw/ink.js";
import { clock, number } from "../format.js";
import { html, loadPlot, useEffect, useRef, useSignal } from "../lib.js";
import { isZoomed, listenToFingers, narrow, noteZoom, showPart, turn } from "./zooming.js";

/** @typedef {import("./smooth.js").Column} Column */
/**
 * @typedef {object} Curve
 * @property {string} label
 * @property {number} colour its place among the colours of curves; -1: the dim one
 * @property {Column} values
 * @property {Column} [low] with `high`: a band behind the curve
 * @property {Column} [high]
 * @property {Column} [raw] what was smoothed, drawn faintly
 */
/** @typedef {{x: number, text: string, first?: boolean}} Mark `first`: where a failure began */

/**
 * @typedef {object} Drawing
 * @property {number[]} x
 * @property {Curve[]} curves
 * @property {boolean} [time] whether x are seconds since 1970
 * @property {(value: number) => string} [xText]
 * @property {(value: number) => string} [yText]
 * @property {number[]} [steps] between the figures of the y axis
 * @property {boolean} [log]
 * @property {[number, number] | "zero" | null} [range] of y; `zero`: from there on
 * @property {Mark[]} [marks]
 */

const COLOURS = 8;

/**
 * @param {object} props
 * @param {Drawing} props.drawing
 * @param {number} [props.height]
 * @param {string} props.sync charts with the same word have one pointer
 * @param {Signal<number | null>} [props.pointed] milliseconds since 1970, for charts over time
 * @param {string} props.label for those who do not see it
 * @param {string} [props.test]
 */
export function Plot({ drawing, height = 198, sync, pointed, label, test }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const chart = useRef(/** @type {any} */ (null));
  const latest = useRef(drawing);
  latest.current = drawing;
  const at = useSignal(/** @type {number | null} */ (null));
  const zoomed = useSignal(false);
  const shape = shapeOf(drawing);
  useEffect(() => {
    let stopped = false;
    let undo = () => {};
    loadPlot().then((uPlot) => {
      if (!stopped && box.current) undo = attach(uPlot, box.current, { latest, height, sync, pointed, at, chart, zoomed });
    });
    return () => {
      stopped = true;
      undo();
    };
  }, [shape, height, sync]);
  useEffect(() => {
    if (!chart.current) return;
    chart.current.drumline = drawing;
    const isClose = isZoomed(chart.current);
    chart.current.setData(toData(drawing), !isClose);
    if (isClose) chart.current.redraw();
  }, [drawing]);
  return html`<figure class="plot" data-test=${test}>
    <div ref=${box} class="plot-box" role="img" aria-label=${label} style=${{ height: `${height}px` }}></div>
    <${Legend} drawing=${drawing} at=${at} whole=${zoomed.value && (() => narrow(chart.current, 0, 1))} />
  </figure>`;
}

/** What makes another chart necessary; new values alone do not. @param {Drawing} drawing */
function shapeOf({ curves, log, time, marks, range }) {
  const lines = curves.map((one) => [one.label, one.colour, Boolean(one.low), Boolean(one.raw)]);
  return JSON.stringify([lines, log, time, range, marks?.length ?? 0]);
}

/** @param {Drawing} drawing */
function toData({ x, curves, log }) {
  const positive = (/** @type {Column} */ values) => (log ? values.map((one) => (one !== null && one > 0 ? one : null)) : values);
  return [x, ...curves.flatMap((one) => [one.low, one.high, one.raw, one.values].filter((values) => values !== undefined).map((values) => positive(/** @type {Column} */ (values))))];
}

/**
 * @param {any} uPlot
 * @param {HTMLElement} box
 * @param {{latest: {current: Drawing}, height: number, sync: string, pointed?: Signal<number | null>, at: Signal<number | null>, chart: any, zoomed: Signal<boolean>}} how
 */
function attach(uPlot, box, { latest, height, sync, pointed, at, chart, zoomed }) {
  const make = () => {
    chart.current?.destroy();
    const drawing = latest.current;
    const options = { ...optionsOf(drawing, sync), width: box.clientWidth || 300, height };
    options.hooks = {
      setCursor: [(/** @type {any} */ self) => point(self, at, pointed)],
      setScale: [(/** @type {any} */ self) => noteZoom(self, zoomed)],
      draw: [drawMarks],
    };
    const found = new uPlot(options, toData(drawing), box);
    found.group = uPlot.sync(sync);
    found.over.addEventListener("wheel", (/** @type {WheelEvent} */ event) => turn(found, event), { passive: false });
    listenToFingers(found);
    found.drumline = drawing;
    showPart(found);
    chart.current = found;
  };
  make();
  const size = new ResizeObserver(() => {
    const width = box.clientWidth;
    if (width && width !== chart.current.width) chart.current.setSize({ width, height });
  });
  size.observe(box);
  const stop = onTheme(make);
  const undo = pointed && latest.current.time ? pointed.subscribe((time) => follow(chart.current, box, time)) : () => {};
  return () => {
    size.disconnect();
    stop();
    undo();
    chart.current?.destroy();
    chart.current = null;
  };
}

/** @param {any} chart @param {Signal<number | null>} at @param {Signal<number | null> | undefined} pointed */
function point(chart, at, pointed) {
  const index = chart.cursor.idx ?? null;
  at.value = index;
  if (!pointed || !chart.drumline?.time || !chart.over.matches(":hover")) return;
  pointed.value = index === null ? null : chart.data[0][index] * 1000;
}

/** @param {any} chart @param {HTMLElement} box @param {number | null} time */
function follow(chart, box, time) {
  if (!chart || box.matches(":hover")) return;
  const left = time === null ? -10 : chart.valToPos(time / 1000, "x");
  chart.setCursor({ left, top: time === null ? -10 : chart.over.clientHeight / 2 });
}

/** @param {Drawing} drawing @param {string} sync */
function optionsOf(drawing, sync) {
  const ink = readInk();
  const axis = { stroke: ink.dim, font: `10px ${ink.mono}`, grid: { stroke: ink.line, width: 0.5 }, ticks: { show: false } };
  const { series, bands } = seriesOf(drawing.curves, ink);
  const { xText, yText, steps, time = false, log, range } = drawing;
  const texts = (/** @type {((value: number) => string) | undefined} */ text) =>
    text ? { values: (/** @type {any} */ _, /** @type {number[]} */ all) => all.map((one) => (one === null ? "" : text(one))) } : {};
  return /** @type {any} */ ({
    series: [{}, ...series],
    bands,
    legend: { show: false },
    cursor: { sync: { key: sync, setSeries: false }, points: { size: 5 }, drag: { x: true, y: false } },
    scales: {
      x: { time },
      y: { distr: log ? 3 : 1, ...(range ? { range: range === "zero" ? fromZero : range } : {}) },
    },
    axes: [
      { ...axis, size: 24, space: time ? 90 : 60, ...texts(time ? clock : (xText ?? number)) },
      { ...axis, size: widthOf, ...(steps && { incrs: steps }), ...texts(yText ?? number) },
    ],
  });
}

/** @param {any} _chart @param {number} low @param {number} high @returns {[number, number]} */
function fromZero(_chart, low, high) {
  return [Math.min(0, low ?? 0), high > 0 ? high * 1.08 : 1];
}

/** As wide as the longest number. @param {any} _chart @param {string[] | null} texts */
function widthOf(_chart, texts) {
  return 16 + 6.2 * Math.max(3, ...(texts ?? []).map((one) => one?.length ?? 0));
}

/** @param {Curve[]} curves @param {import("../draw/ink.js").Ink} ink */
function seriesOf(curves, ink) {
  /** @type {any[]} */
  const series = [];
  /** @type {any[]} */
  const bands = [];
  for (const one of curves) {
    const colour = one.colour < 0 ? ink.dim : ink.curves[one.colour % COLOURS];
    const plain = { label: one.label, spanGaps: true, points: { show: false } };
    if (one.low && one.high) {
      const edge = { ...plain, stroke: "transparent", width: 0 };
      series.push(edge, edge);
      bands.push({ series: [series.length, series.length - 1], fill: fade(colour, 0.2) });
    }
    if (one.raw) series.push({ ...plain, stroke: fade(colour, 0.3), width: 1 });
    const dash = one.colour >= COLOURS ? { dash: [5, 3] } : {};
    const alone = one.values.filter((value) => value !== null).length < 2;
    series.push({ ...plain, stroke: colour, width: 1.6, ...dash, points: { show: alone, size: 5 } });
  }
  return { series, bands };
}

/** @param {any} chart */
function drawMarks(chart) {
  const { ctx, bbox } = chart;
  const ink = readInk();
  const ratio = devicePixelRatio;
  ctx.save();
  for (const mark of chart.drumline?.marks ?? []) {
    const x = Math.round(chart.valToPos(mark.x, "x", true));
    if (x < bbox.left - 1 || x > bbox.left + bbox.width + 1) continue;
    ctx.strokeStyle = mark.first ? ink.bad : ink.dim;
    ctx.lineWidth = ratio;
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

/** @param {{drawing: Drawing, at: Signal<number | null>, whole: false | (() => void)}} props */
function Legend({ drawing, at, whole }) {
  const index = at.value;
  const yText = drawing.yText ?? number;
  const where = index === null || drawing.time ? "" : (drawing.xText ?? number)(drawing.x[index]);
  return html`<figcaption class="legend">
    ${drawing.curves.map(
      (one) => html`<span key=${one.label}><i class=${one.colour < 0 ? "swatch" : `swatch s${one.colour % COLOURS}`}></i>${one.label} <b>${yText(/** @type {number} */ (valueAt(one.values, index)))}</b></span>`,
    )}
    ${where && html`<span class="quiet">at ${where}</span>`}
    ${whole && html`<button type="button" class="link" onClick=${whole} data-test="chart-whole">show all</button>`}
  </figcaption>`;
}

/** Return the value at an index, or the nearest before it; the last one without an index. @param {Column} values @param {number | null} index */
function valueAt(values, index) {
  for (let at = index ?? values.length - 1; at >= 0; at -= 1) if (values[at] !== null && values[at] !== undefined) return values[at];
  return null;
}

