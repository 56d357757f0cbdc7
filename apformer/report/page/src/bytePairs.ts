// Byte pair encoding, as in apformer/tokenizers/byte_pairs.py: a pattern cuts a text into chunks.
// In each chunk, pairs are merged by rank.

export interface BytePairs {
  /** The token of each byte; for each merge the two tokens that it joins and the one that it makes. */
  bytes: number[];
  merges: [left: number, right: number, made: number][];
  pattern: string;
  specials: Record<string, number>;
}

interface Tables {
  rankOf: Map<number, number>;
  bytesOf: Map<number, number[]>;
}
const tables = new WeakMap<BytePairs, Tables>();
const keyOf = (left: number, right: number) => left * 2 ** 24 + right;

function tablesOf(pairs: BytePairs): Tables {
  let found = tables.get(pairs);
  if (!found) {
    const rankOf = new Map(pairs.merges.map(([left, right], rank) => [keyOf(left, right), rank]));
    const bytesOf = new Map(pairs.bytes.map((token, byte) => [token, [byte]]));
    for (const [left, right, made] of pairs.merges) bytesOf.set(made, [...bytesOf.get(left)!, ...bytesOf.get(right)!]);
    for (const [text, token] of Object.entries(pairs.specials)) bytesOf.set(token, [...new TextEncoder().encode(text)]);
    tables.set(pairs, (found = { rankOf, bytesOf }));
  }
  return found;
}

/** The tokens of a text: in every chunk, the first merge that applies is made, until none applies. */
export function encode(text: string, pairs: BytePairs): number[] {
  const specials = Object.keys(pairs.specials);
  const at = (special: string) => (text.includes(special) ? text.indexOf(special) : Infinity);
  const first = specials.sort((a, b) => at(a) - at(b) || b.length - a.length)[0];
  if (first && at(first) < Infinity)
    return [
      ...encode(text.slice(0, at(first)), pairs),
      pairs.specials[first],
      ...encode(text.slice(at(first) + first.length), pairs),
    ];
  const chunks = text.match(new RegExp(pairs.pattern, "gu")) ?? [];
  return chunks.flatMap((chunk) => merged([...new TextEncoder().encode(chunk)], pairs));
}

function merged(bytes: number[], pairs: BytePairs): number[] {
  const { rankOf } = tablesOf(pairs);
  let tokens = bytes.map((byte) => pairs.bytes[byte]);
  for (;;) {
    const ranks = tokens.slice(1).map((right, i) => rankOf.get(keyOf(tokens[i], right)) ?? Infinity);
    const least = Math.min(...ranks);
    if (least === Infinity) return tokens;
    const [left, right, made] = pairs.merges[least];
    const joined: number[] = [];
    for (let i = 0; i < tokens.length; i++) {
      const found = tokens[i] === left && tokens[i + 1] === right;
      joined.push(found ? made : tokens[i]);
      if (found) i++;
    }
    tokens = joined;
  }
}

/**
 * The text of tokens. A token without bytes, such as an end token, has no text; bytes that are not UTF-8 become
 * U+FFFD.
 */
export function decode(tokens: number[], pairs: BytePairs): string {
  const { bytesOf } = tablesOf(pairs);
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(
    new Uint8Array(tokens.flatMap((token) => bytesOf.get(token) ?? [])),
  );
}
