// Charts as SVG: lines with bands, and bars. The values at the pointer, or at the place
// chosen by arrow keys, are shown below.
import { figure, h, percent, svg } from "./html";

export interface Series {
  name: string;
  colour: string;
  points: { x: number; low: number; y: number; high: number }[];
  dots?: boolean;
}
export interface Lines {
  title: string;
  x: string;
  y: string;
  series: Series[];
  log?: boolean;
  share?: boolean;
  floor?: { name: string; y: number };
  /** For each x, how many items its value is a share of. */
  counts?: Map<number, number>;
}

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [520, 250, 58, 14, 12, 38];

/** Curves, each in a band from its lowest to its highest values. */
export function lines({ title, x, y, series, log = false, share: isShare = false, floor, counts }: Lines): HTMLElement {
  const format = (v: number) => (isShare ? percent(v) : v.toPrecision(4));
  const all = series.flatMap((one) => one.points);
  const ys = [...all.flatMap((p) => [p.low, p.high]), ...(floor ? [floor.y] : [])].filter((v) => !log || v > 0);
  const [xLow, xHigh] = extent(all.map((p) => p.x));
  const [yLow, yHigh] = isShare ? [0, 1] : padded(extent(ys), log);
  const across = (v: number) => LEFT + ((v - xLow) / (xHigh - xLow || 1)) * (WIDTH - LEFT - RIGHT);
  const share = (v: number) => (log ? Math.log(v / yLow) / Math.log(yHigh / yLow) : (v - yLow) / (yHigh - yLow));
  const up = (v: number) => HEIGHT - BOTTOM - Math.max(0, Math.min(1, share(v))) * (HEIGHT - TOP - BOTTOM);
  const path = (points: [number, number][]) =>
    points.map(([a, b], i) => `${i ? "L" : "M"}${across(a).toFixed(1)} ${up(b).toFixed(1)}`).join("");

  const drawing = svg("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT + (counts ? 14 : 0)}`,
    class: "chart",
    role: "img",
    tabindex: 0,
    "aria-label": `${title}: ${y} by ${x}${log ? ", logarithmic scale" : ""}`,
  });
  for (const tick of ticks(yLow, yHigh, log)) {
    drawing.append(svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: up(tick), y2: up(tick), class: "grid" }));
    drawing.append(
      svg(
        "text",
        { x: LEFT - 8, y: up(tick) + 4, class: "tick end" },
        isShare ? `${Math.round(100 * tick)} %` : short(tick),
      ),
    );
  }
  for (const tick of ticks(xLow, xHigh, false)) {
    drawing.append(svg("text", { x: across(tick), y: HEIGHT - BOTTOM + 17, class: "tick middle" }, short(tick)));
    const of = counts?.get(tick);
    if (of)
      drawing.append(
        svg("text", { x: across(tick), y: HEIGHT - BOTTOM + 31, class: "tick middle faint" }, `of ${short(of)}`),
      );
  }
  const below = HEIGHT - 3 + (counts ? 14 : 0);
  drawing.append(svg("text", { x: WIDTH - RIGHT, y: below, class: "label end" }, x));
  if (floor)
    drawing.append(svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: up(floor.y), y2: up(floor.y), class: "floor" }));
  for (const one of series) {
    const spread = one.points.some((p) => p.high > p.low);
    const band: [number, number][] = [
      ...one.points.map((p): [number, number] => [p.x, p.low]),
      ...one.points.map((p): [number, number] => [p.x, p.high]).reverse(),
    ];
    if (spread) drawing.append(svg("path", { d: path(band) + "Z", class: `band ${one.colour}` }));
    drawing.append(svg("path", { d: path(one.points.map((p) => [p.x, p.y])), class: `curve ${one.colour}` }));
    if (one.dots || one.points.length === 1)
      drawing.append(
        ...one.points.map((p) => svg("circle", { cx: across(p.x), cy: up(p.y), r: 3, class: `dot ${one.colour}` })),
      );
  }
  const rule = svg("line", { y1: TOP, y2: HEIGHT - BOTTOM, class: "rule", visibility: "hidden" });
  drawing.append(rule);
  const readout = h("p", { class: "readout", "aria-live": "polite" }, "");
  const xs = [...new Set(all.map((p) => p.x))].sort((a, b) => a - b);
  let at = xs.length - 1;
  const read = (i: number) => {
    at = Math.max(0, Math.min(xs.length - 1, i));
    rule.setAttribute("visibility", "visible");
    rule.setAttribute("x1", String(across(xs[at])));
    rule.setAttribute("x2", String(across(xs[at])));
    const values = series.flatMap((one) => {
      const p = one.points.find((p) => p.x === xs[at]);
      return p ? [`${one.name} ${format(p.y)}${p.high > p.low ? ` (${format(p.low)} to ${format(p.high)})` : ""}`] : [];
    });
    const of = counts ? `, of ${counts.get(xs[at])!.toLocaleString("en")}` : "";
    readout.textContent = `${x} ${xs[at].toLocaleString("en")}: ${values.join(", ")}${of}`;
  };
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const wanted =
      xLow + ((((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT)) * (xHigh - xLow);
    read(xs.reduce((best, v, i) => (Math.abs(v - wanted) < Math.abs(xs[best] - wanted) ? i : best), 0));
  });
  drawing.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") read(at + (event.key === "ArrowLeft" ? -1 : 1));
  });
  const keyed = floor ? [...series, { name: floor.name, colour: "floor" }] : series;
  const named = keyed.filter(({ name }) => name !== title.toLowerCase()); // the title says it
  return figure(title, log ? `${y}, logarithmic scale` : y, keys(named), drawing, readout);
}

