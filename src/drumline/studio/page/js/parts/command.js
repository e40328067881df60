/** A command line that gives the same answer, to copy. */

import { html, useSignal } from "../lib.js";

/** @param {{line: string}} props */
export function Command({ line }) {
  if (!line) return null;
  return html`<div class="command" data-test="command">
    <code>${line}</code><${CopyButton} text=${line} label="Copy the command" />
  </div>`;
}

/**
 * @param {object} props
 * @param {string | (() => string | Promise<string>)} props.text
 * @param {string} [props.label] for those who do not see the sign
 * @param {any} [props.children] what the button says; without it a sign
 * @param {string} [props.test]
 */
export function CopyButton({ text, label, children, test = "copy" }) {
  const done = useSignal("");
  const copy = async () => {
    const isDone = await copyText(typeof text === "function" ? await text() : text);
    done.value = isDone ? "copied" : "not allowed";
    setTimeout(() => (done.value = ""), 1500);
  };
  return html`<button type="button" class=${children ? "link" : "icon"} onClick=${copy} title=${label} data-test=${test}>
    <span aria-live="polite">${done.value || children || html`<${CopySign} />`}</span>
    ${!children && html`<span class="hidden">${label}</span>`}
  </button>`;
}

function CopySign() {
  return html`<svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true" fill="none" stroke="currentColor">
    <rect x="5.5" y="5.5" width="8" height="8" rx="1.5" /><path d="M10.5 3.5v-1h-8v8h1" />
  </svg>`;
}

/**
 * @param {string} text
 * @returns {Promise<boolean>} Whether the browser did it: without https, on another host, it may refuse.
 */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

/** @param {string} text */
function copyBySelection(text) {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "hidden";
  document.body.append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  return isDone;
}
