// The source of a translation, each token as dark as it is read for the token of the target that is looked at.
import { h, percent, redraw, unseen } from "../html";
import { sourceWords } from "../run";
import type { State } from "../state";
import { shown } from "../tokenizer";

/** Draws the tokens into an element; a click looks at one, which the encoder's attention below shows. */
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
        title: `${shown(text)}: ${percent(read_S[s], 1)} of what is read for “${state.name(state.at + 1)}”`,
        onclick: () => state.lookAtSource(s),
      },
      h("span", { class: "letter" }, shown(text)),
      unseen(`, read ${percent(read_S[s], 0)}`),
    );
    box.style.setProperty("--read", read_S[s].toFixed(3));
    words[words.length - 1].append(box);
  });
  redraw(frame, ...words);
}

/** What share of the reading each source token has, on average over all heads of all layers. */
function meanRead(state: State): number[] {
  const heads = state.output.cross_TLHS![state.at].flat();
  return state.source!.map((_, s) => heads.reduce((sum, weights_S) => sum + weights_S[s], 0) / heads.length);
}
