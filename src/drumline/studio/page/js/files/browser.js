/** A folder of a job: its entries at the left, the file that was chosen at the right. */

import { useResource } from "../api.js";
import { size } from "../format.js";
import { html, useEffect, useRef } from "../lib.js";
import { Card } from "../parts/card.js";
import { route, withQuery } from "../router.js";

/** @typedef {{name: string, kind: string, size: number | null}} Entry */
/** @typedef {{path: string, kind: "folder" | "file" | "none", entries: Entry[], text: string | null, cut: boolean | number | null, why: string}} Answer */

/**
 * @param {object} props
 * @param {string} props.path of the endpoint
 * @param {Query} [props.query] what it is asked besides the path
 * @param {string} props.title
 * @param {Empty} props.empty
 * @param {ReadonlySignal<any>} [props.live]
 * @param {((path: string) => string) | null} [props.download] the address of a file to save
 */
export function Browser({ path, query = {}, title, empty, live, download = null }) {
  const asked = route.value.query;
  const chosen = asked.path ?? "";
  const here = useResource(path, { ...query, path: chosen }, { live }).value;
  const folder = chosen.slice(0, Math.max(0, chosen.lastIndexOf("/")));
  const isFile = here.data?.kind === "file";
  const above = useResource(isFile ? path : null, { ...query, path: folder }).value;
  const listing = isFile ? above : here;
  const root = isFile ? folder : chosen;
  const line = Number(asked.line ?? 0);
  return html`<div class="browser" data-test="browser">
    <${Card} title=${title} note=${html`<${Way} path=${chosen} />`} resource=${listing} height=${260} empty=${(/** @type {Answer} */ data) => (data.kind === "none" ? { ...empty, text: data.why || empty.text } : !data.entries?.length && !root && empty)}>
      ${(/** @type {Answer} */ data) => html`<${Entries} entries=${data.entries ?? []} root=${root} chosen=${chosen} />`}
    <//>
    ${isFile && html`<${Shown} data=${here.data} line=${line} href=${download?.(chosen) ?? null} />`}
  </div>`;
}

/** @param {string} path @param {Record<string, any>} [more] */
function linkTo(path, more = {}) {
  const { path: _, line: __, ...others } = route.peek().query;
  return withQuery(location.pathname, { ...others, path, ...more });
}

/** @param {{path: string}} props */
function Way({ path }) {
  const parts = path.split("/").filter(Boolean);
  return html`<nav class="way" aria-label="folders">
    <a href=${linkTo("")}>top</a>${parts.map((part, index) => html` / <a key=${index} href=${linkTo(parts.slice(0, index + 1).join("/"))}>${part}</a>`)}
  </nav>`;
}

/** @param {{entries: Entry[], root: string, chosen: string}} props */
function Entries({ entries, root, chosen }) {
  const above = root.slice(0, Math.max(0, root.lastIndexOf("/")));
  return html`<ul class="entries">
    ${root && html`<li><a href=${linkTo(above)}>..</a></li>`}
    ${entries.map((one) => {
      const path = root ? `${root}/${one.name}` : one.name;
      const isFolder = one.kind === "folder";
      return html`<li key=${one.name} class=${path === chosen ? "chosen" : ""} data-kind=${one.kind}>
        ${isFolder || one.kind === "file" ? html`<a href=${linkTo(path)}>${one.name}${isFolder ? "/" : ""}</a>` : html`<span class="quiet">${one.name} (${one.kind})</span>`}
        <span class="quiet">${isFolder || one.size === null ? "" : size(one.size)}</span>
      </li>`;
    })}
  </ul>`;
}

/** @param {{data: Answer, line: number, href: string | null}} props */
function Shown({ data, line, href }) {
  const save = href && html`<a class="button" href=${href} download data-test="download">Download</a>`;
  const isText = typeof data.text === "string";
  const note = data.cut ? `only its beginning${typeof data.cut === "number" ? ` of ${size(data.cut)}` : ""}` : "";
  const empty = !isText ? { text: data.why || "This file is no text: it can be downloaded, not shown." } : data.text === "" && { text: "This file is empty." };
  return html`<${Card} title=${data.path} note=${note} tools=${save} empty=${empty} test="file">
    ${isText && html`<${Text} key=${data.path} text=${data.text ?? ""} line=${line} />`}
  <//>`;
}

/** A text with numbers of lines, of which one may be marked. @param {{text: string, line: number}} props */
function Text({ text, line }) {
  const marked = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => marked.current?.scrollIntoView({ block: "center" }), [line]);
  const lines = text.replace(/\n$/, "").split("\n");
  return html`<div class="source" tabindex="0" role="region" aria-label="content of the file">
    <pre class="source-n" aria-hidden="true">${lines.map((_, index) => index + 1).join("\n")}</pre>
    <pre class="source-text" data-test="text">
${line > 0 && line <= lines.length
        ? html`${lines.slice(0, line - 1).map((one) => `${one}\n`).join("")}<mark ref=${marked} class="source-line">${lines[line - 1] || " "}</mark>${lines.slice(line).map((one) => `\n${one}`).join("")}`
        : text}</pre
    >
  </div>`;
}
