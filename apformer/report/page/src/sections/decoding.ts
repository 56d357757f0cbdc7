// How the next token is chosen: the likeliest, or drawn from what temperature, top-k and top-p leave.
import type { Choice } from "../generate";
import { choice, h, slider } from "../html";

/** A choice between the two, and the sliders of the second; `changed` is told when something else is chosen. */
export function decoding(how: Choice, vocabulary: number, changed: () => void): [HTMLElement, HTMLElement] {
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
  const kinds = choice("Decoding", ["greedy", "sampled"], (i) => {
    sliders.hidden = i === 0;
    set({ sampled: i === 1 });
  });
  return [kinds, sliders];
}
