// Attention: every head as a small picture, those that are chosen large, and for a digit the digits that it reads.
import { choice, h, percent, redraw, svg, unseen } from "../html";
import { squares, thumbnail } from "../heat";
import type { Vector } from "../linear";
import type { Run } from "../run";
import type { State } from "../state";
import { shown } from "../tokenizer";
import { section } from "./section";
import { offNotice } from "./notice";

const MOST_SQUARES = 48; // tokens of a text that are drawn as squares

export function attention(state: State): HTMLElement {
  const lead =
    "Each head mixes, for every character, what it finds at that character and at those before it. Rows ask, columns " +
    "are read; point at a row, or at a digit in the strip, to see what it reads. The pictures follow the text above.";
  const { n_layers: L, n_heads: H } = state.cfg;
  let pinned = mostWorth(state.run);
  let showScores = false;
  const heads = h("div", { class: "heads", role: "group", "aria-label": "Heads, a row for each layer" });
  const cards = h("div", { class: "cards" });

  const toggle = (l: number, k: number) => {
    const others = pinned.filter(([a, b]) => a !== l || b !== k);
    pinned =
      others.length < pinned.length
        ? others.length
          ? others
          : pinned
        : [...others, [l, k] as [number, number]].slice(-4);
    draw();
  };

  function draw() {
    const last = Math.min(state.tokens.length, MOST_SQUARES);
    const names = state.tokens.slice(0, last).map((token) => shown(state.run.vocabulary[token]));
    redraw(
      heads,
      ...Array.from({ length: L }, (_, l) =>
        h(
          "div",
          { class: "layer" },
          h("span", { class: "layer-name" }, `Layer ${l + 1}`),
          ...Array.from({ length: H }, (_, k) => {
            const chosen = pinned.some(([a, b]) => a === l && b === k);
            const off = state.isOff(["head", l, k]);
            const rows = weights(l, k).slice(0, last);
            return h(
              "button",
              {
                type: "button",
                class: `head${off ? " is-off" : ""}`,
                "aria-pressed": String(chosen),
                onclick: () => toggle(l, k),
              },
              thumbnail(rows, last),
              unseen(`Layer ${l + 1},`),
              h("span", { class: "name" }, `head ${k + 1}`),
              off ? unseen("switched off") : null,
              h("span", { class: "habit" }, habit(rows)),
            );
          }),
        ),
      ),
    );
    redraw(cards, ...pinned.map(([l, k]) => card(l, k, names)));
  }

  const weights = (l: number, k: number) => state.output.attention_TLHS!.map((read) => read[l][k]);
  const scores = (l: number, k: number) => state.output.scores_TLHS!.map((read) => read[l][k]);

  function card(l: number, k: number, names: string[]): HTMLElement {
    const rows = weights(l, k).slice(0, names.length);
    const raw = scores(l, k).slice(0, names.length);
    const at = Math.min(state.at, names.length - 1);
    const finite = raw.flatMap((row) => [...row]).filter((x) => x > -1e8);
    const largest = Math.max(1e-9, ...finite.map(Math.abs));
    const picture = showScores
      ? squares(
          `Scores of layer ${l + 1}, head ${k + 1}`,
          raw,
          names,
          names,
          (x) => (x > -1e8 ? x / largest : 0),
          (r, c) =>
            `${names[r]} asks ${names[c]}, ${r - c} back: score ${raw[r][c] > -1e8 ? raw[r][c].toFixed(3) : "none"}`,
          (r) => state.look(r),
          at,
        )
      : squares(
          `Weights of layer ${l + 1}, head ${k + 1}`,
          rows,
          names,
          names,
          (x) => x,
          (r, c) => `${names[r]} reads ${names[c]}, ${r - c} back: ${percent(rows[r][c], 1)}`,
          (r) => state.look(r),
          at,
        );
    const circuit = state.run.circuit?.[`${l}.${k}`];
    return h(
      "article",
      { class: "card" },
      h(
        "div",
        { class: "card-head" },
        h("h3", {}, `Layer ${l + 1}, head ${k + 1}`),
        h(
          "button",
          {
            type: "button",
            "aria-label": `Close layer ${l + 1}, head ${k + 1}`,
            disabled: pinned.length === 1,
            onclick: () => toggle(l, k),
          },
          "×",
        ),
      ),
      circuit ? h("p", { class: "algorithm" }, circuit) : null,
      arcs(rows, names, at),
      h("p", { class: "readout" }, sentence(rows[at], names, at)),
      h("div", { class: "matrix-frame" }, picture),
    );
  }

  /** The text in a row, and arcs from the digit that asks to those that it reads. */
  function arcs(rows: Vector[], names: string[], at: number): SVGElement {
    const [step, base] = [20, 58];
    const width = Math.max(1, names.length) * step;
    const drawing = svg("svg", {
      viewBox: `0 0 ${width} ${base + 24}`,
      class: "arcs",
      role: "group",
      "aria-label": "The text; choose a digit to see what it reads",
    });
    rows[at].forEach((weight, s) => {
      const [from, to] = [(at + 0.5) * step, (s + 0.5) * step];
      const height = s === at ? 12 : Math.min(base - 4, 12 + (at - s) * 4);
      const d =
        s === at
          ? `M${from - 4} ${base}C${from - 9} ${base - 18} ${from + 9} ${base - 18} ${from + 4} ${base}`
          : `M${from} ${base}C${from} ${base - height * 1.25} ${to} ${base - height * 1.25} ${to} ${base}`;
      if (weight > 0.005)
        drawing.append(
          svg("path", {
            d,
            class: "arc",
            "stroke-width": (0.5 + 4 * weight).toFixed(2),
            "stroke-opacity": (0.15 + 0.85 * weight).toFixed(2),
          }),
        );
    });
    names.forEach((name, t) => {
      const read = t <= at ? rows[at][t] : 0;
      drawing.append(
        svg("rect", {
          x: t * step + 1,
          y: base + 1,
          width: step - 2,
          height: 21,
          rx: 3,
          class: "cell",
          "fill-opacity": (0.85 * read).toFixed(3),
        }),
      );
      const letter = svg(
        "text",
        {
          x: (t + 0.5) * step,
          y: base + 16,
          class: `letter middle${t === at ? " asks" : ""}${read > 0.5 ? " read" : ""}`,
          tabindex: 0,
          role: "button",
          "aria-label": `${name}, character ${t + 1}`,
          onfocus: () => state.look(t),
          onclick: () => state.look(t),
        },
        name,
      );
      letter.addEventListener("pointerenter", () => state.look(t));
      drawing.append(letter);
    });
    return drawing;
  }

  state.drawn(draw);
  draw();
  const kind = choice("What is shown", ["weights", "scores"], (i) => {
    showScores = i === 1;
    draw();
  });
  return section(
    "attention",
    "Attention",
    lead,
    offNotice(state),
    heads,
    h("div", { class: "controls" }, h("span", { class: "note" }, "Choose up to four heads to compare them."), kind),
    cards,
  );
}

