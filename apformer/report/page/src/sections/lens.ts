// The logit lens (nostalgebraist 2020): what the model would predict if it stopped after each layer.
import { architecture } from "../architecture";
import { h, percent } from "../html";
import { argmax, softmax } from "../linear";
import { tokenName } from "../run";
import type { State } from "../state";
import { shown } from "../tokenizer";
import { section } from "./section";

const MOST = 64; // most tokens that are shown

export function lens(state: State): HTMLElement {
  const { run, cfg } = state;
  const frame = h("div", {
    class: "scroll",
    tabindex: 0,
    role: "region",
    "aria-label": "What the model would predict after each layer",
  });

  let of: unknown = null; // the output that the table shows; computing the table is slow
  let columns: Element[][] = [];

  function draw() {
    if (of !== state.output) compute();
    of = state.output;
    columns.forEach((cells, t) => cells.forEach((cell) => cell.classList.toggle("at", t === state.at)));
  }

  function compute() {
    const T = Math.min(state.steps, MOST);
    const { readOut } = architecture(run);
    const names = state.output.residual_TLD[0].map((_, l) => (l ? `layer ${l}` : "embedding"));
    columns = Array.from({ length: T }, (_, t) => [
      h("th", { scope: "col" }, state.name(t)),
      ...names.map((name, l) => said(name, softmax(readOut(state.current, state.output.residual_TLD[t][l], cfg)), t)),
    ]);
    const row = (name: string, i: number, scope: string) =>
      h("tr", {}, h("th", { scope }, name), ...columns.map((c) => c[i]));
    const body = names.map((name, l) => row(name, l + 1, "row"));
    const top = h("thead", {}, row("last token read", 0, "col"));
    frame.replaceChildren(h("table", { class: "lens-table" }, top, h("tbody", {}, ...body)));
  }

  /** The prediction after a layer. */
  function said(name: string, p_V: ArrayLike<number>, t: number): HTMLElement {
    const best = argmax(p_V);
    const word = shown(run.vocabulary[best]);
    const cell = h(
      "td",
      {
        class: state.tokens[t + 1] === best ? "lens hit" : "lens",
        title: `after ${name}: ${word} with ${percent(p_V[best], 1)}`,
      },
      h("span", {}, word),
    );
    cell.style.setProperty("--p", p_V[best].toFixed(3));
    return cell;
  }

  state.drawn(draw);
  draw();
  const norm = cfg.final_norm ? "final norm and " : "";
  return section(
    "lens",
    "Layer by layer",
    `What the ${state.source ? "decoder" : "model"} would predict next if it stopped after each layer: its ${norm}output head, applied to the ` +
      "residual stream there (the logit lens). The darker a cell, the more probable its prediction. A prediction is " +
      `underlined if it is the next ${tokenName(run)} of the text.`,
    frame,
  );
}
