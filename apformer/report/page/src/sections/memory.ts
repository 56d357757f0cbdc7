// What a recurrent network has instead of attention: a state of D numbers, changed by every character.
import { count, figure, h } from "../html";
import { thumbnail } from "../heat";
import type { State } from "../state";
import { shown } from "../tokenizer";
import { offNotice } from "./notice";
import { section } from "./section";

const MOST = 64; // characters that are drawn

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
      const unit = `${count(D, "number")}, one below the other; blue above 0, orange below`;
      return figure(`Layer ${l + 1}`, unit, null, labels.cloneNode(true), picture);
    });
    frame.replaceChildren(...layers);
  }

  state.drawn(draw);
  draw();
  return section(
    "memory",
    "What it remembers",
    "A recurrent network has no attention: all that it knows of its text is in a state, which every character " +
      "changes. A column is the state after that character.",
    offNotice(state),
    frame,
  );
}
