// A model is a module with initCache, extend and readOut; which one a run is of, and what the page asks of it.
import type { Vector } from "./linear";
import * as model from "./model";
import * as recurrent from "./recurrent";
import type { Config, Params } from "./run";
import * as seq2seq from "./seq2seq";

export type { Output } from "./model";

interface Architecture {
  /** Of an encoder-decoder, what it has made of a source, of which hidden tokens are read by no other. */
  initCache(cfg: Config, params: Params, source_S?: number[], hidden?: Set<number>): any;
  extend(params: Params, tokens_T: number[], cache: any, cfg: Config, hidden?: Set<number>): model.Output;
  readOut(params: Params, x_D: Vector, cfg: Config): Vector;
}

export function architecture(cfg: Config): Architecture {
  if ("n_encoder_layers" in cfg) return seq2seq;
  return "cell" in cfg ? recurrent : model;
}

/** Logits of the next token at every position of a text, and what the model held and read on the way. */
export function apply(
  params: Params,
  tokens_T: number[],
  cfg: Config,
  hidden?: Set<number>,
  source_S?: number[],
): model.Output {
  const { initCache, extend } = architecture(cfg);
  return extend(params, tokens_T, initCache(cfg, params, source_S, hidden), cfg, hidden);
}
