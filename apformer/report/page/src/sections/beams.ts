// The translations that beam search found for a sentence, with their scores. A click shows one in place of the best.
import type { Beam, Search } from "../beam";
import { chance, count, h, redraw, table } from "../html";
import type { State } from "../state";

/** Draws the table into an element, which is hidden if there was no search. */
export function drawBeams(frame: HTMLElement, state: State, found: Beam[], how: Search, choose: (beam: Beam) => void) {
  frame.hidden = !found.length;
  if (!found.length) return;
  const end = state.run.task.end;
  const rows = found.map((beam, rank) => {
    const ended = beam.tokens[beam.tokens.length - 1] === end;
    const text = state.text(beam.tokens) || "∅";
    return [
      String(rank + 1),
      h("button", { type: "button", class: "link", onclick: () => choose(beam) }, ended ? text : `${text} …`),
      String(beam.tokens.length),
      chance(Math.exp(beam.logp)),
      beam.logp.toFixed(3),
      beam.score.toFixed(3),
    ];
  });
  const head = ["", "translation", "tokens", "probability", "log-probability", "score"];
  redraw(
    frame,
    h("h3", {}, "Beams"),
    h(
      "p",
      { class: "note" },
      `Beam search kept the ${count(how.beams, "likeliest partial translation")} at each step, without those that could no ` +
        "longer get the best score. Here is what it found, best first. The score is the log-probability divided by " +
        `((5 + tokens) / 6)^${how.alpha}, where the end token counts too. Click a translation to show it above.`,
    ),
    table(head, rows, [2, 3, 4, 5], "Beams"),
  );
}
