// What a recurrent network has instead of attention: a state of D numbers, which every token changes.
import { count, figure, h } from "../html";
import { thumbnail } from "../heat";
import type { State } from "../state";
import { shown } from "../tokenizer";
import { offNotice } from "./notice";
import { section } from "./section";

const MOST = 64; // most tokens that are drawn

export function memory(state: State): HTMLElement {
  const { n_layers: L, d_model: D } = state.cfg;
  const frame = h("div");

  function draw() {
    const tokens = state.tokens.slice(0, MOST);
    const labels = h(
      "div",
      { class: "state-labels", "aria-hidden": "true" },
      ...tokens.map((token) => h("span", {}, shown(state.run.vocabulary[token]))),
    );
    labels.style.gridTemplateColumns = `repeat(${tokens.length}, 1fr)`;
    const layers = Array.from({ length: L }, (_, l) => {
      const rows = Array.from({ length: D }, (_, d) => tokens.map((_, t) => state.output.residual_TLD[t][l + 1][d]));
      const picture = thumbnail(rows, tokens.length);
      picture.className = "state-picture";
      picture.setAttribute("role", "img");
      picture.setAttribute(
        "aria-label",
        `The state of layer ${l + 1} after each of ${count(tokens.length, "character")}`,
      );
      const unit = `${count(D, "number")}, one in each row; blue is positive, orange is negative`;
      return figure(`Layer ${l + 1}`, unit, null, labels.cloneNode(true), picture);
    });
    frame.replaceChildren(...layers);
  }

  state.drawn(draw);
  draw();
  return section(
    "memory",
    "Hidden state",
    "A recurrent network has no attention. All that it knows about the text is in its hidden state, which every token " +
      "changes. Each column is the state after that token.",
    offNotice(state),
    frame,
  );
}
