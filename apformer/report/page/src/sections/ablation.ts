// Ablation: switch off heads, layers, offsets or tokens, and see at once what the model predicts without them.
import { measuring } from "../ablate";
import { bar, chance, count, h, percent, redraw, table } from "../html";
import { generate, GREEDY } from "../generate";
import { argmax, softmax } from "../linear";
import { sourceWords, tokenName, type Loss, type Part, type Run } from "../run";
import type { State } from "../state";
import { shown } from "../tokenizer";
import { before, listed } from "./expected";
import { switchOn } from "./notice";
import { partName, partRows, shortName } from "./parts";
import { missing, section } from "./section";

const LEAD =
  "Switch off parts of the model, and every section that runs the model shows what it predicts without them. The longer " +
  "the bar under a part, the worse the model is without that part, as measured when this page was written.";

const SLICE = 30; // milliseconds
const NONE = new Set<number>();

export function ablation(state: State): HTMLElement {
  const { run } = state;
  if (!run.ablation || run.ablation.length < 2) {
    const why = run.missing.probe ?? "This kind of model has no heads to switch off.";
    return section("ablate", "Ablate", "What each part of the model contributes.", missing(why));
  }
  const { whole, drops, exact, judged, worth, most } = weighed(run);
  const said = (drop: Loss) =>
    (exact ? `${percent(drop.exact)} of ${judged} right, ` : "") + `${drop.loss.toFixed(4)} nats`;
  const buttons = drops.map((drop, i) => {
    const button = h(
      "button",
      { type: "button", class: "part", onclick: () => state.toggle(drop.part) },
      h("span", {}, shortName(drop.part)),
    );
    button.dataset.part = String(i);
    button.style.setProperty("--worth", String(Math.max(0, worth(drop)) / most));
    button.title = `${partName(drop.part)}: without it ${said(drop)}`;
    return button;
  });
  const rowsOfParts = partRows(
    run,
    drops.map(({ part }) => part),
    buttons,
  );
  const what = state.source ? "source token" : tokenName(run);
  const words = state.source ? sourceWords(run) : run;
  const letters = h("div", { class: "letters", role: "group", "aria-label": `Hide a ${what}` });
  const written = h("div", { class: "goes-on", role: "status", "aria-label": "Continuations" });
  const now = h("div", { class: "now" });
  const live = h("div", { class: "live", role: "status" });
  let waiting = 0;
  let answered = "";

  /** The whole and the ablated model: what they predict next, and their losses on the validation rows. */
  function draw() {
    buttons.forEach((button, i) => {
      button.setAttribute("aria-pressed", String(state.isOff(drops[i].part)));
      button.setAttribute(
        "aria-label",
        `${partName(drops[i].part)}, ${state.isOff(drops[i].part) ? "off" : "on"}; without it ${said(drops[i])}`,
      );
    });
    redraw(
      letters,
      ...state.hideable.map((token, t) =>
        h(
          "button",
          {
            type: "button",
            class: "hide",
            "aria-pressed": String(state.hidden.has(t)),
            "aria-label": `Hide ${shown(words.vocabulary[token])}, ${what} ${t + 1}`,
            onclick: () => {
              const hidden = new Set(state.hidden);
              if (!hidden.delete(t)) hidden.add(t);
              state.update({ hidden });
            },
          },
          shown(words.vocabulary[token]),
        ),
      ),
    );
    now.replaceChildren(compare());
    const asked = JSON.stringify([state.tokens, state.source, state.given, state.off, [...state.hidden]]);
    if (asked === answered) return; // only the selected token has changed
    answered = asked;
    written.replaceChildren(...goesOn());
    clearTimeout(waiting);
    waiting = window.setTimeout(weigh, state.changed ? 60 : 0);
  }

  /** How the whole and the ablated model continue the given text. */
  function goesOn(): HTMLElement[] {
    const [given, more] = [state.tokens.slice(0, state.given), state.tokens.length - state.given];
    // With parts off, a translation may never reach its end token.
    const room = state.source && more ? Math.min(2 * more + 8, state.cfg.max_len) : more;
    const whole = state.changed ? generate(state.params, given, room, run, GREEDY, NONE, state.source) : null;
    const left = generate(state.current, given, room, run, GREEDY, state.hidden, state.source);
    const text = (token: number) => state.text([token]);
    const letters = whole
      ? left.map((token, i) => (token === whole[i] ? text(token) : h("mark", {}, text(token).replace(/^ $/, "␣"))))
      : [state.text(left)];
    const code = (...children: (string | Node)[]) =>
      h("code", {}, h("span", { class: "given" }, state.text(given)), ...children);
    return [
      h("div", {}, h("span", {}, "whole model"), code(state.text(whole ?? left))),
      h("div", {}, h("span", {}, state.changed ? "ablated model" : "nothing is off"), code(...letters)),
    ];
  }

  function compare(): HTMLElement {
    const [before_V, after_V] = [state.whole, state.output].map((output) => softmax(output.logits_TV[state.at]));
    const rows = listed([before_V, after_V]).map((v) =>
      h(
        "li",
        { class: v === argmax(after_V) ? "best" : "" },
        h("span", { class: "letter" }, shown(run.vocabulary[v])),
        h("span", { class: "pair" }, bar(before_V[v]), bar(after_V[v])),
        h("span", { class: "number" }, chance(after_V[v])),
      ),
    );
    return h(
      "div",
      {},
      h("h3", {}, `The next ${tokenName(run)}`),
      h(
        "p",
        { class: "note" },
        "after ",
        h("code", {}, before(state)),
        ". Upper bars: the whole model. Lower bars: the ablated model.",
      ),
      h("ol", { class: `probabilities paired${run.byte_pairs ? " words" : ""}` }, ...rows),
    );
  }

  /** Measures the ablated model on the validation rows, in short slices of time, so that the page stays responsive. */
  function weigh() {
    if (!state.changed) return show(whole);
    const rows = measuring(state.current, run.probe!, run, state.hidden);
    live.setAttribute("aria-busy", "true");
    const slice = () => {
      for (const end = performance.now() + SLICE; performance.now() < end;) {
        const { done, value } = rows.next();
        if (done) return show(value);
      }
      waiting = window.setTimeout(slice);
    };
    slice();
  }

  function show(found: Loss) {
    const cells = (loss: Loss) => [...(exact ? [percent(loss.exact)] : []), loss.loss.toFixed(4)];
    live.replaceChildren(
      h("h3", {}, `${count(run.probe!.tokens.length, "validation row")}`),
      table(
        ["model", ...(exact ? [`right, of ${judged}`] : []), "loss (nats)"],
        [
          ["whole model", ...cells(whole)],
          [state.changed ? "ablated model" : "nothing is off", ...cells(found)],
        ],
        [1, 2],
        "The whole and the ablated model on validation rows",
      ),
    );
    live.removeAttribute("aria-busy");
    live.dataset.of = drops.flatMap(({ part }, i) => (state.isOff(part) ? [i] : [])).join();
    live.dataset.loss = String(found.loss);
    live.dataset.exact = String(found.exact ?? "");
  }

  state.drawn(draw);
  draw();
  return section(
    "ablate",
    "Ablate",
    LEAD,
    h("div", { class: "parts" }, ...rowsOfParts),
    h("p", { class: "note" }, `Or hide a ${what}, so that no other can attend to it:`),
    letters,
    h("div", { class: "controls" }, switchOn(state)),
    written,
    h("div", { class: "columns" }, now, live),
    h(
      "details",
      { class: "more" },
      h("summary", {}, `What each of the ${count(drops.length, "part")} contributes`),
      losses(run, (part) => state.toggle(part)),
    ),
  );
}

