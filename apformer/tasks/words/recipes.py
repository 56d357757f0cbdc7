"""The recipe of word2vec."""

from apformer import optimizer, word2vec
from apformer.settings import Settings, Training
from apformer.tasks.words.corpus import Config, Options


def words(text: str | None = None) -> Settings:
    """word2vec: vectors of the words of a text, by skip-gram with negative sampling.

    Frequent words of a text are subsampled, those of progressions are not.
    """
    training = Training(steps=2000, batch_size=512, log_every=100)
    data = Config(text=text, subsample=1.0 if text is None else 3e-4)
    rule = optimizer.Config(learning_rate=5e-3)
    return Settings("words", "word2vec", training, word2vec.Config(), data, Options(), rule)


RECIPES = {"words": words}
