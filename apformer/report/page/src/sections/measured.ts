// The results of the evaluation, in the charts that the task describes.
import { h } from "../html";
import { unevaluated, type Run } from "../run";
import type { State } from "../state";
import { drawn } from "./blocks";
import { missing, section } from "./section";

export function measured(run: Run, state: State | null): HTMLElement {
  const { title, lead, blocks } = run.right;
  if (!blocks) return section("accuracy", title, lead, missing(unevaluated(run, "right")));
  const drawings = blocks.map((block) => drawn(block, state));
  return section("accuracy", title, lead, h("div", { class: "charts" }, ...drawings));
}
