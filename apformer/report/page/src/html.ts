// Functions that make elements of the page.

type Child = Node | string | null | undefined | false;
type Props = Record<string, string | number | boolean | EventListener | null | undefined>;

/**
 * An element. A function `onNAME` is a listener, true sets an attribute without a value, null and false are left out.
 */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  return fill(document.createElement(tag), props, children);
}

/** An SVG element. */
export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

function fill<E extends Element>(element: E, props: Props, children: Child[]): E {
  for (const [name, value] of Object.entries(props)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, String(value));
  }
  element.append(
    ...children.filter((child): child is Node | string => child !== null && child !== undefined && child !== false),
  );
  return element;
}

/** Replaces the children of an element. The focus stays on the child at the same place. */
export function redraw(frame: HTMLElement, ...children: Node[]) {
  const inside = () => [...frame.querySelectorAll<HTMLElement | SVGElement>("button, [tabindex]")];
  const at = inside().findIndex((element) => element === document.activeElement);
  frame.replaceChildren(...children);
  if (at >= 0) inside()[at]?.focus({ preventScroll: true });
}

/** A sentence in which text between backticks is shown as code. */
export const prose = (sentence: string) =>
  sentence.split("`").map((piece, i) => (i % 2 ? h("code", {}, piece) : piece));

/** Text for screen readers only. */
export const unseen = (words: string) => h("span", { class: "unseen" }, words);

/** A table with a head; cells are text or elements. */
export function table(head: string[], rows: Child[][], numeric: number[] = [], label?: string): HTMLElement {
  const kind = (column: number) => (numeric.includes(column) ? "number" : null);
  const body = rows.map((row) =>
    h("tr", {}, ...row.map((cell, i) => h(i ? "td" : "th", { class: kind(i), scope: i ? null : "row" }, cell))),
  );
  const top = h("tr", {}, ...head.map((name, i) => h("th", { class: kind(i), scope: "col" }, name)));
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": label ?? head.join(", ") },
    h("table", {}, h("thead", {}, top), h("tbody", {}, ...body)),
  );
}

/** A drawing or a table under its title and unit; keys: the legend of its colours. */
export function figure(title: string, unit: string, keys: Child, ...children: Child[]): HTMLElement {
  const head = h("figcaption", {}, h("strong", {}, title), h("span", { class: "unit" }, unit), keys);
  return h("figure", {}, head, ...children);
}

/** Buttons of which exactly one is pressed, initially the first. */
export function choice(label: string, names: string[], choose: (i: number) => void): HTMLElement {
  const buttons = names.map((name, i) =>
    h(
      "button",
      {
        type: "button",
        "aria-pressed": String(i === 0),
        onclick: () => {
          buttons.forEach((button, k) => button.setAttribute("aria-pressed", String(k === i)));
          choose(i);
        },
      },
      name,
    ),
  );
  return h("div", { class: "choice", role: "group", "aria-label": label }, ...buttons);
}

/** A slider with its name and its value. */
export function slider(
  name: string,
  [min, max, step]: [number, number, number],
  value: number,
  text: (value: number) => string,
  set: (value: number) => void,
): HTMLElement {
  const shown = h("output", {}, text(value));
  const input = h("input", {
    type: "range",
    min,
    max,
    step,
    value,
    "aria-label": name,
    oninput: () => {
      shown.textContent = text(input.valueAsNumber);
      set(input.valueAsNumber);
    },
  });
  return h("label", { class: "slider" }, h("span", {}, name), input, shown);
}

/** A share as the length of a bar. */
export function bar(share: number): HTMLElement {
  const filled = h("span", { class: "fill" });
  filled.style.width = `${(100 * share).toFixed(1)}%`;
  return h("span", { class: "bar" }, filled);
}

export const count = (n: number, thing: string, things = `${thing}s`) =>
  `${n.toLocaleString("en")} ${n === 1 ? thing : things}`;
/** The words with a capital letter. */
export const capital = (words: string) => words[0].toUpperCase() + words.slice(1);
/** A share in percent. Rounding never gives 100 % or 0 %: these mean all and none. */
export function percent(share: number | null | undefined, digits = 2): string {
  if (share == null) return "–";
  if (share === 0 || share === 1) return `${(100 * share).toFixed(digits)} %`;
  const least = 10 ** -digits;
  return `${Math.min(100 - least, Math.max(least, 100 * share)).toFixed(digits)} %`;
}
/** A probability in percent, never shown as 0 % or 100 %. */
export function chance(p: number): string {
  return p < 0.0005 ? "< 0.1 %" : p > 0.9995 ? "> 99.9 %" : `${(100 * p).toFixed(1)} %`;
}
