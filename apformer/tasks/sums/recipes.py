"""Recipe of sums: few numbers, 16 seeds at once, since some seeds find the rule and most do not."""

from apformer import model, optimizer
from apformer.layers.position import fixed_offsets
from apformer.settings import Settings, Training
from apformer.tasks.sums.generator import Config
from apformer.tasks.sums.options import Options
from apformer.tasks.sums.proof import contexts


def sums(digits: int = 10) -> Settings:
    """Sums of two terms, least significant digit first, by 75 numbers, 16 seeds at once.

    One layer reads five tokens: the digits of both terms at a place and at the place below, and the digit of the sum
    before. It has no queries, keys, projection, norm or head of its own. With the sink a head can read as much of a
    token where another is not there.
    """
    architecture = model.Config(
        d_model=2,
        d_ff=6,
        position="fixed_offsets",
        position_options=fixed_offsets.Scheme(contexts.offsets(max(digits, 1))),
        similarity="none",
        norm="none",
        tie_embeddings=True,
        attention_sink=True,
    )
    training = Training(recipe="sums", steps=6000, batch_size=24, members=16, member_mode="vmap", save_every=1000)
    rule = optimizer.Config(learning_rate=0.12)
    return Settings("sums", "model", training, architecture, Config(digits), Options(), rule)


RECIPES = {"sums": sums}
