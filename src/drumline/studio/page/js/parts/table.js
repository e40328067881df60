/** Rows with columns that can be sorted, walked with j and k, opened with enter and marked with x. */

import { html, useEffect, useRef } from "../lib.js";

/**
 * @typedef {object} Column
 * @property {string} key
 * @property {any} title
 * @property {(row: any) => any} [cell] what is drawn; by default `row[key]`
 * @property {boolean} [right] numbers stand at the right
 * @property {boolean} [sort] its head is a button that sorts by it
 * @property {string} [class]
 */

/**
 * @param {object} props
 * @param {Column[]} props.columns
 * @param {any[]} props.rows
 * @param {(row: any) => string} props.rowKey
 * @param {(row: any) => string | undefined} [props.rowClass]
 * @param {(row: any) => boolean} [props.isPointed] the row that the keyboard stands on
 * @param {(row: any) => void} [props.onPoint]
 * @param {string} [props.sort] key of the column, with - in front: the greatest first
 * @param {(sort: string) => void} [props.onSort]
 * @param {string} props.label for those who do not see the table
 * @param {string} [props.test]
 */
export function Table({ columns, rows, rowKey, rowClass, isPointed, onPoint, sort = "", onSort, label, test }) {
  return html`<div class="table-frame">
    <table class="table" data-test=${test} aria-label=${label}>
      <thead>
        <tr>
          ${columns.map((one) => html`<${Head} key=${one.key} column=${one} sort=${sort} onSort=${onSort} />`)}
        </tr>
      </thead>
      <tbody>
        ${rows.map(
          (row) => html`<${Line}
            key=${rowKey(row)}
            name=${rowKey(row)}
            row=${row}
            columns=${columns}
            extra=${rowClass?.(row)}
            pointed=${isPointed?.(row) ?? false}
            onPoint=${onPoint}
          />`,
        )}
      </tbody>
    </table>
  </div>`;
}

/** @param {{column: Column, sort: string, onSort?: (sort: string) => void}} props */
function Head({ column, sort, onSort }) {
  const { key, title, right } = column;
  const direction = sort === key ? "ascending" : sort === `-${key}` ? "descending" : undefined;
  const next = sort === `-${key}` ? key : `-${key}`;
  const side = `${right ? "right" : ""} ${column.class ?? ""}`;
  if (!column.sort || !onSort) return html`<th scope="col" class=${side}>${title}</th>`;
  return html`<th scope="col" class=${side} aria-sort=${direction}>
    <button type="button" class="head" onClick=${() => onSort(next)} data-test=${`sort-${key}`}>
      ${title}<span aria-hidden="true">${direction ? (direction === "ascending" ? " ↑" : " ↓") : ""}</span>
    </button>
  </th>`;
}

/** @param {{name: string, row: any, columns: Column[], extra?: string, pointed: boolean, onPoint?: (row: any) => void}} props */
function Line({ name, row, columns, extra = "", pointed, onPoint }) {
  const self = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (pointed) self.current?.scrollIntoView({ block: "nearest" });
  }, [pointed]);
  return html`<tr
    ref=${self}
    class=${`${extra} ${pointed ? "pointed" : ""}`}
    data-row=${name}
    onPointerDown=${onPoint && (() => onPoint(row))}
  >
    ${columns.map((one) => {
      const side = `${one.right ? "right" : ""} ${one.class ?? ""}`;
      return html`<td key=${one.key} class=${side}>${one.cell ? one.cell(row) : (row[one.key] ?? "")}</td>`;
    })}
  </tr>`;
}
