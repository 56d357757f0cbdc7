// Random progressions from a cell of the map, and how the model continues them.
import { h, table } from "../html";
import { generate, GREEDY } from "../generate";
import { splitOf } from "../split";
import type { State } from "../state";

export interface Bounds {
  firsts: number[];
  differences: number[];
}
const [ROWS, TERMS] = [8, 5];

export function examplesOf(state: State, bounds: Bounds, label: string): HTMLElement {
  const digits = state.run.task.prompt.terms!.width;
  const rows = Array.from({ length: 400 }, () => [uniform(bounds.firsts), uniform(bounds.differences)])
    .filter(([first, difference]) => inside(first + 2 * difference, digits))
    .slice(0, ROWS)
    .map(([first, difference]) => row(state, first, difference, digits));
  const without = state.off.length ? ", continued without the parts that are switched off" : "";
  const head = ["given", "predicted", "right", "split"];
  return h(
    "div",
    {},
    h("p", { class: "note" }, `Random progressions with ${label}${without}:`),
    rows.length
      ? table(head, rows, [], "Progressions of this cell")
      : h("p", { class: "missing" }, "No progression of three terms fits in this cell."),
  );
}

const uniform = ([low, high]: number[]) => low + Math.floor(Math.random() * (high - low + 1));
const inside = (value: number, digits: number) => value >= 0 && value < 10 ** digits;

function row(state: State, first: number, difference: number, digits: number): (string | Node)[] {
  const terms = Array.from({ length: TERMS }, (_, i) => first + i * difference).filter((value) =>
    inside(value, digits),
  );
  const texts = terms.map((value) => String(value).padStart(digits, "0"));
  const given = texts.slice(0, 2).join(" ");
  const tokens = [...given].map((letter) => state.run.vocabulary.indexOf(letter));
  const written = generate(state.current, tokens, (terms.length - 2) * (digits + 1), state.run, GREEDY, new Set());
  const said = state.text(written).trim();
  const right = said === texts.slice(2).join(" ");
  return [
    h("code", {}, given),
    h("code", { class: right ? "" : "false" }, said),
    right ? "✓" : `✗ expected ${texts.slice(2).join(" ")}`,
    ["training", "validation", "test"][splitOf(difference, first)],
  ];
}
