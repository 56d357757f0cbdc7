// How a model encodes the position of a token, with the names and formulas of apformer/layers/position/.
import type { Vector } from "./linear";
import type { Config } from "./run";

/** The number of positions that a model has. */
export const places = (cfg: Config): number => (cfg.position === "learned" ? cfg.max_len : Infinity);

/** PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos(..). */
export function sinusoidal(position: number, D: number): Vector {
  return Float64Array.from({ length: D }, (_, d) => {
    const angle = position / 10_000 ** ((d - (d % 2)) / D);
    return d % 2 ? Math.cos(angle) : Math.sin(angle);
  });
}

/** How many of the K numbers of a head are rotated: all, but not an odd last one. */
export const turning = (K: number) => K - (K % 2);

/** Rotates each pair (x_2i, x_2i+1) of each head by the angle of the position. */
export function rotate(x_HK: Vector, position: number, K: number): Vector {
  const y_HK = x_HK.slice();
  for (let head = 0; head < x_HK.length; head += K)
    for (let k = 0; k < turning(K); k += 2) {
      const i = head + k;
      const angle = position / 10_000 ** (k / turning(K));
      const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
      y_HK[i] = x_HK[i] * cos - x_HK[i + 1] * sin;
      y_HK[i + 1] = x_HK[i] * sin + x_HK[i + 1] * cos;
    }
  return y_HK;
}

/** How much ALiBi lowers a score of this head for each token of distance. */
export function slope(head: number, heads: number): number {
  return 2 ** ((-8 * (head + 1)) / heads);
}
