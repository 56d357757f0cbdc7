// The source of a translation. The darker a token, the more the selected token of the target attends to it.
import { h, percent, redraw, unseen } from "../html";
import { sourceWords } from "../run";
import type { State } from "../state";
import { shown } from "../tokenizer";

/** Draws the tokens into an element. A click selects one for the encoder's attention, which is shown below. */
export function drawSource(frame: HTMLElement, state: State) {
  const read_S = meanRead(state);
  const words: HTMLElement[] = [];
  state.source!.forEach((token, s) => {
    const text = sourceWords(state.run).vocabulary[token];
    if (!s || text.startsWith(" ")) words.push(h("span", { class: "run" }));
    const box = h(
      "button",
      {
        type: "button",
        class: s === state.place ? "token read at" : "token read",
        title: `${shown(text)}: ${percent(read_S[s], 1)} of the cross-attention for “${state.name(state.at + 1)}”`,
        onclick: () => state.lookAtSource(s),
      },
      h("span", { class: "letter" }, shown(text)),
      unseen(`, attention ${percent(read_S[s], 0)}`),
    );
    box.style.setProperty("--read", read_S[s].toFixed(3));
    words[words.length - 1].append(box);
  });
  redraw(frame, ...words);
}

/** The cross-attention weight of each source token, on average over all heads of all layers. */
function meanRead(state: State): number[] {
  const heads = state.output.cross_TLHS![state.at].flat();
  return state.source!.map((_, s) => heads.reduce((sum, weights_S) => sum + weights_S[s], 0) / heads.length);
}
