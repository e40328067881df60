/** A bar of tabs, each a link: they can be opened elsewhere, and bookmarked. */

import { html } from "../lib.js";

/**
 * @param {object} props
 * @param {{key: string, title: any, href: string, note?: any}[]} props.tabs
 * @param {string} props.current its key
 * @param {string} props.label for those who do not see the bar
 * @param {string} [props.class]
 */
export function Tabs({ tabs, current, label, class: extra = "" }) {
  return html`<nav class=${`tabs ${extra}`} aria-label=${label} data-test="tabs">
    ${tabs.map(
      (tab) => html`<a
        key=${tab.key}
        href=${tab.href}
        aria-current=${tab.key === current ? "page" : undefined}
        data-test=${`tab-${tab.key}`}
        >${tab.title}${tab.note && html` <small class="quiet">${tab.note}</small>`}</a
      >`,
    )}
  </nav>`;
}
