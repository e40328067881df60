/** All ranks at once: a row is a node, a cell a rank, its colour the state and its shade how much it uses. */

import { measure } from "../format.js";
import { html, useMemo, useRef, useSignal } from "../lib.js";

const SMALL_FROM = 65;
const TINY_FROM = 193;
const MANY_ON_NODE = 8;

/** The states in words, in the order of the legend. @type {Record<string, string>} */
export const STATES = {
  failed_first: "failed first",
  failed: "failed too",
  cut_off: "cut off",
  lost: "lost",
  stopped: "stopped",
  waiting: "waiting",
  starting: "starting",
  running: "running",
  completed: "completed",
};

/**
 * @param {object} props
 * @param {RankAnswer} props.data
 * @param {string} props.shade key of a number of each rank: cpu, memory, gpu, lateness
 * @param {string} props.unit of it
 * @param {number | null} props.chosen
 * @param {(rank: number | null) => void} props.onChoose
 */
export function RankGrid({ data, shade, unit, chosen, onChoose }) {
  const byRank = new Map(data.ranks.map((one) => [one.rank, one]));
  const values = data.ranks.map((one) => numberOf(one, shade)).filter((one) => one !== null);
  const most = Math.max(leastScale(data.ranks, shade), ...values) || 1;
  const order = data.nodes.flatMap((node) => node.ranks);
  const tip = useSignal(/** @type {{rank: RankInfo, x: number, y: number} | null} */ (null));
  const self = useRef(/** @type {HTMLElement | null} */ (null));
  const entry = chosen !== null && byRank.has(chosen) ? chosen : (data.ranks.find((one) => one.state === "failed_first")?.rank ?? order[0]);
  const look = sizeOf(order.length, Math.max(0, ...data.nodes.map((node) => node.ranks.length)));

  /** @param {Event} event */
  const show = (event) => {
    const cell = /** @type {HTMLElement} */ (event.target).closest("[data-rank]");
    const rank = cell && byRank.get(Number(cell.getAttribute("data-rank")));
    const box = cell?.getBoundingClientRect();
    tip.value = rank && box ? { rank, x: box.left, y: box.bottom + 6 } : null;
  };
  /** @param {KeyboardEvent} event */
  const key = (event) => {
    const from = Number(/** @type {HTMLElement} */ (event.target).getAttribute("data-rank"));
    const to = neighbour(data.nodes, order, from, event.key);
    if (to === null) return;
    event.preventDefault();
    /** @type {HTMLElement | null | undefined} */ (self.current?.querySelector(`[data-rank="${to}"]`))?.focus();
  };
  // Not drawn again for a tip, or for the same answer: a job may have 512 ranks.
  const rows = useMemo(
    () =>
      data.nodes.map(
        (node) => html`<div class="node" key=${node.index}>
          <span class="node-name" title=${node.name}>${node.name}</span>
          <span class="node-ranks">
            ${node.ranks.map((rank) => drawCell(byRank.get(rank), rank, { shade, unit, most, chosen, entry, onChoose }))}
          </span>
        </div>`,
      ),
    [data, shade, unit, chosen],
  );
  return html`<div
      class=${`grid-frame ${look}`}
      ref=${self}
      role="group"
      aria-label="Ranks"
      onKeyDown=${key}
      onPointerOver=${show}
      onPointerLeave=${() => (tip.value = null)}
      onFocusIn=${show}
      onFocusOut=${() => (tip.value = null)}
      data-test="rank-grid"
    >
      ${rows}
    </div>
    ${tip.value && html`<${Tip} at=${tip.value} shade=${shade} unit=${unit} />`}
    <${Legend} ranks=${data.ranks} />`;
}

/**
 * The class of the size of cells: 512 of them are seen at once too.
 * @param {number} ranks @param {number} onNode the most of one node
 */
