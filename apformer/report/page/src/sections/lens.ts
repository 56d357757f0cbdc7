// The logit lens (nostalgebraist 2020): what the model would say if it stopped after each layer.
import { architecture } from "../architecture";
import { h, percent } from "../html";
import { argmax, softmax } from "../linear";
import type { State } from "../state";
import { shown } from "../tokenizer";
import { section } from "./section";

const MOST = 64; // characters that are shown

export function lens(state: State): HTMLElement {
  const { run, cfg } = state;
  const frame = h("div", {
    class: "scroll",
    tabindex: 0,
    role: "region",
    "aria-label": "What the model would say after each layer",
  });

  function draw() {
    const shownTokens = state.tokens.slice(0, MOST);
    const { readOut } = architecture(cfg);
    const names = ["embedding", ...Array.from({ length: cfg.n_layers }, (_, l) => `layer ${l + 1}`)];
    const rows = names.map((name, l) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, name),
        ...shownTokens.map((_, t) => {
          const p_V = softmax(readOut(state.current, state.output.residual_TLD[t][l], cfg));
          const best = argmax(p_V);
          const next = state.tokens[t + 1];
          const cell = h(
            "td",
            {
              class: `lens${next === best ? " hit" : ""}${t === state.at ? " at" : ""}`,
              title: `after ${name}: ${shown(run.vocabulary[best])} with ${percent(p_V[best], 1)}`,
            },
            h("span", {}, shown(run.vocabulary[best])),
          );
          cell.style.setProperty("--p", p_V[best].toFixed(3));
          return cell;
        }),
      ),
    );
    const top = h(
      "tr",
      {},
      h("th", { scope: "col" }, "after reading"),
      ...shownTokens.map((token, t) =>
        h("th", { scope: "col", class: t === state.at ? "at" : null }, shown(run.vocabulary[token])),
      ),
    );
    frame.replaceChildren(h("table", { class: "lens-table" }, h("thead", {}, top), h("tbody", {}, ...rows)));
  }

  state.drawn(draw);
  draw();
  const norm = cfg.final_norm ? "its final norm and " : "";
  return section(
    "lens",
    "Layer by layer",
    `What the model would say next if it stopped after each layer: ${norm}its read-out, applied to the stream as it ` +
      "stands there. Stronger is surer; a line under it marks the character that the text goes on with.",
    frame,
  );
}
