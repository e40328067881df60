/** The colours of charts: those of the theme, and those of curves, none of which is the red of a failure. */

import { colourOf } from "./colours.js";

const CURVES = 8;

/** @typedef {{dim: string, ink: string, line: string, bad: string, accent: string, panel: string, run: string, mono: string, curves: string[]}} Ink */

/** @type {{theme: string, ink: Ink} | null} */
let known = null;

/** @returns {Ink} */
export function readInk() {
  const theme = `${document.documentElement.dataset.theme}${matchMedia("(prefers-color-scheme: dark)").matches}`;
  if (known?.theme !== theme) known = { theme, ink: resolve() };
  return known.ink;
}

/** @returns {Ink} */
function resolve() {
  const names = /** @type {const} */ (["dim", "ink", "line", "bad", "accent", "panel", "run"]);
  const found = Object.fromEntries(names.map((name) => [name, colourOf(`--${name}`)]));
  const curves = Array.from({ length: CURVES }, (_, index) => colourOf(`--s${index}`));
  const mono = getComputedStyle(document.documentElement).getPropertyValue("--mono") || "monospace";
  return /** @type {Ink} */ ({ ...found, mono, curves });
}

/**
 * @param {string} colour `rgb(1, 2, 3)`
 * @param {number} alpha
 */
export function fade(colour, alpha) {
  return colour.replace(/^rgb\((.*)\)$/, `rgba($1, ${alpha})`);
}
