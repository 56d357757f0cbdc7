// Attention: every head as a small picture, those that are chosen large, and for a token the tokens that it reads.
import { choice, h, redraw, unseen } from "../html";
import { thumbnail } from "../heat";
import type { Part, Run } from "../run";
import type { State } from "../state";
import { headCard } from "./headCard";
import { offNotice } from "./notice";
import { section } from "./section";
import { habit, headName, sights, type Sight } from "./sight";

/** A head that is shown large. */
type Pin = [sight: Sight, layer: number, head: number];
const MOST_PINNED = 4;

export function attention(state: State): HTMLElement {
  const lead = state.source
    ? "Each head mixes, for every token, what it finds at the tokens that it reads. Rows ask, columns are read; point " +
      "at a token to see what it reads. The pictures follow the sentence above."
    : "Each head mixes, for every character, what it finds at that character and at those before it. Rows ask, columns " +
      "are read; point at a row, or at a digit in the strip, to see what it reads. The pictures follow the text above.";
  const sink = state.cfg.attention_sink
    ? " The sink of a head is a key with a learned score and no value: the weight that it takes reads no token."
    : "";
  const all = sights(state);
  let pinned = mostWorth(state.run, all);
  let showScores = false;
  const beside = all.length > 1 && state.cfg.n_heads <= 4;
  const heads = h("div", { class: beside ? "heads beside" : "heads" });
  const cards = h("div", { class: "cards" });

  function toggle([sight, l, k]: Pin) {
    const others = pinned.filter(([other, a, b]) => other !== sight || a !== l || b !== k);
    if (others.length === pinned.length) pinned = [...others, [sight, l, k] as Pin].slice(-MOST_PINNED);
    else if (others.length) pinned = others;
    drawHeads();
    drawCards();
  }

  let of: unknown = null; // the output that the small pictures are of

  function draw() {
    if (of !== state.output) drawHeads();
    of = state.output;
    drawCards();
  }

  const drawHeads = () => redraw(heads, ...all.map(group));

  function drawCards() {
    const close = (pin: Pin) => (pinned.length > 1 ? () => toggle(pin) : null);
    const frames = () => [...cards.querySelectorAll(".matrix-frame")];
    const places = frames().map((frame) => frame.scrollLeft);
    redraw(cards, ...pinned.map((pin) => headCard(...pin, showScores, close(pin))));
    frames().forEach((frame, i) => scroll(frame, places[i] ?? 0));
  }

  /** The heads of one kind, a row for each layer. */
  function group(sight: Sight): HTMLElement {
    const title = sight.title && h("h3", {}, sight.title, h("span", { class: "unit" }, sight.lead));
    const layers = Array.from({ length: sight.layers }, (_, l) =>
      h(
        "div",
        { class: "layer" },
        h("span", { class: "layer-name" }, `Layer ${l + 1}`),
        ...Array.from({ length: state.cfg.n_heads }, (_, k) => small([sight, l, k])),
      ),
    );
    const label = `${sight.title || "Heads"}, a row for each layer`;
    return h(
      "div",
      {},
      title,
      h(
        "div",
        { class: state.cfg.n_heads > 1 ? "layers" : "layers single", role: "group", "aria-label": label },
        ...layers,
      ),
    );
  }

  function small(pin: Pin): HTMLElement {
    const [sight, l, k] = pin;
    const chosen = pinned.some(([other, a, b]) => other === sight && a === l && b === k);
    const off = state.isOff([sight.part, l, k] as Part);
    const rows = sight.weights(l, k);
    return h(
      "button",
      {
        type: "button",
        class: `head${off ? " is-off" : ""}`,
        "aria-pressed": String(chosen),
        onclick: () => toggle(pin),
      },
      thumbnail(rows, sight.columns().length),
      unseen(headName(sight, l, k)),
      h("span", { class: "name", "aria-hidden": "true" }, `head ${k + 1}`),
      off ? unseen("switched off") : null,
      h("span", { class: "habit" }, habit(sight, rows)),
    );
  }

  state.drawn(draw);
  draw();
  const kind = choice("What is shown", ["weights", "scores"], (i) => {
    showScores = i === 1;
    drawCards();
  });
  const alone = all.length === 1 && all[0].layers * state.cfg.n_heads === 1; // which is shown large below
  const compare = h("span", { class: "note" }, "Choose up to four heads to compare them.");
  return section(
    "attention",
    "Attention",
    lead + sink,
    offNotice(state),
    alone ? null : heads,
    h("div", { class: "controls" }, alone ? null : compare, kind),
    cards,
  );
}

/** Scroll a drawing to where it was, and on to the token that asks if that cannot be seen. */
function scroll(frame: Element, place: number) {
  frame.scrollLeft = place;
  const asks = frame.querySelector(".asks")?.getBoundingClientRect();
  const box = frame.getBoundingClientRect();
  if (asks && (asks.left < box.left || asks.right > box.right))
    frame.scrollLeft += asks.left - box.left - box.width / 2;
}

/** All heads where they are few; else the two of the first kind without which the model is worst, by Python's table. */
function mostWorth(run: Run, [sight, ...others]: Sight[]): Pin[] {
  const H = run.model.n_heads;
  const count = sight.layers * H;
  if (count <= MOST_PINNED && !others.length)
    return Array.from({ length: count }, (_, i) => [sight, Math.floor(i / H), i % H]);
  const heads = (run.ablation ?? []).filter(({ part }) => part[0] === sight.part);
  const worst = [...heads].sort((a, b) => (a.exact ?? -a.loss) - (b.exact ?? -b.loss) || b.loss - a.loss).slice(0, 2);
  return worst.length ? worst.map(({ part }) => [sight, part[1]!, part[2]!]) : [[sight, 0, 0]];
}
