// The player: type a progression or a text, and the model in this page goes on from it, digit by digit.
import { chance, choice, count, h, redraw, slider, unseen } from "../html";
import { GREEDY, distribution, generate, type Choice } from "../generate";
import { argmax, softmax } from "../linear";
import { cost } from "../ablate";
import type { State } from "../state";
import { encode, shown, shownText, termsThatFit, value, widthOf, written } from "../tokenizer";
import { offNotice } from "./notice";
import { section } from "./section";

const MOST_SHOWN = 12; // tokens whose probabilities are listed

export function player(state: State): HTMLElement {
  const { run } = state;
  const isText = run.task === "text";
  let how: Choice = { ...GREEDY, topK: 0 };
  let forced = false;
  let fresh = false; // whether the text is just being written
  let more = isText ? 60 : 3;

  const common = { id: "prompt", spellcheck: "false", autocomplete: "off", "aria-describedby": "fault note", oninput: () => read(), onkeydown: (event: Event) => {
    const { key, shiftKey } = event as KeyboardEvent;
    if (key !== "Enter" || shiftKey) return;
    event.preventDefault();
    go();
  } };
  const field = isText ? h("textarea", { ...common, rows: 2 }) : h("input", { ...common, type: "text", inputmode: "numeric" });
  field.value = run.examples?.[0] ?? (isText ? run.vocabulary[0] : "");
  const fault = h("p", { id: "fault", class: "fault", role: "alert" });
  const note = h("p", { id: "note", class: "note" });
  const button = h("button", { type: "button", class: "primary", onclick: () => go() }, "Continue");
  const sampling = h("div", { class: "sliders", hidden: true },
    slider("temperature", 0.1, 2, 0.1, 1, (v) => v.toFixed(1), (v) => { how.temperature = v; strip(); }),
    slider("top-k", 0, Math.min(run.vocabulary.length, 50), 1, 0, (v) => (v ? String(v) : "all"), (v) => { how.topK = v; strip(); }),
    slider("top-p", 0.05, 1, 0.05, 1, (v) => v.toFixed(2), (v) => { how.topP = v; strip(); }));
  const unit = isText ? "token" : "term";
  const amount = slider(`${unit}s`, 1, isText ? 200 : 12, 1, more, String, (v) => { more = v; });
  const tokens = h("div", { class: "tokens", role: "group", "aria-label": "The text, character by character" });
  const expected = h("div", { class: "expected" });
  const verdict = h("p", { class: "verdict", role: "status" });

  /** What is typed; a fault is said beside the field, and what was there stays. */
  function typed(): number[] | null {
    const reading = encode(field.value, run);
    fault.textContent = reading.fault ?? "";
    note.textContent = reading.fault ? "" : reading.note ?? "";
    field.setAttribute("aria-invalid", String(!!reading.fault));
    button.disabled = !!reading.fault;
    return reading.fault ? null : reading.tokens;
  }

  /** Take what is typed as the given text. */
  function read() {
    const given = typed();
    if (given) state.update({ tokens: given, given: given.length, at: given.length - 1 });
  }

  /** Go on from what is given. */
  function go() {
    const given = typed();
    if (!given || forced) return read();
    const fitting = isText ? more : Math.min(more, termsThatFit(state.text(given), run));
    if (fitting < more) note.textContent = `${fitting ? "It stops early" : "It does not go on"}: the next term no longer fits the digits.`;
    const wanted = isText ? more : fitting * (widthOf(state.text(given)) + 1);
    const room = state.cfg.position === "learned" ? state.cfg.max_len - given.length : Infinity;
    if (wanted > room) note.textContent = `This model has ${count(state.cfg.max_len, "position")}: it stops there.`;
    const written = generate(state.current, given, Math.max(0, Math.min(wanted, room)), state.cfg, how, state.hidden);
    fresh = true;
    state.update({ tokens: [...given, ...written], given: given.length, at: given.length - (isText || !written.length ? 1 : 0) });
    fresh = false;
  }

  /** The text as boxes, each with the probability that the model gave it; in teacher-forced mode all of it is judged. */
  function strip() {
    const { logits_TV } = state.output;
    const terms: HTMLElement[] = [];
    state.tokens.forEach((token, t) => {
      const begins = !terms.length || (!isText && run.vocabulary[token] === " ");
      if (begins || (isText && t % 16 === 0)) terms.push(h("span", { class: isText ? "run" : "term" }));
      const p_V = t > 0 ? softmax(logits_TV[t - 1]) : null;
      const best = p_V ? argmax(p_V) : token;
      const judged = p_V !== null && (forced || t >= state.given);
      const wrong = judged && best !== token;
      const name = run.vocabulary[token];
      const said = p_V ? `${shown(name)}, ${chance(p_V[token])}${wrong ? `, most likely ${shown(run.vocabulary[best])}` : ""}` : `${shown(name)}, given`;
      const box = h("button", { type: "button", class: `token${t >= state.given ? " written" : ""}${wrong ? " wrong" : ""}${t === state.at + 1 ? " at" : ""}${name === " " ? " space" : ""}`, title: said, onclick: () => state.look(t - 1) },
        h("span", { class: "letter" }, shown(name)), unseen(p_V ? `, ${chance(p_V[token])}` : ", given"),
        h("span", { class: "level" }, judged ? bar(p_V![token]) : null),
        wrong ? unseen(", most likely ") : null, wrong ? h("span", { class: "guess" }, shown(run.vocabulary[best])) : null);
      if (fresh && t >= state.given) {
        box.classList.add("fresh");
        box.style.animationDelay = `${(t - state.given) * 45}ms`;
      }
      terms[terms.length - 1].append(box);
    });
    const next = h("button", { type: "button", class: `token next${state.at === state.tokens.length - 1 ? " at" : ""}`, title: "what comes next", onclick: () => state.look(state.tokens.length - 1) }, h("span", { class: "letter" }, "?"), unseen(", what comes next"), h("span", { class: "level" }));
    redraw(tokens, ...terms, h("span", { class: "run" }, next));
    verdict.replaceChildren(...judge());
    expect();
  }

  /** Whether what the model wrote is right, where that is known. */
  function judge(): (Node | string)[] {
    if (isText) return forced ? [`Mean cost of this text: ${meanCost().toFixed(3)} nats per token.`] : [];
    if (forced) return [`Mean cost of these characters: ${meanCost().toFixed(3)} nats.`];
    const given = state.text(state.tokens.slice(0, state.given)).split(" ");
    const more = state.text(state.tokens.slice(state.given));
    if (given.length < 2 || !more) return [];
    const mark = (kind: string, words: string) => h("span", { class: `mark ${kind}` }, words);
    if (more[0] !== " ") return [mark("false", `✗ no space after ${given[given.length - 1]}`)];
    const [first, second] = given.map((term) => value(term, run));
    return more.slice(1).split(" ").map((text, i) => {
      const right = first + BigInt(given.length + i) * (second - first);
      const term = written(right, given[0].length, run);
      if (right < 0n || term.length > given[0].length) return mark("open", `${text} (beyond the digits)`);
      return text === term ? mark("right", `${text} ✓`) : mark("false", `${text || "∅"} ✗ not ${term}`);
    });
  }

  function meanCost(): number {
    const costs = state.tokens.slice(1).map((token, t) => cost(state.output.logits_TV[t], token));
    return costs.reduce((a, b) => a + b, 0) / Math.max(1, costs.length);
  }

  /** The probabilities of the token after the one that is looked at. */
  function expect() {
    const at = state.at;
    const z_V = state.output.logits_TV[at];
    const all_V = softmax(z_V);
    const drawn_V = how.sampled ? distribution(z_V, how) : all_V;
    const order = [...all_V.keys()];
    const listed = isText ? order.sort((a, b) => all_V[b] - all_V[a]).slice(0, MOST_SHOWN) : order;
    const actual = state.tokens[at + 1];
    const best = argmax(all_V);
    const rows = listed.map((v) =>
      h("li", { class: `${v === best ? "best " : ""}${v === actual ? "actual" : ""}` },
        h("span", { class: "letter" }, shown(run.vocabulary[v])), bar(drawn_V[v]), h("span", { class: "number" }, chance(drawn_V[v]))));
    const before = state.text(state.tokens.slice(Math.max(0, at - 14), at + 1));
    const surprise = actual === undefined ? "" : ` The text goes on with “${shown(run.vocabulary[actual])}”, at a cost of ${cost(z_V, actual).toFixed(3)} nats.`;
    expected.replaceChildren(h("h3", {}, "What the model expects next"), h("p", { class: "note" }, h("span", {}, "after "), h("code", {}, (at > 14 ? "…" : "") + before), h("span", {}, "."), surprise), h("ol", { class: "probabilities" }, ...rows));
  }

  const examples = h("div", { class: "examples" }, h("span", {}, "Held-out beginnings:"), ...(run.examples ?? []).map((text) => h("button", { type: "button", class: "chip", onclick: () => { field.value = text; go(); if (forced) read(); } }, isText ? shownText(text) : text)));
  state.drawn(strip, false);
  const element = section("player", "Continue", isText ? "The model runs in this page. Type a beginning and let it write; click a character to see what it expected there." : "The model runs in this page. Type a progression, or click one; each new digit is written after the model has read all before it. Click a digit to see what it expected there.",
    offNotice(state),
    h("div", { class: "entry" }, h("label", { for: "prompt" }, isText ? "Text" : "Terms"), field, button),
    fault, note,
    run.examples ? examples : null,
    h("div", { class: "controls" },
      choice("Decoding", ["greedy", "sampled"], 0, (i) => { how = { ...how, sampled: i === 1 }; sampling.hidden = i === 0; expect(); }),
      choice("Mode", ["free-running", "teacher-forced"], 0, (i) => { forced = i === 1; button.disabled = forced; amount.hidden = forced; read(); if (!forced) go(); }),
      amount, sampling),
    h("div", { class: "stage" }, h("div", {}, tokens, verdict), expected));
  go();
  return element;
}

/** A share as the length of a bar. */
export function bar(share: number): HTMLElement {
  const filled = h("span", { class: "fill" });
  filled.style.width = `${(100 * share).toFixed(1)}%`;
  return h("span", { class: "bar" }, filled);
}
