/** Keys of the whole page, and of what it shows: `j k enter x /`, `g j`, `?`. */

import { useEffect, useRef } from "./lib.js";

const SEQUENCE_MS = 1200;

/** @typedef {Record<string, {run: (event: KeyboardEvent) => void, text: string}>} Keys */

/** The newest last: what a page binds goes before what the frame does. @type {{current: Keys}[]} */
const bound = [];
let first = "";
let firstAt = 0;

/**
 * Bind keys while a component is shown: `j`, `Enter`, `Escape`, `?`, or two after another as `g j`.
 * @param {Keys} keys text: what it does, for the list under `?`
 * @param {{isFrame?: boolean}} [how] isFrame: every page may bind the same key to something else
 */
export function useKeys(keys, { isFrame = false } = {}) {
  const own = useRef(keys);
  own.current = keys;
  useEffect(() => {
    if (isFrame) bound.unshift(own);
    else bound.push(own);
    return () => void bound.splice(bound.indexOf(own), 1);
  }, []);
}

/** What the keys do now, the page's own first. @returns {[string, string][]} */
export function listKeys() {
  /** @type {Map<string, string>} */
  const found = new Map();
  for (const keys of [...bound].reverse()) {
    for (const [key, one] of Object.entries(keys.current)) if (one.text && !found.has(key)) found.set(key, one.text);
  }
  return [...found];
}

/** Begin to listen; the page calls it once. */
export function listen() {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const target = /** @type {HTMLElement} */ (event.target);
    if (isTyping(target)) {
      if (event.key === "Escape") target.blur();
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    // Enter and space belong to the link or button that has the focus.
    if (event.key === "Enter" && target.closest("a, button, select, summary, [role=gridcell], [tabindex='0']")) return;
    const pair = Date.now() - firstAt < SEQUENCE_MS ? `${first} ${event.key}` : "";
    const found = (pair && find(pair)) || find(event.key);
    first = found ? "" : event.key;
    firstAt = Date.now();
    if (found) {
      event.preventDefault();
      found.run(event);
    }
  });
}

/** @param {string} key */
function find(key) {
  return [...bound].reverse().find((keys) => Object.hasOwn(keys.current, key))?.current[key];
}

/** @param {HTMLElement} target */
function isTyping(target) {
  return target.isContentEditable || target.matches("textarea, select, input:not([type=checkbox], [type=radio], [type=button])");
}
