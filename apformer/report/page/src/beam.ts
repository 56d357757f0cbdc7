// Beam search, as in apformer/decoding/beam.py: each step keeps the likeliest partial texts.
// The finished text with the best score wins.
import { architecture } from "./architecture";
import { logSumExp, type Vector } from "./linear";
import type { Params, Run } from "./run";
import { fork, type Cache } from "./seq2seq";

export interface Search {
  beams: number;
  alpha: number;
}
/**
 * A text that was found: its tokens with the end token, their log-probability, and this divided by the length penalty.
 */
export interface Beam {
  tokens: number[];
  logp: number;
  score: number;
}
interface Unfinished {
  tokens: number[];
  logp: number;
  cache: Cache;
}

/** ((5 + n) / 6)^alpha of a text of n tokens (Wu et al. 2016). */
export const penalty = (n: number, alpha: number) => ((5 + n) / 6) ** alpha;

/** The best translations of a source, best first, of at most `steps` tokens each. */
export function search(
  params: Params,
  source: number[],
  steps: number,
  run: Pick<Run, "architecture" | "model">,
  end: number,
  { beams, alpha }: Search,
  hidden?: Set<number>,
): Beam[] {
  const { initCache, extend } = architecture(run);
  let alive: Unfinished[] = [{ tokens: [], logp: 0, cache: initCache(run.model, params, source, hidden) }];
  let done: Beam[] = [];
  const best = (found: Beam[]) => found.sort((a, b) => b.score - a.score).slice(0, beams);
  for (let n = 1; n <= steps && alive.length; n++) {
    const next = alive.flatMap((beam) => {
      const { logits_TV } = extend(params, [beam.tokens[n - 2] ?? end], beam.cache, run.model, hidden);
      const sum = logSumExp(logits_TV[0]);
      return largest(logits_TV[0], beams).map((token) => ({
        beam,
        token,
        logp: beam.logp + logits_TV[0][token] - sum,
      }));
    });
    const kept = next.sort((a, b) => b.logp - a.logp).slice(0, beams - done.length);
    const texts = kept.map(({ beam, token, logp }) => ({ beam, tokens: [...beam.tokens, token], logp }));
    const ended = texts.filter(({ tokens }) => tokens[n - 1] === end);
    done = best([...done, ...ended.map(({ tokens, logp }) => ({ tokens, logp, score: logp / penalty(n, alpha) }))]);
    // An upper bound of what a text can still score: tokens only lower its log-probability, and the longest text has
    // the largest divisor.
    const hopeful = texts.filter(
      ({ tokens, logp }) => tokens[n - 1] !== end && !(logp / penalty(steps, alpha) < done[0]?.score),
    );
    alive = hopeful.map(({ beam, tokens, logp }) => ({ tokens, logp, cache: fork(beam.cache) }));
  }
  const cut = alive.map(({ tokens, logp }) => ({ tokens, logp, score: logp / penalty(tokens.length, alpha) }));
  return best([...done, ...cut]);
}

/** The tokens with the largest logits, largest first. */
function largest(z_V: Vector, count: number): number[] {
  const found: number[] = [];
  for (let v = 0; v < z_V.length; v++) {
    if (found.length === count && z_V[v] <= z_V[found[count - 1]]) continue;
    let at = found.length;
    while (at > 0 && z_V[found[at - 1]] < z_V[v]) at--;
    found.splice(at, 0, v);
    found.length = Math.min(found.length, count);
  }
  return found;
}
