// Whether the output of the model is right, if that is known; teacher-forced, the mean cost of the text.
import { cost } from "../ablate";
import { h } from "../html";
import { tokenName, type Run } from "../run";
import type { State } from "../state";
import { continuation } from "../terms";

/** reference: the reference of a translation, if there is one. */
export function verdict(state: State, forced: boolean, reference?: string): (Node | string)[] {
  const { run } = state;
  if (forced) return [`Mean cost of this text: ${meanCost(state).toFixed(3)} nats per ${tokenName(run)}.`];
  if (state.tokens.length === state.given) return [];
  if (state.outdated) return ["This was written before parts were switched off or on: write it again."];
  const found = state.text(state.tokens.slice(state.given));
  if (run.task.prompt.terms) return ofTerms(state.text(state.tokens.slice(0, state.given)), found, run);
  if (!reference) return [];
  if (found === reference) return [mark("right", "✓ identical to the reference")];
  return ["The reference is: ", h("q", {}, reference)];
}

/** Each term that was written and, if it is wrong, the right one. */
function ofTerms(given: string, found: string, run: Run): (Node | string)[] {
  const terms = found.slice(1).split(" ");
  const right = continuation(given, run, terms.length);
  if (!right) return [];
  if (found[0] !== " ") return [mark("false", `✗ no space after ${given.split(" ").pop()}`)];
  return terms.map((text, i) => {
    if (right[i] === null) return mark("open", `${text} (the right term does not fit in the digits)`);
    return text === right[i] ? mark("right", `${text} ✓`) : mark("false", `${text || "∅"} ✗ expected ${right[i]}`);
  });
}

const mark = (kind: string, words: string) => h("span", { class: `mark ${kind}` }, words);

function meanCost(state: State): number {
  const costs = state.tokens.slice(1).map((token, t) => cost(state.output.logits_TV[t], token));
  return costs.reduce((a, b) => a + b, 0) / Math.max(1, costs.length);
}
