// The frame of every section: a heading, a sentence on what it shows, and a message if something is missing.
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
