"""`python -m apformer` is `apformer`."""

from apformer.cli import entry

entry()
