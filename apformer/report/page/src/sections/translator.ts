// The player of a translator: type a sentence, and the model in this page translates it, token by token.
import { search, type Beam } from "../beam";
import { generate } from "../generate";
import { choice, h } from "../html";
import { places } from "../position";
import type { State } from "../state";
import { encodeSource, encodeTarget, shownText } from "../tokenizer";
import { drawBeams } from "./beams";
import { decoding } from "./decoding";
import { chips, entry } from "./entry";
import { drawExpected } from "./expected";
import { offNotice } from "./notice";
import { start } from "./play";
import { section } from "./section";
import { drawSource } from "./source";
import { drawStrip } from "./strip";
import { verdict } from "./verdict";

const LEAD =
  "The model runs in this page. Type a sentence, or click an example. Free-running, the model translates it token by " +
  "token; teacher-forced, it only predicts each token of a translation that you type. Click a token to see what the " +
  "model expected there, and to which source tokens it attended.";

export function translator(state: State): HTMLElement {
  const { run, cfg } = state;
  const end = run.task.end!;
  const play = start(0);
  const how = { ...run.task.search! };
  play.how.searched = true;
  let beams: Beam[] = [];
  const examples = run.examples ?? [];
  const sentence = entry(
    "prompt",
    2,
    examples[0] ?? "",
    (text) => encodeSource(text, run),
    () => read(),
    () => go(),
  );
  const judged = entry(
    "translation",
    2,
    run.references?.[0] ?? "",
    (text) => encodeTarget(text, run, "Type a translation for the model to score."),
    () => go(),
    () => go(),
  );
  const button = h("button", { type: "button", class: "primary", onclick: () => go() }, "Translate");
  const source = h("div", { class: "tokens source", role: "group", "aria-label": "The source, token by token" });
  const target = h("div", { class: "tokens", role: "group", "aria-label": "The translation, token by token" });
  const said = h("p", { class: "verdict", role: "status" });
  const expected = h("div", { class: "expected" });
  const listed = h("div", { class: "beams", hidden: true });
  const forced = h(
    "div",
    { hidden: true },
    h("div", { class: "entry" }, h("label", { for: "translation" }, "Translation"), judged.field),
    judged.fault,
    judged.note,
  );

  /** Takes what is typed as a source without a translation yet. */
  function read() {
    const typed = sentence.tokens();
    button.disabled = !typed;
    beams = [];
    if (typed) state.update({ source: typed, tokens: [end], given: 1, at: 0 });
  }

  /** Translates what is typed, or scores a typed translation of it. */
  function go() {
    const typed = sentence.tokens();
    const target = play.forced ? judged.tokens() : [];
    button.disabled = !typed;
    if (!typed || !target) return;
    const searched = !play.forced && play.how.searched;
    beams = searched ? search(state.current, typed, room(typed), run, end, how, state.hidden) : [];
    const write = () => generate(state.current, [end], room(typed), run, play.how, state.hidden, typed);
    const written = play.forced ? target : (beams[0]?.tokens ?? write());
    play.fresh = !play.forced;
    state.update({ source: typed, tokens: [end, ...written], given: 1, at: 0 });
    play.fresh = false;
    if (!play.forced && written[written.length - 1] !== end)
      sentence.note.textContent = `The translation was stopped after ${written.length} tokens, before its end token.`;
  }

  /**
   * The most tokens of a translation, as in apformer/tasks/translation/search.py, which rounds the source up to steps
   * of 8.
   */
  function room(source: number[]): number {
    return Math.min(16 + 16 * Math.ceil(source.length / 8), run.task.prompt.longest ?? Infinity, places(cfg));
  }

  function choose(text: string) {
    sentence.field.value = text;
    judged.field.value = run.references?.[examples.indexOf(text)] ?? "";
    go();
  }

  function draw() {
    drawSource(source, state);
    drawStrip(target, state, play);
    const reference = run.references?.[examples.indexOf(sentence.field.value)];
    said.replaceChildren(...verdict(state, play.forced, reference));
    drawExpected(expected, state, play.how);
    drawBeams(listed, state, beams, how, (beam) => state.update({ tokens: [end, ...beam.tokens], at: 0 }));
  }

  const changed = () => (play.how.searched && !play.forced ? go() : drawExpected(expected, state, play.how));
  const [kinds, sliders] = decoding(play.how, run.vocabulary.length, changed, how);
  const mode = choice("Mode", ["free-running", "teacher-forced"], (i) => {
    play.forced = button.hidden = i === 1;
    forced.hidden = !play.forced;
    go();
  });
  state.drawn(draw, false);
  go();
  return section(
    "player",
    "Translate",
    LEAD,
    offNotice(state),
    h("div", { class: "entry" }, h("label", { for: "prompt" }, "Sentence"), sentence.field, button),
    sentence.fault,
    sentence.note,
    forced,
    chips("Examples:", examples, shownText, choose),
    h("div", { class: "controls" }, kinds, mode, sliders),
    h(
      "div",
      { class: "stage" },
      h("div", {}, h("h3", {}, "Source"), source, h("h3", {}, "Translation"), target, said),
      expected,
    ),
    listed,
  );
}
