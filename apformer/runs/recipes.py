"""Recipes, where the flags of `apformer train` start, and what they come to: the settings of a run.

- exact   the model that comes to continue progressions exactly: two layers, eight heads, attention over a window that
          ends just before the same place a term earlier, with a relative position table and a sink
- sketch  the plain sketch the project began from, literally: `model.Config()`
- recurrent  an RNN, GRU or LSTM on the same task
- digits  terms of many widths, positions relative to the width: a model for terms of more digits than it was trained on
- baby_gpt, baby_gpt_cpu  a language model of a text file, in the two sizes of nanoGPT's character-level examples
- translate, base  an encoder-decoder of pairs of sentences, for a CPU and in the size that was published
"""

import dataclasses
import re

from apformer import flags, model, seq2seq
from apformer import recurrent as recurrent_model
from apformer.errors import USAGE, UserError
from apformer.layers import position
from apformer.layers.position.periodic import Scheme as Periodic
from apformer.model import Config as Model
from apformer.optimizer import Config as Optimizer
from apformer.recurrent import Config as Recurrent
from apformer.runs import limits
from apformer.seq2seq import Config as Seq2seq
from apformer.settings import Drawing, Settings, Teaching, Training
from apformer.tasks.digits.generator import Config as Wide
from apformer.tasks.progressions.generator import Config as Data
from apformer.tasks.text.corpus import Config as Text
from apformer.tasks.translation.corpus import Config as Pairs


def exact(digits):
    """The recipe for D digits: all that the circuit of `circuit.py` has to see, from the same place a term before."""
    # Of few digits most is in the first two terms, which are hard to predict; of many, in carries, which are rare.
    if digits <= 3:
        training, drawing = Training(steps=3000, batch_size=64), Drawing(hard_share=0.75, opening_rows=512)
    else:
        steps, candidates = (6000, 4) if digits == 4 else (8000, 16)
        training, drawing = Training(steps=steps, save_every=1000), Drawing(hard_share=0.4, candidates=candidates)
    return Settings(
        training,
        Model(
            n_layers=2,
            n_heads=8,
            position="relative",
            window=digits + 3,
            output_projection=True,
            attention_sink=True,
            final_norm=True,
        ),
        _data(digits),
        Optimizer(rule="muon", learning_rate=4e-3, weight_decay=0.03 if digits <= 3 else 0.1),
        drawing,
    )


def _data(digits):
    return Data(digits=digits, max_difference=min(500, 10**digits - 1))


def sketch(digits):
    """The sketch, with nothing but its training chosen."""
    training = Training(recipe="sketch", steps=20_000, batch_size=64, save_every=1000)
    return Settings(training, Model(), _data(digits), drawing=Drawing(crop_terms=16))


def recurrent(digits):
    """An RNN, GRU or LSTM (`--cell`) on the task of the exact recipe."""
    training, drawing = Training(recipe="recurrent", steps=4000), Drawing(crop_terms=16, hard_share=0.25)
    return Settings(training, Recurrent(d_model=128), _data(digits), Optimizer(learning_rate=4e-3), drawing)


def digits(most, order):
    """Terms of up to `most` digits; what a carry needs is near, or, most significant digit first, looked for ahead."""
    ahead = order == "msb"
    return Settings(
        Training(recipe="digits", steps=4000 if ahead else 2000, save_every=1000),
        Model(
            n_layers=2,
            n_heads=8,
            position="periodic",
            position_options=Periodic(near=2, span_heads=2, score_noise=1.5, logit_scale=3.0) if ahead else Periodic(),
            weighting="geometric" if ahead else "softmax",
            attention_sink=not ahead,
            output_projection=True,
            final_norm=True,
        ),
        Wide(digits=most, order=order),
        Optimizer(rule="muon", learning_rate=4e-3, weight_decay=0.1),
        Drawing(hard_share=0.4, test_sequences=500),
    )


def baby_gpt(context):
    """nanoGPT's character-level model for a GPU: 6 layers, 6 heads, 384 wide, dropout; batches of 64."""
    training = Training(recipe="baby_gpt", steps=5000, batch_size=64, save_every=250, patience=8)
    return _language_model(training, context, d_model=384, n_heads=6, n_layers=6, dropout=0.2)


def baby_gpt_cpu(context):
    """The one for a CPU: 4 layers, 4 heads, 128 wide; batches of 12, 2,000 steps."""
    training = Training(recipe="baby_gpt_cpu", steps=2000, batch_size=12, save_every=250)
    return _language_model(training, context, d_model=128, n_heads=4, n_layers=4)


