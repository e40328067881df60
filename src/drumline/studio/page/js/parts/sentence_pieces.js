/** Where a sentence of Drumline names ranks, places in the code, exceptions and attempts. */

const PIECES = new RegExp(
  [
    "(?<ranks>\\b[Rr]anks? \\d+(?:-\\d+)?(?:(?:, | and |, and )\\d+(?:-\\d+)?)*)",
    "(?<place>\\b[\\w./-]+\\.py:\\d+)",
    "`(?<code>[^`]+)`",
    "(?<error>\\b[A-Z][A-Za-z0-9_.]*(?:Error|Exception|Interrupt|Exit|Warning)\\b(?:: .+?)?(?= \\([^()]*:\\d|; |$))",
    "(?<attempt>\\battempt \\d+)",
  ].join("|"),
  "g",
);

/**
 * Cut a sentence into plain text and pieces that refer to something.
 * @param {string} text
 * @returns {{kind: "text" | "ranks" | "place" | "code" | "error" | "attempt", text: string}[]}
 */
export function cutSentence(text) {
  /** @type {{kind: any, text: string}[]} */
  const found = [];
  let last = 0;
  for (const match of text.matchAll(PIECES)) {
    if (match.index > last) found.push({ kind: "text", text: text.slice(last, match.index) });
    const [kind, piece] = Object.entries(match.groups ?? {}).find(([, value]) => value !== undefined) ?? ["text", match[0]];
    found.push({ kind, text: piece });
    last = match.index + match[0].length;
  }
  if (last < text.length) found.push({ kind: "text", text: text.slice(last) });
  return found;
}

/**
 * @param {string} text such as `ranks 0-2, 5 and 7`
 * @returns {string} `0-2,5,7`
 */
export function ranksOf(text) {
  return (text.match(/\d+(?:-\d+)?/g) ?? []).join(",");
}
