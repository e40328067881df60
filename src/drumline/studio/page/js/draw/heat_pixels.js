/** The pixels of a heat map: pure arithmetic from values to colours, in one pass for any number of rows. */

const STEPS = 256;
const SMALLEST_GAP_CELL = 4;
const NEAR = 4;

/** @typedef {[number, number, number]} Channels */

/**
 * 256 colours from the first over the second to the third, as they lie in the memory of an ImageData.
 * @param {Channels} low @param {Channels} middle @param {Channels} high
 */
export function makeRamp(low, middle, high) {
  const ramp = new Uint32Array(STEPS);
  for (let i = 0; i < STEPS; i++) {
    const part = (i / (STEPS - 1)) * 2;
    const [from, to, t] = part < 1 ? [low, middle, part] : [middle, high, part - 1];
    const [red, green, blue] = from.map((one, k) => Math.round(one + (to[k] - one) * t));
    ramp[i] = pack([red, green, blue]);
  }
  return ramp;
}

/** @param {Channels} channels */
export function pack([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/**
 * Fill pixels: one row of cells a row of values, one column a bin. Cells of four pixels and more have a gap between.
 * @param {Uint32Array} pixels width times height
 * @param {number} width @param {number} height
 * @param {(number | null)[][]} rows of equal length; null: nothing is known, the cell stays clear
 * @param {number} most the value of the last colour
 * @param {Uint32Array} ramp
 */
export function paintCells(pixels, width, height, rows, most, ramp) {
  const bins = rows[0]?.length ?? 0;
  pixels.fill(0);
  if (!bins || !width || !height) return;
  const columns = cutAxis(width, bins);
  const lines = cutAxis(height, rows.length);
  const colours = new Uint32Array(width);
  let painted = -1;
  for (let y = 0; y < height; y++) {
    const row = lines[y];
    if (row < 0) continue;
    if (row !== painted) {
      paintLine(colours, columns, rows[row], most, ramp);
      painted = row;
    }
    pixels.set(colours, y * width);
  }
}

/**
 * @param {Uint32Array} colours of one line of pixels
 * @param {Int32Array} columns
 * @param {(number | null)[]} values
 * @param {number} most
 * @param {Uint32Array} ramp
 */
function paintLine(colours, columns, values, most, ramp) {
  for (let x = 0; x < colours.length; x++) {
    const value = columns[x] < 0 ? null : values[columns[x]];
    if (value === null || value === undefined) colours[x] = 0;
    else colours[x] = ramp[Math.max(0, Math.min(STEPS - 1, Math.round((value / most) * (STEPS - 1))))];
  }
}

/**
 * Which cell each pixel of an axis belongs to; -1: the gap between two.
 * @param {number} length @param {number} count
 */
export function cutAxis(length, count) {
  const cells = new Int32Array(length);
  const hasGaps = length / count >= SMALLEST_GAP_CELL;
  for (let i = 0; i < length; i++) {
    const cell = Math.floor((i * count) / length);
    const isLast = Math.floor(((i + 1) * count) / length) !== cell && cell < count - 1;
    cells[i] = hasGaps && isLast ? -1 : cell;
  }
  return cells;
}

/**
 * The value of the last colour: the most that there can be, where some come near it, or a round number above the
 * greatest. Parts of a hundred have a hundred: a rank that does nothing must not look hot. Of milliseconds, `most` is
 * what nearly all are below.
 * @param {(number | null)[][]} rows
 * @param {number | null} [most]
 * @param {string} [unit]
 */
export function chooseMost(rows, most, unit = "") {
  let greatest = unit.startsWith("%") ? 100 : 0;
  for (const row of rows) for (const value of row) if (value !== null && value > greatest) greatest = value;
  if (most && unit === "ms") greatest = most;
  else if (most && greatest >= most / NEAR) return most;
  if (!greatest) return 1;
  const power = 10 ** Math.floor(Math.log10(greatest));
  return [1, 2, 4, 5, 10].map((one) => one * power).find((one) => one >= greatest) ?? greatest;
}

const APART = 0.35; // Of the median.
const APART_PERCENT = 5;
const APART_MS = 1;

/**
 * The one row whose mean is far from the median of all, and no other nearly as far; null where there is none.
 * @param {(number | null)[][]} rows
 * @param {string} [unit]
 * @returns {{row: number, mean: number, median: number} | null}
 */
export function findOutlier(rows, unit = "") {
  const means = rows.flatMap((values, row) => {
    const known = /** @type {number[]} */ (values.filter((one) => one !== null));
    return known.length > 1 ? [{ row, mean: known.reduce((sum, one) => sum + one, 0) / known.length }] : [];
  });
  if (means.length < 3) return null;
  const ordered = means.map((one) => one.mean).sort((a, b) => a - b);
  const median = (ordered[(ordered.length - 1) >> 1] + ordered[ordered.length >> 1]) / 2;
  const [first, second] = [...means].sort((a, b) => Math.abs(b.mean - median) - Math.abs(a.mean - median));
  const far = Math.abs(first.mean - median);
  const least = Math.max(APART * Math.abs(median), unit.startsWith("%") ? APART_PERCENT : unit === "ms" ? APART_MS : 0);
  return far > least && far > 2 * Math.abs(second.mean - median) ? { ...first, median } : null;
}
