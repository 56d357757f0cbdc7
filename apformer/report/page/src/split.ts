// The split of a progression, hashed as in apformer/tasks/progressions/proof/rows.py:
// 0 training, 1 validation, 2 test.

const UNSPLIT_BELOW = 10;

export function splitOf(difference: number, first: number): 0 | 1 | 2 {
  const size = Math.abs(difference);
  if (size < UNSPLIT_BELOW) return 0;
  const hashed = mix((mix(size) + (first % size)) >>> 0) % 10;
  return hashed === 8 ? 1 : hashed === 9 ? 2 : 0;
}

/** The finalizer of MurmurHash3 (Appleby, 2008). */
function mix(bits: number): number {
  bits = Math.imul(bits ^ (bits >>> 16), 0x85ebca6b);
  bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2ae35);
  return (bits ^ (bits >>> 16)) >>> 0;
}
