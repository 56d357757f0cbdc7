// How good translations are, by the library that others score with, and by the length of the reference.
import { h, percent, table } from "../html";
import { bars } from "../plot";
import type { Run } from "../run";
import { missing, section } from "./section";

export function scores(run: Run): HTMLElement {
  const found = run.evaluation;
  const title = "How good it is";
  const lead =
    "Free-running translations of the test sentences, which training has never seen, held against one reference each.";
  if (!found)
    return section(
      "accuracy",
      title,
      lead,
      missing(run.missing.evaluation ?? "This run has not been evaluated: apformer evaluate does."),
    );
  const groups = (score: (row: any) => number) =>
    found.by_length.map((row: any) => ({
      name: words(row.words),
      note: row.sentences.toLocaleString("en"),
      values: [score(row)],
    }));
  const search = `a search with ${found.beams} beams, length penalty ${found.alpha}`;
  const rows = [
    ["BLEU", found.bleu.toFixed(2), h("code", {}, found.bleu_signature)],
    ["chrF", found.chrf.toFixed(2), h("code", {}, found.chrf_signature)],
    ["exact", percent(found.exact), "the reference, letter by letter"],
  ];
  return section(
    "accuracy",
    title,
    `${lead} Each is the best that ${search} finds; this page takes the likeliest token each time, which may differ.`,
    h(
      "div",
      { class: "charts" },
      bars(
        "BLEU by length",
        "words of the reference",
        groups((row) => row.bleu / 100),
        [{ name: "BLEU", colour: "blue" }],
        (score) => (score === null ? "–" : String(Number((100 * score).toFixed(1)))),
      ),
      bars(
        "Exact by length",
        "words of the reference",
        groups((row) => row.exact),
        [{ name: "exact", colour: "sky" }],
      ),
      h(
        "figure",
        {},
        h(
          "figcaption",
          {},
          h("strong", {}, "In all"),
          h("span", { class: "unit" }, `${found.sentences.toLocaleString("en")} sentences`),
        ),
        table(["score", "value", "how"], rows, [1], "Scores in all"),
      ),
    ),
  );
}

const words = ([least, most]: [number, number | null]) => (most === null ? `${least} or more` : `${least}–${most}`);
