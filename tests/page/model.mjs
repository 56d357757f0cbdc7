// Runs the model of a page without a browser: node model.mjs PAGE < cases.json, where the page is the built template.
// A case is a run as Python puts it into a page, with weights and rows of tokens; the answer to each is what it asks for.
import { readFileSync } from "node:fs";
import { runInThisContext } from "node:vm";

const page = readFileSync(process.argv[2], "utf8");
const scripts = [...page.matchAll(/<script>([\s\S]*?)<\/script>/g)];
runInThisContext(scripts[scripts.length - 1][1]);
const { apply, bytePairs, continuation, encode, readParams, search, splitOf } = globalThis.apformer;

/** The same with lists in place of typed arrays, which JSON would write as objects. */
const lists = (found) => JSON.parse(JSON.stringify(found, (_, x) => (ArrayBuffer.isView(x) ? [...x] : x)));

const ANSWERS = {
  logits: ({ rows, model, sources }, params) =>
    rows.map((tokens, i) => lists(apply(params, tokens, model, undefined, sources?.[i]).logits_TV)),
  captured: ({ rows, model }, params) =>
    rows.map((tokens) => {
      const { residual_TLD, attention_TLHS } = apply(params, tokens, model);
      return {
        residual: residual_TLD.map((L) => L.map((x) => [...x])),
        attention: attention_TLHS?.map((L) => L.map((H) => H.map((w) => [...w]))),
      };
    }),
  tokens: ({ texts, pairs }) => texts.map((text) => bytePairs.encode(text, pairs)),
  texts: ({ rows, pairs }) => rows.map((tokens) => bytePairs.decode(tokens, pairs)),
  hidden: ({ rows, model, place }, params) =>
    rows.map((tokens) => apply(params, tokens, model, new Set([place])).logits_TV.map((z) => [...z])),
  terms: ({ texts, run, count }) =>
    texts.map((text) => {
      const { tokens, fault, note } = encode(text, run);
      return { tokens, said: fault ?? note, next: fault ? null : continuation(text, run, count) };
    }),
  beams: ({ sources, model, steps, end, how }, params) =>
    sources.map((source) => search(params, source, steps, model, end, how)),
  split: ({ pairs }) => pairs.map(([difference, first]) => splitOf(difference, first)),
};

const cases = JSON.parse(readFileSync(0, "utf8"));
const answers = cases.map((asked) => ANSWERS[asked.ask](asked, readParams({ leaves: asked.leaves }, asked.weights)));
process.stdout.write(JSON.stringify(answers));
