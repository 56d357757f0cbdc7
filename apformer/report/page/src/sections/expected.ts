// The probabilities of the token after the selected one, as bars.
import { cost } from "../ablate";
import { distribution, type Choice } from "../generate";
import { bar, chance, h } from "../html";
import { argmax, softmax } from "../linear";
import { tokenName } from "../run";
import type { State } from "../state";
import { shown } from "../tokenizer";

const MOST = 12; // most tokens of a large vocabulary that are listed
const BEFORE = 15; // most tokens shown of the text that the model has read

/** Draws them into an element; for sampling, with temperature, top-k and top-p applied. */
export function drawExpected(frame: HTMLElement, state: State, how: Choice) {
  const { run, at, tokens } = state;
  const z_V = state.output.logits_TV[at];
  const all_V = softmax(z_V);
  const drawn_V = how.sampled ? distribution(z_V, how) : all_V;
  const actual = tokens[at + 1];
  const best = argmax(all_V);
  const rows = listed([all_V]).map((v) =>
    h(
      "li",
      { class: `${v === best ? "best " : ""}${v === actual ? "actual" : ""}` },
      h("span", { class: "letter" }, shown(run.vocabulary[v])),
      bar(drawn_V[v]),
      h("span", { class: "number" }, chance(drawn_V[v])),
    ),
  );
  const goesOn =
    actual === undefined ? "" : ` The next ${tokenName(run)} of the text, “${shown(run.vocabulary[actual])}”, `;
  frame.replaceChildren(
    h("h3", {}, "What the model expects next"),
    h("p", { class: "note" }, "after ", h("code", {}, before(state)), ".", goesOn, goesOn && said(cost(z_V, actual))),
    h("ol", { class: run.byte_pairs ? "probabilities words" : "probabilities" }, ...rows),
  );
}

const said = (nats: number) => `costs ${nats.toFixed(3)} nats.`;

/** The end of what the model has read. */
export function before(state: State): string {
  const start = Math.max(0, state.at + 1 - BEFORE);
  return (start ? "…" : "") + (state.text(state.tokens.slice(start, state.at + 1)) || state.name(state.at));
}

/** The tokens to list: all of a small vocabulary; of a large one, those that are likely in any of the rows. */
export function listed(rows: ArrayLike<number>[]): number[] {
  const order = Array.from(rows[0], (_, v) => v);
  if (order.length <= 16) return order;
  const largest = order.map((v) => Math.max(...rows.map((p_V) => p_V[v])));
  return order.sort((a, b) => largest[b] - largest[a]).slice(0, MOST);
}
