// The models that this page can run, by the name of the architecture. Each is a module with the same functions.
import { count } from "./html";
import type { Vector } from "./linear";
import * as model from "./model";
import * as recurrent from "./recurrent";
import type { Config, Params, Run } from "./run";
import * as seq2seq from "./seq2seq";

export type { Output } from "./model";
/** The part of a run that defines its model. */
export type Model = Pick<Run, "architecture" | "model">;

interface Architecture {
  /** An empty cache. An encoder-decoder encodes its source here; no other token attends to the hidden ones. */
  initCache(cfg: Config, params: Params, source_S?: number[], hidden?: Set<number>): any;
  extend(params: Params, tokens_T: number[], cache: any, cfg: Config, hidden?: Set<number>): model.Output;
  readOut(params: Params, x_D: Vector, cfg: Config): Vector;
  /** The model in words. */
  about(cfg: Config): string;
  /** Whether it has attention heads. */
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
      `${cfg.n_decoder_layers}, and ${count(cfg.n_heads, "head")} in each attention layer,`,
  },
};

/** The module for a run whose weights are in the page. Python includes weights only for the architectures above. */
export const architecture = (run: Model) => ARCHITECTURES[run.architecture];

/** The model in words, even if the page cannot run it. */
export const about = (run: Model) => ARCHITECTURES[run.architecture]?.about(run.model) ?? "A model";

/** The logits of the next token at every position of a text, with the residual stream and the attention weights. */
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
