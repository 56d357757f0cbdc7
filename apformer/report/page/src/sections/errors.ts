// The wrong terms of the evaluation, in groups: by carries, by their number, by difference, by what is wrong with them.
import { count, h, table } from "../html";
import type { Run } from "../run";
import type { State } from "../state";
import { grouped } from "./groups";
import { playText } from "./play";
import { missing, section } from "./section";

interface Wrong {
  row: string;
  term: number;
  expected: string;
  predicted: string;
  first: number;
  difference: number;
  carries: number;
  well_formed: boolean;
  nearest: string | null;
}

const GROUPS: Record<string, (wrong: Wrong, run: Run) => string> = {
  carries: ({ carries }) => count(carries, "carry", "carries"),
  "what is wrong": (wrong) => fault(wrong),
  term: ({ term }) =>
    term <= 4 ? `term ${term}` : term <= 8 ? "terms 5 to 8" : term <= 16 ? "terms 9 to 16" : "terms from 17",
  difference: ({ difference }, run) => {
    const g = run.evaluation!.by_difference.find((g: any) => g.from <= difference && difference <= g.to);
    return `differences ${g.from} to ${g.to}`;
  },
};

export function errors(run: Run, state: State | null): HTMLElement | null {
  if (run.task === "text") return null;
  const title = "Wrong terms";
  const lead = "Teacher-forced: what the model says after the true text, where that is not the next term.";
  if (!run.evaluation)
    return section(
      "errors",
      title,
      lead,
      missing(run.missing.evaluation ?? "This run has not been evaluated: apformer evaluate does."),
    );
  if (run.task === "wide") return ofWidths(run, title);
  const found: Wrong[] = run.evaluation.errors;
  const all = Math.round((1 - (run.evaluation.exact_teacher_forced ?? 1)) * run.evaluation.terms);
  if (!found.length)
    return section(
      "errors",
      title,
      lead,
      h("p", { class: "none-wrong" }, `None: all ${count(run.evaluation.terms, "held-out term")} are right.`),
    );
  const kept = found.length < all ? ` ${found.length} of ${count(all, "wrong term")} are kept, spread over all.` : "";
  return section(
    "errors",
    title,
    lead + kept,
    ...grouped(
      found,
      Object.keys(GROUPS),
      (by, wrong) => GROUPS[by](wrong, run),
      (shown) => rows(shown, state),
    ),
  );
}

function rows(list: Wrong[], state: State | null): HTMLElement {
  const body = list.map((wrong) => {
    const given = wrong.row
      .split(" ")
      .slice(0, wrong.term - 1)
      .slice(-3)
      .join(" ");
    const show = state
      ? h("button", { type: "button", class: "link", onclick: () => playText(given) }, h("code", {}, given))
      : h("code", {}, given);
    return [
      show,
      h("code", {}, wrong.expected.trim()),
      different(wrong),
      String(wrong.term),
      String(wrong.difference),
      String(wrong.carries),
      h("code", {}, wrong.nearest ?? "none near"),
    ];
  });
  return table(
    ["given", "right", "the model", "term", "difference", "carries", "nearest training row"],
    body,
    [3, 4, 5],
    "List of wrong terms",
  );
}

/** What the model says, with the characters marked that are wrong. */
function different({ expected, predicted }: Wrong): HTMLElement {
  return h(
    "code",
    {},
    ...[...predicted].map((letter, i) =>
      letter === expected[i] ? (i || letter !== " " ? letter : null) : h("mark", {}, letter === " " ? "␣" : letter),
    ),
  );
}

function fault(wrong: Wrong): string {
  if (!wrong.well_formed) return "not a term";
  const places = [...wrong.expected].filter((letter, i) => letter !== wrong.predicted[i]).length;
  const away = Math.abs(Number(wrong.expected) - Number(wrong.predicted));
  if (/^10*$/.test(String(away))) return `off by ${away}: a carry`;
  return `${count(places, "wrong digit")}`;
}

function ofWidths(run: Run, title: string): HTMLElement {
  const list = run.evaluation!.widths.flatMap((suite: any) =>
    suite.errors.map((wrong: any) => [
      `${suite.digits}, ${suite.rows}`,
      h("code", {}, wrong.given),
      h("code", {}, wrong.expected.trim()),
      h("code", {}, wrong.predicted.trim()),
    ]),
  );
  return section(
    "errors",
    title,
    "Free-running, a few of each width.",
    list.length
      ? table(["digits, rows", "given", "right", "the model"], list, [], "List of wrong terms")
      : h("p", { class: "none-wrong" }, "None."),
  );
}
