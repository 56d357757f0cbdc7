// What all sections have in common: a heading, a sentence that says what is to be seen, and a word for what is missing.
import { h, prose } from "../html";

export function section(id: string, title: string, lead: string, ...children: (Node | string | null)[]): HTMLElement {
  return h(
    "section",
    { id, "aria-labelledby": `${id}-title` },
    h("h2", { id: `${id}-title` }, title),
    h("p", { class: "lead" }, lead),
    ...children,
  );
}

export function missing(sentence: string): HTMLElement {
  return h("p", { class: "missing" }, ...prose(sentence));
}
