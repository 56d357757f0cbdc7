// The charts, tables and cells that Python describes, see apformer/report/sections.py.
import { figure, h, table } from "../html";
import { bars, lines } from "../plot";
import type { BarsBlock, Block, Cell, DifferencesBlock, LinesBlock, TableBlock } from "../run";
import type { State } from "../state";
import { differences } from "./differences";
import { playText } from "./play";

const COLOURS = ["sky", "blue", "orange", "green"];
const NUMBER = /^[\d.,]+( %)?$|^-$/;

/** The names of series, each with a colour; a single one is blue. */
const coloured = (names: string[]) =>
  names.map((name, i) => ({ name, colour: names.length > 1 ? COLOURS[i % COLOURS.length] : "blue" }));

/** A block as an element; state is null if the page has no model. */
export function drawn(block: Block, state: State | null): HTMLElement {
  const draw = {
    lines: () => curves(block as LinesBlock),
    bars: () => columns(block as BarsBlock),
    table: () => titled(block as TableBlock, state),
    differences: () => differences(block as DifferencesBlock, state),
  };
  return draw[block.kind]();
}

function curves({ title, x, y, at, counts, series, share, mean }: LinesBlock): HTMLElement {
  return lines({
    title,
    x,
    y,
    share,
    series: coloured(Object.keys(series)).map((one) => ({
      ...one,
      points: series[one.name].map((value, k) => ({ x: at[k], low: value, y: value, high: value })),
    })),
    floor: mean === null ? undefined : { name: `mean ${mean.toFixed(4)}`, y: mean },
    counts: counts ? new Map(at.map((place, k) => [place, counts[k]])) : undefined,
  });
}

function columns({ title, unit, series, groups, points }: BarsBlock): HTMLElement {
  const format = (share: number | null) => (share === null ? "–" : String(Number((100 * share).toFixed(1))));
  return bars(title, unit, groups, coloured(series), points ? format : undefined);
}

function titled({ title, head, rows }: TableBlock, state: State | null): HTMLElement {
  return figure(title, "", null, cells(title, head, rows, state));
}

/** A table of cells. */
export function cells(label: string, head: string[], rows: Cell[][], state: State | null): HTMLElement {
  const numeric = [...head.keys()].filter((i) =>
    rows.every((row) => typeof row[i] === "string" && NUMBER.test(row[i])),
  );
  const body = rows.map((row) => row.map((cell) => content(cell, state)));
  return table(head, body, numeric, label);
}

function content(cell: Cell, state: State | null): Node | string {
  if (typeof cell === "string") return cell;
  const pieces = cell.pieces.map(([text, marked]) => (marked ? h("mark", {}, text) : text));
  const text = h(cell.code ? "code" : "span", {}, ...pieces);
  if (cell.play === null || !state) return text;
  return h("button", { type: "button", class: "link", onclick: () => playText(cell.play!) }, text);
}
