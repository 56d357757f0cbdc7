// A model is a module with initCache, extend and readOut; which one a run is of, and what the page asks of it.
import type { Vector } from "./linear";
import * as model from "./model";
import * as recurrent from "./recurrent";
import type { Config, Params } from "./run";

export type { Output } from "./model";

interface Architecture {
  initCache(cfg: Config): any;
  extend(params: Params, tokens_T: number[], cache: any, cfg: Config, hidden?: Set<number>): model.Output;
  readOut(params: Params, x_D: Vector, cfg: Config): Vector;
}

export function architecture(cfg: Config): Architecture {
  return "cell" in cfg ? recurrent : model;
}

/** Logits of the next token at every position of a text, and what the model held and read on the way. */
export function apply(params: Params, tokens_T: number[], cfg: Config, hidden?: Set<number>): model.Output {
  const { initCache, extend } = architecture(cfg);
  return extend(params, tokens_T, initCache(cfg), cfg, hidden);
}
