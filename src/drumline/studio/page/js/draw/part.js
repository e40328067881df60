/** The part of an axis that is shown, in the address: a link shows the same. */

import { route, setQuery } from "../router.js";
import { parsePart, partText } from "./span.js";

const REST_MS = 300;

/** @type {number | undefined} */
let timer;

/** The part that the address has, in the unit of the axis, or in seconds since 1970. */
export const readPart = () => parsePart(route.peek().query.part);

/**
 * Have the address say which part is shown, once it rests.
 * @param {[number, number] | null} part null: the whole
 */
export function writePart(part) {
  const path = location.pathname;
  const text = partText(part);
  clearTimeout(timer);
  timer = setTimeout(() => {
    if (location.pathname === path && (route.peek().query.part ?? null) !== text) setQuery({ part: text });
  }, REST_MS);
}
