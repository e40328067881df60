/** The start: the frame around every page, and which page an address has. */

import { useResource } from "./api.js";
import { clock } from "./format.js";
import { listen, listKeys, useKeys } from "./keys.js";
import { html, render, signal, useEffect, useRef } from "./lib.js";
import { connected, start } from "./live.js";
import { Problem } from "./parts/card.js";
import { ask, Dialogs } from "./parts/dialog.js";
import { Lazy } from "./parts/lazy.js";
import { Pick } from "./parts/menu.js";
import { Toasts } from "./parts/toast.js";
import { followLinks, go, route, setQuery, withQuery } from "./router.js";

/** By the first part of the path. @type {Record<string, () => Promise<any>>} */
const PAGES = {
  jobs: () => import("./pages/jobs.js"),
  submit: () => import("./pages/submit.js"),
  queue: () => import("./pages/queue.js"),
  nodes: () => import("./pages/nodes.js"),
  reports: () => import("./pages/reports.js"),
  assets: () => import("./pages/assets.js"),
  diff: () => import("./pages/diff.js"),
};
const loadJob = () => import("./pages/job.js");

const NAVIGATION = [
  { key: "jobs", title: "Jobs", shortcut: "j" },
  { key: "queue", title: "Queue", shortcut: "q" },
  { key: "nodes", title: "Nodes", shortcut: "n" },
  { key: "reports", title: "Reports", shortcut: "r" },
  { key: "assets", title: "Assets", shortcut: "a" },
];

/** What an address calls the jobs that are in none. */
const NO_WORKSPACE = "-";

const theme = signal(document.documentElement.dataset.theme ?? "");

function App() {
  const { parts, query } = route.value;
  const place = parts[0] ?? "jobs";
  const load = place === "jobs" && parts.length > 1 ? loadJob : PAGES[place];
  useKeys({
    ...Object.fromEntries(
      NAVIGATION.filter((one) => PAGES[one.key]).map((one) => [`g ${one.shortcut}`, { run: () => go(`/${one.key}`), text: `go to ${one.title.toLowerCase()}` }]),
    ),
    "/": { run: () => document.getElementById("search")?.focus(), text: "search" },
    "?": { run: showKeys, text: "show the keys" },
  }, { isFrame: true });
  useEffect(() => {
    document.title = [...parts.slice(0, 2).reverse(), "drumline"].join(" · ");
  }, [parts.join("/")]);
  return html`<${Head} place=${place} />
    <main id="main" tabindex="-1">
      ${load ? html`<${Lazy} key=${load} load=${load} parts=${parts} query=${query} />` : html`<${NotFound} />`}
    </main>
    <${Toasts} /><${Dialogs} />`;
}

/** @param {{place: string}} props */
function Head({ place }) {
  return html`<a class="skip" href="#main">Skip to the page</a>
    <header class="top">
      <a class="logo" href="/jobs" aria-label="drumline, jobs"><i></i><i></i><i></i> drumline</a>
      <nav aria-label="Pages" data-test="navigation">
        ${NAVIGATION.filter((one) => PAGES[one.key]).map(
          (one) => html`<a href=${`/${one.key}`} aria-current=${one.key === place ? "page" : undefined}>${one.title}</a>`,
        )}
      </nav>
      <${Connection} />
      <span class="space"></span>
      <${Workspaces} />
      <${Search} />
      <button type="button" class="key" onClick=${changeTheme} title="Light, dark, or as the system" aria-label="Theme" data-test="theme">
        <${ThemeSign} />
      </button>
      <button type="button" class="key" onClick=${showKeys} title="Keys" aria-label="Keys" data-test="keys">?</button>
    </header>`;
}

function Connection() {
  const { ok, since, isOver } = connected.value;
  return html`<span class="lost" role="status" data-test="connection">
    ${isOver && html`this session is over: open the page again with <code>drumline studio</code>`}
    ${!ok && !isOver && `not connected since ${clock(since / 1000)}, trying again`}
  </span>`;
}

function Workspaces() {
  const me = useResource("/me").value.data;
  if (!me?.workspaces.length) return null;
  const names = /** @type {string[]} */ (me.workspaces).map((name) => ({ value: name, title: name }));
  const options = [{ value: NO_WORKSPACE, title: "no workspace" }, ...names];
  return html`<${Pick}
    label="Workspace"
    value=${me.workspace || NO_WORKSPACE}
    options=${options}
    onChange=${(/** @type {string} */ name) => go(withQuery("/jobs", { workspace: name }))}
    test="workspace"
  />`;
}

function Search() {
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  const asked = route.value.parts[1] ? "" : (route.value.query.q ?? "");
  useEffect(() => {
    if (field.current) field.current.value = asked;
  }, [asked]);
  /** @param {Event} event */
  const search = (event) => {
    event.preventDefault();
    const q = field.current?.value ?? "";
    if (route.peek().path === "/jobs") setQuery({ q, offset: null }, { replace: false });
    else go(withQuery("/jobs", { q }));
    field.current?.blur();
  };
  return html`<form class="search" role="search" onSubmit=${search}>
    <input id="search" ref=${field} type="search" placeholder="Search jobs" aria-label="Search jobs" data-test="search" />
    <kbd aria-hidden="true">/</kbd>
  </form>`;
}

function ThemeSign() {
  const look = theme.value || "system";
  return html`<svg viewBox="0 0 16 16" width="12" height="12" aria-hidden="true" data-look=${look}>
    <circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" stroke-width="1.5" />
    ${look !== "light" && html`<path d="M8 2a6 6 0 0 1 0 12z" fill="currentColor" />`}
    ${look === "dark" && html`<circle cx="8" cy="8" r="6" fill="currentColor" />`}
  </svg>`;
}

function changeTheme() {
  const next = { "": "light", light: "dark", dark: "" }[theme.value] ?? "";
  theme.value = next;
  if (next) document.documentElement.dataset.theme = next;
  else delete document.documentElement.dataset.theme;
  try {
    localStorage.setItem("drumline.theme", next);
  } catch {
    // A browser that keeps nothing.
  }
  dispatchEvent(new Event("themechange")); // Canvases take their colours from the styles.
}

function showKeys() {
  const rows = listKeys();
  const body = html`<dl class="keys">
    ${rows.map(([key, text]) => html`<div><dt>${key.split(" ").map((one) => html`<kbd>${one}</kbd> `)}</dt><dd>${text}</dd></div>`)}
  </dl>`;
  ask({ title: "Keys", body, action: "Close", isTold: true });
}

function NotFound() {
  const error = { message: "there is no such page", hint: "the navigation above has those that there are" };
  return html`<h1>Not found</h1><${Problem} error=${error} />`;
}

if (location.pathname === "/") go("/jobs", { replace: true });
followLinks();
listen();
start();
const root = document.getElementById("app");
if (root) {
  root.replaceChildren();
  render(html`<${App} />`, root);
}