/** Bars side by side: each group has a value for every series, or null. */
export function bars(
  title: string,
  unit: string,
  groups: { name: string; note: string; values: (number | null)[] }[],
  series: { name: string; colour: string }[],
  format = (share: number | null) => percent(share),
): HTMLElement {
  const drawing = svg("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    class: "chart",
    role: "img",
    "aria-label": `${title}: ${groups.map((g) => `${g.name}: ${g.values.map(format).join(", ")}`).join("; ")}`,
  });
  const up = (share: number) => HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM);
  const slot = (WIDTH - LEFT - RIGHT) / groups.length;
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
    drawing.append(svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: up(tick), y2: up(tick), class: "grid" }));
    drawing.append(svg("text", { x: LEFT - 8, y: up(tick) + 4, class: "tick end" }, format(tick).replace(/\.0+/, "")));
  }
  groups.forEach((group, i) => {
    const left = LEFT + i * slot;
    const width = Math.min(26, (slot * 0.8) / series.length);
    group.values.forEach((value, k) => {
      if (value === null) return;
      const x = left + slot / 2 + (k - series.length / 2) * width;
      const bar = svg("rect", {
        x: x + 1,
        y: up(value),
        width: width - 2,
        height: Math.max(0.5, up(0) - up(value)),
        rx: 2,
        class: `column ${series[k].colour}`,
      });
      bar.append(svg("title", {}, `${group.name} (${group.note}), ${series[k].name}: ${format(value)}`));
      drawing.append(bar);
    });
    const squeezed = group.name.length * 7 > slot && { textLength: slot - 5, lengthAdjust: "spacingAndGlyphs" };
    const props = { x: left + slot / 2, y: HEIGHT - BOTTOM + 16, class: "tick middle", ...squeezed };
    drawing.append(svg("text", props, group.name));
    drawing.append(
      svg("text", { x: left + slot / 2, y: HEIGHT - BOTTOM + 31, class: "tick middle faint" }, group.note),
    );
  });
  return figure(title, unit, keys(series), drawing);
}

function keys(series: { name: string; colour: string }[]): HTMLElement {
  const key = ({ name, colour }: { name: string; colour: string }) =>
    h("span", { class: "key" }, h("span", { class: `swatch ${colour}` }), name);
  return h("span", { class: "keys" }, ...series.map(key));
}

function extent(values: number[]): [number, number] {
  return values.length ? [Math.min(...values), Math.max(...values)] : [0, 1];
}

function padded([low, high]: [number, number], log: boolean): [number, number] {
  if (log) return [low / 1.04, Math.max(high, low * 1.1) * 1.04];
  const margin = (high - low) * 0.05 || Math.abs(high) / 2 || 1;
  return [low - margin, high + margin];
}

/** Round numbers between two. */
function ticks(low: number, high: number, log: boolean): number[] {
  if (log) {
    const decades = Array.from({ length: 14 }, (_, i) => 10 ** (i - 7));
    for (const steps of [
      [1],
      [1, 3],
      [1, 2, 5],
      [1, 1.5, 2, 3, 5, 7],
      [1, 1.1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8, 9],
    ]) {
      const found = decades
        .flatMap((decade) => steps.map((step) => decade * step))
        .filter((v) => v >= low && v <= high);
      if (found.length >= 3) return found;
    }
  }
  const rough = (high - low) / 5 || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough)!;
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => (first + i) * step);
}

function short(v: number): string {
  return Math.abs(v) >= 1000 ? v.toLocaleString("en") : String(Number(v.toPrecision(3)));
}
