// LayerNorm(x) = (x - mean) / sqrt(variance + epsilon) * scale + bias, and the feed-forward network with its
// activations.
import { add, layerOf, leaf, linear, type Vector } from "./linear";
import type { Config, Params } from "./run";

/** LayerNorm with the parameters of that name, of one layer if `layer` is given; x itself if the model has none. */
export function layerNorm(x_D: Vector, params: Params, name: string, cfg: Config, layer?: number): Vector {
  const read = (part: string) => (layer === undefined ? leaf(params, part) : layerOf(params, part, layer));
  const scale_D = read(`${name}.scale`);
  const bias_D = read(`${name}.bias`);
  if (!scale_D) return x_D;
  const mean = x_D.reduce((a, b) => a + b, 0) / x_D.length;
  const variance = x_D.reduce((sum, x) => sum + (x - mean) ** 2, 0) / x_D.length;
  const deviation = Math.sqrt(variance + cfg.norm_epsilon);
  return x_D.map((x, d) => ((x - mean) / deviation) * scale_D[d] + (bias_D ? bias_D[d] : 0));
}

/**
 * The functions before a sub-layer and after its residual sum: one is the norm (pre or post), the other does nothing.
 */
export function norms(params: Params, sublayer: string, layer: number, cfg: Config): ((x_D: Vector) => Vector)[] {
  const norm = (x_D: Vector) => layerNorm(x_D, params, `blocks.${sublayer}_norm`, cfg, layer);
  return cfg.norm_position === "post" ? [(x_D) => x_D, norm] : [norm, (x_D) => x_D];
}

/** The residual sum; in a model without residual connections, the output of the sub-layer alone. */
export function joined(x_D: Vector, y_D: Vector, cfg: Config): Vector {
  return cfg.residual === false ? y_D : add(x_D, y_D);
}

const ACTIVATIONS: Record<string, (x: number) => number> = {
  relu: (x) => Math.max(0, x),
  gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  gelu_tanh: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
};

/** The residual stream after the feed-forward sub-layer, FFN(x) = act(x W1 + b1) W2 + b2. */
export function feedForward(x_D: Vector, params: Params, layer: number, cfg: Config): Vector {
  const [before, after] = norms(params, "feedforward", layer, cfg);
  const part = (name: string) => layerOf(params, `blocks.feedforward.${name}`, layer);
  const h_F = linear(before(x_D), part("expand.weight")!, part("expand.bias")).map(ACTIVATIONS[cfg.activation]);
  return after(joined(x_D, linear(h_F, part("contract.weight")!, part("contract.bias")), cfg));
}

/** 2/sqrt(pi) exp(-x^2) sum_n 2^n x^(2n+1) / (1 3 5 .. 2n+1), whose terms all have one sign. */
function erf(x: number): number {
  if (Math.abs(x) > 6) return Math.sign(x);
  let sum = 0;
  for (let term = x, n = 0; Math.abs(term) > 1e-17; n++, term *= (2 * x * x) / (2 * n + 1)) sum += term;
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}