/** What each part contributes, as Python measured it, if the page cannot run the model. */
export function worths(run: Run): HTMLElement | null {
  if (!run.ablation || run.ablation.length < 2) return null;
  return section(
    "ablate",
    "Ablate",
    "The loss on validation rows without each part, measured when this page was written.",
    losses(run),
  );
}

/** What Python measured with all parts and without each part, and how much each part contributes. */
function weighed(run: Run) {
  const [whole, ...drops] = run.ablation!;
  const exact = whole.exact !== undefined;
  const telling = exact && drops.some((drop) => drop.exact !== whole.exact); // false for a poor model that is never right
  const worth = (drop: Loss) => (telling ? whole.exact! - drop.exact! : Math.max(0, drop.loss - whole.loss));
  const asked = run.probe?.terms?.map((row) => new Set(row.filter((term) => term >= 0)).size) ?? [];
  const judged = `${asked.reduce((a, b) => a + b, 0).toLocaleString("en")} ${run.task.judges}`;
  return { whole, drops, exact, judged, worth, most: Math.max(1e-9, ...drops.map(worth)) };
}

/** A table of the parts, the most important first. */
function losses(run: Run, toggle?: (part: Part) => void): HTMLElement {
  const { drops, exact, judged, worth, most } = weighed(run);
  const rows = drops
    .sort((a, b) => worth(b) - worth(a) || b.loss - a.loss)
    .map((drop) => {
      const length = h("span", { class: "drop" });
      length.style.width = `${(100 * Math.max(0, worth(drop))) / most}%`;
      const name = partName(drop.part);
      return [
        toggle ? h("button", { type: "button", class: "link", onclick: () => toggle(drop.part) }, name) : name,
        h("span", { class: "drop-frame" }, length),
        ...(exact ? [percent(drop.exact)] : []),
        drop.loss.toFixed(4),
      ];
    });
  const head = ["without", "importance", ...(exact ? [`right, of ${judged}`] : []), "loss (nats)"];
  return table(head, rows, [2, 3], "What each part contributes");
}
