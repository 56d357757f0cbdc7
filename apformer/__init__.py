"""apformer: transformers that learn arithmetic progressions, and the family they belong to.

    model        the decoder-only transformer: Config, init, apply, init_cache, extend      <- the front door
    seq2seq      the encoder-decoder transformer: the same names
    recurrent    RNN, GRU and LSTM language models: the same names
    word2vec     vectors of words: CBOW and skip-gram, full softmax or negative sampling
    adapters     what a matrix learns in fine-tuning, as the product of two thin ones
    circuit      weights written by hand that continue any progression exactly
    gpt2         GPT-2's sizes, and its folders in and out;  gpt2_tensors  its names for our parameters
    layers       the transformer's parts: embedding, position, attention, feedforward, block
    data         the tasks: progressions and their exact Bayes predictor, tokenizers, texts and their words
    loss         softmax and cross-entropy as one function
    optimizer    AdamW or Muon, warm-up, cosine
    train        the pure training step, scanned, for one model or a population
    evaluate     exact match and loss on held-out progressions;  report  the figures
    certify      every context there is, enumerated;  agreement  how far ways of computing a logit differ
    wide_evaluate  exact match width by width;  wide_certify  the certificate for terms of any number of digits
    generate     continue a text with a key-value cache;  predict  the same from the command line
    beam         the most likely text, with a length penalty: beam search on the same cache
    checkpoint   verified, atomic, asynchronous checkpoints;  manifest  what makes one count
    settings     every flag of a run;  recipes  where they start;  limits  what fits;  config_file  as a file
    runs         the directory of a run;  prompts  what a command is asked to go on from
    task         the rows of a run: to train on, to choose by, to be examined on
    wide_task    the same for terms of many widths;  text_task  for a text;  pair_task  for pairs of sentences
    tasks        which of them a run is of;  plain  what most of them train
    fit          train to the last step;  log  what is said meanwhile
    restore      a trained run, read back;  examine, wide_examine  its evaluation and its certificate
    text_examine  what a language model's text costs it;  compose  what it writes
    language_model  a language model from a run or a GPT-2 folder;  pretrained  which of them a folder is
    pair_examine  how good a translator is;  translate  what it writes
    ablate       parts switched off, and what each is worth
    page         a run as one offline page;  probe, wide_probe, text_probe, pair_probe  what it shows of each task
    report.template  the page, filled;  report.merges  how a text is cut, for the page
    report.sections  what a task tells the page;  report.asked  held-out rows for it;  report.twin  what it can run
    export       a run as one file or as a GPT-2 folder;  tensor_file  named arrays in a file
    experiment   all of it, from flags to certificate
    sweep        many runs side by side;  combinations  of flags;  suites  what they are asked
    cli          the command line: apformer train | resume | predict | generate | translate | evaluate | certify |
                 report | export | doctor

Arrays carry their axes as a suffix, and einsums are written with the same letters:

    B batch   T query position   S key position   D d_model   H heads   K head width   F d_ff
    V vocabulary   L layers   N terms   P members of a population   C digits of a term   I planes of two dimensions
    of word2vec: W words of a window   G given   O foretold   N negatives   K neighbours
"""

__version__ = "0.1.0"
