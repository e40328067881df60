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

/** Markup as a tagged template; text and attributes are set as such, never parsed as HTML. */
export const html = /** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */ (htm.bind(h));

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
