/** Colours of terminals in a line of a job, and what must not get through. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { parseLine } from "../../../../src/drumline/studio/page/js/logs/ansi.js";

const texts = (line) => parseLine(line).map((piece) => piece.text).join("");
const styles = (line) => parseLine(line).map((piece) => piece.style);

test("plain text is one piece", () => {
  assert.deepEqual(parseLine("step 1  loss 0.5"), [{ text: "step 1  loss 0.5", style: "" }]);
});

test("colours and weights begin and end where the codes say", () => {
  assert.deepEqual(parseLine("a\x1b[31mb\x1b[1mc\x1b[0md"), [
    { text: "a", style: "" },
    { text: "b", style: "a1" },
    { text: "c", style: "a1 ansi-bold" },
    { text: "d", style: "" },
  ]);
});

test("colours of 256 and of 16 million become the nearest of the theme", () => {
  assert.deepEqual(styles("\x1b[38;5;196mx"), ["a1"]);
  assert.deepEqual(styles("\x1b[38;2;10;200;30mx"), ["a2"]);
  assert.deepEqual(styles("\x1b[38:2:10:20:250mx"), ["a4"]);
});

test("a background is left out, and the codes after it still count", () => {
  assert.deepEqual(styles("\x1b[48;2;0;0;0;31mx"), ["a1"]);
  assert.deepEqual(styles("\x1b[41mx"), [""]);
});

test("hidden text is shown", () => {
  assert.deepEqual(parseLine("\x1b[8msecret"), [{ text: "secret", style: "" }]);
});

test("sequences that move, clear, link or rename are dropped", () => {
  assert.equal(texts("a\x1b[2J\x1b[H\x1b[10Cb"), "ab");
  assert.equal(texts("\x1b]8;;http://evil.example\x07click\x1b]8;;\x07"), "click");
  assert.equal(texts("\x1b]0;title\x1b\\x"), "x");
  assert.equal(texts("\x1bP1$tx\x1b\\y"), "y");
});

test("an escape that never ends takes no more than itself", () => {
  assert.equal(texts("x\x1b"), "x");
  assert.equal(texts("a\x1b[31"), "a31");
});

test("controls that turn or hide text become signs", () => {
  assert.equal(texts("a\u202eb\u2066c\x00d\x7fe"), "a\ufffdb\ufffdc\u2400d\u2421e");
  assert.equal(texts("a\tb"), "a\tb");
});

test("of a line that is printed over itself the last print counts", () => {
  assert.equal(texts("10 %\r20 %\r100 %\r"), "100 %");
  assert.equal(texts("\r\r"), "");
});

test("a long line of escapes takes no time to speak of", () => {
  const began = performance.now();
  parseLine("\x1b[".repeat(1000));
  parseLine("\x1b]".repeat(1000));
  assert.ok(performance.now() - began < 5000);
});