export function sizeOf(ranks, onNode) {
  if (ranks >= TINY_FROM) return "tiny-cells";
  return ranks >= SMALL_FROM || onNode > MANY_ON_NODE ? "small-cells" : "";
}

/** What a full shade stands for at least: a tenth of a step is late. @param {RankInfo[]} ranks @param {string} shade */
function leastScale(ranks, shade) {
  if (shade === "lateness") return Math.max(0, ...ranks.map((one) => one.step ?? 0)) / 10;
  return shade === "cpu" || shade === "gpu" ? 100 : 0;
}

/** @param {RankInfo | undefined} rank @param {string} shade */
function numberOf(rank, shade) {
  const value = /** @type {any} */ (rank)?.[shade];
  return typeof value === "number" ? value : null;
}

/** @param {RankInfo | undefined} info @param {number} rank @param {any} how */
function drawCell(info, rank, { shade, unit, most, chosen, entry, onChoose }) {
  const state = info?.state ?? "waiting";
  const value = numberOf(info, shade);
  const depth = value === null ? (state === "completed" ? 60 : 22) : 14 + Math.round((66 * Math.min(value, most)) / most);
  const hasShade = state === "running" || state === "completed";
  const said = `rank ${rank}, ${STATES[state] ?? state}${value === null ? "" : `, ${shade} ${measure(value, unit)}`}`;
  return html`<button
    key=${rank}
    type="button"
    class=${`rank ${state}`}
    style=${hasShade ? { "--v": depth } : undefined}
    tabindex=${rank === entry ? 0 : -1}
    aria-label=${said}
    aria-pressed=${rank === chosen}
    onClick=${() => onChoose(rank === chosen ? null : rank)}
    data-rank=${rank}
    data-state=${state}
  >
    ${rank}
  </button>`;
}

/**
 * @param {{index: number, ranks: number[]}[]} nodes
 * @param {number[]} order
 * @param {number} from
 * @param {string} key
 * @returns {number | null} Where an arrow leads.
 */
function neighbour(nodes, order, from, key) {
  const at = order.indexOf(from);
  const row = nodes.findIndex((node) => node.ranks.includes(from));
  const column = nodes[row]?.ranks.indexOf(from) ?? 0;
  const across = (/** @type {number} */ to) => nodes[to]?.ranks[Math.min(column, nodes[to].ranks.length - 1)];
  /** @type {Record<string, number | undefined>} */
  const found = {
    ArrowRight: order[at + 1],
    ArrowLeft: order[at - 1],
    ArrowDown: across(row + 1),
    ArrowUp: across(row - 1),
    Home: order[0],
    End: order.at(-1),
  };
  return found[key] ?? null;
}

/** @param {{at: {rank: RankInfo, x: number, y: number}, shade: string, unit: string}} props */
function Tip({ at, shade, unit }) {
  const { rank } = at;
  const value = numberOf(rank, shade);
  const parts = [`rank ${rank.rank}`, STATES[rank.state] ?? rank.state, endOf(rank), value === null ? "" : `${shade} ${measure(value, unit)}`];
  const left = Math.min(at.x, innerWidth - 260);
  return html`<div class="tip" aria-hidden="true" style=${{ left: `${Math.max(8, left)}px`, top: `${at.y}px` }}>${parts.filter(Boolean).join(" · ")}</div>`;
}

/** @param {RankInfo} rank */
export function endOf(rank) {
  if (rank.signal) return `signal ${rank.signal}`;
  return rank.exit_code ? `exit code ${rank.exit_code}` : "";
}

/** @param {{ranks: RankInfo[]}} props */
function Legend({ ranks }) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const one of ranks) counts.set(one.state, (counts.get(one.state) ?? 0) + 1);
  return html`<div class="legend" data-test="legend">
    ${Object.keys(STATES)
      .filter((state) => counts.has(state))
      .map((state) => html`<span key=${state}><i class=${`swatch ${state}`}></i>${STATES[state]} ${counts.get(state)}</span>`)}
  </div>`;
}
