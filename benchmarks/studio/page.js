/* Measures from inside the page: a time ends with the frame that shows what was waited for. */
(() => {
  const frame = () => new Promise(requestAnimationFrame);
  const shown = () => new Promise((done) => setTimeout(done)); // After the frame at hand was drawn.

  /** Milliseconds from doing something until it is seen. */
  async function time(act, there) {
    const begin = performance.now();
    act();
    do await frame();
    while (!there());
    await shown();
    return performance.now() - begin;
  }

  /** Follow a link of the page itself: nothing is loaded again. */
  function follow(path) {
    const link = document.createElement("a");
    link.href = path;
    document.body.append(link);
    link.click();
    link.remove();
  }

  const rows = () => document.querySelectorAll("tr[data-row]").length;
  const look = {
    grid: () => document.querySelectorAll("[data-test=rank-grid] [data-rank]").length === 512,
    heat: () => look.grid() && Boolean(document.querySelector("[data-test=heat-map] canvas")?.width),
    curve: () => isDrawn(document.querySelector("[data-test=chart] .u-wrap canvas")),
    line: (n) => document.querySelector(`.log-row[data-n="${n}"] .log-text`)?.textContent?.includes(" rank "),
    anyLine: () => Boolean(document.querySelector(".log-row[data-n] .log-text")),
    code: () => Boolean(document.querySelector("[data-test=panel-code] .card")),
  };

  /** Whether a curve is on the canvas: some of its middle has colour. */
  function isDrawn(canvas) {
    if (!canvas?.width) return false;
    const { width, height } = canvas;
    const middle = canvas.getContext("2d").getImageData(Math.floor(width / 2), 0, 1, height).data;
    return middle.some((one, at) => at % 4 === 3 && one > 128);
  }

  window.bench = {
    rows: 0,
    late: [],
    click: (test, what) => time(() => document.querySelector(`[data-test="${test}"]`).click(), look[what]),
    go: (path, n) => time(() => follow(path), () => look.line(n)),
    async see(what) {
      while (!look[what]()) await frame();
    },
    /** The first frame with rows, since the navigation began. */
    async firstRows() {
      while (!window.bench.rows) await frame();
      return window.bench.rows;
    },
    /** How late each stamped line is seen. */
    watchStamps() {
      const known = new Set(stamps());
      new MutationObserver(async () => {
        const found = stamps().filter((one) => !known.has(one));
        for (const one of found) known.add(one);
        if (!found.length) return;
        await frame();
        await shown();
        for (const one of found) window.bench.late.push(Date.now() - Number(BigInt(one) / 1000n) / 1000);
      }).observe(document.body, { childList: true, subtree: true, characterData: true });
    },
  };

  function stamps() {
    return [...document.querySelectorAll(".log-text")].flatMap((row) => row.textContent.match(/(?<=@)\d{19}(?=@)/g) ?? []);
  }

  (async () => {
    while (!document.body || !rows()) {
      await frame();
      if (location.pathname !== "/jobs") return;
    }
    await shown();
    window.bench.rows = performance.now();
  })();
})();
