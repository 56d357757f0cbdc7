// Matrices as shades of colour: thumbnails for an overview, and large squares to point at.
import { h, svg } from "./html";

/**
 * A matrix as a picture with one pixel for each cell; shade(value) is from -1 to 1, and negative in the second colour.
 */
export function thumbnail(
  rows: ArrayLike<number>[],
  columns: number,
  shade = (v: number) => Math.sign(v) * Math.abs(v) ** 0.6,
): HTMLCanvasElement {
  const canvas = h("canvas", { width: columns, height: rows.length, class: "thumbnail" });
  const context = canvas.getContext("2d")!;
  const image = context.createImageData(columns, rows.length);
  const [positive, negative] = [colour("--heat"), colour("--heat-negative")];
  rows.forEach((row, y) => {
    for (let x = 0; x < row.length; x++) {
      const value = shade(row[x]);
      const at = 4 * (y * columns + x);
      image.data.set(value < 0 ? negative : positive, at);
      image.data[at + 3] = Math.round(255 * Math.min(1, Math.abs(value)));
    }
  });
  context.putImageData(image, 0, 0);
  return canvas;
}

function colour(name: string): [number, number, number] {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16)) as [number, number, number];
}

/** The smallest scale of a drawing with letters, where 1 is its size in pixels. */
export const LEGIBLE = 0.85;

/** A matrix as squares with names along both sides; `point` is called with the cell under the pointer. */
export function squares(
  label: string,
  rows: ArrayLike<number>[],
  rowNames: string[],
  columnNames: string[],
  shade: (v: number) => number,
  text: (r: number, c: number) => string,
  point?: (r: number, c: number) => void,
  marked = -1,
): SVGElement {
  const cell = 18;
  const longest = (names: string[]) => Math.max(...names.map((name) => name.length));
  const upright = longest(columnNames) > 2; // column names are written vertically
  const [left, top] = [Math.max(26, 7 * longest(rowNames) + 8), upright ? 6.5 * longest(columnNames) + 10 : 20];
  const drawing = svg("svg", {
    viewBox: `0 0 ${left + columnNames.length * cell} ${top + rows.length * cell}`,
    class: "matrix",
    role: "img",
    tabindex: 0, // so that keys scroll its frame
    "aria-label": label,
  });
  const [width, height] = [left + columnNames.length * cell, top + rows.length * cell];
  drawing.style.maxWidth = `${1.6 * width}px`;
  drawing.style.minWidth = `${LEGIBLE * width}px`; // its frame scrolls
  drawing.style.maxHeight = `max(26rem, ${LEGIBLE * height}px)`;
  drawing.append(
    ...columnNames.map((name, c) =>
      upright
        ? svg(
            "text",
            { transform: `translate(${left + (c + 0.7) * cell} ${top - 4}) rotate(-90)`, class: "tick" },
            name,
          )
        : svg("text", { x: left + (c + 0.5) * cell, y: top - 6, class: "tick middle" }, name),
    ),
  );
  rows.forEach((row, r) => {
    drawing.append(svg("text", { x: left - 6, y: top + (r + 0.7) * cell, class: "tick end" }, rowNames[r]));
    for (let c = 0; c < row.length; c++) {
      const value = shade(row[c]);
      const box = svg("rect", {
        x: left + c * cell + 0.5,
        y: top + r * cell + 0.5,
        width: cell - 1,
        height: cell - 1,
        class: value < 0 ? "cell negative" : "cell",
        "fill-opacity": Math.min(1, Math.abs(value)).toFixed(3),
      });
      box.append(svg("title", {}, text(r, c)));
      if (point) box.addEventListener("pointerenter", () => point(r, c));
      drawing.append(box);
    }
  });
  if (marked >= 0)
    drawing.append(
      svg("rect", {
        x: left,
        y: top + marked * cell,
        width: columnNames.length * cell,
        height: cell,
        rx: 3,
        class: "marked",
      }),
    );
  return drawing;
}
