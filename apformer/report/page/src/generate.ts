// Generates one token after another: greedily, or by sampling with temperature, top-k and top-p.
// beam.ts has beam search.
import { architecture } from "./architecture";
import { argmax, softmax, type Vector } from "./linear";
import type { Params, Run } from "./run";

export interface Choice {
  sampled: boolean;
  /** Whether beam search is used instead (beam.ts). */
  searched?: boolean;
  temperature: number;
  topK: number;
  topP: number;
}
export const GREEDY: Choice = { sampled: false, temperature: 1, topK: 0, topP: 1 };

/** The sampling distribution: of the topK likeliest tokens, the fewest whose probabilities together reach topP. */
export function distribution(z_V: Vector, { temperature, topK, topP }: Choice): Vector {
  const p_V = softmax(z_V, temperature);
  const order = [...p_V.keys()].sort((a, b) => p_V[b] - p_V[a]);
  let before = 0;
  order.forEach((v, rank) => {
    const p = p_V[v];
    if ((topK > 0 && rank >= topK) || (rank > 0 && before >= topP)) p_V[v] = 0;
    before += p;
  });
  const sum = p_V.reduce((a, b) => a + b, 0);
  return p_V.map((p) => p / sum);
}

/** The tokens that a model writes after the given ones; with a source, up to the end of its translation. */
export function generate(
  params: Params,
  given: number[],
  count: number,
  run: Run,
  choice: Choice,
  hidden?: Set<number>,
  source?: number[],
): number[] {
  const { initCache, extend } = architecture(run);
  const cache = initCache(run.model, params, source, hidden);
  const written: number[] = [];
  let next = given;
  for (let i = 0; i < count; i++) {
    const { logits_TV } = extend(params, next, cache, run.model, hidden);
    const z_V = logits_TV[logits_TV.length - 1];
    next = [choice.sampled ? draw(distribution(z_V, choice)) : argmax(z_V)];
    written.push(next[0]);
    if (source && next[0] === run.task.end) break;
  }
  return written;
}

function draw(p_V: Vector): number {
  let left = Math.random();
  const drawn = p_V.findIndex((p) => (left -= p) < 0);
  return drawn < 0 ? argmax(p_V) : drawn;
}
