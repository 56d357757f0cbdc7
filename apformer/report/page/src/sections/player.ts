// The player: type a progression or a text, and the model in this page continues it, token by token.
import { generate } from "../generate";
import { choice, count, h, slider } from "../html";
import type { State } from "../state";
import { places } from "../position";
import { termsThatFit } from "../terms";
import { encode, shownText } from "../tokenizer";
import { decoding } from "./decoding";
import { chips, entry } from "./entry";
import { drawExpected } from "./expected";
import { offNotice } from "./notice";
import { start } from "./play";
import { section } from "./section";
import { drawStrip } from "./strip";
import { verdict } from "./verdict";

const LEAD =
  "The model runs in this page. Type some terms, or click an example. Free-running, the model continues them digit by " +
  "digit; teacher-forced, it only predicts each digit that you typed. Click a digit to see what the model expected there.";
const LEAD_OF_TEXT =
  "The model runs in this page. Type the beginning of a text. Free-running, the model continues it; teacher-forced, it " +
  "only predicts each token that you typed. Click a token to see what the model expected there.";

export function player(state: State): HTMLElement {
  const { run } = state;
  const isText = !run.task.prompt.terms;
  const play = start(isText ? 60 : 3);
  const first = run.examples?.[0] ?? (isText ? run.vocabulary[0] : "");
  const {
    field,
    fault,
    note,
    tokens: cut,
  } = entry("prompt", isText ? 2 : 0, first, (text) => encode(text, run), read, go);
  const button = h("button", { type: "button", class: "primary", onclick: () => go() }, "Continue");
  const tokens = h("div", { class: "tokens", role: "group", "aria-label": "The text, token by token" });
  const judged = h("p", { class: "verdict", role: "status" });
  const expected = h("div", { class: "expected" });

  function typed(): number[] | null {
    const given = cut();
    button.disabled = !given;
    return given;
  }

  /** Takes what is typed as the given text. */
  function read() {
    const given = typed();
    if (given) state.update({ tokens: given, given: given.length, at: given.length - 1 });
  }

  /** Continues what is typed, as far as the digits, the positions and the longest text allow. */
  function go() {
    const given = typed();
    if (!given || play.forced) return read();
    const fitting = isText ? play.more : termsThatFit(state.text(given), run, play.more);
    const wanted = isText ? fitting : fitting * (run.task.prompt.terms!.width + 1);
    const left = Math.max(0, places(state.cfg) - given.length);
    const ends = Math.max(0, (run.task.prompt.longest ?? Infinity) - given.length);
    const added = generate(state.current, given, Math.min(wanted, left, ends), run, play.how, state.hidden);
    if (fitting < play.more && state.text(added).split(" ").length <= play.more)
      note.textContent = `${fitting ? "The model stops early" : "The model writes nothing"}: the next term no longer fits the digits.`;
    if (wanted > left) note.textContent = `The model stops early: it has only ${count(state.cfg.max_len, "position")}.`;
    const at = given.length - (isText || !added.length ? 1 : 0); // for a progression, just before its first new digit
    play.fresh = true;
    state.update({ tokens: [...given, ...added], given: given.length, at });
    play.fresh = false;
  }

  function draw() {
    drawStrip(tokens, state, play);
    judged.replaceChildren(...verdict(state, play.forced));
    drawExpected(expected, state, play.how);
  }

  function controls(): HTMLElement {
    const [kinds, sliders] = decoding(play.how, run.vocabulary.length, () => drawExpected(expected, state, play.how));
    const amount = slider(isText ? "new tokens" : "new terms", [1, isText ? 200 : 12, 1], play.more, String, (v) => {
      play.more = v;
    });
    const mode = choice("Mode", ["free-running", "teacher-forced"], (i) => {
      play.forced = button.hidden = amount.hidden = i === 1;
      go();
    });
    return h("div", { class: "controls" }, kinds, mode, amount, sliders);
  }

  function choose(text: string) {
    field.value = text;
    go();
  }

  state.drawn(draw, false);
  go();
  return section(
    "player",
    "Continue",
    isText ? LEAD_OF_TEXT : LEAD,
    offNotice(state),
    h("div", { class: "entry" }, h("label", { for: "prompt" }, isText ? "Text" : "Terms"), field, button),
    fault,
    note,
    chips("Examples:", run.examples ?? [], shownText, choose),
    controls(),
    h("div", { class: "stage" }, h("div", {}, tokens, judged), expected),
  );
}
