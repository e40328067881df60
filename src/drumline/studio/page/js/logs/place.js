/** Where a viewer of lines stands: which line is its first, and by how many pixels that is scrolled. */

import { signal } from "../lib.js";

/** @typedef {import("./lines.js").Lines} Lines */
/** @typedef {import("./lines.js").Line} Line */

export const HEIGHT = 18;
const FRICTION = 0.95;
const SLOWEST = 0.02;

export class Place {
  /** @param {Lines} lines */
  constructor(lines) {
    this.lines = lines;
    this.first = 0;
    this.shift = 0;
    this.height = 400;
    this.follows = true;
    /** @type {number | null} */
    this.target = null;
    this.count = signal(0);
    this.glide = 0;
  }

  /** How many rows are wholly visible. */
  get room() {
    return Math.max(1, Math.floor(this.height / HEIGHT));
  }

  redraw() {
    this.count.value += 1;
  }

  /**
   * Return the rows to draw, one more than fit.
   * @returns {Line[]}
   */
  rows() {
    if (this.follows) this.first = this.last();
    else if (this.target !== null) this.settle(this.target);
    const rows = [];
    let row = this.lines.at(this.first);
    for (let left = this.room + 2; row && left > 0; left -= 1) {
      rows.push(row);
      row = this.lines.at(row.n + 1);
    }
    return rows;
  }

  /** Return the position of the first row when the last one is at the bottom. */
  last() {
    let first = this.end();
    for (let left = this.room; left > 0; left -= 1) {
      const row = this.lines.before(first);
      if (!row) return 0;
      first = row.n;
    }
    return first;
  }

  end() {
    return this.lines.filtered ? (this.lines.found.at(-1)?.n ?? -1) + 1 : this.lines.total;
  }

  /**
   * Scroll by pixels; return whether that moved anything.
   * @param {number} pixels
   */
  scroll(pixels) {
    this.target = null;
    const before = this.first + this.shift / HEIGHT;
    const last = this.last();
    if (pixels < 0) this.follows = false;
    this.shift += pixels;
    while (this.shift >= HEIGHT && this.first < last) {
      const row = this.lines.at(this.first + 1);
      if (!row) break;
      this.first = row.n;
      this.shift -= HEIGHT;
    }
    while (this.shift < 0) {
      const row = this.lines.before(this.first);
      if (!row) {
        this.shift = 0;
        break;
      }
      this.first = row.n;
      this.shift += HEIGHT;
    }
    if (this.first >= last) {
      this.first = last;
      this.shift = 0;
      this.follows ||= pixels > 0;
    }
    this.redraw();
    return this.first + this.shift / HEIGHT !== before;
  }

  /** @param {number} n the position of the first row */
  jump(n) {
    this.target = null;
    const last = this.last();
    this.first = Math.min(last, Math.max(0, Math.round(n)));
    this.shift = 0;
    this.follows = this.first >= last && n >= last && this.end() > 0;
    this.redraw();
  }

  /**
   * Show a line a third down.
   * @param {number} n
   */
  show(n) {
    this.follows = false;
    this.target = n;
    this.shift = 0;
    this.redraw();
  }

  /**
   * Put the line a third down, again until all rows before it are here: how many lines they stand for is known then.
   * @param {number} n
   */
  settle(n) {
    this.first = n;
    if (!this.lines.known) return;
    let isHere = !this.lines.at(n)?.loading;
    for (let left = Math.floor(this.room / 3); left > 0; left -= 1) {
      const row = this.lines.before(this.first);
      if (!row) break;
      isHere &&= !row.loading;
      this.first = row.n;
    }
    if (!isHere) return;
    this.target = null;
    this.first = Math.min(this.first, this.last()); // No room stays empty below the end.
  }

  follow() {
    this.follows = true;
    this.shift = 0;
    this.redraw();
  }

  /**
   * Go on by itself, as after a finger has left.
   * @param {number} speed pixels a millisecond
   */
  coast(speed) {
    cancelAnimationFrame(this.glide);
    if (Math.abs(speed) < SLOWEST || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    this.glide = requestAnimationFrame(() => {
      if (this.scroll(speed * 16)) this.coast(speed * FRICTION);
    });
  }

  halt() {
    cancelAnimationFrame(this.glide);
  }
}
