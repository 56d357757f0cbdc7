// A notice in each section that runs the model while parts of it are switched off.
import { count, h } from "../html";
import { tokenName } from "../run";
import type { State } from "../state";

export const switchOn = (state: State) =>
  h("button", { type: "button", onclick: () => state.update({ off: [], hidden: new Set() }) }, "Switch everything on");

export function offNotice(state: State): HTMLElement {
  const words = h("span");
  const notice = h("p", { class: "off", role: "status", hidden: true }, words, switchOn(state));
  state.drawn(() => {
    notice.hidden = !state.changed;
    const parts = [
      state.off.length && `${count(state.off.length, "part")} switched off`,
      state.hidden.size && `${count(state.hidden.size, tokenName(state.run))} hidden`,
    ];
    words.textContent = `${parts.filter(Boolean).join(", ")}: this is not the whole model. `;
  }, false);
  return notice;
}
