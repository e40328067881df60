/**
 * The libraries, in one place: no other file imports from vendor/, which scripts/setup studio fetches.
 *
 * A component that reads `.value` of a signal is drawn again when that changes.
 */

import htm from "../vendor/htm.js";
import { h } from "../vendor/preact.js";

export { Component, Fragment, h, render } from "../vendor/preact.js";
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.js";
export { batch, computed, effect, signal, untracked } from "../vendor/signals-core.js";
export { useComputed, useSignal, useSignalEffect } from "../vendor/signals.js";

// Of writing from right to left: they would turn what a page says, as in a terminal (control/terminal.py).
const MARKS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/**
 * Return a value that is shown, or a list of such, with marks that turn the direction of writing as their numbers.
 * @param {any} value
 * @returns {any}
 */
function showMarks(value) {
  if (Array.isArray(value)) return value.map(showMarks);
  if (typeof value !== "string") return value;
  return value.replace(MARKS, (mark) => `<U+${mark.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}>`);
}

/**
 * @param {any} type
 * @param {any} props
 * @param {any[]} children
 */
function make(type, props, ...children) {
  const named = typeof props?.title === "string" ? { ...props, title: showMarks(props.title) } : props;
  return h(type, named, ...children.map(showMarks));
}

/** Markup as a tagged template; text and attributes are set as such, never parsed as HTML. */
export const html = /** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */ (htm.bind(make));

/** @type {Promise<any> | null} */
let plot = null;

/** Load uPlot with its sheet of styles, once, on the first page that draws curves. */
export function loadPlot() {
  plot ??= (async () => {
    const sheet = document.createElement("link");
    sheet.rel = "stylesheet";
    sheet.href = new URL("../vendor/uplot.css", import.meta.url).href;
    document.head.append(sheet);
    const loaded = await import("../vendor/uplot.js");
    return loaded.default;
  })();
  return plot;
}
