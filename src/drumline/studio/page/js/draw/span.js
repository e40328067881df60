/** Parts of an axis: as text, and between two fingers. Pure. */

const NUMBER = String.raw`-?\d+(?:\.\d+)?(?:e[+-]?\d+)?`;
const PART = new RegExp(`^(${NUMBER})\\.\\.(${NUMBER})$`);
const DIGITS = 13; // Of seconds since 1970 with their thousandths.
const CLOSEST_FINGERS = 20;

/**
 * The part of `FROM..TO`, in the unit of an axis.
 * @param {string | undefined} text
 * @returns {[number, number] | null}
 */
export function parsePart(text) {
  const found = PART.exec(text ?? "");
  const [from, to] = found ? [Number(found[1]), Number(found[2])] : [0, 0];
  return Number.isFinite(to - from) && to > from ? [from, to] : null;
}

/** @param {[number, number] | null} part @returns {string | null} */
export function partText(part) {
  return part && part.map((one) => Number(one.toPrecision(DIGITS))).join("..");
}

/**
 * What two fingers do: the place under them was at `from` and is at `to`, in pixels, and what is seen is `by` as long.
 * @returns {{down: (event: PointerEvent) => number, move: (event: PointerEvent) => {from: number, to: number, by: number} | null, up: (event: PointerEvent) => void}}
 *     down: returns how many fingers there are
 */
export function trackFingers() {
  /** @type {Map<number, number>} */
  const fingers = new Map();
  const middle = () => [...fingers.values()].reduce((sum, one) => sum + one, 0) / 2;
  const width = () => {
    const [one, other] = fingers.values();
    return Math.max(CLOSEST_FINGERS, Math.abs(one - other));
  };
  return {
    down(event) {
      if (event.pointerType === "touch") fingers.set(event.pointerId, event.clientX);
      return fingers.size;
    },
    move(event) {
      if (fingers.size !== 2 || !fingers.has(event.pointerId)) return null;
      const [from, before] = [middle(), width()];
      fingers.set(event.pointerId, event.clientX);
      return { from, to: middle(), by: before / width() };
    },
    up: (event) => void fingers.delete(event.pointerId),
  };
}
