// A field to type into, with a message if the input is invalid; the rest of the page then stays as it was.
import { h } from "../html";
import type { Reading } from "../tokenizer";

export interface Entry {
  field: HTMLInputElement | HTMLTextAreaElement;
  fault: HTMLElement;
  note: HTMLElement;
  /** The tokens of what is typed; null, with a message, if it is invalid. */
  tokens(): number[] | null;
}

/**
 * id: of the field; the ids of its fault and note begin with it. lines: height of a text area, or 0 for a field of
 * digits.
 */
export function entry(
  id: string,
  lines: number,
  value: string,
  encode: (text: string) => Reading,
  typed: () => void,
  go: () => void,
): Entry {
  const fault = h("p", { id: `${id}-fault`, class: "fault", role: "alert" });
  const note = h("p", { id: `${id}-note`, class: "note" });
  const onkeydown = (event: Event) => {
    const { key, shiftKey } = event as KeyboardEvent;
    if (key !== "Enter" || shiftKey) return;
    event.preventDefault();
    go();
  };
  const plain = { id, spellcheck: "false", autocomplete: "off", "aria-describedby": `${fault.id} ${note.id}` };
  const props = { ...plain, oninput: typed, onkeydown };
  const field = lines ? h("textarea", { ...props, rows: lines }) : h("input", { ...props, inputmode: "numeric" });
  field.value = value;
  const tokens = () => {
    const reading = encode(field.value);
    fault.textContent = reading.fault ?? "";
    note.textContent = reading.fault ? "" : (reading.note ?? "");
    field.setAttribute("aria-invalid", String(!!reading.fault));
    return reading.fault ? null : reading.tokens;
  };
  return { field, fault, note, tokens };
}

/** Examples to click. */
export function chips(title: string, texts: string[], shown: (text: string) => string, choose: (text: string) => void) {
  if (!texts.length) return null;
  const buttons = texts.map((text) =>
    h("button", { type: "button", class: "chip", title: text, onclick: () => choose(text) }, shown(text)),
  );
  return h("div", { class: "examples" }, h("span", {}, title), ...buttons);
}
