// Reads the run that Python put into the page, and draws its sections, which are independent of each other.
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

/** The sections of a run. Those that run its model come first; without the model, a message says why it is missing. */
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
          "Here you can try the model, if the page contains it and can run it.",
          missing(run.missing.weights ?? "This page does not contain the model."),
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
  const foot = h("footer", {}, "Written by apformer. This file contains the whole page, and never uses the network.");
  document.body.append(
    h("a", { class: "skip", href: "#main" }, "Skip to the sections"),
    h("div", { class: "page" }, header(run), h("nav", { "aria-label": "Sections" }, ...links), main, foot),
  );
}

// For tests, which run the model outside a page.
Object.assign(globalThis, {
  apformer: { apply, bytePairs, continuation, encode, readParams, search, splitOf },
});
if (typeof document !== "undefined") draw();
