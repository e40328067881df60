/** A question before something that cannot be undone, and other things that need an answer first. */

import { html, signal, useEffect, useRef, useSignal } from "../lib.js";
import { Command } from "./command.js";

/**
 * @typedef {object} Question
 * @property {string} title
 * @property {any} [text] what happens then
 * @property {any} [body] fields of a form; their values are the answer, by name
 * @property {(values: FormData) => string} [check] what is wrong with them; empty: nothing
 * @property {string} action what the button says
 * @property {boolean} [danger]
 * @property {boolean} [isTold] there is nothing to decide
 * @property {string} [command] the command line that does the same
 */

const open = signal(/** @type {(Question & {answer: (values: FormData | null) => void}) | null} */ (null));

/**
 * @param {Question} question
 * @returns {Promise<FormData | null>} The form's values; null: not to be done.
 */
export function ask(question) {
  open.peek()?.answer(null);
  return new Promise((resolve) => {
    open.value = {
      ...question,
      answer: (values) => {
        open.value = null;
        resolve(values);
      },
    };
  });
}

/** The place where questions appear; once in the page. */
export function Dialogs() {
  const question = open.value;
  return question && html`<${Shown} key=${question.title} question=${question} />`;
}

/** @param {{question: Question & {answer: (values: FormData | null) => void}}} props */
function Shown({ question }) {
  const self = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const wrong = useSignal("");
  useEffect(() => self.current?.showModal(), []);
  /** @param {SubmitEvent} event */
  const submit = (event) => {
    event.preventDefault();
    const values = new FormData(/** @type {HTMLFormElement} */ (event.target));
    wrong.value = question.check?.(values) ?? "";
    if (!wrong.value) question.answer(values);
  };
  return html`<dialog ref=${self} class="dialog" onClose=${() => question.answer(null)} data-test="dialog">
    <form method="dialog" onSubmit=${submit}>
      <h2>${question.title}</h2>
      ${question.text && html`<p>${question.text}</p>`} ${question.body}
      ${wrong.value && html`<p class="problem" role="alert" data-test="dialog-wrong">${wrong.value}</p>`}
      ${question.command && html`<${Command} line=${question.command} />`}
      <div class="buttons">
        ${!question.isTold && html`<button type="button" class="button" onClick=${() => question.answer(null)} data-test="dialog-no">Back</button>`}
        <button class=${`button ${question.danger ? "danger" : "main"}`} autofocus data-test="dialog-yes">
          ${question.action}
        </button>
      </div>
    </form>
  </dialog>`;
}
