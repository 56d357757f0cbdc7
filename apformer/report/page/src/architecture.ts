// The models that this page can run, by the name of their architecture; each is a module with the same functions.
import { count } from "./html";
import type { Vector } from "./linear";
import * as model from "./model";
import * as recurrent from "./recurrent";
import type { Config, Params, Run } from "./run";
import * as seq2seq from "./seq2seq";

export type { Output } from "./model";
/** What of a run says how its model computes. */
export type Model = Pick<Run, "architecture" | "model">;

interface Architecture {
  /** Of an encoder-decoder, what it has made of a source, of which hidden tokens are read by no other. */
  initCache(cfg: Config, params: Params, source_S?: number[], hidden?: Set<number>): any;
  extend(params: Params, tokens_T: number[], cache: any, cfg: Config, hidden?: Set<number>): model.Output;
  readOut(params: Params, x_D: Vector, cfg: Config): Vector;
  /** The model in words. */
  about(cfg: Config): string;
  /** Whether it has heads that read other tokens. */
  attends: boolean;
}

const ARCHITECTURES: Record<string, Architecture> = {
  model: {
    ...model,
    attends: true,
    about: (cfg) =>
      `A transformer of ${count(cfg.n_layers, "layer")} with ${count(cfg.n_heads, "head")}${cfg.n_layers > 1 ? " each" : ""}`,
  },
  recurrent: {
    ...recurrent,
    attends: false,
    about: (cfg) =>
      `${cfg.cell === "gru" ? "A GRU" : `An ${cfg.cell.toUpperCase()}`} of ${count(cfg.n_layers, "layer")}`,
  },
  seq2seq: {
    ...seq2seq,
    attends: true,
    about: (cfg) =>
      `A transformer with an encoder of ${count(cfg.n_encoder_layers, "layer")}, a decoder of ` +
      `${cfg.n_decoder_layers}, and ${count(cfg.n_heads, "head")} in each attention,`,
  },
};

/** The module of a run whose weights are in the page, which Python puts there only for those listed above. */
export const architecture = (run: Model) => ARCHITECTURES[run.architecture];

/** The model in words, also where the page cannot run it. */
export const about = (run: Model) => ARCHITECTURES[run.architecture]?.about(run.model) ?? "A model";

/** Logits of the next token at every position of a text, and what the model held and read on the way. */
export function apply(
  params: Params,
  tokens_T: number[],
  run: Model,
  hidden?: Set<number>,
  source_S?: number[],
): model.Output {
  const { initCache, extend } = architecture(run);
  return extend(params, tokens_T, initCache(run.model, params, source_S, hidden), run.model, hidden);
}
