// The text in a row, with arcs from a query to the tokens that it attends to; for cross-attention,
// lines between two rows.
import { LEGIBLE } from "../heat";
import { svg } from "../html";
import type { Sight } from "./sight";

const [STEP, LETTER, BOX] = [20, 8, 22]; // width of a digit, width of each letter of a longer token, height of a row
const RISE = 36; // height of the space for arcs

/** Boxes for these names, side by side, and the width of all. */
function line(names: string[]) {
  let end = 0;
  const boxes = names.map((name) => {
    const width = Math.max(STEP, LETTER * name.length + 8);
    end += width;
    return { width, middle: end - width / 2 };
  });
  return { boxes, width: Math.max(end, STEP) };
}

export function arcs(sight: Sight, read_S: ArrayLike<number>, at: number): SVGElement {
  const [rows, columns] = [sight.rows(), sight.columns()];
  const [asking, answering] = [line(rows), line(columns)];
  const width = Math.max(asking.width, answering.width);
  const top = sight.across ? BOX + RISE : RISE + BOX; // where the row of queries begins
  const drawing = svg("svg", {
    viewBox: `0 0 ${width} ${top + BOX + 2}`,
    class: "arcs",
    role: "group",
    "aria-label": "The text; choose a token to see which tokens it attends to",
  });
  if ([...rows, ...columns].some((name) => name.length > 1)) drawing.style.width = `${1.15 * width}px`;
  else drawing.style.minWidth = `${LEGIBLE * width}px`; // its frame scrolls
  for (let s = 0; s < read_S.length; s++) {
    if (read_S[s] <= 0.005) continue;
    const [from, to] = [asking.boxes[at].middle, answering.boxes[s].middle];
    drawing.append(
      svg("path", {
        d: sight.across ? between(from, to, top) : over(from, to, top, Math.abs(at - s)),
        class: "arc",
        "stroke-width": (0.5 + 4 * read_S[s]).toFixed(2),
        "stroke-opacity": (0.15 + 0.85 * read_S[s]).toFixed(2),
      }),
    );
  }
  const shade = ({ width, middle }: { width: number; middle: number }, y: number, read: number) =>
    svg("rect", {
      x: middle - width / 2 + 1,
      y,
      width: width - 2,
      height: BOX - 1,
      rx: 3,
      class: "cell",
      "fill-opacity": (0.5 * read).toFixed(3),
    });
  columns.forEach((name, s) => {
    const read = read_S[s] ?? 0;
    drawing.append(shade(answering.boxes[s], sight.across ? 0 : top + 1, read));
    if (sight.across) drawing.append(svg("text", { x: answering.boxes[s].middle, y: 15, class: kind(false) }, name));
  });
  rows.forEach((name, t) => {
    const look = () => sight.look(t);
    const letter = svg(
      "text",
      {
        x: asking.boxes[t].middle,
        y: top + 16,
        class: kind(t === at),
        tabindex: 0,
        role: "button",
        "aria-label": `${name}, ${t + 1}`,
        onfocus: look,
        onclick: look,
        onpointerenter: look,
      },
      name,
    );
    drawing.append(letter);
  });
  return drawing;
}

const kind = (asks: boolean) => (asks ? "letter middle asks" : "letter middle");

/** An arc over the text. */
function over(from: number, to: number, base: number, distance: number): string {
  if (!distance) return `M${from - 4} ${base}C${from - 9} ${base - 18} ${from + 9} ${base - 18} ${from + 4} ${base}`;
  const height = 1.25 * Math.min(base - 4, 12 + distance * 4);
  return `M${from} ${base}C${from} ${base - height} ${to} ${base - height} ${to} ${base}`;
}

/** A line from the lower row to the upper. */
function between(from: number, to: number, top: number): string {
  const middle = (BOX + top) / 2;
  return `M${from} ${top}C${from} ${middle} ${to} ${middle} ${to} ${BOX}`;
}
