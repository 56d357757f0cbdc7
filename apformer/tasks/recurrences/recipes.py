"""Recipe of recurrences: the model of the exact recipe, which adds the digits of the two terms before.

One rule needs a window that reaches one token beyond the same place a term earlier. Where there are several, the model
sees the whole row, because what tells the rule stands at its beginning.
"""

from apformer import model, optimizer
from apformer.settings import Settings, Training
from apformer.tasks.recurrences import generator
from apformer.tasks.recurrences.generator import Config
from apformer.tasks.recurrences.options import Options


def recurrences(
    digits: int = 2, rules: tuple[str, ...] = ("fibonacci",), named: bool = True, terms: int = 8
) -> Settings:
    """Linear recurrences, such as Fibonacci's: one rule or several.

    One rule has a window; several have the whole row in view.
    """
    data, one = Config(digits, rules, named, terms), len(rules) == 1
    architecture = model.Config(
        n_layers=2,
        n_heads=8,
        d_ff=128,
        position="relative",
        window=max(digits, 1) + 3 if one else None,
        max_len=max(1, generator.length(data, terms)),
        output_projection=True,
        attention_sink=True,
        final_norm=True,
    )
    training = Training(recipe="recurrences", steps=2000 if one else 4000, batch_size=64)
    rule = optimizer.Config(rule="muon", learning_rate=8e-3, weight_decay=0.1)
    options = Options() if one else Options(crop_terms=max(3, terms))
    return Settings("recurrences", "model", training, architecture, data, options, rule)


RECIPES = {"recurrences": recurrences}
