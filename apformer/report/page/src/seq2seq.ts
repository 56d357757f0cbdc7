// The encoder-decoder, as apformer/seq2seq.py computes it: the source is encoded once, and its translation is written
// token by token.
import { attend, look, partOf, project, remember, turned, type Memory, type Read } from "./attention";
import { add, type Vector } from "./linear";
import * as model from "./model";
import { feedForward, layerNorm, norms } from "./norm";
import type { Config, Params } from "./run";

/**
 * For each decoder layer, the keys and values of the written tokens and of the source; and what happened inside the
 * encoder.
 */
export interface Cache {
  layers: { own: Memory; source: Memory }[];
  inside: model.Inside;
}

/** Encodes a source once, and keeps the keys and values for the cross-attention of each decoder layer. */
export function initCache(cfg: Config, params: Params, source_S: number[] = [], hidden = new Set<number>()): Cache {
  const { y_SD, inside } = encode(side(params, "encoder"), source_S, cfg, hidden);
  const decoder = side(params, "decoder");
  const layers = Array.from({ length: cfg.n_decoder_layers }, (_, layer) => {
    const source: Memory = { key: [], value: [] };
    y_SD.forEach((y_D, s) => remember(y_D, source, partOf(decoder, "cross_attention", layer), turned(s, cfg)));
    return { own: { key: [], value: [] }, source };
  });
  return { layers, inside };
}

/** A copy of a cache, so that another text can continue from it. */
export function fork({ layers, inside }: Cache): Cache {
  const copy = layers.map(({ own, source }) => ({ own: { key: [...own.key], value: [...own.value] }, source }));
  return { layers: copy, inside };
}

/** Logits of new target tokens after those in the cache. hidden: source tokens that no other may attend to. */
export function extend(
  params: Params,
  tokens_T: number[],
  cache: Cache,
  cfg: Config,
  hidden = new Set<number>(),
): model.Output {
  const decoder = side(params, "decoder");
  const output: Required<model.Output> = {
    logits_TV: [],
    residual_TLD: [],
    attention_TLHS: [],
    scores_TLHS: [],
    cross_TLHS: [],
    crossScores_TLHS: [],
    source: cache.inside,
  };
  for (const token of tokens_T) {
    const t = cache.layers[0].own.key.length;
    let x_D = model.embed(decoder, token, t, cfg);
    const residual_LD = [x_D];
    const own: Read[] = [];
    const across: Read[] = [];
    cache.layers.forEach((memory, layer) => {
      const [before, after] = norms(decoder, "attention", layer, cfg);
      own.push(attend(before(x_D), t, memory.own, decoder, layer, cfg, NONE));
      x_D = after(add(x_D, own[layer].y_D));
      const [beforeSource, afterSource] = norms(decoder, "cross_attention", layer, cfg);
      across.push(lookUp(beforeSource(x_D), t, memory.source, decoder, "cross_attention", layer, cfg, hidden));
      x_D = feedForward(afterSource(add(x_D, across[layer].y_D)), decoder, layer, cfg);
      residual_LD.push(x_D);
    });
    output.logits_TV.push(model.readOut(decoder, x_D, cfg));
    output.residual_TLD.push(residual_LD);
    output.attention_TLHS.push(own.map((read) => read.weights_HS));
    output.scores_TLHS.push(own.map((read) => read.scores_HS));
    output.cross_TLHS.push(across.map((read) => read.weights_HS));
    output.crossScores_TLHS.push(across.map((read) => read.scores_HS));
  }
  return output;
}

export function readOut(params: Params, x_D: Vector, cfg: Config): Vector {
  return model.readOut(side(params, "decoder"), x_D, cfg);
}

/** What the encoder makes of a source, in which every token reads every other. */
function encode(encoder: Params, source_S: number[], cfg: Config, hidden: Set<number>) {
  let x_SD = source_S.map((token, s) => model.embed(encoder, token, s, cfg));
  const residual_TLD = x_SD.map((x_D) => [x_D]);
  const reads: Read[][] = x_SD.map(() => []);
  for (let layer = 0; layer < cfg.n_encoder_layers; layer++) {
    const [before, after] = norms(encoder, "attention", layer, cfg);
    const asking_SD = x_SD.map(before);
    const memory: Memory = { key: [], value: [] };
    asking_SD.forEach((x_D, s) => remember(x_D, memory, partOf(encoder, "attention", layer), turned(s, cfg)));
    x_SD = x_SD.map((x_D, s) => {
      const others = new Set([...hidden].filter((other) => other !== s));
      reads[s].push(lookUp(asking_SD[s], s, memory, encoder, "attention", layer, cfg, others));
      return feedForward(after(add(x_D, reads[s][layer].y_D)), encoder, layer, cfg);
    });
    x_SD.forEach((x_D, s) => residual_TLD[s].push(x_D));
  }
  const attention_TLHS = reads.map((layers) => layers.map((read) => read.weights_HS));
  const scores_TLHS = reads.map((layers) => layers.map((read) => read.scores_HS));
  const y_SD = cfg.final_norm ? x_SD.map((x_D) => layerNorm(x_D, encoder, "final_norm", cfg)) : x_SD;
  return { y_SD, inside: { residual_TLD, attention_TLHS, scores_TLHS } };
}

/** Attention of the token at t, of the source or the target, to all source tokens that are not hidden. */
function lookUp(
  x_D: Vector,
  t: number,
  memory: Memory,
  params: Params,
  name: string,
  layer: number,
  cfg: Config,
  hidden: Set<number>,
): Read {
  const part = partOf(params, name, layer);
  const seen = (score: number, s: number) => (hidden.has(s) ? -Infinity : score);
  return look(turned(t, cfg)(project(x_D, "query", part)), memory, part, cfg, seen);
}

/** The parameters of the encoder or decoder, with those that both share, under the names of a decoder-only model. */
function side(params: Params, name: "encoder" | "decoder"): Params {
  const found: Params = { "embedding.table": params["encoder.embedding.table"] };
  if (params["head.output.weight"]) found["head.output.weight"] = params["head.output.weight"];
  for (const path of Object.keys(params))
    if (path.startsWith(`${name}.`)) found[path.slice(name.length + 1)] = params[path];
  return found;
}

const NONE = new Set<number>();
