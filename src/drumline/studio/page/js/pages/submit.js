/** A job file to paste, or that of an earlier job to change, and to submit. */

import { get, post } from "../api.js";
import { html, useEffect, useRef, useSignal } from "../lib.js";
import { Problem } from "../parts/card.js";
import { Command, CopyButton } from "../parts/command.js";
import { tell } from "../parts/toast.js";
import { readChanges } from "../job/actions.js";
import { go, jobPath } from "../router.js";

const EXAMPLE = `type: command
command: python train.py --lr \${{inputs.lr}}
code: ./src
inputs:
  lr: 0.1
distribution:
  type: pytorch
  process_count_per_instance: 2
resources:
  instance_count: 2
`;

/** @param {{query: Record<string, string>}} props */
export function Page({ query }) {
  const yaml = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const set = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const error = useSignal(/** @type {any} */ (null));
  const isBusy = useSignal(false);
  const hasHidden = useSignal(false);
  useEffect(() => {
    if (query.from) loadSpec(query.from, yaml.current, error, hasHidden);
  }, [query.from]);

  /** @param {Event} event */
  const submit = async (event) => {
    event.preventDefault();
    const changes = readChanges(set.current?.value ?? "");
    error.value = changes.wrong ? { message: changes.wrong } : null;
    if (changes.wrong) return;
    isBusy.value = true;
    try {
      const answer = await post("/jobs", { yaml: yaml.current?.value ?? "", set: changes.set });
      tell(`submitted ${answer.name}`, { hint: (answer.warnings ?? []).join("; ") });
      go(jobPath(answer.name));
    } catch (problem) {
      error.value = problem;
    }
    isBusy.value = false;
  };

  return html`<div class="title-line">
      <h1 class="page-sentence">${query.from ? html`The job file of <a class="mono" href=${jobPath(query.from)}>${query.from}</a>` : "Submit a job"}</h1>
    </div>
    <form class="submit" onSubmit=${submit} data-test="submit-form">
      <label class="field">
        Job file, as YAML
        <textarea ref=${yaml} class="yaml" spellcheck="false" required placeholder=${EXAMPLE} onDrop=${(/** @type {DragEvent} */ event) => takeFile(event)} data-test="submit-yaml"></textarea>
      </label>
      ${hasHidden.value && html`<p class="small" data-test="submit-hidden">Values with the name of a secret are hidden: write them in the place of ${"(hidden)"}, or choose Rerun on the job, which takes the stored ones.</p>`}
      <p class="quiet small">Relative paths begin at the folder in which the studio was started. You can drop a file here.</p>
      <label class="field">
        Changes, one a line
        <textarea ref=${set} rows="2" spellcheck="false" placeholder="inputs.lr=0.01" data-test="submit-set"></textarea>
      </label>
      ${error.value && html`<${Problem} error=${error.value} />`}
      <div class="buttons">
        <button class="button main" disabled=${isBusy.value} data-test="submit-go">${isBusy.value ? "Submitting" : "Submit"}</button>
        <${CopyButton} text=${() => yaml.current?.value ?? ""} test="copy-yaml">Copy the YAML<//>
      </div>
    </form>
    <${Command} line="drumline job create --file job.yml" />`;
}

/** @param {string} name @param {HTMLTextAreaElement | null} field @param {Signal<any>} error @param {Signal<boolean>} hasHidden */
async function loadSpec(name, field, error, hasHidden) {
  try {
    const answer = await get(`/jobs/${encodeURIComponent(name)}/spec`);
    if (field) field.value = answer.yaml;
    hasHidden.value = answer.is_whole === false;
  } catch (problem) {
    error.value = problem;
  }
}

/** @param {DragEvent} event */
async function takeFile(event) {
  const file = event.dataTransfer?.files[0];
  if (!file) return;
  event.preventDefault();
  /** @type {HTMLTextAreaElement} */ (event.target).value = await file.text();
}
