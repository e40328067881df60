/** Colours of the styles for canvases, which know no CSS variables, and when they change. */

/** @type {HTMLElement | null} */
let probe = null;

/**
 * The colour that a variable of css/base.css has now, as `rgb(...)`.
 * @param {string} name such as `--run`
 */
export function colourOf(name) {
  if (!probe) {
    probe = document.createElement("i");
    probe.hidden = true;
    document.body.append(probe);
  }
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

/**
 * Red, green and blue of it, 0 to 255.
 * @param {string} name
 * @returns {[number, number, number]}
 */
export function channelsOf(name) {
  const [red = 0, green = 0, blue = 0] = (colourOf(name).match(/[\d.]+/g) ?? []).map(Number);
  return [red, green, blue];
}

/**
 * Call back when the theme changes, by the button or by the system.
 * @param {() => void} redraw
 * @returns {() => void} Stop it.
 */
export function onTheme(redraw) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", redraw);
  addEventListener("themechange", redraw);
  return () => {
    system.removeEventListener("change", redraw);
    removeEventListener("themechange", redraw);
  };
}

/**
 * Give a canvas as many pixels as it has on the screen, and return its context, in CSS pixels.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width in CSS pixels
 * @param {number} height
 */
export function fit(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.scale(ratio, ratio);
  return context;
}
