// The heads that can be shown: those of a decoder-only model, or the cross-attention, encoder and decoder of a
// translator.
import { capital } from "../html";
import type { Vector } from "../linear";
import { sourceWords } from "../run";
import type { State } from "../state";
import { shown } from "../tokenizer";

const MOST = 48; // most tokens that are drawn

/** Heads of one kind. Rows are queries, columns are keys. */
export interface Sight {
  title: string;
  lead: string;
  /** The kind of part that switches these heads off. */
  part: string;
  layers: number;
  /** Whether the keys are tokens of another text than the queries (cross-attention). */
  across: boolean;
  /** The name of what gets the weight that goes to no token. */
  rest: string;
  rows(): string[];
  columns(): string[];
  at(): number;
  look(row: number): void;
  weights(layer: number, head: number): Vector[];
  scores(layer: number, head: number): Vector[];
}

export function sights(state: State): Sight[] {
  const { cfg } = state;
  const text = () => Array.from({ length: Math.min(state.steps, MOST) }, (_, t) => state.name(t));
  const source = () => state.source!.slice(0, MOST).map((token) => shown(sourceWords(state.run).vocabulary[token]));
  const next = () => text().map((_, t) => state.name(t + 1));
  const places = () => (state.source ? source() : text()).length;
  const few = (layers: Vector[][][], layer: number, head: number, rows: number, columns: number) =>
    layers.slice(0, rows).map((read) => read[layer][head].subarray(0, columns));

  const decoder: Sight = {
    title: "",
    lead: "",
    part: "head",
    layers: cfg.n_layers,
    across: false,
    rest: cfg.attention_sink ? "the sink" : "no token",
    rows: text,
    columns: text,
    at: () => Math.min(state.at, text().length - 1),
    look: (row) => state.look(row),
    weights: (layer, head) => few(state.output.attention_TLHS!, layer, head, text().length, MOST),
    scores: (layer, head) => few(state.output.scores_TLHS!, layer, head, text().length, MOST),
  };
  if (!state.source) return [decoder];
  const encoder: Sight = {
    ...decoder,
    title: "Encoder",
    lead: "each source token attends to all source tokens",
    part: "encoder.head",
    layers: cfg.n_encoder_layers,
    rows: source,
    columns: source,
    at: () => Math.min(state.place, places() - 1),
    look: (row) => state.lookAtSource(row),
    weights: (layer, head) => few(state.output.source!.attention_TLHS, layer, head, places(), places()),
    scores: (layer, head) => few(state.output.source!.scores_TLHS, layer, head, places(), places()),
  };
  const across: Sight = {
    ...decoder,
    title: "Cross-attention",
    lead: "to predict each token of the translation, the decoder attends to the source",
    part: "decoder.cross_head",
    layers: cfg.n_decoder_layers,
    across: true,
    rows: next,
    columns: source,
    weights: (layer, head) => few(state.output.cross_TLHS!, layer, head, text().length, places()),
    scores: (layer, head) => few(state.output.crossScores_TLHS!, layer, head, text().length, places()),
  };
  const itself = "each token of the translation attends to itself and to those before it";
  const own = { ...decoder, title: "Decoder", lead: itself, part: "decoder.head", layers: cfg.n_decoder_layers };
  return [across, encoder, own];
}

/** The name of a head. */
export function headName(sight: Sight, layer: number, head: number): string {
  const name = `layer ${layer + 1}, head ${head + 1}`;
  return sight.title ? `${sight.title}, ${name}` : capital(name);
}

/** Where most of the weight of a head goes: to an offset or, for cross-attention, to a token. */
export function habit(sight: Sight, rows: Vector[]): string {
  const columns = sight.columns();
  const shares = new Map<number, number>();
  rows.forEach((row, t) =>
    row.forEach((weight, s) => {
      const key = sight.across ? s : t - s;
      shares.set(key, (shares.get(key) ?? 0) + weight);
    }),
  );
  const total = [...shares.values()].reduce((a, b) => a + b, 0);
  const nothing = rows.length - total;
  const [key, weight] = [...shares].reduce((best, each) => (each[1] > best[1] ? each : best), [0, 0]);
  const share = (x: number) => `${Math.round((100 * x) / rows.length)} %`;
  if (nothing > weight) return `${sight.rest} ${share(nothing)}`;
  return `${sight.across ? columns[key] : away(key)} ${share(weight)}`;
}

/** The distance to a token, in words. */
export function away(offset: number): string {
  return offset ? (offset > 0 ? `${offset} back` : `${-offset} ahead`) : "itself";
}