/** All heads where they are few; else the two without which the model is worst, by Python's table, or the first. */
function mostWorth(run: Run): [number, number][] {
  const { n_layers: L, n_heads: H } = run.settings.model;
  if (L * H <= 4) return Array.from({ length: L * H }, (_, i) => [Math.floor(i / H), i % H]);
  const heads = (run.ablation ?? []).filter(({ part }) => part[0] === "head");
  const worst = [...heads].sort((a, b) => (a.exact ?? -a.loss) - (b.exact ?? -b.loss) || b.loss - a.loss).slice(0, 2);
  return worst.length ? worst.map(({ part }) => [part[1]!, part[2]!]) : [[0, 0]];
}

/** In words, what a digit reads. */
function sentence(weights_S: Vector, names: string[], at: number): string {
  const order = [...weights_S.keys()]
    .sort((a, b) => weights_S[b] - weights_S[a])
    .filter((s) => weights_S[s] >= 0.02)
    .slice(0, 3);
  const rest = 1 - weights_S.reduce((a, b) => a + b, 0);
  const parts = order.map((s) => `${names[s]} (${s === at ? "itself" : `${at - s} back`}) ${percent(weights_S[s], 0)}`);
  if (rest > 0.02) parts.push(`nothing ${percent(rest, 0)}`);
  return `${names[at]} reads ${parts.join(", ")}.`;
}

/** What a head mostly does with a text: the offset that has most of its weight. */
function habit(rows: Vector[]): string {
  const byOffset = new Map<number, number>();
  rows.forEach((row, t) => row.forEach((weight, s) => byOffset.set(t - s, (byOffset.get(t - s) ?? 0) + weight)));
  const total = [...byOffset.values()].reduce((a, b) => a + b, 0);
  const nothing = rows.length - total;
  const [offset, weight] = [...byOffset].reduce((best, each) => (each[1] > best[1] ? each : best), [0, 0]);
  if (nothing > weight) return `nothing ${percent(nothing / rows.length, 0)}`;
  return `${offset ? `${offset} back` : "itself"} ${percent(weight / rows.length, 0)}`;
}
