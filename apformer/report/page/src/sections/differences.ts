// Shares by first term and difference. A click on a cell shows progressions from it, and how the model continues them.
import { count, figure, h, unseen } from "../html";
import type { DifferencesBlock } from "../run";
import type { State } from "../state";
import { examplesOf } from "./cell";

export function differences(block: DifferencesBlock, state: State | null): HTMLElement {
  const shown = h(
    "div",
    { class: "cell-examples", role: "status" },
    h(
      "p",
      { class: "note" },
      state
        ? "Choose a cell to see random progressions from it, and how the model continues them."
        : "This page does not contain the model, so cells show no examples.",
    ),
  );
  const filled = (_: unknown, k: number) => block.cells.some((row) => row[k].count);
  const columns = block.differences.filter(filled);
  const names = columns.map((bounds) => h("th", { scope: "col" }, bounds.join("–")));
  const rows = block.cells.map((row, i) => {
    if (!row.some((cell) => cell.count)) return null;
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, block.firsts[i].join("–")),
      ...row.filter(filled).map((cell, k) => {
        if (!cell.count) return h("td");
        const bounds = { firsts: block.firsts[i], differences: columns[k] };
        const label = `first term ${bounds.firsts.join(" to ")}, difference ${bounds.differences.join(" to ")}`;
        const right = ` % of ${count(cell.count, "term")} right`;
        const button = h(
          "button",
          {
            type: "button",
            class: "heat-cell",
            title: `${label}: ${short(cell.share!)}${right}`,
            disabled: !state,
            onclick: () => shown.replaceChildren(examplesOf(state!, bounds, label)),
          },
          short(cell.share!),
          unseen(`${right}, ${label}`),
        );
        button.style.setProperty("--share", String(cell.share));
        return h("td", {}, button);
      }),
    );
  });
  const title = "By first term and difference";
  const drawing = figure(
    title,
    "terms right, free-running, %",
    null,
    h(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": `Exact match ${title.toLowerCase()}` },
      h(
        "table",
        { class: "heat-table" },
        h(
          "thead",
          {},
          h("tr", {}, h("td"), h("th", { scope: "colgroup", colspan: columns.length }, "difference")),
          h("tr", {}, h("th", { scope: "col" }, "first term"), ...names),
        ),
        h("tbody", {}, ...rows),
      ),
    ),
    h(
      "p",
      { class: "note" },
      "Rows and columns without held-out terms are left out. Differences from −9 to 9 are never held out.",
    ),
    shown,
  );
  drawing.className = "wide";
  return drawing;
}

const short = (share: number) => (share === 1 ? "100" : Math.min(99.9, 100 * share).toFixed(1));
