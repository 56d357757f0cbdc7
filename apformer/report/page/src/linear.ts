// Vectors and matrices as typed arrays. Matrices are stored row by row, so that x W reads W in the order of memory.
import type { Params } from "./run";

export type Vector = Float64Array;

/** y_F = x_D W_DF + b_F. */
export function linear(x_D: Vector, W_DF: Float32Array, b_F?: Float32Array): Vector {
  const F = W_DF.length / x_D.length;
  const y_F = new Float64Array(F);
  if (b_F) y_F.set(b_F);
  for (let d = 0, w = 0; d < x_D.length; d++) {
    const x = x_D[d];
    if (x === 0)
      w += F; // as most numbers after a ReLU are
    else for (let f = 0; f < F; f++) y_F[f] += x * W_DF[w++];
  }
  return y_F;
}

/** y_V = W_VD x_D + b_V, for a tied embedding table: each number of y is the dot product of x and a row of W. */
export function transposed(x_D: Vector, W_VD: Float32Array, b_V?: Float32Array): Vector {
  const D = x_D.length;
  const y_V = new Float64Array(W_VD.length / D);
  for (let v = 0, w = 0; v < y_V.length; v++) {
    let sum = b_V ? b_V[v] : 0;
    for (let d = 0; d < D; d++) sum += x_D[d] * W_VD[w++];
    y_V[v] = sum;
  }
  return y_V;
}

export function add(x_D: Vector, y_D: Vector): Vector {
  return x_D.map((x, d) => x + y_D[d]);
}

/** A parameter, if the model has it. */
export function leaf(params: Params, name: string): Float32Array | undefined {
  return params[name]?.data;
}

/** The part for one layer of a parameter that is stacked over layers, if the model has it. */
export function layerOf(params: Params, name: string, layer: number): Float32Array | undefined {
  const stack = params[name];
  if (!stack) return undefined;
  const size = stack.data.length / stack.shape[0];
  return stack.data.subarray(layer * size, (layer + 1) * size);
}

/** The softmax of logits, of which at least one must be finite. */
export function softmax(z_V: ArrayLike<number>, temperature = 1): Vector {
  const y_V = Float64Array.from(z_V);
  const largest = y_V.reduce((a, b) => Math.max(a, b), -Infinity);
  let sum = 0;
  for (let v = 0; v < y_V.length; v++) sum += y_V[v] = Math.exp((y_V[v] - largest) / temperature);
  return y_V.map((y) => y / sum);
}

export function logSumExp(z_V: Vector): number {
  const largest = z_V.reduce((a, b) => Math.max(a, b), -Infinity);
  return largest + Math.log(z_V.reduce((sum, z) => sum + Math.exp(z - largest), 0));
}

export function argmax(z_V: ArrayLike<number>): number {
  let best = 0;
  for (let v = 1; v < z_V.length; v++) if (z_V[v] > z_V[best]) best = v;
  return best;
}
