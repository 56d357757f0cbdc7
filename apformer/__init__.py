"""apformer: transformers that learn arithmetic progressions, and the family they belong to.

    model        the decoder-only transformer: Config, init, apply, init_cache, extend      <- the front door
    layers       its parts: embedding, position, attention, feedforward, block
    data         the tasks: progressions and their exact Bayes predictor, tokenizer
    loss         softmax and cross-entropy as one function
    optimizer    AdamW, warm-up, cosine
    train        the pure training step, scanned, for one model or a population
    evaluate     exact match and loss on held-out progressions
    generate     continue a text with a key-value cache
    checkpoint   verified, atomic, asynchronous checkpoints
    recipes      the settings of a run;  experiment  a run from flags to figures;  runs  its directory
    cli          the command line: apformer train | resume | predict | evaluate | doctor

Arrays carry their axes as a suffix, and einsums are written with the same letters:

    B batch   T query position   S key position   D d_model   H heads   K head width   F d_ff
    V vocabulary   L layers   N terms   P members of a population   C digits of a term   I planes of two dimensions
"""

__version__ = "0.1.0"