def _language_model(training, context, **shape):
    """GPT-2's architecture, without biases."""
    architecture = Model(
        vocab_size=512,
        max_len=context,
        position="learned",
        output_projection=True,
        activation="gelu",
        final_norm=True,
        head_bias=False,
        tie_embeddings=True,
        **shape,
    )
    rule = Optimizer(rule="muon", learning_rate=4e-3, weight_decay=0.1)
    return Settings(training, architecture, Text(context=context), rule, None)


def translate():
    """A small encoder-decoder with the norms first, which two cores can train."""
    return Settings(
        Training(recipe="translate", steps=3000, batch_size=64, log_every=25),
        Seq2seq(d_model=128, n_heads=4, n_encoder_layers=2, n_decoder_layers=2, norm_position="pre", final_norm=True),
        Pairs(),
        Optimizer(rule="muon", learning_rate=4e-3, weight_decay=0.1),
        Teaching(),
    )


def base():
    """The base model of Vaswani et al. 2017 as it was trained: 512 wide, six layers a side, 25,000 tokens a step."""
    return Settings(
        Training(recipe="base", steps=100_000, batch_size=1000, save_every=1000, log_every=100, keep=5),
        seq2seq.base(37_000),
        Pairs(byte_pairs=37_000),
        Optimizer(learning_rate=7e-4, warmup_steps=4000, schedule="inverse_sqrt", beta2=0.98),  # (512 * 4000)^-1/2
        Teaching(average=5, beams=4),
    )


def parse(args):
    """The settings that flags ask for. Raises UserError (exit USAGE) that names the flag and what fits."""
    recipe, most = flags.value(args, "recipe"), flags.value(args, "digits") or ""
    if recipe in ("baby_gpt", "baby_gpt_cpu"):
        context = flags.value(args, "context") or ""
        start, usual = (baby_gpt, 256) if recipe == "baby_gpt" else (baby_gpt_cpu, 64)
        settings = start(int(context) if re.fullmatch("[1-9][0-9]{0,8}", context) else usual)
    elif recipe in ("translate", "base"):
        settings = translate() if recipe == "translate" else base()
    elif recipe == "digits":
        lsb = flags.value(args, "order") == "lsb"
        settings = digits(int(most) if re.fullmatch("[1-9][0-9]{0,2}", most) else 6, "lsb" if lsb else "msb")
    else:
        start = {"sketch": sketch, "recurrent": recurrent}.get(recipe, exact)
        settings = start(int(most) if re.fullmatch("[1-9]", most) else 3)
    settings = dataclasses.replace(settings, model=_of_position(settings.model, flags.value(args, "position")))
    # Of the parts that there are in this recipe, since an RNN has other flags than a transformer.
    parts = [(name, type(part), part) for name, part in vars(settings).items() if part is not None]
    try:
        parsed = flags.parse(dataclasses.make_dataclass("Settings", parts, frozen=True), args, "apformer train")
    except UserError as error:
        raise UserError(_what_fits(str(error)), USAGE) from None
    settings = Settings(**{name: getattr(parsed, name, None) for name in vars(settings)})
    limits.check(settings)
    return settings


def _of_position(cfg, name):
    """The Config of a decoder with the position scheme of that name, if one is asked for, and its usual options."""
    if type(cfg) is not Model or name in (None, cfg.position):
        return cfg
    if name not in position.names():
        raise UserError(f"--position {name} is none of {', '.join(position.names())}", USAGE)
    return dataclasses.replace(cfg, position=name, position_options=None)


def module(cfg):
    """The module that a model's Config is of, for its init, apply, init_cache and extend."""
    return {Model: model, Seq2seq: seq2seq}.get(type(cfg), recurrent_model)


def _what_fits(sentence):
    """The sentence of a model.Config that cannot be, with flags and the numbers that fit."""
    numbers = re.search(r"d_model (\d+) is not a multiple of n_heads (\d+)", sentence)
    if numbers:
        d_model, n_heads = map(int, numbers.groups())
        fitting = ", ".join(str(n) for n in range(1, min(d_model, 128) + 1) if d_model % n == 0)
        return f"--n_heads {n_heads} does not divide --d_model {d_model}: give --n_heads {fitting}"
    parts = [Model, *map(position.load, position.names())]
    names = "|".join(field.name for part in parts for field in dataclasses.fields(part))
    flag = lambda match: f"--{match[1]}" if match[1] else ""  # noqa: E731
    return re.sub(rf"^error parsing model(?:\.position_options)?: ((?:{names})\b)?", flag, sentence)
