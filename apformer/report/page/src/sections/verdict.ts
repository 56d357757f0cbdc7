// Whether what the model wrote is right, where that is known; teacher-forced, what the text costs it.
import { cost } from "../ablate";
import { h } from "../html";
import { tokenName, type Run } from "../run";
import type { State } from "../state";
import { continuation } from "../terms";

/** reference: of a translation that which is held to be right, if there is one. */
export function verdict(state: State, forced: boolean, reference?: string): (Node | string)[] {
  const { run } = state;
  if (forced) return [`Mean cost of this text: ${meanCost(state).toFixed(3)} nats per ${tokenName(run)}.`];
  if (state.tokens.length === state.given) return [];
  const found = state.text(state.tokens.slice(state.given));
  if (run.task.prompt.terms) return ofTerms(state.text(state.tokens.slice(0, state.given)), found, run);
  if (!reference) return [];
  if (found === reference) return [mark("right", "✓ the reference, letter by letter")];
  return ["The reference is: ", h("q", {}, reference)];
}

/** Each term that was written, beside what is right. */
function ofTerms(given: string, found: string, run: Run): (Node | string)[] {
  const terms = found.slice(1).split(" ");
  const right = continuation(given, run, terms.length);
  if (!right) return [];
  if (found[0] !== " ") return [mark("false", `✗ no space after ${given.split(" ").pop()}`)];
  return terms.map((text, i) => {
    if (right[i] === null) return mark("open", `${text} (beyond the digits)`);
    return text === right[i] ? mark("right", `${text} ✓`) : mark("false", `${text || "∅"} ✗ not ${right[i]}`);
  });
}

const mark = (kind: string, words: string) => h("span", { class: `mark ${kind}` }, words);

function meanCost(state: State): number {
  const costs = state.tokens.slice(1).map((token, t) => cost(state.output.logits_TV[t], token));
  return costs.reduce((a, b) => a + b, 0) / Math.max(1, costs.length);
}
