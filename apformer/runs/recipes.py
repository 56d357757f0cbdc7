"""Recipes, where the flags of `apformer train` start, and what they come to: the settings of a run.

- exact   the model that comes to continue progressions exactly: two layers, eight heads, attention over a window that
          ends just before the same place a term earlier, with a relative position table and a sink
- bayes   the exact recipe, trained until its loss is nearest to the Bayes floor; extra rows teach the first two terms
- sketch  the plain sketch the project began from, literally: `model.Config()` and plain cross-entropy
- recurrent  an RNN, GRU or LSTM on the same task
- digits  terms of many widths, positions relative to the width: a model for terms of more digits than it was trained on
- text    a language model of a text file, small enough for a CPU: a transformer, or with `--architecture recurrent` an
          RNN, GRU or LSTM; with `--init_from` a model that was trained before, trained further
- baby_gpt, baby_gpt_cpu  the two sizes of nanoGPT's character-level examples; `text` has that of baby_gpt_cpu
- translate, base  an encoder-decoder of pairs of sentences, for a CPU and in the size that was published
"""

import dataclasses
import re
from dataclasses import replace

from apformer import flags, model, seq2seq
from apformer import recurrent as recurrent_model
from apformer.errors import USAGE, UserError
from apformer.layers import position
from apformer.layers.position.periodic import Scheme as Periodic
from apformer.model import Config as Model
from apformer.optimizer import Config as Optimizer
from apformer.recurrent import Config as Recurrent
from apformer.runs import limits, pretrained
from apformer.seq2seq import Config as Seq2seq
from apformer.settings import Options, Settings, Teaching, TextOptions, Training
from apformer.tasks.digits.generator import Config as Wide
from apformer.tasks.progressions.generator import Config as Data
from apformer.tasks.text.corpus import Config as Text
from apformer.tasks.translation.corpus import Config as Pairs

RECIPE_OF = {  # by whose flags they are
    Model: "exact",
    Data: "exact",
    Options: "exact",
    Recurrent: "recurrent, or of --recipe text --architecture recurrent",
    Text: "text",
    TextOptions: "text",
    Wide: "digits",
    Seq2seq: "translate",
    Pairs: "translate",
    Teaching: "translate",
}


def exact(digits):
    """The recipe for D digits: all that the circuit of `circuit.py` has to see, from the same place a term before."""
    # The more digits there are, the rarer are long carries.
    steps, mined_per_hard = {4: (6000, 4)}.get(digits, (3000, 4) if digits <= 3 else (8000, 16))
    training = Training(steps=steps, batch_size=64 if digits <= 3 else 128)
    drawing = Options(hard_fraction=0.75 if digits <= 3 else 0.4, mined_per_hard=mined_per_hard)
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


def bayes(digits):
    """The exact recipe with extra rows of the first two terms, trained until it is nearest to the Bayes floor."""
    settings = exact(digits)
    training = replace(settings.training, recipe="bayes", steps=max(3000, settings.training.steps))
    return replace(settings, training=training, drawing=replace(settings.drawing, prefix_rows=512))


def _data(digits):
    return Data(digits=digits, max_difference=min(500, 10**digits - 1))


def sketch(digits):
    """The sketch, with nothing but its training chosen."""
    training = Training(recipe="sketch", steps=20_000, batch_size=64, save_every=1000)
    return Settings(training, Model(), _data(digits), drawing=Options(crop_terms=16))


def recurrent(digits):
    """An RNN, GRU or LSTM (`--cell`) on the task of the exact recipe."""
    training, drawing = Training(recipe="recurrent", steps=4000), Options(crop_terms=16, hard_fraction=0.25)
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
        Options(hard_fraction=0.4, test_sequences=500),
    )


def text(context, architecture="transformer"):
    """The shape of `baby_gpt_cpu`, or a recurrent model of about as many parameters."""
    settings = baby_gpt_cpu(context)
    settings = dataclasses.replace(settings, training=dataclasses.replace(settings.training, recipe="text"))
    if architecture == "transformer":
        return settings
    cells = Recurrent(vocab_size=512, d_model=256, n_layers=2)
    return dataclasses.replace(settings, model=cells, drawing=TextOptions(architecture="recurrent"))


