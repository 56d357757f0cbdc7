"""The commands of apformer: one file for each command."""

from typing import Annotated

from tyro.conf import Positional, arg

from apformer.files import FilePath

Run = Positional[Annotated[FilePath | None, arg(metavar="[RUN]")]]  # a run directory; None for the latest
