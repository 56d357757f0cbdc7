// Where the model is right: by term, difference, carries or width, and by first term and difference together.
import { count, h, percent, table, unseen } from "../html";
import { bars, lines } from "../plot";
import type { Group, Run } from "../run";
import type { State } from "../state";
import { examplesOf } from "./cell";
import { missing, section } from "./section";

const MODES = [
  { name: "teacher-forced", colour: "sky" },
  { name: "free-running", colour: "blue" },
];

export function accuracy(run: Run, state: State | null): HTMLElement {
  const found = run.evaluation;
  if (!found)
    return section(
      "accuracy",
      "Where it is right",
      "Exact match on progressions that training has never seen.",
      missing(run.missing.evaluation ?? "This run has not been evaluated: apformer evaluate does."),
    );
  if (run.task === "text") return ofText(run);
  const lead =
    "A term is right when every character of it is. Teacher-forced, each is predicted after the true text; " +
    "free-running, after what the model itself has written from the first two terms on. All rows are held out.";
  if (run.task === "wide") return section("accuracy", "Where it is right", lead, byWidth(found));
  const groups = (list: Group[], name: (g: Group) => string) =>
    list
      .filter((g) => g.count)
      .map((g) => ({ name: name(g), note: short(g.count), values: [g.teacher_forced, g.free_running] }));
  const byTerm = (mode: string) =>
    found.by_position
      .filter((g: Group) => g.count)
      .map((g: Group) => ({ x: g.term, low: g[mode], y: g[mode], high: g[mode] }));
  return section(
    "accuracy",
    "Where it is right",
    lead,
    h(
      "div",
      { class: "charts" },
      lines({
        title: "By position",
        x: "number of the term (the first two are given)",
        y: "terms right",
        share: true,
        format: (y) => percent(y),
        series: [
          { name: "teacher-forced", colour: "sky", points: byTerm("teacher_forced") },
          { name: "free-running", colour: "blue", points: byTerm("free_running") },
        ],
      }),
      bars(
        "By carries",
        "carries or borrows since the term before",
        groups(found.by_carries, (g) => String(g.carries)),
        MODES,
      ),
      bars(
        "By difference",
        "difference between neighbours, from this one on",
        groups(found.by_difference, (g) => `${g.from}–`),
        MODES,
      ),
      overall(found),
    ),
    heatMap(run, state),
  );
}

function overall(found: Record<string, any>): HTMLElement {
  const sequences = found.by_position.find((g: Group) => g.term === 3)?.count ?? 0;
  const rows = [
    [
      "predictable terms",
      found.terms.toLocaleString("en"),
      percent(found.exact_teacher_forced),
      percent(found.exact_free_running),
    ],
    ["whole sequences", sequences.toLocaleString("en"), "–", percent(found.exact_sequences)],
  ];
  if (found.trained)
    rows.push([
      "terms of the training file",
      found.trained.terms.toLocaleString("en"),
      percent(found.trained.exact_teacher_forced),
      percent(found.trained.exact_free_running),
    ]);
  return h(
    "figure",
    {},
    h("figcaption", {}, h("strong", {}, "In all")),
    table(["what", "count", "teacher-forced", "free-running"], rows, [1, 2, 3], "Exact match in all"),
  );
}

const short = (n: number) => (n >= 10_000 ? `${Math.round(n / 1000)}k` : n.toLocaleString("en"));

function byWidth(found: Record<string, any>): HTMLElement {
  const widths = [...new Set<number>(found.widths.map((suite: any) => suite.digits))];
  const share = (digits: number, rows: string) =>
    found.widths.find((suite: any) => suite.digits === digits && suite.rows === rows)?.free_running ?? null;
  const groups = widths.map((digits) => ({
    name: `${digits} digits`,
    note: digits <= found.trained_digits ? "trained" : "longer",
    values: [share(digits, "random"), share(digits, "adversarial")],
  }));
  return h(
    "div",
    { class: "charts" },
    bars("By width", "free-running; adversarial terms have runs of zeros or nines", groups, [
      { name: "random", colour: "sky" },
      { name: "adversarial", colour: "blue" },
    ]),
  );
}

function ofText(run: Run): HTMLElement {
  const nats: number[] = run.evaluation!.nats_by_position;
  const points = nats.map((y, t) => ({ x: t + 1, low: y, y, high: y }));
  return section(
    "accuracy",
    "Where it is good",
    `What a token of the validation part costs, by how many the model sees before it.`,
    h(
      "div",
      { class: "charts" },
      lines({
        title: "Loss by position",
        x: "tokens that the model sees",
        y: "nats per token",
        series: [{ name: "validation", colour: "blue", points }],
        floor: { name: `mean ${run.evaluation!.nats_per_token.toFixed(4)}`, y: run.evaluation!.nats_per_token },
      }),
    ),
  );
}

/** First terms by differences; a cell that is chosen shows rows of it, and what the model says to them. */
function heatMap(run: Run, state: State | null): HTMLElement {
  const found = run.evaluation!;
  const cells: Group[][] | undefined = found.by_first_and_difference;
  if (!cells)
    return missing(
      "This evaluation is of an older version, without first terms by differences: run apformer evaluate again.",
    );
  const tenth = Math.ceil(10 ** run.settings.data.digits / cells.length);
  const shown = h(
    "div",
    { class: "cell-examples", role: "status" },
    h(
      "p",
      { class: "note" },
      state
        ? "Choose a cell to see progressions of it, and what the model in this page says to them."
        : "Without the model, cells have no examples.",
    ),
  );
  const head = h(
    "tr",
    {},
    h("th", { scope: "col" }, "first term"),
    ...found.by_difference.map((g: Group) => h("th", { scope: "col" }, `${g.from}–${g.to}`)),
  );
  const rows = cells.map((row, i) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, `${i * tenth}–${Math.min((i + 1) * tenth, 10 ** run.settings.data.digits) - 1}`),
      ...row.map((cell, k) => {
        if (!cell.count) return h("td", { class: "empty" }, "");
        const bounds = {
          firsts: [i * tenth, (i + 1) * tenth - 1],
          differences: [found.by_difference[k].from, found.by_difference[k].to],
        };
        const label = `first term ${bounds.firsts.join(" to ")}, difference ${bounds.differences.join(" to ")}`;
        const right = ` % of ${count(cell.count, "term")} right`;
        const button = h(
          "button",
          {
            type: "button",
            class: "heat-cell",
            title: `${label}: ${short100(cell.free_running!)}${right}`,
            disabled: !state,
            onclick: () => shown.replaceChildren(examplesOf(state!, bounds, label)),
          },
          short100(cell.free_running!),
          unseen(`${right}, ${label}`),
        );
        button.style.setProperty("--share", String(cell.free_running));
        return h("td", {}, button);
      }),
    ),
  );
  return h(
    "figure",
    { class: "wide" },
    h(
      "figcaption",
      {},
      h("strong", {}, "By first term and difference"),
      h("span", { class: "unit" }, "terms right, free-running, %"),
    ),
    h(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "Exact match by first term and difference" },
      h("table", { class: "heat-table" }, h("thead", {}, head), h("tbody", {}, ...rows)),
    ),
    shown,
  );
}

const short100 = (share: number) => (share === 1 ? "100" : Math.min(99.9, 100 * share).toFixed(1));
