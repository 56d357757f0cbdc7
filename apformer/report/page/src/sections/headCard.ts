// One head, large: what the selected token attends to, as arcs and in words, and all weights or scores as squares.
import { h, percent } from "../html";
import { squares } from "../heat";
import { arcs } from "./arcs";
import { away, headName, type Sight } from "./sight";

export function headCard(
  sight: Sight,
  layer: number,
  head: number,
  showScores: boolean,
  close: (() => void) | null,
): HTMLElement {
  const title = headName(sight, layer, head);
  const [rows, columns, at] = [sight.rows(), sight.columns(), sight.at()];
  const weights = sight.weights(layer, head);
  const label = (r: number, c: number) =>
    `query ${rows[r]}, key ${columns[c]}${sight.across ? "" : `, ${away(r - c)}`}: `;
  const raw = sight.scores(layer, head);
  const seen = (x: number) => x > -1e8;
  const largest = Math.max(1e-9, ...raw.flatMap((row) => [...row].filter(seen).map(Math.abs)));
  const scale = `Full colour is ${showScores ? `a score of ±${largest.toFixed(1)}` : "a weight of 100 %"}.`;
  const picture = showScores
    ? squares(
        `Scores of ${title}`,
        raw,
        rows,
        columns,
        (x) => (seen(x) ? x / largest : 0),
        (r, c) => `${label(r, c)}score ${seen(raw[r][c]) ? raw[r][c].toFixed(3) : "none"}`,
        (r) => sight.look(r),
        at,
      )
    : squares(
        `Weights of ${title}`,
        weights,
        rows,
        columns,
        (x) => x,
        (r, c) => `${label(r, c)}weight ${percent(weights[r][c], 1)}`,
        (r) => sight.look(r),
        at,
      );

  const closing = { type: "button", "aria-label": `Close ${title}`, onclick: () => close?.() };
  return h(
    "article",
    { class: "card" },
    h("div", { class: "card-head" }, h("h3", {}, title), close && h("button", closing, "×")),
    h(
      "div",
      { class: "card-body" },
      h(
        "div",
        {},
        h("div", { class: "matrix-frame" }, arcs(sight, weights[at], at)),
        h("p", { class: "readout" }, sentence(sight, weights[at], at)),
      ),
      h(
        "div",
        {},
        h("div", { class: "matrix-frame" }, picture),
        h("p", { class: "readout" }, `Each row is a query, each column a key. ${scale}`),
      ),
    ),
  );
}

/** A sentence on what a token attends to. */
function sentence(sight: Sight, weights_S: Float64Array, at: number): string {
  const [rows, columns] = [sight.rows(), sight.columns()];
  const order = [...weights_S.keys()]
    .sort((a, b) => weights_S[b] - weights_S[a])
    .filter((s) => weights_S[s] >= 0.02)
    .slice(0, 3);
  const rest = 1 - weights_S.reduce((a, b) => a + b, 0);
  const where = (s: number) => (sight.across ? "" : ` (${away(at - s)})`);
  const parts = order.map((s) => `${columns[s]}${where(s)} ${percent(weights_S[s], 0)}`);
  if (rest > 0.02) parts.push(`${sight.rest} ${percent(rest, 0)}`);
  return `${sight.across ? `To predict ${rows[at]}, the head` : rows[at]} attends to ${parts.join(", ")}.`;
}
