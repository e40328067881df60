/**
 * The lines of a job as the viewer walks through them: loaded in blocks, of which the last few are kept.
 *
 * Positions are numbers of lines in the merged order, so a folded row covers several of them.
 */

/**
 * @typedef {object} Line
 * @property {number} n
 * @property {number | null} rank
 * @property {string} [label] what a person calls the rank: `3`, `ps0`
 * @property {number[]} [ranks]
 * @property {string | number | null} [node]
 * @property {string | null} [time]
 * @property {string} text
 * @property {boolean} [error]
 * @property {number} [cut]
 * @property {boolean} [context]
 * @property {boolean} [loading]
 */
/** @typedef {{total: number, line: number, exact: boolean, lines: Line[], first_error: number | null, next?: number, within_s?: number}} Answer */
/** @typedef {(query: Record<string, string | number>) => Promise<Answer>} Fetch */

const CHUNK = 400;
const FOLDED_CHUNK = 800;
const KEPT = 24;
const MOST_FOUND = 20_000;
const AT_ONCE = 3;
const PAUSE_MS = 2_000;

export class Lines {
  /**
   * @param {Fetch} fetch
   * @param {() => void} changed called when rows have arrived
   * @param {{filtered?: boolean, folded?: boolean}} how filtered: only lines that match are asked for
   */
  constructor(fetch, changed, { filtered = false, folded = false }) {
    this.fetch = fetch;
    this.changed = changed;
    this.filtered = filtered;
    this.size = folded ? FOLDED_CHUNK : CHUNK;
    this.total = 0;
    this.exact = true;
    /** So many seconds the order of lines of several ranks may be wrong. */
    this.within = 0;
    /** @type {number | null} */
    this.firstError = null;
    this.known = false;
    /** @type {unknown} */
    this.error = null;
    /** @type {Map<number, Line[]>} */
    this.chunks = new Map();
    /** @type {Line[]} */
    this.found = [];
    /** Which node each rank is on, as far as its lines said. @type {Map<number, string | number>} */
    this.nodes = new Map();
    this.next = 0;
    /** @type {Set<number>} */
    this.asked = new Set();
    this.closed = false;
    this.pause = 0;
    /** Whether lines have come that no question under way is sure to bring. */
    this.isBehind = false;
  }

  close() {
    this.closed = true;
    clearTimeout(this.pause);
  }

  /** Whether all lines that match are here. */
  get complete() {
    return this.filtered ? this.known && this.next >= this.total : true;
  }

  /**
   * Return the first row at a position or after it, or null past the end. What is not here yet is asked for, and a row
   * that says so stands for it.
   * @param {number} n
   * @returns {Line | null}
   */
  at(n) {
    if (this.filtered) {
      return this.foundAt(n);
    }
    let chunk = Math.floor(Math.max(0, n) / this.size);
    for (; !this.known || chunk * this.size < this.total; chunk += 1) {
      const rows = this.touch(chunk);
      if (!rows) {
        return this.known && n >= this.total ? null : { n: Math.max(n, chunk * this.size), rank: null, text: "", loading: true };
      }
      const index = findFrom(rows, n);
      if (index < rows.length) {
        return rows[index];
      }
    }
    return null;
  }

  /**
   * Return the last row before a position, or null at the beginning.
   * @param {number} n
   * @returns {Line | null}
   */
  before(n) {
    if (this.filtered) {
      const index = findFrom(this.found, n);
      return index ? this.found[index - 1] : null;
    }
    for (let last = Math.min(n, this.total) - 1; last >= 0; ) {
      const chunk = Math.floor(last / this.size);
      const rows = this.touch(chunk);
      if (!rows) {
        return { n: last, rank: null, text: "", loading: true };
      }
      const index = findFrom(rows, n);
      if (index) {
        return rows[index - 1];
      }
      last = chunk * this.size - 1;
    }
    return null;
  }

