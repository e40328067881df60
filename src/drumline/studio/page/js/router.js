/** The address of the page: `/jobs/NAME/logs?ranks=5` has the parts jobs, NAME and logs. */

import { signal } from "./lib.js";

/** @returns {Route} */
function read() {
  const path = location.pathname;
  const parts = path.split("/").filter(Boolean).map(decode);
  return { path, parts, query: Object.fromEntries(new URLSearchParams(location.search)) };
}

/** @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // A lone % in an address that somebody typed.
  }
}

/** Where the page stands. */
export const route = signal(read());

/**
 * Go to a path of this site, with its query.
 * @param {string} path
 * @param {{replace?: boolean}} [how] replace: leave no entry in the history
 */
export function go(path, { replace = false } = {}) {
  const before = location.pathname;
  const workspace = route.peek().query.workspace;
  if (workspace && !/[?&]workspace=/.test(path)) path += `${path.includes("?") ? "&" : "?"}workspace=${encodeURIComponent(workspace)}`;
  history[replace ? "replaceState" : "pushState"](null, "", path);
  route.value = read();
  if (location.pathname !== before) scrollTo(0, 0);
}

/**
 * Change keys of the query; null and "" remove one.
 * @param {Record<string, string | number | null | undefined>} changes
 * @param {{replace?: boolean}} [how]
 */
export function setQuery(changes, { replace = true } = {}) {
  go(withQuery(location.pathname, { ...route.peek().query, ...changes }), { replace });
}

/**
 * Return a path with a query; null, undefined and "" are left out.
 * @param {string} path
 * @param {Query} [query]
 */
export function withQuery(path, query = {}) {
  const given = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") given.set(key, String(value));
  }
  // Commas and slashes need no escape there, and an address is read by people.
  const text = given.toString().replaceAll("%2C", ",").replaceAll("%2F", "/");
  return text ? `${path}?${text}` : path;
}

/**
 * Return the address of a job, of one of its tabs, with a query.
 * @param {string} name
 * @param {string} [tab]
 * @param {Query} [query]
 */
export function jobPath(name, tab = "", query = {}) {
  return withQuery(`/jobs/${encodeURIComponent(name)}${tab ? `/${tab}` : ""}`, query);
}

/** Follow plain links of this site without loading the page again. */
export function followLinks() {
  addEventListener("popstate", () => (route.value = read()));
  document.addEventListener("click", (event) => {
    const link = /** @type {Element} */ (event.target).closest?.("a[href]");
    if (!(link instanceof HTMLAnchorElement) || event.defaultPrevented) return;
    if (event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    if (link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
    if (link.pathname.startsWith("/api/") || link.getAttribute("href")?.startsWith("#")) return;
    event.preventDefault();
    go(link.pathname + link.search);
  });
}
