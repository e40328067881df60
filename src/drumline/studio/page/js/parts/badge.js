/** The status of a job or a step, in a word and a colour. */

import { html } from "../lib.js";

const TONES = {
  Completed: "ok",
  Failed: "bad",
  NotResponding: "wait",
  Canceled: "quiet",
  CancelRequested: "quiet",
  Skipped: "quiet",
  Reused: "quiet",
  NotStarted: "wait",
  Queued: "wait",
  Provisioning: "wait",
};

const WORDS = {
  NotStarted: "Not started",
  NotResponding: "Not responding",
  CancelRequested: "Canceling",
};

/** Statuses that never change again. */
export const FINAL = new Set(["Completed", "Failed", "Canceled"]);

/**
 * ok, bad, quiet, wait or run: the class of a status's colour.
 * @param {string} status
 */
export function toneOf(status) {
  return /** @type {Record<string, string>} */ (TONES)[status] ?? "run";
}

/** @param {string} status */
export function wordOf(status) {
  return /** @type {Record<string, string>} */ (WORDS)[status] ?? status;
}

/** @param {{status: string, hangs?: boolean}} props */
export function Badge({ status, hangs = false }) {
  const tone = hangs ? "wait" : toneOf(status);
  return html`<span class=${`badge tone-${tone}`} data-test="status" data-status=${status}>
    <i class="dot" aria-hidden="true"></i>${hangs ? "Hangs" : wordOf(status)}
  </span>`;
}
