// Attention of one token: softmax(q K^T / sqrt K + bias) V over the keys that it may see, head by head.
import { layerOf, linear, softmax, type Vector } from "./linear";
import { column, describe, isAhead, periodAt, reads, rotate, slope } from "./position";
import type { Config, Params } from "./run";

/** The keys and values of a layer, of each token read so far. */
export interface Memory {
  key: Vector[];
  value: Vector[];
}
export interface Read {
  y_D: Vector;
  weights_HS: Vector[];
  scores_HS: Vector[];
}

const BLIND = -1e9;

/** The parameters of the attention of that name in one layer. */
export type Part = (leaf: string) => Float32Array | undefined;

export const partOf =
  (params: Params, name: string, layer: number): Part =>
  (leaf) =>
    layerOf(params, `blocks.${name}.${leaf}`, layer);

/** A product of x, or zeros where a model has no such product: without queries and keys all scores are 0. */
export const project = (x_D: Vector, name: string, part: Part) =>
  part(name) ? linear(x_D, part(name)!, part(`${name}_bias`)) : new Float64Array(x_D.length);

/** The key and the value of a token join the memory. */
export function remember(x_D: Vector, memory: Memory, part: Part, turn = (k_HK: Vector) => k_HK) {
  memory.key.push(turn(project(x_D, "key", part)));
  memory.value.push(project(x_D, "value", part));
}

/** What a query or a key at the position t is turned into. */
export const turned = (t: number, cfg: Config) => (x_HK: Vector) =>
  cfg.position === "rotary" ? rotate(x_HK, t, x_HK.length / cfg.n_heads) : x_HK;

/** What the token at t reads of those up to it, which it joins. hidden: tokens that only they themselves read. */
export function attend(
  x_D: Vector,
  t: number,
  tokens: number[],
  memory: Memory,
  params: Params,
  layer: number,
  cfg: Config,
  hidden: Set<number>,
): Read {
  const part = partOf(params, "attention", layer);
  const turn = turned(t, cfg);
  const q_HK = turn(project(x_D, "query", part));
  remember(x_D, memory, part, turn);

  const read_SQ = memory.key.map((_, s) => described(t, s, tokens, layer, cfg));
  const shown = (s: number) => s === t || !hidden.has(s);
  const seen_S = read_SQ.map((read_Q, s) => shown(s) && sees(t - s, read_Q, cfg));
  const period =
    cfg.position === "ahead" && layer === cfg.n_layers - 1 ? periodAt(tokens, t, cfg.position_options.separator) : 0;
  const adjust = (score: number, s: number, head: number) => {
    if (!seen_S[s]) return -Infinity;
    const sharp = head < cfg.position_options?.span_heads ? cfg.position_options.logit_scale : 1;
    return sharp * (score + bias(t - s, read_SQ[s], head, part, cfg));
  };
  const ahead = (s: number) => shown(s) && isAhead(t - s, period);
  return look(q_HK, memory, part, cfg, adjust, cfg.position === "ahead" ? ahead : undefined);
}

/**
 * What a query reads of a memory. adjust: what a score comes to by where its key stands, -Infinity if it is not seen.
 * ahead: of which keys the last head takes the first that decides, if it does, and reads one bit of it.
 */
export function look(
  q_HK: Vector,
  memory: Memory,
  part: Part,
  cfg: Config,
  adjust: (score: number, s: number, head: number) => number,
  ahead?: (s: number) => boolean,
): Read {
  const H = cfg.n_heads;
  const K = q_HK.length / H;
  const z_HK = new Float64Array(H * K);
  const weights_HS: Vector[] = [];
  const scores_HS: Vector[] = [];
  for (let head = 0; head < H; head++) {
    const takes = ahead && head === H - 1;
    const scores_S = Float64Array.from(memory.key, (k_HK, s) =>
      takes ? (ahead(s) ? k_HK[head * K] : -Infinity) : adjust(compare(q_HK, k_HK, head, K, part, cfg), s, head),
    );
    const weights_S = takes
      ? first(scores_S)
      : cfg.weighting === "geometric"
        ? geometric(scores_S)
        : share(scores_S, part("sink")?.[head]);
    memory.value.forEach((v_HK, s) => {
      if (takes) z_HK[head * K] += weights_S[s] * (v_HK[head * K] > 0 ? 1 : -1);
      else for (let k = head * K; weights_S[s] && k < (head + 1) * K; k++) z_HK[k] += weights_S[s] * v_HK[k];
    });
    weights_HS.push(weights_S);
    scores_HS.push(scores_S);
  }
  const output = part("output");
  return { y_D: output ? linear(z_HK, output, part("output_bias")) : z_HK, weights_HS, scores_HS };
}

