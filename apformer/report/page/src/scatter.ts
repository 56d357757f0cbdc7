// A scatter plot of named points.
import { svg } from "./html";

const MARGIN = 24;
/** The most points that fit a small drawing. */
export const FEW = 64;

/** Points in a plane, with the same scale on both axes. A line joins the first `joined` of them. */
export function scatter(label: string, points: [number, number][], names: string[], joined: number): SVGElement {
  const few = points.length <= FEW;
  const size = few ? 360 : 960;
  const largest = Math.max(...points.flat().map(Math.abs)) || 1;
  const at = (x: number) => size / 2 + (x / largest) * (size / 2 - MARGIN);
  const places = points.map(([a, b]) => [at(a), at(-b)].map((x) => x.toFixed(1)));
  const middle = size / 2;
  const drawing = svg(
    "svg",
    {
      viewBox: `0 0 ${size} ${size}`,
      class: few ? "chart square" : "chart square many",
      role: "img",
      "aria-label": label,
    },
    svg("line", { x1: 0, x2: size, y1: middle, y2: middle, class: "grid" }),
    svg("line", { x1: middle, x2: middle, y1: 0, y2: size, class: "grid" }),
  );
  const line = places.slice(0, joined).map(([x, y]) => `${x} ${y}`);
  if (joined) drawing.append(svg("path", { d: `M${line.join("L")}`, class: "thread" }));
  places.forEach(([x, y], i) => {
    const kind = i < joined || !joined ? "point" : "point other";
    if (few) drawing.append(svg("circle", { cx: x, cy: y, r: 11, class: kind }));
    drawing.append(svg("text", { x, y, dy: 4, class: few ? "name middle" : "name small middle" }, names[i]));
  });
  return drawing;
}
