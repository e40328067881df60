/** The rows of a log in a window of fixed height: as many elements as fit, which are used again for other lines. */

import { html, useEffect, useRef } from "../lib.js";
import { clock } from "../format.js";
import { parseLine } from "./ansi.js";
import { HEIGHT } from "./place.js";

/** @typedef {import("./place.js").Place} Place */
/** @typedef {import("./lines.js").Line} Line */

/** @type {Record<string, (place: Place) => void>} */
const KEYS = {
  ArrowDown: (place) => place.scroll(HEIGHT),
  ArrowUp: (place) => place.scroll(-HEIGHT),
  PageDown: (place) => place.scroll(place.height - HEIGHT),
  PageUp: (place) => place.scroll(HEIGHT - place.height),
  " ": (place) => place.scroll(place.height - HEIGHT),
  Home: (place) => place.jump(0),
  End: (place) => place.follow(),
};

/**
 * @param {object} props
 * @param {Place} props.place
 * @param {(line: Line) => string} props.who what stands before a line
 * @param {number | null} props.chosen the line that the address names
 * @param {(n: number) => void} props.choose
 * @param {(line: Line) => void} props.pick
 * @param {(line: Line | null) => void} props.point
 * @param {boolean} props.times whether to show them
 * @param {RegExp | null} props.mark
 */
export function Viewer({ place, who, chosen, choose, pick, point, times, mark }) {
  void place.count.value;
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => (box.current ? attach(box.current, place) : undefined), [place]);
  const rows = place.rows();
  return html`<div class="log-view" data-test="log-view">
    <div class="log-rows" ref=${box} tabindex="0" role="region" aria-label="lines of the log" onPointerLeave=${() => point(null)}>
      <div class="log-sheet" style=${{ transform: `translateY(${-place.shift}px)` }}>
        ${rows.map(
          (row) =>
            html`<${Row} row=${row} who=${who} chosen=${row.n === chosen} first=${row.n === place.lines.firstError} choose=${choose} pick=${pick} point=${point} times=${times} mark=${mark} />`,
        )}
      </div>
    </div>
    <${Bar} place=${place} />
  </div>`;
}

/** @param {any} props */
function Row({ row, who, first, chosen, choose, pick, point, times, mark }) {
  if (row.loading) return html`<div class="log-row loading"><span class="log-n">${row.n + 1}</span></div>`;
  const ranks = row.ranks?.length ?? 1;
  const kind = `${first ? " first-error" : row.error ? " error-line" : ""}${chosen ? " chosen" : ""}${row.context ? " context" : ""}`;
  return html`<div class=${`log-row${kind}`} data-n=${row.n + 1} onPointerEnter=${() => point(row)}>
    <button class="log-n" tabindex="-1" title="link to this line" onClick=${() => choose(row.n)}>${row.n + 1}</button>
    ${times && html`<span class="log-time">${row.time ? clock(row.time) : ""}</span>`}
    <button class=${`log-who w${(row.ranks?.[0] ?? row.rank ?? 0) % 6}`} tabindex="-1" title="only these ranks" onClick=${() => pick(row)}>${who(row)}</button>
    <span class="log-text"><bdi>${parseLine(row.text).map((piece) => paint(piece, mark))}</bdi></span>
    ${ranks > 1 && html`<span class="log-fold" title=${`${ranks} ranks printed this line`}>×${ranks}</span>`}
    ${row.cut && html`<span class="log-fold">… ${row.cut.toLocaleString("en-US")} characters</span>`}
  </div>`;
}

/**
 * @param {import("./ansi.js").Piece} piece
 * @param {RegExp | null} mark
 */
function paint(piece, mark) {
  const inside = mark ? split(piece.text, mark) : piece.text;
  return piece.style || mark ? html`<span class=${piece.style}>${inside}</span>` : inside;
}

/**
 * @param {string} text
 * @param {RegExp} mark
 */
