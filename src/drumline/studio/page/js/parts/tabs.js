/** A bar of tabs, each a link: they can be opened elsewhere, and bookmarked. */

import { html, useEffect, useRef } from "../lib.js";

/**
 * @param {object} props
 * @param {{key: string, title: any, href: string, note?: any}[]} props.tabs
 * @param {string} props.current its key
 * @param {string} props.label for those who do not see the bar
 * @param {string} [props.class]
 */
export function Tabs({ tabs, current, label, class: extra = "" }) {
  const self = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    // The bar is wider than a phone; the page itself stays where it is.
    const open = /** @type {HTMLElement | null | undefined} */ (self.current?.querySelector("[aria-current]"));
    if (self.current && open) {
      self.current.scrollLeft = open.offsetLeft - self.current.offsetLeft - (self.current.clientWidth - open.clientWidth) / 2;
    }
  }, [current]);
  return html`<nav ref=${self} class=${`tabs ${extra}`} aria-label=${label} data-test="tabs">
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
