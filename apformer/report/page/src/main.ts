// The page: reads the run that Python put into it, and draws its sections; each stands by itself.
import { apply, architecture } from "./architecture";
import { search } from "./beam";
import * as bytePairs from "./bytePairs";
import { h } from "./html";
import { readParams, type Run } from "./run";
import { ablation, worths } from "./sections/ablation";
import { attention } from "./sections/attention";
import { curves } from "./sections/curves";
import { embedding } from "./sections/embedding";
import { header } from "./sections/header";
import { lens } from "./sections/lens";
import { listing } from "./sections/listing";
import { measured } from "./sections/measured";
import { memory } from "./sections/memory";
import { player } from "./sections/player";
import { missing, section } from "./sections/section";
import { translator } from "./sections/translator";
import { splitOf } from "./split";
import { State } from "./state";
import { continuation } from "./terms";
import { encode } from "./tokenizer";

/** The sections of a run, those that run its model first; without the model, a word on why. */
function sections(run: Run): (HTMLElement | null)[] {
  const params = readParams(run, document.querySelector("#weights")!.textContent!);
  const state = params && new State(run, params);
  const play = { continue: player, translate: translator }[run.task.plays];
  const live = state
    ? [play(state), architecture(run).attends ? attention(state) : memory(state), ablation(state), lens(state)]
    : [
        section(
          "player",
          "The model",
          "To play with a model, the page must be able to run it.",
          missing(run.missing.weights ?? "The page came without the model."),
        ),
        worths(run),
      ];
  return [...live, embedding(run, params), curves(run), measured(run, state), listing(run, state)];
}

function draw() {
  const run: Run = JSON.parse(document.querySelector("#run")!.textContent!);
  document.title = `${run.name} · apformer`;
  const main = h("main", { id: "main" }, ...sections(run));
  const links = [...main.querySelectorAll("section")].map((part) =>
    h("a", { href: `#${part.id}` }, part.querySelector("h2")!.textContent),
  );
  const foot = h(
    "footer",
    {},
    "Written by apformer. Everything on this page is in this file; it asks no network for anything.",
  );
  document.body.append(
    h("a", { class: "skip", href: "#main" }, "Skip to the sections"),
    h("div", { class: "page" }, header(run), h("nav", { "aria-label": "Sections" }, ...links), main, foot),
  );
}

// For tests, which run the model without a page.
Object.assign(globalThis, {
  apformer: { apply, bytePairs, continuation, encode, readParams, search, splitOf },
});
if (typeof document !== "undefined") draw();
