// Whether what the model wrote is right, where that is known; teacher-forced, what the text costs it.
import { cost } from "../ablate";
import { h } from "../html";
import { tokenName } from "../run";
import type { State } from "../state";
import { differencesOf, value, written } from "../tokenizer";

/** reference: of a translation that which is held to be right, if there is one. */
export function verdict(state: State, forced: boolean, reference?: string): (Node | string)[] {
  const { run } = state;
  if (forced) return [`Mean cost of this text: ${meanCost(state).toFixed(3)} nats per ${tokenName(run)}.`];
  if (run.task === "pairs") {
    const found = state.text();
    if (!reference || state.tokens.length < 2) return [];
    if (found === reference) return [mark("right", "✓ the reference, letter by letter")];
    return ["The reference is: ", h("q", {}, reference)];
  }
  const given = state.text(state.tokens.slice(0, state.given)).split(" ");
  const more = state.text(state.tokens.slice(state.given));
  if (run.task === "text" || !more || differencesOf(given, run).size !== 1) return []; // where nothing is right
  if (more[0] !== " ") return [mark("false", `✗ no space after ${given[given.length - 1]}`)];
  const [first, second] = given.map((term) => value(term, run));
  const terms = more.slice(1).split(" ");
  return terms.map((text, i) => {
    const right = first + BigInt(given.length + i) * (second - first);
    const term = written(right, given[0].length, run);
    if (right < 0n || term.length > given[0].length) return mark("open", `${text} (beyond the digits)`);
    return text === term ? mark("right", `${text} ✓`) : mark("false", `${text || "∅"} ✗ not ${term}`);
  });
}

const mark = (kind: string, words: string) => h("span", { class: `mark ${kind}` }, words);

function meanCost(state: State): number {
  const costs = state.tokens.slice(1).map((token, t) => cost(state.output.logits_TV[t], token));
  return costs.reduce((a, b) => a + b, 0) / Math.max(1, costs.length);
}
