/** A page or a tab whose module is loaded when it is first shown. */

import { Component, html, signal, useMemo } from "../lib.js";
import { Problem } from "./card.js";

/**
 * @param {object} props
 * @param {() => Promise<any>} props.load a module that exports Page or Tab; other properties go to that
 */
export function Lazy({ load, ...others }) {
  const loaded = useMemo(() => {
    const found = signal(/** @type {{module: any, error: any}} */ ({ module: null, error: null }));
    // At once: what waits for an effect waits for a frame.
    load().then(
      (module) => (found.value = { module, error: null }),
      (error) => (found.value = { module: null, error }),
    );
    return found;
  }, [load]);
  const { module, error } = loaded.value;
  if (error) {
    const told = { message: "this part of the page could not be loaded", hint: `load the page again (${error.message})` };
    return html`<${Problem} error=${told} />`;
  }
  if (!module) return html`<p class="loading" role="status"><span class="quiet">loading</span></p>`;
  const Shown = module.Page ?? module.Tab;
  return html`<${Guard}><${Shown} ...${others} /><//>`;
}

/** Keeps an error in one part of the page from taking the rest with it. */
class Guard extends Component {
  /** @param {Error} error */
  static getDerivedStateFromError(error) {
    return { error };
  }

  render() {
    const { error } = /** @type {{error?: Error}} */ (this.state);
    if (!error) return this.props.children;
    console.error(error);
    return html`<${Problem} error=${{ message: "this part of the page failed", hint: `please report it: ${error.message}` }} />`;
  }
}
