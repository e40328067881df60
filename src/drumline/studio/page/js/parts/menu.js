/** A button that opens a list of things to do, and pickers of one value. */

import { html, useEffect, useRef, useSignal } from "../lib.js";

/**
 * @param {object} props
 * @param {any} props.label what the button says
 * @param {{title: string, run?: () => void, href?: string, danger?: boolean, off?: string, test?: string}[]} props.items
 *     off: why it cannot be chosen now
 * @param {string} [props.test]
 */
export function Menu({ label, items, test = "menu" }) {
  const isOpen = useSignal(false);
  const self = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (!isOpen.value) return undefined;
    /** @param {Event} event */
    const away = (event) => {
      if (!self.current?.contains(/** @type {Node} */ (event.target))) isOpen.value = false;
    };
    document.addEventListener("pointerdown", away);
    /** @type {HTMLElement | null | undefined} */ (self.current?.querySelector(".item:not([disabled])"))?.focus();
    return () => document.removeEventListener("pointerdown", away);
  }, [isOpen.value]);
  /** @param {KeyboardEvent} event */
  const key = (event) => {
    if (event.key === "Escape" && isOpen.value) {
      event.stopPropagation();
      isOpen.value = false;
      self.current?.querySelector("button")?.focus();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      step(self.current, event.key === "ArrowDown" ? 1 : -1);
    }
  };
  return html`<span class="menu" ref=${self} onKeyDown=${key}>
    <button
      type="button"
      class="button"
      aria-expanded=${isOpen.value}
      onClick=${() => (isOpen.value = !isOpen.value)}
      data-test=${test}
    >
      ${label} <span aria-hidden="true" class="quiet">▾</span>
    </button>
    ${isOpen.value &&
    html`<span class="menu-list" role="menu">
      ${items.map((item) => html`<${Item} key=${item.title} item=${item} onDone=${() => (isOpen.value = false)} />`)}
    </span>`}
  </span>`;
}

/** @param {HTMLElement | null} menu @param {number} by */
function step(menu, by) {
  const items = /** @type {HTMLElement[]} */ ([...(menu?.querySelectorAll(".item:not([disabled])") ?? [])]);
  const at = items.indexOf(/** @type {HTMLElement} */ (document.activeElement));
  items[(at + by + items.length) % items.length]?.focus();
}

/** @param {{item: any, onDone: () => void}} props */
function Item({ item, onDone }) {
  const run = () => {
    onDone();
    item.run?.();
  };
  const look = `item ${item.danger ? "danger" : ""}`;
  if (item.href) {
    return html`<a role="menuitem" class=${look} href=${item.href} onClick=${onDone} data-test=${item.test}>${item.title}</a>`;
  }
  return html`<button type="button" role="menuitem" class=${look} disabled=${Boolean(item.off)} title=${item.off} onClick=${run} data-test=${item.test}>
    ${item.title}
  </button>`;
}

/**
 * One of a few values.
 * @param {object} props
 * @param {string} props.label
 * @param {string} props.value
 * @param {{value: string, title: string}[]} props.options
 * @param {(value: string) => void} props.onChange
 * @param {boolean} [props.showLabel]
 * @param {string} [props.test]
 */
export function Pick({ label, value, options, onChange, showLabel = false, test }) {
  /** @param {Event} event */
  const change = (event) => onChange(/** @type {HTMLSelectElement} */ (event.target).value);
  return html`<label class="pick">
    <span class=${showLabel ? "quiet" : "hidden"}>${label}</span>
    <select value=${value} onChange=${change} data-test=${test}>
      ${options.map(
        (one) => html`<option key=${one.value} value=${one.value}>${one.title}</option>`,
      )}
    </select>
  </label>`;
}

/**
 * One of two to five values, all of them shown.
 * @param {object} props
 * @param {string} props.label
 * @param {string} props.value
 * @param {{value: string, title: string}[]} props.options
 * @param {(value: string) => void} props.onChange
 * @param {string} [props.test]
 */
export function Segments({ label, value, options, onChange, test }) {
  return html`<span class="segments" role="group" aria-label=${label} data-test=${test}>
    ${options.map(
      (one) => html`<button
        key=${one.value}
        type="button"
        aria-pressed=${one.value === value}
        onClick=${() => onChange(one.value)}
        data-value=${one.value}
      >
        ${one.title}
      </button>`,
    )}
  </span>`;
}
