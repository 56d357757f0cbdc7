// Attention: every head as a thumbnail, chosen heads large, and the tokens that the selected token attends to.
import { choice, h, redraw, unseen } from "../html";
import { thumbnail } from "../heat";
import type { Part, Run } from "../run";
import type { State } from "../state";
import { headCard } from "./headCard";
import { offNotice } from "./notice";
import { section } from "./section";
import { habit, headName, sights, type Sight } from "./sight";

/** A head that is shown large: a kind, a layer and a number. */
type Pin = [sight: Sight, layer: number, head: number];
const MOST_PINNED = 4;

export function attention(state: State): HTMLElement {
  const lead = state.source
    ? "For every token (the query), each head computes a weighted sum over the tokens that it attends to (the keys). Each " +
      "row is a query, each column a key. Point at a token to see its weights. The pictures show the sentence above."
    : "For every character (the query), each head computes a weighted sum over that character and those before it (the " +
      "keys). Each row is a query, each column a key. Point at a row to see its weights. The pictures show the text above.";
  const sink = state.cfg.attention_sink
    ? " The sink of a head is an extra key with a learned score and no value, so its weight goes to no token."
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

  let of: unknown = null; // the output that the thumbnails show

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
  const kind = choice("Numbers to show", ["weights", "scores"], (i) => {
    showScores = i === 1;
    drawCards();
  });
  const alone = all.length === 1 && all[0].layers * state.cfg.n_heads === 1; // a single head is only shown large
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

/** Scrolls a drawing to where it was, then to the query if that is out of sight. */
function scroll(frame: Element, place: number) {
  frame.scrollLeft = place;
  const asks = frame.querySelector(".asks")?.getBoundingClientRect();
  const box = frame.getBoundingClientRect();
  if (asks && (asks.left < box.left || asks.right > box.right))
    frame.scrollLeft += asks.left - box.left - box.width / 2;
}

/** The heads shown at first: all if they are few, else the two most important of the first kind, as Python measured. */
function mostWorth(run: Run, [sight, ...others]: Sight[]): Pin[] {
  const H = run.model.n_heads;
  const count = sight.layers * H;
  if (count <= MOST_PINNED && !others.length)
    return Array.from({ length: count }, (_, i) => [sight, Math.floor(i / H), i % H]);
  const heads = (run.ablation ?? []).filter(({ part }) => part[0] === sight.part);
  const worst = [...heads].sort((a, b) => (a.exact ?? -a.loss) - (b.exact ?? -b.loss) || b.loss - a.loss).slice(0, 2);
  return worst.length ? worst.map(({ part }) => [sight, part[1]!, part[2]!]) : [[sight, 0, 0]];
}
