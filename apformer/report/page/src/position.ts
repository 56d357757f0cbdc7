// How a decoder knows where a token stands; the names and formulas of apformer/layers/position/.
import type { Vector } from "./linear";
import type { Config } from "./run";

/** How many tokens a model has positions for. */
export const places = (cfg: Config): number => (cfg.position === "learned" ? cfg.max_len : Infinity);

/** PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos(..). */
export function sinusoidal(position: number, D: number): Vector {
  return Float64Array.from({ length: D }, (_, d) => {
    const angle = position / 10_000 ** ((d - (d % 2)) / D);
    return d % 2 ? Math.cos(angle) : Math.sin(angle);
  });
}

/** Each plane (x_2i, x_2i+1) of each head, turned by the angle of the position. */
export function rotate(x_HK: Vector, position: number, K: number): Vector {
  const y_HK = new Float64Array(x_HK.length);
  for (let i = 0; i < x_HK.length; i += 2) {
    const angle = position / 10_000 ** ((i % K) / K);
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    y_HK[i] = x_HK[i] * cos - x_HK[i + 1] * sin;
    y_HK[i + 1] = x_HK[i] * sin + x_HK[i + 1] * cos;
  }
  return y_HK;
}

/** The slope by which ALiBi lowers a score for each token between. */
export function slope(head: number, heads: number): number {
  return 2 ** ((-8 * (head + 1)) / heads);
}

/** The period known at a token: the place of the first separator counted from 1 after a heading, and 0 before it. */
export function periodAt(tokens: number[], t: number, separator: number, heading = 0): number {
  const first = tokens.indexOf(separator, heading);
  return first < 0 || first > t ? 0 : first + 1 - heading;
}

/** Which of 3 near + 1 descriptions fit an offset, given the period; the last of them is `between`. */
export function describe(offset: number, period: number, near: number): number[] {
  const fits: number[] = [];
  if (offset < near) fits.push(offset);
  const about = offset - period + near;
  if (period > 0 && about >= 0 && about < 2 * near) fits.push(near + about);
  if (period > 0 && near <= offset && offset < period - near) fits.push(3 * near);
  return fits;
}

/** Which tokens that a layer reads with positions in columns are at a place s before t: apformer/layers/position/columns.py. */
export function column(t: number, s: number, period: number, layer: number, heading: number): number[] {
  if (s === t) return [0];
  if (s < heading) return layer ? [] : [3 + s];
  if (!period) return [];
  return (layer ? [period - 1] : [period, period + 1]).flatMap((offset, n) => (offset === t - s ? [n + 1] : []));
}

/** How many tokens back a layer reads with positions ahead: apformer/layers/position/ahead.py. */
export function reads(period: number, layer: number): number[] {
  if (layer < 2) return [0, layer ? 1 : period];
  return [Math.max(period - 2, 0)];
}

/** Whether the last head of the last layer may take the key that stands so far back. */
export const isAhead = (offset: number, period: number): boolean => period > 0 && offset < period - 2;
