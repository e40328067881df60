/** Smoothing of curves, and their values as a table: no drawing here. */

/** @typedef {(number | null)[]} Column */

/**
 * Return the moving average of values, each weighed by how far they are apart, without the pull of the first one.
 * @param {Column} values
 * @param {number} weight 0: the values themselves; near 1: very smooth
 * @returns {Column}
 */
export function smooth(values, weight) {
  if (!(weight > 0)) return values;
  let average = 0;
  let scale = 0;
  return values.map((value) => {
    if (value === null || !Number.isFinite(value)) return value;
    average = average * weight + value * (1 - weight);
    scale = scale * weight + 1 - weight;
    return average / scale;
  });
}

/**
 * Return several curves on one axis: the sorted union of their x, and null where a curve has no value.
 * @param {{x: number[], columns: Column[]}[]} curves
 * @returns {[number[], ...Column[]]}
 */
export function join(curves) {
  const all = new Set(curves.flatMap((one) => one.x));
  const x = [...all].sort((a, b) => a - b);
  const place = new Map(x.map((value, index) => [value, index]));
  const columns = curves.flatMap((one) =>
    one.columns.map((values) => {
      /** @type {Column} */
      const column = new Array(x.length).fill(null);
      one.x.forEach((value, index) => (column[place.get(value) ?? 0] = values[index] ?? null));
      return column;
    }),
  );
  return [x, ...columns];
}

/**
 * Of what a band has the least and the most: if a step has as many values as there are ranks, each has logged one.
 * @param {{runs: number, a_step: number | null}[]} series
 * @param {number} ranks of the job
 */
export function bandOf(series, ranks) {
  const runs = Math.max(...series.map((one) => one.runs));
  if (runs > 1) return ` of ${runs} runs`;
  const values = Math.max(...series.map((one) => one.a_step ?? 1));
  if (values < 2) return "";
  return values === ranks ? ` of ${values} ranks` : ` of ${values} values a step`;
}

/**
 * Return rows as CSV; a text that a spreadsheet would take for a formula is quoted with a sign before it.
 * @param {(string | number | null)[][]} rows
 */
export function toCsv(rows) {
  return rows.map((row) => row.map(toField).join(",")).join("\r\n") + "\r\n";
}

/** @param {string | number | null} value */
function toField(value) {
  if (value === null || typeof value === "number") return value === null ? "" : String(value);
  const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(safe) || safe !== value ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/**
 * Have the browser save a text as a file.
 * @param {string} name
 * @param {string} text
 * @param {string} type
 */
export function save(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name.replace(/[^\w.-]+/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
