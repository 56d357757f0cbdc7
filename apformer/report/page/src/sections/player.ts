// The player: type a progression or a text, and the model in this page goes on from it, digit by digit.
import { generate } from "../generate";
import { choice, count, h, slider } from "../html";
import type { State } from "../state";
import { encode, shownText, termsThatFit, widthOf } from "../tokenizer";
import { drawExpected } from "./expected";
import { offNotice } from "./notice";
import { start } from "./play";
import { section } from "./section";
import { drawStrip } from "./strip";
import { verdict } from "./verdict";

const LEAD =
  "The model runs in this page. Type a progression, or click one; each new digit is written after the model has read " +
  "all before it. Click a digit to see what it expected there.";
const LEAD_OF_TEXT =
  "The model runs in this page. Type a beginning and let it write; click a character to see what it expected there.";

export function player(state: State): HTMLElement {
  const { run } = state;
  const isText = run.task === "text";
  const play = start(isText);
  const fault = h("p", { id: "fault", class: "fault", role: "alert" });
  const note = h("p", { id: "note", class: "note" });
  const field = prompt();
  const button = h("button", { type: "button", class: "primary", onclick: () => go() }, "Continue");
  const tokens = h("div", { class: "tokens", role: "group", "aria-label": "The text, character by character" });
  const judged = h("p", { class: "verdict", role: "status" });
  const expected = h("div", { class: "expected" });

  function prompt(): HTMLInputElement | HTMLTextAreaElement {
    const onkeydown = (event: Event) => {
      const { key, shiftKey } = event as KeyboardEvent;
      if (key !== "Enter" || shiftKey) return;
      event.preventDefault();
      go();
    };
    const plain = { id: "prompt", spellcheck: "false", autocomplete: "off", "aria-describedby": "fault note" };
    const props = { ...plain, oninput: () => read(), onkeydown };
    const made = isText ? h("textarea", { ...props, rows: 2 }) : h("input", { ...props, inputmode: "numeric" });
    made.value = run.examples?.[0] ?? (isText ? run.vocabulary[0] : "");
    return made;
  }

  /** What is typed; a fault is said beside the field, and what was there stays. */
  function typed(): number[] | null {
    const reading = encode(field.value, run);
    fault.textContent = reading.fault ?? "";
    note.textContent = reading.fault ? "" : (reading.note ?? "");
    field.setAttribute("aria-invalid", String(!!reading.fault));
    button.disabled = !!reading.fault;
    return reading.fault ? null : reading.tokens;
  }

  /** Take what is typed as the given text. */
  function read() {
    const given = typed();
    if (given) state.update({ tokens: given, given: given.length, at: given.length - 1 });
  }

  /** Go on from what is typed. */
  function go() {
    const given = typed();
    if (!given || play.forced) return read();
    const added = generate(state.current, given, room(given), state.cfg, play.how, state.hidden);
    const at = given.length - (isText || !added.length ? 1 : 0); // of a progression, before its first new digit
    play.fresh = true;
    state.update({ tokens: [...given, ...added], given: given.length, at });
    play.fresh = false;
  }

  /** How many tokens to add: what is asked for, as far as there are digits and positions for it. */
  function room(given: number[]): number {
    const text = state.text(given);
    const fitting = isText ? play.more : Math.min(play.more, termsThatFit(text, run));
    const stops = fitting ? "It stops early" : "It does not go on";
    if (fitting < play.more) note.textContent = `${stops}: the next term no longer fits the digits.`;
    const wanted = isText ? fitting : fitting * (widthOf(text) + 1);
    const places = state.cfg.position === "learned" ? Math.max(0, state.cfg.max_len - given.length) : Infinity;
    if (wanted > places) note.textContent = `This model has ${count(state.cfg.max_len, "position")}: it stops there.`;
    return Math.min(wanted, places);
  }

  function draw() {
    drawStrip(tokens, state, play);
    judged.replaceChildren(...verdict(state, play.forced));
    drawExpected(expected, state, play.how);
  }

  function controls(): HTMLElement {
    const set = (change: Partial<typeof play.how>) => {
      Object.assign(play.how, change);
      drawExpected(expected, state, play.how);
    };
    const topK = Math.min(run.vocabulary.length, 50);
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
        [0, topK, 1],
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
    const amount = slider(isText ? "tokens" : "terms", [1, isText ? 200 : 12, 1], play.more, String, (v) => {
      play.more = v;
    });
    const decoding = choice("Decoding", ["greedy", "sampled"], (i) => {
      sliders.hidden = i === 0;
      set({ sampled: i === 1 });
    });
    const mode = choice("Mode", ["free-running", "teacher-forced"], (i) => {
      play.forced = button.hidden = amount.hidden = i === 1;
      go();
    });
    return h("div", { class: "controls" }, decoding, mode, amount, sliders);
  }

  function examples(): HTMLElement | null {
    const chips = (run.examples ?? []).map((text) => {
      const onclick = () => {
        field.value = text;
        go();
      };
      return h("button", { type: "button", class: "chip", onclick }, shownText(text));
    });
    return chips.length ? h("div", { class: "examples" }, h("span", {}, "Held-out beginnings:"), ...chips) : null;
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
    examples(),
    controls(),
    h("div", { class: "stage" }, h("div", {}, tokens, judged), expected),
  );
}
