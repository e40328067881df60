/** A part of an axis of time that a person has chosen on lanes. */

import { useEffect, useMemo, useSignal } from "../lib.js";
import { readPart, writePart } from "./part.js";
import { trackFingers } from "./span.js";

/** @typedef {{begin: number, end: number}} Span in milliseconds */

const WHEEL = 0.002;
const CLOSEST_MS = 1;
const SHORTEST_DRAG = 0.01; // Of the axis; less is a click.

/** The chosen part of lanes, as the address has it; null: the whole. @param {any} scope another one begins with the whole */
export function useChosen(scope) {
  const part = useMemo(readPart, []);
  const chosen = useSignal(/** @type {Span | null} */ (part && { begin: part[0] * 1000, end: part[1] * 1000 }));
  const before = useSignal(scope);
  useEffect(() => {
    if (before.peek() !== scope) chosen.value = null;
    before.value = scope;
  }, [scope]);
  const { value } = chosen;
  useEffect(() => writePart(value && [value.begin / 1000, value.end / 1000]), [value]);
  return chosen;
}

/**
 * Let a person choose a part: drag along a track, turn the wheel with ctrl, click twice for the whole.
 * @param {Signal<Span | null>} chosen null: the whole
 * @param {Span} whole
 */
export function useZoom(chosen, whole) {
  const fingers = useMemo(trackFingers, []);
  const dragged = useSignal(/** @type {{from: number, to: number} | null} */ (null));
  const known = chosen.value;
  const isInside = known && known.begin < whole.end && known.end > whole.begin;
  const shown = isInside ? known : whole;
  const length = shown.end - shown.begin;
  /** @param {MouseEvent} event @returns {number | null} null: beside the tracks */
  const timeAt = (event) => {
    const rect = /** @type {HTMLElement} */ (event.currentTarget).querySelector(".lane-track")?.getBoundingClientRect();
    if (!rect?.width) return null;
    const part = (event.clientX - rect.left) / rect.width;
    if (!dragged.peek() && (part < 0 || part > 1)) return null;
    return shown.begin + Math.min(1, Math.max(0, part)) * length;
  };
  /** @param {Span} span */
  const show = ({ begin, end }) => {
    const isWhole = begin <= whole.begin && end >= whole.end;
    chosen.value = isWhole ? null : { begin: Math.max(begin, whole.begin), end: Math.min(end, whole.end) };
  };
  /** Two fingers: what was under them stays there. @param {PointerEvent} event @param {{from: number, to: number, by: number}} how */
  const squeeze = (event, { from, to, by }) => {
    const rect = /** @type {HTMLElement} */ (event.currentTarget).querySelector(".lane-track")?.getBoundingClientRect();
    if (!rect?.width || length * by < CLOSEST_MS) return;
    const begin = shown.begin + ((from - rect.left) / rect.width) * length - ((to - rect.left) / rect.width) * length * by;
    show({ begin, end: begin + length * by });
  };
  const on = {
    onPointerDown: (/** @type {PointerEvent} */ event) => {
      const from = timeAt(event);
      if (event.button || from === null || /** @type {Element} */ (event.target).closest("a")) return;
      dragged.value = fingers.down(event) > 1 ? null : { from, to: from };
      /** @type {HTMLElement} */ (event.currentTarget).setPointerCapture(event.pointerId);
    },
    onPointerMove: (/** @type {PointerEvent} */ event) => {
      const pinched = fingers.move(event);
      if (pinched) return squeeze(event, pinched);
      const to = timeAt(event);
      if (dragged.value && to !== null) dragged.value = { ...dragged.value, to };
    },
    onPointerUp: (/** @type {PointerEvent} */ event) => {
      fingers.up(event);
      const { from, to } = dragged.value ?? { from: 0, to: 0 };
      dragged.value = null;
      if (Math.abs(to - from) > Math.max(CLOSEST_MS, SHORTEST_DRAG * length)) show({ begin: Math.min(from, to), end: Math.max(from, to) });
    },
    onPointerCancel: (/** @type {PointerEvent} */ event) => {
      fingers.up(event);
      dragged.value = null;
    },
    onDblClick: () => (chosen.value = null),
    onWheel: (/** @type {WheelEvent} */ event) => {
      const here = timeAt(event);
      if (here === null || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      const by = Math.exp(WHEEL * event.deltaY);
      if (length * by > CLOSEST_MS) show({ begin: here - (here - shown.begin) * by, end: here + (shown.end - here) * by });
    },
  };
  const drag = dragged.value && { begin: Math.min(dragged.value.from, dragged.value.to), end: Math.max(dragged.value.from, dragged.value.to) };
  return { shown, drag, timeAt, on };
}
