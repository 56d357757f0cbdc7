"""Recipes of a language model of a text."""

from dataclasses import replace
from typing import Literal

from apformer import model, optimizer
from apformer import recurrent as rnn
from apformer.errors import UserError
from apformer.files import FilePath
from apformer.settings import Settings, Training, load_architecture
from apformer.tasks.text import folders
from apformer.tasks.text.corpus import Config, Options


def text(
    context: int | None = None,
    architecture: Literal["model", "recurrent"] | None = None,
    init_from: FilePath | None = None,
    lora_rank: int = 0,
) -> Settings:
    """A language model of a text, small enough for a CPU; or GPT-2 or a run trained further (--init_from).

    The shape of `baby_gpt_cpu`, or a recurrent model of about as many parameters, or that of another model.
    """
    if init_from is None:
        settings = baby_gpt_cpu(64 if context is None else context)
        if architecture != "recurrent":
            return settings
        cells = rnn.Config(vocab_size=512, d_model=256, n_layers=2)
        rule = replace(settings.optimizer, muon_every=1)  # larger values are not measured for recurrent models
        return replace(settings, architecture="recurrent", model=cells, optimizer=rule)
    settings = _fine_tuning(init_from, context or 128, lora_rank)
    if architecture not in (None, settings.architecture):
        fault = f"--architecture {architecture} contradicts --init_from {init_from}, which is {settings.architecture}"
        raise UserError(f"{fault}: drop the flag")
    return settings


def baby_gpt(context: int = 256) -> Settings:
    """The character model of nanoGPT for a GPU: 6 layers, 6 heads, 384 wide, dropout; batches of 64."""
    training = Training(steps=5000, batch_size=64, save_every=250, patience=8)
    return _language_model(training, context, {"d_model": 384, "n_heads": 6, "n_layers": 6, "dropout": 0.2})


def baby_gpt_cpu(context: int = 64) -> Settings:
    """The character model of nanoGPT for a CPU: 4 layers, 4 heads, 128 wide; batches of 12, 2,000 steps."""
    training = Training(steps=2000, batch_size=12, save_every=250)
    # Newton-Schulz steps of all four layers would take a third of a training step on a CPU.
    return _language_model(training, context, {"d_model": 128, "n_heads": 4, "n_layers": 4}, muon_every=4)


def _language_model(training: Training, context: int, shape: dict, muon_every: int = 1) -> Settings:
    """Return settings of GPT-2's architecture without biases in attention and head."""
    architecture = model.Config(
        vocab_size=512,
        max_len=min(max(context, 1), 2**31 - 1),
        position="learned",
        output_projection=True,
        activation="gelu",
        final_norm=True,
        head_bias=False,
        tie_embeddings=True,
        **shape,
    )
    rule = optimizer.Config(rule="muon", learning_rate=4e-3, weight_decay=0.1, muon_every=muon_every)
    return Settings("text", "model", training, architecture, Config(context=context), Options(), rule)


def _fine_tuning(folder: str, context: int, lora_rank: int) -> Settings:
    """Return the settings to fine-tune the model in a folder: its shape, its tokenizer, and few small steps.

    The learning rates suit the published GPT-2; small models allow more. That of adapters is from Hu et al. 2021.
    """
    name, cfg = folders.read_config(folder)
    if lora_rank:
        folders.require_adaptable(folder)
    training = Training(steps=500, batch_size=8, log_every=10, save_every=50)
    rule = optimizer.Config(learning_rate=2e-4 if lora_rank else 5e-5, warmup_steps=50, weight_decay=0.01)
    longest = load_architecture(name).max_tokens(cfg)
    data = Config(tokenizer=folder, context=min(context, longest or context))
    return Settings("text", name, training, cfg, data, Options(init_from=folder), rule)


RECIPES = {"text": text, "baby_gpt": baby_gpt, "baby_gpt_cpu": baby_gpt_cpu}
