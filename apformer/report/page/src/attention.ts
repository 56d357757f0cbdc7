// Attention of one query token, head by head: softmax(q K^T / sqrt K + bias) V over the keys that the mask allows.
import { layerOf, linear, softmax, type Vector } from "./linear";
import { rotate, slope } from "./position";
import type { Config, Params } from "./run";

/** The keys and values of one layer, for each token read so far. */
export interface Memory {
  key: Vector[];
  value: Vector[];
}
export interface Read {
  y_D: Vector;
  weights_HS: Vector[];
  scores_HS: Vector[];
}

/** Returns a parameter of one attention module in one layer. */
export type Part = (leaf: string) => Float32Array | undefined;

export const partOf =
  (params: Params, name: string, layer: number): Part =>
  (leaf) =>
    layerOf(params, `blocks.${name}.${leaf}`, layer);

/** The query, key or value of x, for all heads. */
export const project = (x_D: Vector, name: string, part: Part) => linear(x_D, part(name)!, part(`${name}_bias`));

/** Adds the key and the value of a token to the memory. */
export function remember(x_D: Vector, memory: Memory, part: Part, turn = (k_HK: Vector) => k_HK) {
  memory.key.push(turn(project(x_D, "key", part)));
  memory.value.push(project(x_D, "value", part));
}

/** Rotates a query or a key by its position t, if positions are rotary. */
export const turned = (t: number, cfg: Config) => (x_HK: Vector) =>
  cfg.position === "rotary" ? rotate(x_HK, t, x_HK.length / cfg.n_heads) : x_HK;

/**
 * Causal self-attention of the token at t, whose key and value join the memory. hidden: tokens to which no other
 * attends.
 */
export function attend(
  x_D: Vector,
  t: number,
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
  const adjust = (score: number, s: number, head: number) => {
    const seen = (s === t || !hidden.has(s)) && (cfg.window == null || t - s < cfg.window);
    return seen ? score + bias(t - s, head, part, cfg) : -Infinity;
  };
  return look(q_HK, memory, part, cfg, adjust);
}

/** Attention of one query over a memory. adjust: adds the position bias to a score; -Infinity if its key is masked. */
export function look(
  q_HK: Vector,
  memory: Memory,
  part: Part,
  cfg: Config,
  adjust: (score: number, s: number, head: number) => number,
): Read {
  const H = cfg.n_heads;
  const K = q_HK.length / H;
  const z_HK = new Float64Array(H * K);
  const weights_HS: Vector[] = [];
  const scores_HS: Vector[] = [];
  for (let head = 0; head < H; head++) {
    const scores_S = Float64Array.from(memory.key, (k_HK, s) =>
      adjust(compare(q_HK, k_HK, head, K, part, cfg), s, head),
    );
    const weights_S = share(scores_S, part("sink")?.[head]);
    memory.value.forEach((v_HK, s) => {
      for (let k = head * K; weights_S[s] && k < (head + 1) * K; k++) z_HK[k] += weights_S[s] * v_HK[k];
    });
    weights_HS.push(weights_S);
    scores_HS.push(scores_S);
  }
  const output = part("output");
  return { y_D: output ? linear(z_HK, output, part("output_bias")) : z_HK, weights_HS, scores_HS };
}

/** The similarity of a query and a key in one head. */
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

/** The bias of a score by the position of the key. */
function bias(offset: number, head: number, part: Part, cfg: Config): number {
  if (cfg.position === "alibi") return -slope(head, cfg.n_heads) * offset;
  if (cfg.position !== "relative") return 0;
  const table_HO = part("relative.table")!;
  const offsets = table_HO.length / cfg.n_heads;
  return table_HO[head * offsets + Math.min(offset, offsets - 1)];
}

/** The softmax of the scores. A sink takes a part of the weight. */
function share(scores_S: Vector, sink?: number): Vector {
  if (scores_S.every((score) => score === -Infinity)) return new Float64Array(scores_S.length); // every key is masked
  if (sink === undefined) return softmax(scores_S);
  return softmax([...scores_S, sink]).subarray(0, scores_S.length);
}
