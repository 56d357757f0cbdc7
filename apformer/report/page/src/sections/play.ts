// How the player plays: what its controls are set to, and how other sections hand it a text.
import { GREEDY, type Choice } from "../generate";

export interface Play {
  how: Choice;
  /** Whether the text is judged as it stands, instead of gone on with. */
  forced: boolean;
  /** Whether it is just being written. */
  fresh: boolean;
  /** Terms or tokens to add. */
  more: number;
}

export const start = (more: number): Play => ({
  how: { ...GREEDY },
  forced: false,
  fresh: false,
  more,
});

/** A text, into the player. */
export function playText(text: string) {
  const field = document.querySelector<HTMLInputElement>("#prompt")!;
  field.value = text;
  field.dispatchEvent(new Event("input"));
  document.querySelector<HTMLButtonElement>("#player .primary")!.click();
  field.scrollIntoView({ block: "center" });
  field.focus();
}
