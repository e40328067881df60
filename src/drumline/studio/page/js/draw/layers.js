/**
 * Where the nodes of a pipeline's graph stand: layer by layer from left to right, each below what it needs.
 *
 * Longest path for the layers, then a few sweeps that put each node beside the middle of its neighbours.
 */

/** @typedef {{name: string, layer: number, row: number}} Placed */

const SWEEPS = 8;

/**
 * @param {string[]} names
 * @param {[string, string][]} edges
 * @returns {{places: Map<string, Placed>, layers: number, rows: number}}
 */
export function layOut(names, edges) {
  const known = new Set(names);
  const above = group(names, edges.filter(([from, to]) => known.has(from) && known.has(to) && from !== to), 1);
  const below = group(names, edges.filter(([from, to]) => known.has(from) && known.has(to) && from !== to), 0);
  const depths = findDepths(names, above);
  const count = Math.max(0, ...depths.values()) + 1;
  /** @type {string[][]} */
  const layers = Array.from({ length: count }, () => []);
  for (const name of names) layers[depths.get(name) ?? 0].push(name);
  /** @type {Map<string, number>} */
  const rows = new Map();
  for (const layer of layers) layer.forEach((name, index) => rows.set(name, index));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const forward = sweep % 2 === 0;
    for (const layer of forward ? layers : [...layers].reverse()) settle(layer, forward ? above : below, rows);
  }
  const first = Math.min(...rows.values(), 0);
  const places = new Map(names.map((name) => [name, { name, layer: depths.get(name) ?? 0, row: (rows.get(name) ?? 0) - first }]));
  return { places, layers: count, rows: Math.max(0, ...[...places.values()].map((one) => one.row)) + 1 };
}

/**
 * @param {string[]} names
 * @param {[string, string][]} edges
 * @param {0 | 1} side which end of an edge is the key
 */
function group(names, edges, side) {
  /** @type {Map<string, string[]>} */
  const found = new Map(names.map((name) => [name, []]));
  for (const edge of edges) found.get(edge[side])?.push(edge[1 - side]);
  return found;
}

/**
 * Return how many nodes there are before each, on the longest way; an edge that closes a circle is left out.
 * @param {string[]} names
 * @param {Map<string, string[]>} above
 */
function findDepths(names, above) {
  /** @type {Map<string, number>} */
  const depths = new Map();
  /** @type {Set<string>} */
  const open = new Set();
  /** @param {string} name @returns {number} */
  const depth = (name) => {
    const known = depths.get(name);
    if (known !== undefined || open.has(name)) return known ?? -1;
    open.add(name);
    const found = Math.max(-1, ...(above.get(name) ?? []).map(depth)) + 1;
    open.delete(name);
    depths.set(name, found);
    return found;
  };
  names.forEach(depth);
  return depths;
}

/**
 * Put each node of a layer at the middle of its neighbours, one row at least from the next.
 * @param {string[]} layer
 * @param {Map<string, string[]>} neighbours
 * @param {Map<string, number>} rows
 */
function settle(layer, neighbours, rows) {
  const wanted = new Map(layer.map((name) => [name, middle(neighbours.get(name) ?? [], rows) ?? rows.get(name) ?? 0]));
  layer.sort((a, b) => (wanted.get(a) ?? 0) - (wanted.get(b) ?? 0));
  let last = -Infinity;
  const set = layer.map((name) => (last = Math.max(wanted.get(name) ?? 0, last + 1)));
  // What had to move down is shared by all above it.
  const shift = layer.reduce((sum, name, index) => sum + set[index] - (wanted.get(name) ?? 0), 0) / Math.max(1, layer.length);
  layer.forEach((name, index) => rows.set(name, set[index] - shift));
}

/**
 * @param {string[]} names
 * @param {Map<string, number>} rows
 */
function middle(names, rows) {
  if (!names.length) return null;
  const sorted = names.map((name) => rows.get(name) ?? 0).sort((a, b) => a - b);
  return (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;
}
