// Attention of one token: softmax(q K^T / sqrt K + bias) V over the keys that it may see, head by head.
import { layerOf, linear, softmax, type Vector } from "./linear";
import { describe, periodAt, rotate, slope } from "./position";
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

/** What the token at t reads; its key and value are added to the memory. hidden: tokens that only they themselves read. */
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
  const part = (name: string) => layerOf(params, `blocks.attention.${name}`, layer);
  const project = (name: string) => linear(x_D, part(name)!, part(`${name}_bias`));
  const H = cfg.n_heads;
  const K = x_D.length / H;
  const turn = (x_HK: Vector) => (cfg.position === "rotary" ? rotate(x_HK, t, K) : x_HK);
  const q_HK = turn(project("query"));
  memory.key.push(turn(project("key")));
  memory.value.push(project("value"));

  const period = cfg.position === "periodic" ? periodAt(tokens, t, cfg.separator) : 0;
  const seen_S = memory.key.map((_, s) => (s === t || !hidden.has(s)) && sees(t - s, period, cfg));
  const z_HK = new Float64Array(H * K);
  const weights_HS: Vector[] = [];
  const scores_HS: Vector[] = [];
  for (let head = 0; head < H; head++) {
    const sharp = head < cfg.look_between ? cfg.look_sharpness : 1;
    const scores_S = Float64Array.from(memory.key, (k_HK, s) =>
      seen_S[s] ? sharp * (compare(q_HK, k_HK, head, K, part, cfg) + bias(t - s, period, head, part, cfg)) : -Infinity,
    );
    const weights_S = cfg.similarity === "geometric" ? geometric(scores_S) : share(scores_S, part("sink")?.[head]);
    memory.value.forEach((v_HK, s) => {
      for (let k = head * K; weights_S[s] && k < (head + 1) * K; k++) z_HK[k] += weights_S[s] * v_HK[k];
    });
    weights_HS.push(weights_S);
    scores_HS.push(scores_S);
  }
  const output = part("output");
  return { y_D: output ? linear(z_HK, output, part("output_bias")) : z_HK, weights_HS, scores_HS };
}

function sees(offset: number, period: number, cfg: Config): boolean {
  if (cfg.position !== "periodic") return cfg.window == null || offset < cfg.window;
  const fits = describe(offset, period, cfg.window);
  return fits.some((c) => c < 3 * cfg.window || cfg.look_between > 0);
}

/** How alike a query and a key are, by the head's similarity. */
function compare(
  q_HK: Vector,
  k_HK: Vector,
  head: number,
  K: number,
  part: (name: string) => Float32Array | undefined,
  cfg: Config,
): number {
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
function bias(
  offset: number,
  period: number,
  head: number,
  part: (name: string) => Float32Array | undefined,
  cfg: Config,
): number {
  if (cfg.position === "alibi") return -slope(head, cfg.n_heads) * offset;
  if (cfg.position === "relative") {
    const table_HO = part("relative.table")!;
    const offsets = table_HO.length / cfg.n_heads;
    return table_HO[head * offsets + Math.min(offset, offsets - 1)];
  }
  if (cfg.position !== "periodic") return 0;
  const table_HC = part("periodic.table")!;
  const between = head < cfg.look_between ? part("periodic.level")![head] : BLIND;
  const value = (c: number) => (c < 3 * cfg.window ? table_HC[head * 3 * cfg.window + c] : between);
  return describe(offset, period, cfg.window).reduce((total, c) => total + value(c), 0);
}

/** A softmax of the scores; a sink takes a share for itself. */
function share(scores_S: Vector, sink?: number): Vector {
  if (sink === undefined) return softmax(scores_S);
  return softmax([...scores_S, sink]).subarray(0, scores_S.length);
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
