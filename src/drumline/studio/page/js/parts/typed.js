/** A field whose text is that of the address, and stays what a person types meanwhile, however often the page is drawn. */

import { html, useEffect, useRef } from "../lib.js";

/** @param {Record<string, any>} props those of an input; `value`: of the address */
export function Typed({ value = "", ...rest }) {
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => {
    if (field.current) field.current.value = value;
  }, [value]);
  return html`<input ref=${field} class="input" ...${rest} />`;
}
