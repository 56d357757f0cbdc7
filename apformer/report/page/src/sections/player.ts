// The player: type a progression or a text, and the model in this page goes on from it, digit by digit.
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
  "The model runs in this page. Type some terms, or click some. The model reads all of them before it writes each new " +
  "digit. Click a digit to see what the model expected there.";
const LEAD_OF_TEXT =
  "The model runs in this page. Type a beginning and let the model write. Click a character to see what the model " +
  "expected there.";

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
  const tokens = h("div", { class: "tokens", role: "group", "aria-label": "The text, character by character" });
  const judged = h("p", { class: "verdict", role: "status" });
  const expected = h("div", { class: "expected" });

  function typed(): number[] | null {
    const given = cut();
    button.disabled = !given;
    return given;
  }

  /** Take what is typed as the given text. */
  function read() {
    const given = typed();
    if (given) state.update({ tokens: given, given: given.length, at: given.length - 1 });
  }

  /** Go on from what is typed, as far as there are digits and positions for it, up to a text's end. */
  function go() {
    const given = typed();
    if (!given || play.forced) return read();
    const fitting = isText ? play.more : termsThatFit(state.text(given), run, play.more);
    const wanted = isText ? fitting : fitting * (run.task.prompt.terms!.width + 1);
    const left = Math.max(0, places(state.cfg) - given.length);
    const ends = Math.max(0, (run.task.prompt.longest ?? Infinity) - given.length);
    const added = generate(state.current, given, Math.min(wanted, left, ends), run, play.how, state.hidden);
    if (fitting < play.more && state.text(added).split(" ").length <= play.more)
      note.textContent = `${fitting ? "It stops early" : "It does not go on"}: the next term no longer fits the digits.`;
    if (wanted > left) note.textContent = `This model has ${count(state.cfg.max_len, "position")}: it stops there.`;
    const at = given.length - (isText || !added.length ? 1 : 0); // of a progression, before its first new digit
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
    const amount = slider(isText ? "tokens" : "terms", [1, isText ? 200 : 12, 1], play.more, String, (v) => {
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
    chips("Beginnings to try:", run.examples ?? [], shownText, choose),
    controls(),
    h("div", { class: "stage" }, h("div", {}, tokens, judged), expected),
  );
}
