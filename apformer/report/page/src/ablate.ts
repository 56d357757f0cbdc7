// Switches parts off by editing the parameters, and measures the loss. apformer/analysis/ablate.py gets the same numbers.
import { apply, type Model } from "./architecture";
import { argmax, logSumExp, type Vector } from "./linear";
import type { Loss, Params, Part, Probe } from "./run";

const BLIND = -1e9;

/** The parameters with some parts switched off. Arrays that do not change are shared, not copied. */
export function ablate(params: Params, parts: Part[]): Params {
  const edited = { ...params };
  const edit = (name: string, chosen: (...index: number[]) => boolean, value = 0) => {
    if (!edited[name]) return;
    const { data, shape } = edited[name];
    const copy = data.slice();
    for (let i = 0; i < copy.length; i++) if (chosen(...indices(i, shape))) copy[i] = value;
    edited[name] = { data: copy, shape };
  };
  for (const [named, a, b] of parts as [string, ...number[]][]) {
    const [side, kind] = sided(named);
    if (kind === "head" || kind === "cross_head") {
      const attention = `${side}blocks.${kind === "head" ? "attention" : "cross_attention"}`;
      edit(`${attention}.value`, (l, _, h) => l === a && h === b);
      edit(`${attention}.value_bias`, (l, h) => l === a && h === b);
    } else if (kind === "feedforward") {
      edit(`${side}blocks.feedforward.contract.weight`, (l) => l === a);
      edit(`${side}blocks.feedforward.contract.bias`, (l) => l === a);
    } else if (kind === "offset") edit("blocks.attention.relative.table", (_l, _h, offset) => offset === a, BLIND);
    else if (kind === "position") edit(`${side}position.table`, (place) => place === a);
  }
  return edited;
}

/**
 * Splits "encoder.head" into its side, "encoder.", with which names of parameters begin, and its kind. A decoder-only
 * part has the side "".
 */
export function sided(named: string): [side: string, kind: string] {
  const dot = named.indexOf(".") + 1;
  return [named.slice(0, dot), named.slice(dot)];
}

function indices(i: number, shape: number[]): number[] {
  const found: number[] = [];
  for (let axis = shape.length - 1; axis >= 0; axis--, i = Math.floor(i / shape[axis + 1]))
    found.unshift(i % shape[axis]);
  return found;
}

/**
 * The mean nats of the characters of the rows, and the share of predictable terms whose characters are all right. It
 * yields after each row, so that the caller can do other work in between.
 */
export function* measuring(
  params: Params,
  probe: Probe,
  run: Model,
  hidden?: Set<number>,
): Generator<undefined, Loss, undefined> {
  let nats = 0,
    weight = 0,
    terms = 0,
    right = 0;
  for (const [row, tokens_T] of probe.tokens.entries()) {
    const { logits_TV } = apply(params, tokens_T.slice(0, -1), run, hidden, probe.sources?.[row]);
    const rightOf = new Map<number, boolean>();
    for (let t = 1; t < tokens_T.length; t++) {
      const w = probe.weights[row][t];
      if (w > 0) {
        nats += w * cost(logits_TV[t - 1], tokens_T[t]);
        weight += w;
      }
      const term = probe.terms ? probe.terms[row][t] : -1;
      if (term >= 0) rightOf.set(term, (rightOf.get(term) ?? true) && argmax(logits_TV[t - 1]) === tokens_T[t]);
    }
    terms += rightOf.size;
    right += [...rightOf.values()].filter(Boolean).length;
    yield;
  }
  return { loss: nats / weight, ...(probe.terms && { exact: right / Math.max(terms, 1) }) };
}

/** -log p(token), in nats. */
export const cost = (z_V: Vector, token: number) => logSumExp(z_V) - z_V[token];
