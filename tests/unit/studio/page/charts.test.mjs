/** Curves as numbers, CSV, and where the nodes of a graph stand. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { join, smooth, toCsv } from "../../../../src/drumline/studio/page/js/charts/smooth.js";
import { layOut } from "../../../../src/drumline/studio/page/js/draw/layers.js";

test("without a weight values stay as they are", () => {
  const values = [1, null, 3];
  assert.equal(smooth(values, 0), values);
});

test("smoothing has no pull of the first value, and keeps gaps", () => {
  assert.deepEqual(smooth([2, 2, null, 2], 0.9).map((one) => one && Number(one.toFixed(9))), [2, 2, null, 2]);
  const [, second] = smooth([0, 1], 0.5);
  assert.ok(second > 0.6 && second < 0.7);
});

test("curves with steps of their own share an axis", () => {
  assert.deepEqual(
    join([
      { x: [0, 2], columns: [[1, 3]] },
      { x: [2, 1], columns: [[8, 9], [5, 6]] },
    ]),
    [
      [0, 1, 2],
      [1, null, 3],
      [null, 9, 8],
      [null, 6, 5],
    ],
  );
});

test("CSV quotes what a spreadsheet would run", () => {
  assert.equal(toCsv([["=1+1", 'a "b"', "x,y", -1.5, null]]), `"'=1+1","a ""b""","x,y",-1.5,\r\n`);
});

test("a node stands right of all that it needs", () => {
  const { places, layers } = layOut(
    ["a", "b", "c", "d"],
    [
      ["a", "b"],
      ["b", "d"],
      ["a", "d"],
      ["a", "c"],
    ],
  );
  assert.equal(layers, 3);
  assert.deepEqual([...places.values()].map((one) => one.layer), [0, 1, 1, 2]);
});

test("no two nodes of a layer stand on one another", () => {
  const names = Array.from({ length: 40 }, (_, index) => `n${index}`);
  const edges = names.slice(1).map((name, index) => [names[Math.floor(index / 3)], name]);
  const taken = [...layOut(names, edges).places.values()];
  for (const one of taken) {
    const near = taken.filter((other) => other !== one && other.layer === one.layer && Math.abs(other.row - one.row) < 0.999);
    assert.deepEqual(near, []);
  }
});

test("a circle, an edge to itself and one to nowhere do no harm", () => {
  const { places } = layOut(
    ["a", "b"],
    [
      ["a", "b"],
      ["b", "a"],
      ["a", "a"],
      ["a", "gone"],
    ],
  );
  assert.equal(places.size, 2);
});
