import assert from "node:assert/strict";
import { test } from "node:test";

import { parsePart, partText, trackFingers } from "../../../../src/drumline/studio/page/js/draw/span.js";

const finger = (pointerId, clientX, pointerType = "touch") => ({ pointerId, clientX, pointerType });

test("a part in an address is two numbers, the greater one last", () => {
  assert.deepEqual(parsePart("-1.5..2e3"), [-1.5, 2000]);
  for (const text of [undefined, "", "5", "5..5", "9..5", "a..b", "1..1e999", "0x1..0x2"]) assert.equal(parsePart(text), null);
});

test("a part is read as it was written", () => {
  const part = [1_700_000_000.123, 1_700_000_000.125];
  assert.deepEqual(parsePart(partText(part)), part);
  assert.equal(partText(null), null);
});

test("two fingers that part from each other show a part as much shorter", () => {
  const fingers = trackFingers();
  assert.equal(fingers.down(finger(1, 100)), 1);
  assert.equal(fingers.move(finger(1, 110)), null);
  assert.equal(fingers.down(finger(2, 200)), 2);
  assert.deepEqual(fingers.move(finger(2, 300)), { from: 150, to: 200, by: 0.5 });
  fingers.up(finger(1, 100));
  assert.equal(fingers.move(finger(2, 400)), null);
});

test("a mouse is no finger", () => {
  const fingers = trackFingers();
  fingers.down(finger(1, 100, "mouse"));
  fingers.down(finger(2, 200, "mouse"));
  assert.equal(fingers.move(finger(2, 300, "mouse")), null);
});
