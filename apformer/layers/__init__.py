"""The parts of a transformer: small Flax modules and pure functions that know no task.

Arrays carry their axes as a suffix, which einsum repeats. A letter means one axis everywhere:

    B   rows of a batch               T   positions of queries         S   positions of keys
    D   width of the stream, d_model  H   heads                        K   width of a head
    F   width of the feed-forward     V   vocabulary                   L   layers, one more with the embedding
    M   members of a population       N   terms of a progression       C   characters of a term
    P   positions of a learned table  O   offsets of a relative table  Q   buckets of periodic offsets
    I   planes of a rotation          R   rank of an adapter           W   beams of a search

A capital alone in other places names one number: D digits in prose. 1 is an axis of length 1.
"""
