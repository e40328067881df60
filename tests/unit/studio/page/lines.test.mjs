/** The lines of a job as the viewer walks through them, without a server. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Lines } from "../../../../src/drumline/studio/page/js/logs/lines.js";

const row = (n) => ({ n, rank: n % 4, node: n % 2, text: `line ${n}` });

/** A log of as many lines; of every `width` of them one is a row. */
function serve(log) {
  const asked = [];
  const fetch = async ({ line, count }) => {
    asked.push(line);
    const end = Math.min(log.total, line + Math.min(count, log.most ?? count));
    const lines = [];
    for (let n = line; n < end; n += log.width ?? 1) lines.push(row(n));
    return { total: log.total, line, exact: true, lines, first_error: log.error ?? null, next: end };
  };
  return { fetch, asked };
}

const settle = () => new Promise((resolve) => setTimeout(resolve, 0));

async function open(log, how = {}) {
  const { fetch, asked } = serve(log);
  const lines = new Lines(fetch, () => {}, how);
  lines.at(0);
  await settle();
  return { lines, asked };
}

test("a line that is not here is asked for, and stands as loading until then", async () => {
  const { lines } = await open({ total: 1_000_000, error: 7 });
  assert.equal(lines.total, 1_000_000);
  assert.equal(lines.firstError, 7);
  assert.equal(lines.at(500_000).loading, true);
  await settle();
  assert.equal(lines.at(500_000).text, "line 500000");
  assert.equal(lines.before(1_000_000).loading, true);
  await settle();
  assert.equal(lines.before(1_000_000).text, "line 999999");
  assert.equal(lines.at(1_000_000), null);
  assert.equal(lines.before(0), null);
});

test("few blocks are kept, and few are asked for at once", async () => {
  const { lines, asked } = await open({ total: 1_000_000 });
  for (let n = 0; n < 100; n += 1) lines.at(n * 5000);
  assert.equal(asked.length, 4);
  for (let n = 0; n < 60; n += 1) {
    lines.at(n * 5000);
    await settle();
  }
  assert.ok(lines.chunks.size <= 24);
});

test("walking over folded rows meets each once, in both directions", async () => {
  const { lines } = await open({ total: 4000, width: 4 }, { folded: true });
  const met = [];
  for (let here = lines.at(0); here; here = lines.at(here.loading ? here.n : here.n + 1)) {
    if (here.loading) await settle();
    else met.push(here.n);
  }
  assert.deepEqual(met, Array.from({ length: 1000 }, (_, index) => index * 4));
  const back = [];
  for (let here = lines.before(4000); here; here = lines.before(here.n)) back.push(here.n);
  assert.deepEqual(back, met.reverse());
});

test("an answer with less than a block is asked for the rest", async () => {
  const { lines } = await open({ total: 400, most: 150 });
  await settle();
  assert.equal(lines.at(399).text, "line 399");
});

test("a block that has grown is asked for again", async () => {
  const log = { total: 500 };
  const { lines } = await open(log);
  lines.at(450);
  await settle();
  assert.equal(lines.at(499).n, 499);
  log.total = 900;
  await lines.grow();
  assert.equal(lines.total, 900);
  assert.equal(lines.at(799).n, 799);
});

/** A log whose answers come when they are let go. */
function holdAnswers(log) {
  const { fetch, asked } = serve(log);
  const held = [];
  const slow = async (query) => {
    const answer = await fetch(query);
    return new Promise((answered, failed) => held.push({ letGo: () => answered(answer), fail: failed }));
  };
  return { slow, asked, held };
}

for (const how of [{}, { filtered: true }]) {
  test(`lines that come while an answer is on its way are asked for after it: ${JSON.stringify(how)}`, async () => {
    const log = { total: 10 };
    const { slow, held } = holdAnswers(log);
    const lines = new Lines(slow, () => {}, how);
    lines.at(0);
    await settle();
    log.total = 11;
    lines.grow();
    lines.grow();
    assert.equal(held.length, 1);
    held[0].letGo();
    await settle();
    held[1].letGo();
    await settle();
    assert.equal(lines.at(10).n, 10);
    assert.equal(held.length, 2);
  });
}

test("lines that come while three answers are on their way are asked for after one of them", async () => {
  const log = { total: 10_000 };
  const { slow, held } = holdAnswers(log);
  const lines = new Lines(slow, () => {}, {});
  for (const n of [0, 400, 800]) lines.at(n);
  await settle();
  held[0].letGo();
  await settle();
  lines.at(0);
  lines.at(4000);
  await settle();
  log.total = 10_001;
  lines.grow();
  assert.equal(held.length, 4);
  held[1].letGo();
  await settle();
  held[4].letGo();
  await settle();
  assert.equal(lines.total, 10_001);
  lines.close();
});

test("lines that come after an error are asked for when it is time to ask again", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const log = { total: 10 };
  const { slow, held } = holdAnswers(log);
  const lines = new Lines(slow, () => {}, {});
  const turn = () => new Promise((resolve) => setImmediate(resolve));
  lines.at(0);
  await turn();
  held[0].fail(new Error("no answer"));
  await turn();
  lines.grow();
  await turn();
  assert.equal(held.length, 1);
  context.mock.timers.tick(2_000);
  await turn();
  held[1].letGo();
  await turn();
  assert.equal(lines.at(9).n, 9);
});

test("lines that match are asked for one block after another", async () => {
  const log = { total: 2000 };
  const lines = new Lines(serve(log).fetch, () => {}, { filtered: true });
  lines.at(0);
  await settle();
  assert.equal(lines.found.length, 400);
  assert.equal(lines.complete, false);
  for (let left = 6; left > 0; left -= 1) {
    lines.at(lines.next);
    await settle();
  }
  assert.equal(lines.complete, true);
  assert.equal(lines.found.length, 2000);
  assert.equal(lines.at(2000), null);
});

test("after an error nothing is asked for at once", async () => {
  let count = 0;
  const fail = async () => {
    count += 1;
    if (count > 10) return new Promise(() => {});
    throw new Error("no answer");
  };
  const lines = new Lines(fail, () => lines.at(0), {});
  lines.at(0);
  await settle();
  await settle();
  assert.equal(count, 1);
  assert.equal(lines.error.message, "no answer");
  lines.close();
});
