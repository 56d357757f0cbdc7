// Single outputs of the evaluation, such as wrong terms or translations, in groups that the user chooses.
import { h } from "../html";
import { unevaluated, type Run } from "../run";
import type { State } from "../state";
import { cells } from "./blocks";
import { grouped } from "./groups";
import { missing, section } from "./section";

export function listing(run: Run, state: State | null): HTMLElement | null {
  if (!run.wrong) return null;
  const { title, lead, head, rows, groups, none } = run.wrong;
  const draw = (numbers: number[]) =>
    cells(
      `List: ${title}`,
      head,
      numbers.map((i) => rows![i]),
      state,
    );
  const frame = (...children: HTMLElement[]) => section("errors", title, lead, ...children);
  if (!rows) return frame(missing(unevaluated(run, "wrong")));
  if (!rows.length) return frame(h("p", { class: "none-wrong" }, none));
  const [all, names] = [[...rows.keys()], Object.keys(groups)];
  return frame(...(names.length ? grouped(all, names, (by, i) => groups[by][i], draw) : [draw(all)]));
}