  /**
   * @param {number} n
   * @returns {Line | null}
   */
  foundAt(n) {
    const index = findFrom(this.found, n);
    if (index < this.found.length) {
      return this.found[index];
    }
    if (this.known && (this.next >= this.total || this.found.length >= MOST_FOUND)) {
      return null;
    }
    this.load(this.next, true);
    return { n: Math.max(n, this.next), rank: null, text: "", loading: true };
  }

  /**
   * Return the rows of a chunk, which becomes the latest used; undefined, and asked for, where it is not here.
   * @param {number} chunk
   */
  touch(chunk) {
    const rows = this.chunks.get(chunk);
    if (!rows) {
      this.load(chunk * this.size, false);
      return undefined;
    }
    this.chunks.delete(chunk);
    this.chunks.set(chunk, rows);
    return rows;
  }

  /**
   * Ask for what has come since, after the answer that is under way: the last chunk may have grown.
   * @returns {Promise<void>}
   */
  async grow() {
    const line = this.filtered ? this.next : Math.max(0, Math.floor((this.total - 1) / this.size)) * this.size;
    this.isBehind = this.isBusy(line);
    if (!this.isBehind) await this.load(line, this.filtered);
  }

  /** @param {number} line */
  isBusy(line) {
    return this.asked.has(line) || this.asked.size >= AT_ONCE || this.pause !== 0;
  }

  goOn() {
    if (this.closed) return;
    if (this.isBehind) this.grow();
    this.changed();
  }

  /**
   * @param {number} line
   * @param {boolean} found
   */
  async load(line, found) {
    // What is left out here is asked for again when one of these has arrived, if it is still looked at.
    if (this.closed || this.isBusy(line)) {
      return;
    }
    this.asked.add(line);
    try {
      const answer = await this.askFor(line, found);
      if (!this.closed) {
        this.take(line, answer, found);
      }
    } catch (error) {
      this.error = error;
      this.pause = setTimeout(() => {
        this.pause = 0;
        this.goOn();
      }, PAUSE_MS);
    } finally {
      this.asked.delete(line);
      this.goOn();
    }
  }

  /**
   * Ask until a block is whole: an answer has an end in bytes too.
   * @param {number} line
   * @param {boolean} found
   */
  async askFor(line, found) {
    const answer = await this.fetch({ line, count: this.size });
    const end = Math.min(line + this.size, answer.total);
    while (!found && answer.next !== undefined && answer.next < end && !this.closed) {
      const more = await this.fetch({ line: answer.next, count: end - answer.next });
      if (more.next === undefined || more.next <= answer.next) break;
      answer.lines.push(...more.lines);
      answer.next = more.next;
    }
    return answer;
  }

  /**
   * @param {number} line
   * @param {Answer} answer
   * @param {boolean} found
   */
  take(line, answer, found) {
    this.error = null;
    this.known = true;
    if (answer.total > this.total && this.total % this.size) {
      this.chunks.delete(Math.floor(this.total / this.size));
    }
    this.total = answer.total;
    this.exact = answer.exact;
    this.within = answer.within_s ?? 0;
    this.firstError = answer.first_error;
    for (const row of answer.lines) {
      if (row.rank !== null && row.node !== null && row.node !== undefined) {
        this.nodes.set(row.rank, row.node);
      }
    }
    if (found) {
      if (line === this.next) {
        this.found.push(...answer.lines.filter((row) => row.n >= line));
        this.next = Math.max(line, answer.next ?? answer.total);
      }
      return;
    }
    this.chunks.set(line / this.size, answer.lines);
    for (const chunk of this.chunks.keys()) {
      if (this.chunks.size <= KEPT) {
        break;
      }
      this.chunks.delete(chunk);
    }
  }
}

/**
 * Return the index of the first row at a position or after it.
 * @param {Line[]} rows
 * @param {number} n
 */
export function findFrom(rows, n) {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].n < n) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}
