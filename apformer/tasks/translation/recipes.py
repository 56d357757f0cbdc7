"""Recipes of translators: `translate` for a CPU of two cores, `base` of the published size."""

from dataclasses import replace
from typing import Any

from apformer import optimizer, seq2seq
from apformer.errors import UserError
from apformer.settings import Settings, Training
from apformer.tasks.translation import vocabularies
from apformer.tasks.translation.corpus import Config, Options

NO_LANGUAGES: dict[str, Any] = {"from_language": "", "to_language": ""}  # the suffix of --target names the language


def translate(source: str | None = None, init_from: str | None = None) -> Settings:
    """A translator of number words, or of two texts with defaults of their own: see --source FILE --help.

    With --init_from, the model of another run is fine-tuned.
    """
    settings = _new(source)
    if init_from is None:
        return settings
    run = vocabularies.of_run(init_from)
    if source is None and run.data.source is not None:
        raise UserError(f"--init_from {init_from} was trained on files: give --source and --target")
    numbers = () if source else ("from_language", "to_language", "largest")
    inherited = {name: getattr(run.data, name) for name in (*vocabularies.FLAGS, *numbers)}
    longest = settings.data.longest
    inherited["longest"] = min(longest, seq2seq.max_tokens(run.model) or longest)
    rule = replace(settings.optimizer, learning_rate=settings.optimizer.learning_rate / 4)
    options = replace(settings.options, init_from=init_from)
    data = replace(settings.data, **inherited)
    return replace(settings, data=data, model=run.model, options=options, optimizer=rule)


def _new(source: str | None) -> Settings:
    rule = optimizer.Config(rule="muon", learning_rate=4e-3, weight_decay=0.1)
    small = seq2seq.Config(
        d_model=128, n_heads=4, n_encoder_layers=2, n_decoder_layers=2, norm_position="pre", final_norm=True
    )
    if source is None:  # number words: few byte pairs, so that German writes none of its long words as one token
        training = Training(steps=3000, batch_size=64, log_every=25, ema=0.99)
        return Settings("translation", "seq2seq", training, small, Config(byte_pairs=500), Options(), rule)
    # Width and dropout of Wu et al. 2021 (arXiv 2105.14462). Layers of the encoder cost less than those of the decoder,
    # and so do the logits of fewer byte pairs: two cores take more steps in the same time.
    training = Training(steps=18_000, batch_size=64, log_every=100, save_every=1000, ema=0.999)
    shape = replace(small, n_encoder_layers=6, n_decoder_layers=2, d_ff=256, dropout=0.3, position="rotary")
    # With alpha 0.6 translations were too short: 89 % of the words of the references, and a point of BLEU less.
    data, options = Config(byte_pairs=6_000, **NO_LANGUAGES), Options(alpha=1.5)
    return Settings("translation", "seq2seq", training, shape, data, options, rule)


def base(source: str | None = None) -> Settings:
    """The base translator of Vaswani et al. 2017: 512 wide, six layers a side, 25,000 tokens a step."""
    training = Training(steps=100_000, batch_size=1000, save_every=1000, log_every=100, keep=5, average=5)
    # The peak of the published schedule is (512 * 4000)^-1/2.
    rule = optimizer.Config(learning_rate=7e-4, warmup_steps=4000, schedule="inverse_sqrt", beta2=0.98)
    data, options = Config(byte_pairs=37_000, **(NO_LANGUAGES if source else {})), Options(beams=4)
    return Settings("translation", "seq2seq", training, seq2seq.Config(), data, options, rule)


RECIPES = {"translate": translate, "base": base}
