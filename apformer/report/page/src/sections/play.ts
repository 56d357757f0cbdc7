// The settings of the player, and the function by which other sections give it a text.
import { GREEDY, type Choice } from "../generate";

export interface Play {
  how: Choice;
  /** Whether the model scores the text as it stands (teacher-forced), instead of continuing it. */
  forced: boolean;
  /** Whether the text has just been written, so that it appears token by token. */
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

/** Puts a text into the player and runs the model. */
export function playText(text: string) {
  const field = document.querySelector<HTMLInputElement>("#prompt")!;
  field.value = text;
  field.dispatchEvent(new Event("input"));
  document.querySelector<HTMLButtonElement>("#player .primary")!.click();
  field.scrollIntoView({ block: "center" });
  field.focus();
}