function split(text, mark) {
  const parts = [];
  let from = 0;
  for (const found of text.matchAll(mark)) {
    if (!found[0]) break;
    parts.push(text.slice(from, found.index), html`<mark>${found[0]}</mark>`);
    from = found.index + found[0].length;
  }
  return [...parts, text.slice(from)];
}

/** The bar beside the rows: its height stands for all lines, however many. @param {{place: Place}} props */
function Bar({ place }) {
  void place.count.value;
  const track = useRef(/** @type {HTMLElement | null} */ (null));
  const end = place.end();
  const last = Math.max(1, place.follows ? place.first : place.last());
  const part = end ? Math.min(1, place.room / end) : 1;
  const thumb = Math.max(24, part * place.height);
  const top = Math.min(1, place.first / last) * (place.height - thumb);
  /** @param {PointerEvent} event */
  const drag = (event) => {
    if (!track.current || !(event.buttons & 1)) return;
    event.preventDefault();
    const rect = track.current.getBoundingClientRect();
    const at = (event.clientY - rect.top - thumb / 2) / Math.max(1, rect.height - thumb);
    place.jump(at >= 1 ? end : at * last);
  };
  /** @param {PointerEvent} event */
  const begin = (event) => {
    track.current?.setPointerCapture(event.pointerId);
    drag(event);
  };
  return html`<div
    class="log-bar"
    ref=${track}
    role="scrollbar"
    aria-label="position in the log"
    aria-controls="log-rows"
    aria-orientation="vertical"
    aria-valuemin="0"
    aria-valuemax=${end}
    aria-valuenow=${place.first}
    data-test="log-bar"
    onPointerDown=${begin}
    onPointerMove=${drag}
  >
    ${part < 1 && html`<i style=${{ height: `${thumb}px`, transform: `translateY(${top}px)` }}></i>`}
  </div>`;
}

/**
 * Let wheel, keys and fingers move the place.
 * @param {HTMLElement} box
 * @param {Place} place
 */
function attach(box, place) {
  const stop = new AbortController();
  const until = { signal: stop.signal };
  const size = new ResizeObserver(() => {
    place.height = box.clientHeight;
    place.redraw();
  });
  size.observe(box);
  const wheel = (/** @type {WheelEvent} */ event) => {
    if (event.ctrlKey || event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return;
    const unit = event.deltaMode === 1 ? HEIGHT : event.deltaMode === 2 ? place.height : 1;
    // At its ends the page goes on.
    if (place.scroll(event.deltaY * unit)) event.preventDefault();
  };
  box.addEventListener("wheel", wheel, { passive: false, signal: stop.signal });
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (!KEYS[event.key] || event.ctrlKey || event.metaKey || event.altKey || event.target !== box) return;
    event.preventDefault();
    KEYS[event.key](place);
  };
  box.addEventListener("keydown", press, until);
  listenToFingers(box, place, until);
  return () => {
    stop.abort();
    size.disconnect();
    place.halt();
  };
}

/**
 * @param {HTMLElement} box
 * @param {Place} place
 * @param {{signal: AbortSignal}} until
 */
function listenToFingers(box, place, until) {
  let last = { y: 0, time: 0, speed: 0 };
  const down = (/** @type {PointerEvent} */ event) => {
    place.halt();
    last = { y: event.clientY, time: event.timeStamp, speed: 0 };
  };
  const move = (/** @type {PointerEvent} */ event) => {
    if (event.pointerType !== "touch") return;
    const moved = last.y - event.clientY;
    const took = Math.max(1, event.timeStamp - last.time);
    last = { y: event.clientY, time: event.timeStamp, speed: moved / took };
    place.scroll(moved);
  };
  const up = (/** @type {PointerEvent} */ event) => {
    if (event.pointerType === "touch") place.coast(last.speed);
  };
  box.addEventListener("pointerdown", down, until);
  box.addEventListener("pointermove", move, until);
  box.addEventListener("pointerup", up, until);
}
