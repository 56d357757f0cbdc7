// The decoder-only transformer, token by token, as apformer/model.py computes it: embedding, blocks, output head.
import { attend, type Memory } from "./attention";
import { add, leaf, linear, transposed, type Vector } from "./linear";
import { feedForward, layerNorm, joined, norms } from "./norm";
import { sinusoidal } from "./position";
import type { Config, Params } from "./run";

/** For each layer, the keys and values of the tokens read so far. */
export type Cache = Memory[];

/**
 * For each new token: its logits, the residual stream before and after each layer, and every head's weights and
 * scores.
 */
export interface Output {
  logits_TV: Vector[];
  residual_TLD: Vector[][];
  attention_TLHS?: Vector[][][];
  scores_TLHS?: Vector[][][];
  /** For an encoder-decoder: the cross-attention, and what happens inside the encoder. */
  cross_TLHS?: Vector[][][];
  crossScores_TLHS?: Vector[][][];
  source?: Inside;
}

type Written = Required<Pick<Output, "logits_TV" | "residual_TLD" | "attention_TLHS" | "scores_TLHS">>;

/** The residual stream and the attention inside an encoder. */
export interface Inside {
  residual_TLD: Vector[][];
  attention_TLHS: Vector[][][];
  scores_TLHS: Vector[][][];
}

export function initCache(cfg: Config): Cache {
  return Array.from({ length: cfg.n_layers }, () => ({ key: [], value: [] }));
}

/**
 * Logits of new tokens after those in the cache, to which they are added. hidden: tokens that no other may attend to.
 */
export function extend(
  params: Params,
  tokens_T: number[],
  cache: Cache,
  cfg: Config,
  hidden = new Set<number>(),
): Output {
  const output = { logits_TV: [], residual_TLD: [], attention_TLHS: [], scores_TLHS: [] } as Written;
  for (const token of tokens_T) {
    const t = cache[0].key.length;
    let x_D = embed(params, token, t, cfg);
    const residual_LD = [x_D];
    const weights_LHS: Vector[][] = [];
    const scores_LHS: Vector[][] = [];
    cache.forEach((memory, layer) => {
      const [before, after] = norms(params, "attention", layer, cfg);
      const read = attend(before(x_D), t, memory, params, layer, cfg, hidden);
      x_D = feedForward(after(joined(x_D, read.y_D, cfg)), params, layer, cfg);
      residual_LD.push(x_D);
      weights_LHS.push(read.weights_HS);
      scores_LHS.push(read.scores_HS);
    });
    output.logits_TV.push(readOut(params, x_D, cfg));
    output.residual_TLD.push(residual_LD);
    output.attention_TLHS.push(weights_LHS);
    output.scores_TLHS.push(scores_LHS);
  }
  return output;
}

/** norm(x) W_out + b. With tied embeddings, W_out is the transposed embedding table. */
export function readOut(params: Params, x_D: Vector, cfg: Config): Vector {
  const y_D = cfg.final_norm ? layerNorm(x_D, params, "final_norm", cfg) : x_D;
  const weight_DV = leaf(params, "head.output.weight");
  if (weight_DV) return linear(y_D, weight_DV, leaf(params, "head.output.bias"));
  return transposed(y_D, leaf(params, "embedding.table")!, leaf(params, "head.bias"));
}

/** The embedding of a token, plus that of its position if the model adds one. */
export function embed(params: Params, token: number, position: number, cfg: Config): Vector {
  const D = cfg.d_model;
  const scale = cfg.scale_embedding ? Math.sqrt(D) : 1;
  const x_D = Float64Array.from(
    leaf(params, "embedding.table")!.subarray(token * D, (token + 1) * D),
    (x) => scale * x,
  );
  if (cfg.position === "sinusoidal") return add(x_D, sinusoidal(position, D));
  const place = Math.min(position, cfg.max_len - 1);
  if (cfg.position === "learned") return x_D.map((x, d) => x + params["position.table"].data[place * D + d]);
  return x_D;
}
