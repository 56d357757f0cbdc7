// The names of the parts of a model that can be switched off, and the rows in which their buttons stand.
import { sided } from "../ablate";
import { capital, h } from "../html";
import type { Part, Run } from "../run";

const IN_LAYERS = new Set(["head", "cross_head", "feedforward"]);

/** Such as encoder, layer 1, head 2. */
export function partName(part: Part): string {
  const [named = "", a = 0] = part;
  const [side, kind] = sided(named);
  if (kind === "offset") return `attention to ${a ? `tokens ${a} back` : "itself"}`;
  return within(side) + (IN_LAYERS.has(kind) ? `layer ${a + 1}, ` : "position ") + shortName(part);
}

/** Turns "encoder." into "encoder, ". */
const within = (side: string) => side.replace(".", ", ");

/** A shorter name, for a row with a label. */
export function shortName([named = "", a = 0, b = 0]: Part): string {
  const [, kind] = sided(named);
  if (kind === "head") return `head ${b + 1}`;
  if (kind === "cross_head") return `cross-head ${b + 1}`;
  if (kind === "feedforward") return "feed-forward";
  if (kind === "offset") return a ? `${a}` : "itself";
  return `${a + 1}`;
}

/** The buttons in rows: one row for each layer of a side, and one for its positions. */
export function partRows(run: Run, parts: Part[], buttons: HTMLElement[]): HTMLElement[] {
  const { model } = run;
  const layers = { "": model.n_layers, "encoder.": model.n_encoder_layers, "decoder.": model.n_decoder_layers };
  const rows: HTMLElement[] = [];
  const row = (label: string, chosen: (side: string, kind: string, index: number) => boolean) => {
    const found = buttons.filter((_, i) => chosen(...sided(parts[i][0]!), parts[i][1]!));
    if (found.length) rows.push(h("div", { class: "parts-row" }, h("span", { class: "layer-name" }, label), ...found));
  };
  for (const [side, count] of Object.entries(layers))
    for (let l = 0; l < (count ?? 0); l++)
      row(
        capital(`${within(side)}layer ${l + 1}`),
        (of, kind, index) => of === side && IN_LAYERS.has(kind) && index === l,
      );
  row("Tokens back", (_, kind) => kind === "offset");
  for (const side of Object.keys(layers))
    row(capital(`${within(side)}positions`), (of, kind) => of === side && kind === "position");
  return rows;
}
