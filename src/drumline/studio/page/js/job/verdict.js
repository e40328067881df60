/** Why a job ended, or does not go on: the sentence, the last lines, and what to do with them. */

import { html } from "../lib.js";
import { FINAL } from "../parts/badge.js";
import { CopyButton } from "../parts/command.js";
import { Sentence } from "../parts/sentence.js";
import { attempt } from "../parts/toast.js";
import { get } from "../api.js";
import { jobPath } from "../router.js";

const SHOWN_LINES = 6;
const CLAUSE = /^(.*?\bfailed first|.*?\b(?:was|were) lost|[^,:;]{3,60})(?=[,:;]|$)/;

/** @param {{info: JobInfo}} props */
export function Verdict({ info }) {
  const { row, page, last_lines: lines } = info;
  const sentences = (page?.sentences?.length ? page.sentences : [row.hangs ? "" : row.sentence]).filter(Boolean);
  const warnings = (page?.warnings ?? []).map((/** @type {string} */ text) => `warning: ${text}`);
  if (!(sentences.length || warnings.length) || (row.hangs && !FINAL.has(row.status))) return null;
  const isBad = row.status === "Failed";
  const rank = page?.failed_rank?.rank ?? info.verdict?.rank ?? null;
  return html`<section class=${`verdict ${isBad ? "bad" : "calm"}`} aria-label="Verdict" data-test="verdict">
    <p>${sentences.map((/** @type {string} */ text, /** @type {number} */ i) => html`<${Clause} key=${i} text=${text} job=${row.name} isFirst=${i === 0} />`)}</p>
    ${warnings.map((/** @type {string} */ text) => html`<p class="small" key=${text} data-test="warning"><${Clause} text=${text} job=${row.name} isFirst=${false} /></p>`)}
    ${isBad && lines.length > 0 && html`<${LastLines} lines=${lines} />`}
    ${isBad &&
    html`<p class="small verdict-foot">
      <${CopyButton} text=${() => issueText(info, sentences)} test="copy-issue">Copy for an issue<//>
      <a href=${jobPath(row.name, "logs", { error: 1, ranks: rank })} data-test="show-in-log">Show in the log</a>
      ${page?.next && typeof page.next === "string" && html`<span class="quiet">next: <code>${page.next}</code></span>`}
    </p>`}
  </section>`;
}

/** @param {{text: string, job: string, isFirst: boolean}} props */
function Clause({ text, job, isFirst }) {
  const whole = capital(text).replace(/([^.!?])$/, "$1.");
  const clause = isFirst ? (CLAUSE.exec(whole)?.[0] ?? "") : "";
  return html`${clause && html`<b><${Sentence} text=${clause} job=${job} /></b>`}<${Sentence} text=${whole.slice(clause.length)} job=${job} />${" "}`;
}

/** @param {string} text */
function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** The last line says most. @param {{lines: {rank: number, text: string}[]}} props */
function LastLines({ lines }) {
  const shown = lines.slice(-SHOWN_LINES);
  return html`<pre class="last-lines" data-test="last-lines" tabindex="0">${shown.map(
    (one, i) => html`${i === shown.length - 1 ? html`<em>${one.text}</em>` : one.text}${"\n"}`,
  )}</pre>`;
}

/**
 * What a person who is asked for help needs to see, as Markdown.
 * @param {JobInfo} info
 * @param {string[]} sentences
 */
async function issueText(info, sentences) {
  const { row, last_lines: lines } = info;
  const me = await attempt(() => get("/me"));
  const facts = [
    `${row.nodes ?? 1} nodes, ${row.processes ?? 1} ranks on ${row.compute}`,
    row.most_attempts && row.most_attempts > 1 ? `attempt ${row.attempt} of 0-${row.most_attempts - 1}` : "",
    me ? `drumline ${me.version}` : "",
  ];
  const fence = fenceFor(lines.map((one) => one.text).join("\n"));
  return [
    `**${sentences.map(capital).join(". ")}**`,
    "",
    `Job \`${row.name}\`: ${facts.filter(Boolean).join("; ")}`,
    "",
    `${fence}text`,
    ...lines.map((one) => one.text),
    fence,
    "",
    `\`${info.commands.show}\``,
    "",
  ].join("\n");
}

/** A fence longer than any in the text. @param {string} text */
function fenceFor(text) {
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((one) => one.length));
  return "`".repeat(longest + 1);
}

/** @param {{info: JobInfo}} props */
export function HangBanner({ info }) {
  const { row, page, hang } = info;
  const said = typeof hang === "string" ? hang : (hang?.sentence ?? hang?.reason ?? page?.hang ?? "");
  if (!said || !row.hangs) return null;
  return html`<section class="verdict hang" aria-label="Hang" data-test="hang">
    <p><b>It may hang.</b> <${Sentence} text=${capital(said)} job=${row.name} /></p>
    <p class="small verdict-foot"><a href=${jobPath(row.name, "stacks")}>Show the stacks now</a></p>
  </section>`;
}
