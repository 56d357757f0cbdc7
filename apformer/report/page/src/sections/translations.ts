// Translations of test sentences beside their references, in groups: by what differs, by length, by what training had.
import { count, h, percent, table } from "../html";
import type { Run, Translation } from "../run";
import type { State } from "../state";
import { grouped } from "./groups";
import { playText } from "./play";
import { missing, section } from "./section";

const TRAINING = "what training had";
const knowsTraining = (list: Translation[]) => list.every(({ nearest }) => nearest !== undefined);
const wordsOf = (text: string) => text.split(/\s+/).filter(Boolean);

const GROUPS: Record<string, (one: Translation) => string> = {
  "what differs": (one) => fault(one),
  length: ({ reference }) => {
    const length = wordsOf(reference).length;
    return length <= 5
      ? "up to 5 words"
      : length <= 10
        ? "6 to 10 words"
        : length <= 15
          ? "11 to 15 words"
          : "16 words and more";
  },
  [TRAINING]: ({ nearest }) => {
    if (!nearest) return "no source that shares a word";
    if (nearest.shared === 1) return "a source of the same words";
    return nearest.shared >= 0.6 ? "a source that shares most words" : "no source that shares most words";
  },
};

export function translations(run: Run, state: State | null): HTMLElement {
  const title = "Translations";
  const lead =
    "What the run’s search made of some test sentences; choose one to have it translated above. What is marked stands only on one side.";
  const found = run.translations;
  if (!found)
    return section(
      "errors",
      title,
      lead,
      missing(
        run.missing.translations ??
          run.missing.evaluation ??
          "This run has not been evaluated: apformer evaluate does.",
      ),
    );
  const all = run.evaluation!.sentences;
  const kept =
    found.length < all
      ? ` ${found.length} of ${count(all, "sentence")} are kept, mostly such as differ from their reference.`
      : "";
  return section(
    "errors",
    title,
    lead + kept,
    ...grouped(
      found,
      Object.keys(GROUPS).filter((by) => by !== TRAINING || knowsTraining(found)),
      (by, one) => GROUPS[by](one),
      (shown) => rows(shown, state),
    ),
  );
}

function rows(list: Translation[], state: State | null): HTMLElement {
  const trained = knowsTraining(list);
  const body = list.map((one) => {
    const { source, reference, translation, nearest } = one;
    const show = state
      ? h("button", { type: "button", class: "link", onclick: () => playText(source) }, source || "∅")
      : source;
    const near = nearest
      ? `${nearest.source} → ${nearest.target} (${percent(nearest.shared, 0)} of the words)`
      : "none shares a word";
    return [
      show,
      h("span", {}, ...marked(translation, reference)),
      h("span", {}, ...marked(reference, translation)),
      ...(trained ? [near] : []),
    ];
  });
  const head = ["source", "the model", "reference", ...(trained ? ["nearest training pair"] : [])];
  return table(head, body, [], "List of translations");
}

/** A text with those of its words marked that the other has not. */
function marked(text: string, other: string): (string | Node)[] {
  const known = new Set(wordsOf(other));
  return wordsOf(text).flatMap((word, i) => [i ? " " : "", known.has(word) ? word : h("mark", {}, word)]);
}

function fault({ translation, reference }: Translation): string {
  if (translation === reference) return "exact";
  const [found, right] = [wordsOf(translation), wordsOf(reference)];
  const [foundWords, rightWords] = [new Set(found), new Set(right)];
  const extra = [...foundWords].filter((word) => !rightWords.has(word)).length;
  const lacking = [...rightWords].filter((word) => !foundWords.has(word)).length;
  const differ = Math.max(extra, lacking);
  if (!differ) return "the same words, in another order or number";
  if (!extra) return "words are missing";
  if (!lacking) return "words are added";
  return differ === 1 ? "one word differs" : differ <= 3 ? "two or three words differ" : "four words and more differ";
}