def further(settings, folder, context, low_rank):
    """The settings to train the model in a folder further: its shape, its tokenizer, and the small steps it wants.

    The learning rates are those for the published GPT-2; small models bear higher ones. That of adapters is as in Hu
    et al. 2021.
    """
    cfg = pretrained.read_config(folder)
    architecture = "recurrent" if module(cfg) is recurrent_model else "transformer"
    longest = cfg.max_len if architecture == "transformer" and cfg.position == "learned" else context
    training = dataclasses.replace(settings.training, steps=500, batch_size=8, log_every=10, save_every=50, patience=0)
    return Settings(
        training,
        cfg,
        Text(tokenizer=str(folder), context=min(context, longest)),
        Optimizer(learning_rate=2e-4 if low_rank else 5e-5, warmup_steps=50, weight_decay=0.01),
        TextOptions(architecture=architecture),
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
    return Settings(training, architecture, Text(context=context), rule, TextOptions())


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
    if recipe in ("text", "baby_gpt", "baby_gpt_cpu"):
        settings = _of_text(args, recipe)
    elif recipe in ("translate", "base"):
        settings = translate() if recipe == "translate" else base()
    elif recipe == "digits":
        lsb = flags.value(args, "order") == "lsb"
        settings = digits(int(most) if re.fullmatch("[1-9][0-9]{0,2}", most) else 6, "lsb" if lsb else "msb")
    else:
        start = {"bayes": bayes, "sketch": sketch, "recurrent": recurrent}.get(recipe, exact)
        settings = start(int(most) if re.fullmatch("[1-9]", most) else 3)
    settings = dataclasses.replace(settings, model=_of_position(settings.model, flags.value(args, "position")))
    # Of the parts that there are in this recipe, since an RNN has other flags than a transformer.
    parts = [(name, type(part), part) for name, part in vars(settings).items()]
    try:
        parsed = flags.parse(dataclasses.make_dataclass("Settings", parts, frozen=True), args, "apformer train")
    except UserError as error:
        raise UserError(_what_fits(str(error)), USAGE) from None
    settings = Settings(**{name: getattr(parsed, name) for name in vars(settings)})
    limits.check(settings)
    if flags.value(args, "init_from") is not None:
        pretrained.require_same(settings.model, settings.drawing.init_from)
    return settings


def _of_text(args, recipe):
    """Where the flags of a text start: at a recipe, or at the model that --init_from names."""
    architecture, folder = flags.value(args, "architecture"), flags.value(args, "init_from")
    given, usual = flags.value(args, "context") or "", 256 if recipe == "baby_gpt" else 64
    context = int(given) if re.fullmatch("[1-9][0-9]{0,8}", given) else usual if folder is None else 128
    if recipe == "text":
        settings = text(context, architecture or "transformer")
    else:
        settings = (baby_gpt if recipe == "baby_gpt" else baby_gpt_cpu)(context)
    if folder is not None:
        settings = further(settings, folder, context, low_rank=flags.value(args, "lora_rank") not in (None, "0"))
    kind = settings.drawing.architecture
    if architecture in ("transformer", "recurrent") and architecture != kind:
        fits = "give --recipe text" if folder is None else "drop the flag"
        raise UserError(f"--architecture {architecture} contradicts a model that is a {kind}: {fits}", USAGE)
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
    """A sentence about flags that cannot be, with the recipe of a flag that this one lacks, or the numbers that fit."""
    unknown = re.match(r"unrecognized options: --([\w-]+)", sentence)
    if unknown:
        name = unknown[1].replace("-", "_")
        for kind, recipe in RECIPE_OF.items():
            if name in {field.name for field in dataclasses.fields(kind)}:
                return f"--{name} is a flag of --recipe {recipe}: give that recipe, or drop the flag"
    numbers = re.search(r"d_model (\d+) is not a multiple of n_heads (\d+)", sentence)
    if numbers:
        d_model, n_heads = map(int, numbers.groups())
        fitting = ", ".join(str(n) for n in range(1, min(d_model, 128) + 1) if d_model % n == 0)
        return f"--n_heads {n_heads} does not divide --d_model {d_model}: give --n_heads {fitting}"
    parts = [Model, *map(position.load, position.names())]
    names = "|".join(field.name for part in parts for field in dataclasses.fields(part))
    flag = lambda match: f"--{match[1]}" if match[1] else ""  # noqa: E731
    return re.sub(rf"^error parsing model(?:\.position_options)?: ((?:{names})\b)?", flag, sentence)
