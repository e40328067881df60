/** Numbers, durations, sizes and times in few letters: the same words as the command line (contract/words.py). */

const MINUTE_S = 60;
const HOUR_S = 3600;
const DAY_S = 86400;
const DASH = "–";

/**
 * Three significant digits, or more for whole numbers below a million: 0.241, 4,811, 3e-5, 1.23e9.
 * @param {number | null | undefined} value
 */
export function number(value) {
  if (value === null || value === undefined) return DASH;
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const size = Math.abs(value);
  if (size >= 1000 && size < 1e6) return Math.round(value).toLocaleString("en-US");
  if (size !== 0 && (size < 1e-4 || size >= 1e6)) return value.toExponential(2).replace(/\.?0*e\+?/, "e");
  return String(Number(value.toPrecision(3)));
}

/**
 * 0.35s, 9.2s, 57s, 3m, 3m12s, 1h4m, 2d3h.
 * @param {number | null | undefined} seconds
 */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return DASH;
  if (seconds < 0.995) return `${Math.max(0, seconds).toFixed(2)}s`;
  if (seconds < 9.95) return `${seconds.toFixed(1)}s`;
  const whole = Math.round(seconds);
  if (whole < MINUTE_S) return `${whole}s`;
  const [large, small, units] =
    whole < HOUR_S ? [MINUTE_S, 1, "ms"] : whole < DAY_S ? [HOUR_S, MINUTE_S, "hm"] : [DAY_S, HOUR_S, "dh"];
  const rest = Math.floor((whole % large) / small);
  return `${Math.floor(whole / large)}${units[0]}${rest ? `${rest}${units[1]}` : ""}`;
}

/**
 * An age in one unit: 12s, 4m, 2h, 3d.
 * @param {number | null | undefined} seconds
 */
export function age(seconds) {
  if (seconds === null || seconds === undefined) return DASH;
  const whole = Math.max(0, Math.floor(seconds));
  if (whole >= DAY_S) return `${Math.floor(whole / DAY_S)}d`;
  if (whole >= HOUR_S) return `${Math.floor(whole / HOUR_S)}h`;
  if (whole >= MINUTE_S) return `${Math.floor(whole / MINUTE_S)}m`;
  return `${whole}s`;
}

/**
 * 0 B, 1.43 MiB, 64 MiB, 0.977 GiB.
 * @param {number | null | undefined} count
 */
export function size(count) {
  if (count === null || count === undefined) return DASH;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let power = 0;
  while (Math.abs(count) >= 999.5 && power < units.length - 1) {
    count /= 1024;
    power += 1;
  }
  return `${number(count)} ${units[power]}`;
}

/**
 * A value with its unit: `%`, `B`, `B/s`, `s`, `ms`, or any other word.
 * @param {number | null | undefined} value
 * @param {string} unit
 */
export function measure(value, unit) {
  if (value === null || value === undefined) return DASH;
  if (unit === "%") return `${value < 10 ? number(value) : Math.round(value)} %`;
  if (unit === "B") return size(value);
  if (unit === "B/s" || unit === "bytes/s") return `${size(value)}/s`;
  if (unit === "bytes") return size(value);
  if (unit === "s") return duration(value);
  return unit ? `${number(value)} ${unit}` : number(value);
}

/**
 * Milliseconds since 1970 of a time of the server.
 * @param {string | number | null | undefined} time ISO 8601, or seconds since 1970
 * @returns {number | null}
 */
export function moment(time) {
  if (time === null || time === undefined || time === "") return null;
  const found = typeof time === "number" ? time * 1000 : Date.parse(time);
  return Number.isNaN(found) ? null : found;
}

/**
 * 14:02:31 by the clock of whoever reads; with `digits` parts of a second.
 * @param {string | number | null | undefined} time
 * @param {number} [digits] 0 to 3
 */
export function clock(time, digits = 0) {
  const at = moment(time);
  if (at === null) return DASH;
  const date = new Date(at);
  const text = [date.getHours(), date.getMinutes(), date.getSeconds()].map((one) => String(one).padStart(2, "0")).join(":");
  return digits ? `${text}.${String(date.getMilliseconds()).padStart(3, "0").slice(0, digits)}` : text;
}

/**
 * today 14:02, yesterday 9:15, 3 Mar 14:02, 3 Mar 2025.
 * @param {string | number | null | undefined} time
 * @param {number} [now] milliseconds since 1970
 */
export function when(time, now = Date.now()) {
  const at = moment(time);
  if (at === null) return DASH;
  const date = new Date(at);
  const today = new Date(now);
  const text = clock(time).slice(0, 5);
  const days = Math.round((midnight(today) - midnight(date)) / (DAY_S * 1000));
  if (days === 0) return `today ${text}`;
  if (days === 1) return `yesterday ${text}`;
  const day = `${date.getDate()} ${MONTHS[date.getMonth()]}`;
  return date.getFullYear() === today.getFullYear() ? `${day} ${text}` : `${day} ${date.getFullYear()}`;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** @param {Date} date */
function midnight(date) {
  return new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();
}

/**
 * 1 job, 3 jobs, 1,204 jobs.
 * @param {number} count
 * @param {string} word
 */
export function plural(count, word) {
  return `${count.toLocaleString("en-US")} ${word}${count === 1 ? "" : "s"}`;
}

/**
 * Ranks as the command line writes them: 0-3,7.
 * @param {Iterable<number>} ranks
 */
export function rankList(ranks) {
  const sorted = [...new Set(ranks)].sort((a, b) => a - b);
  /** @type {string[]} */
  const parts = [];
  for (let i = 0; i < sorted.length; ) {
    let end = i;
    while (sorted[end + 1] === sorted[end] + 1) end += 1;
    parts.push(end === i ? String(sorted[i]) : `${sorted[i]}-${sorted[end]}`);
    i = end + 1;
  }
  return parts.join(",");
}
