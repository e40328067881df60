/** A verdict or another sentence of Drumline, whose ranks and places in the code are links to their evidence. */

import { html } from "../lib.js";
import { jobPath } from "../router.js";
import { cutSentence, ranksOf } from "./sentence_pieces.js";

/**
 * @param {object} props
 * @param {string} props.text
 * @param {string} [props.job] whose logs and code the links lead to; without it there are none
 * @param {string | number} [props.attempt]
 */
export function Sentence({ text, job, attempt }) {
  return html`<span class="sentence">${cutSentence(text).map((piece) => drawPiece(piece, job, attempt))}</span>`;
}

/**
 * @param {{kind: string, text: string}} piece
 * @param {string | undefined} job
 * @param {string | number | undefined} attempt
 */
function drawPiece({ kind, text }, job, attempt) {
  if (kind === "text") return text;
  if (kind === "code" || kind === "error") return html`<code>${text}</code>`;
  if (!job) return kind === "place" ? html`<code>${text}</code>` : text;
  if (kind === "ranks") {
    const link = jobPath(job, "logs", { ranks: ranksOf(text), attempt });
    return html`<a href=${link} data-test="rank-link">${text}</a>`;
  }
  if (kind === "place") {
    const [file, line] = text.split(":");
    return html`<a href=${jobPath(job, "code", { path: file, line })}><code>${text}</code></a>`;
  }
  return html`<a href=${jobPath(job, "", { attempt: ranksOf(text) })}>${text}</a>`;
}
