/** What has just been done, or could not be: a line at the foot of the page for some seconds. */

import { html, signal } from "../lib.js";

const SHOWN_MS = 6000;

/** @typedef {{id: number, text: string, hint: string, isBad: boolean}} Told */

const told = signal(/** @type {Told[]} */ ([]));
let count = 0;

/**
 * @param {string} text one sentence
 * @param {{hint?: string, isBad?: boolean}} [how]
 */
export function tell(text, { hint = "", isBad = false } = {}) {
  const id = (count += 1);
  told.value = [...told.peek().slice(-2), { id, text, hint, isBad }];
  setTimeout(() => forget(id), isBad ? SHOWN_MS * 2 : SHOWN_MS);
}

/**
 * Do something that the server may refuse, and tell how it went.
 * @template T
 * @param {() => Promise<T>} work
 * @param {string | ((answer: T) => string)} [done] what to tell then
 * @returns {Promise<T | null>} null: it was refused, which was told
 */
export async function attempt(work, done) {
  try {
    const answer = await work();
    if (done) tell(typeof done === "function" ? done(answer) : done);
    return answer;
  } catch (error) {
    const { message, hint = "" } = /** @type {{message: string, hint?: string}} */ (error);
    tell(message, { hint, isBad: true });
    return null;
  }
}

/** @param {number} id */
function forget(id) {
  told.value = told.peek().filter((one) => one.id !== id);
}

export function Toasts() {
  return html`<div class="toasts" role="status" aria-live="polite">
    ${told.value.map(
      (one) => html`<p key=${one.id} class=${one.isBad ? "toast bad" : "toast"} data-test="toast">
        <span>${one.text}${one.hint && html`<br /><small class="quiet">${one.hint}</small>`}</span>
        <button type="button" class="icon" aria-label="Close" onClick=${() => forget(one.id)}>×</button>
      </p>`,
    )}
  </div>`;
}
