// The text of the player as boxes, each with the probability that the model gave it.
import { bar, chance, h, redraw, unseen } from "../html";
import { argmax, softmax } from "../linear";
import type { State } from "../state";
import { shown } from "../tokenizer";
import type { Play } from "./play";

const PAUSE = 45; // milliseconds between two characters that appear

/**
 * Draws the boxes into an element. Bars show the probabilities of what the model wrote; teacher-forced, of all tokens.
 */
export function drawStrip(frame: HTMLElement, state: State, play: Play) {
  const { tokens } = state;
  const first = state.source ? 1 : 0; // a target begins with an end token, which is not shown
  const groups: HTMLElement[] = [];
  for (let t = first; t < tokens.length; t++) {
    if (t === first || begins(state, t)) groups.push(h("span", { class: "run" }));
    groups[groups.length - 1].append(box(state, play, t));
  }
  if (state.steps < tokens.length) return redraw(frame, ...groups); // nothing follows an end token
  const next = h(
    "button",
    {
      type: "button",
      class: state.at === tokens.length - 1 ? "token next at" : "token next",
      title: "the next token",
      onclick: () => state.look(tokens.length - 1),
    },
    h("span", { class: "letter" }, "?"),
    unseen(", the next token"),
    h("span", { class: "level" }),
  );
  redraw(frame, ...groups, h("span", { class: "run" }, next));
}

/** Whether a line may break before a token: before a space, or after so many tokens. */
function begins({ run, tokens }: State, t: number): boolean {
  return run.task.line ? t % run.task.line === 0 : run.vocabulary[tokens[t]].startsWith(" ");
}

function box(state: State, play: Play, t: number): HTMLElement {
  const name = (token: number) => state.run.vocabulary[token];
  const token = state.tokens[t];
  const p_V = t > 0 ? softmax(state.output.logits_TV[t - 1]) : null;
  const written = t >= state.given;
  const judged = p_V !== null && (play.forced || written);
  const guess = judged && argmax(p_V) !== token ? shown(name(argmax(p_V))) : null;
  const long = name(token).length > 1;
  const kinds = { written, long, wrong: guess !== null, at: t === state.at + 1, space: name(token) === " " };
  const said = p_V ? chance(p_V[token]) : "given";
  const found = h(
    "button",
    {
      type: "button",
      class: ["token", ...Object.entries(kinds).flatMap(([kind, is]) => (is ? [kind] : []))].join(" "),
      title: `${shown(name(token))}, ${p_V ? "probability " : ""}${said}${guess ? `, most likely ${guess}` : ""}`,
      onclick: () => state.look(Math.max(0, t - 1)), // nothing was read before the first token
    },
    h("span", { class: "letter" }, shown(name(token))),
    unseen(`, ${said}`),
    h("span", { class: "level" }, judged ? bar(p_V[token]) : null),
    guess && unseen(", most likely "),
    guess && h("span", { class: "guess" }, guess),
  );
  if (play.fresh && written) {
    found.classList.add("fresh");
    found.style.animationDelay = `${(t - state.given) * PAUSE}ms`;
  }
  return found;
}