/** How a scheme that knows the period of a text describes the place of a key; nothing for other schemes. */
function described(t: number, s: number, tokens: number[], layer: number, cfg: Config): number[] {
  const { separator, near, heading } = cfg.position_options ?? {};
  if (cfg.position === "ahead")
    return reads(periodAt(tokens, t, separator), layer).includes(t - s) ? [Number(s < t)] : [];
  if (cfg.position === "columns") return column(t, s, periodAt(tokens, t, separator, heading + 1), layer, heading);
  return cfg.position === "periodic" ? describe(t - s, periodAt(tokens, t, separator), near) : [];
}

function sees(offset: number, read_Q: number[], cfg: Config): boolean {
  if (cfg.window != null && offset >= cfg.window) return false;
  if (cfg.position === "columns" || cfg.position === "ahead") return read_Q.length > 0;
  if (cfg.position === "fixed_offsets") return cfg.position_options.seen_offsets.includes(offset);
  if (cfg.position !== "periodic") return true;
  const { near, span_heads } = cfg.position_options;
  return read_Q.some((c) => c < 3 * near || span_heads > 0);
}

/** How alike a query and a key are, by the head's similarity. */
function compare(q_HK: Vector, k_HK: Vector, head: number, K: number, part: Part, cfg: Config): number {
  let dot = 0,
    qq = 1e-12,
    kk = 1e-12,
    sum = 0;
  const vector_HK = part("vector");
  for (let k = head * K; k < (head + 1) * K; k++) {
    dot += q_HK[k] * k_HK[k];
    qq += q_HK[k] ** 2;
    kk += k_HK[k] ** 2;
    if (vector_HK) sum += vector_HK[k] * Math.tanh(q_HK[k] + k_HK[k]);
  }
  if (cfg.similarity === "dot") return dot;
  if (cfg.similarity === "additive") return sum;
  if (cfg.similarity === "cosine") return (part("gain")![head] * dot) / Math.sqrt(qq * kk);
  return dot / Math.sqrt(K);
}

/** What a score gains by where the key stands. */
function bias(offset: number, read_Q: number[], head: number, part: Part, cfg: Config): number {
  if (cfg.position === "alibi") return -slope(head, cfg.n_heads) * offset;
  if (cfg.position === "relative") {
    const table_HO = part("relative.table")!;
    const offsets = table_HO.length / cfg.n_heads;
    return table_HO[head * offsets + Math.min(offset, offsets - 1)];
  }
  if (cfg.position === "fixed_offsets") {
    const { seen_offsets } = cfg.position_options;
    return part("fixed_offsets.table")![head * seen_offsets.length + seen_offsets.indexOf(offset)];
  }
  if (cfg.position === "columns" || cfg.position === "ahead") {
    const table_HQ = part(`${cfg.position}.table`)!;
    return read_Q.reduce((total, q) => total + table_HQ[head * (table_HQ.length / cfg.n_heads) + q], 0);
  }
  if (cfg.position !== "periodic") return 0;
  const table_HC = part("periodic.table")!;
  const { near, span_heads } = cfg.position_options;
  const span = head < span_heads ? part("periodic.level")![head] : BLIND;
  const value = (c: number) => (c < 3 * near ? table_HC[head * 3 * near + c] : span);
  return read_Q.reduce((total, c) => total + value(c), 0);
}

/** A softmax of the scores; a sink takes a share for itself. */
function share(scores_S: Vector, sink?: number): Vector {
  if (scores_S.every((score) => score === -Infinity)) return new Float64Array(scores_S.length); // all that could be read is hidden
  if (sink === undefined) return softmax(scores_S);
  return softmax([...scores_S, sink]).subarray(0, scores_S.length);
}

/** All weight for the first key whose score is above 0, if there is one. */
function first(scores_S: Vector): Vector {
  const taken = scores_S.findIndex((score) => score > 0);
  return scores_S.map((_, s) => Number(s === taken));
}

/** Each key takes the share sigmoid(score) of what those before it have left. */
function geometric(scores_S: Vector): Vector {
  const logSigmoid = (x: number) => Math.min(x, 0) - Math.log1p(Math.exp(-Math.abs(x)));
  let left = 0;
  return scores_S.map((score) => {
    if (score === -Infinity) return 0;
    const weight = Math.exp(left + logSigmoid(score));
    left += logSigmoid(-score);
    return weight;
  });
}
