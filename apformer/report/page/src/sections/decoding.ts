// How the next token is chosen: greedily, by sampling with temperature, top-k and top-p, or by beam search.
import type { Search } from "../beam";
import type { Choice } from "../generate";
import { choice, h, slider } from "../html";

/** The buttons and the sliders; `changed` is called after each change. search: if there is a beam search. */
export function decoding(
  how: Choice,
  vocabulary: number,
  changed: () => void,
  search?: Search,
): [HTMLElement, HTMLElement] {
  const set = (change: Partial<Choice>) => {
    Object.assign(how, change);
    changed();
  };
  const sliders = h(
    "div",
    { class: "sliders", hidden: true },
    slider(
      "temperature",
      [0.1, 2, 0.1],
      1,
      (v) => v.toFixed(1),
      (temperature) => set({ temperature }),
    ),
    slider(
      "top-k",
      [0, Math.min(vocabulary, 50), 1],
      0,
      (v) => (v ? String(v) : "all"),
      (topK) => set({ topK }),
    ),
    slider(
      "top-p",
      [0.05, 1, 0.05],
      1,
      (v) => v.toFixed(2),
      (topP) => set({ topP }),
    ),
  );
  const names = [...(search ? ["beam search"] : []), "greedy", "sampled"];
  const [forSearch, forSampled] = [search ? searching(search, changed) : h("div"), sliders];
  forSearch.hidden = !search;
  const kinds = choice("Decoding", names, (i) => {
    forSearch.hidden = names[i] !== "beam search";
    forSampled.hidden = names[i] !== "sampled";
    set({ sampled: names[i] === "sampled", searched: names[i] === "beam search" });
  });
  return [kinds, h("div", {}, forSearch, forSampled)];
}

function searching(search: Search, changed: () => void): HTMLElement {
  const set = (change: Partial<Search>) => {
    Object.assign(search, change);
    changed();
  };
  return h(
    "div",
    { class: "sliders" },
    slider("beams", [1, Math.max(10, search.beams), 1], search.beams, String, (beams) => set({ beams })),
    slider(
      "length penalty",
      [0, Math.max(2, search.alpha), 0.1],
      search.alpha,
      (v) => v.toFixed(1),
      (alpha) => set({ alpha }),
    ),
  );
}
