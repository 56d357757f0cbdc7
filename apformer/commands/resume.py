"""Go on with a run that was stopped, bit for bit."""

from dataclasses import dataclass

from tyro.conf import Positional

from apformer.commands.train import go_on
from apformer.flags import parse
from apformer.runs import directory


@dataclass(frozen=True)
class Resume:
    """Go on with a run that was stopped; it ends bit for bit as if it had not been."""

    run: Positional[str | None] = None
    """Run directory; the latest if not given."""
    step: int | None = None
    """A saved step to go on from, forgetting what came after it; the newest if not given."""


def main(args):
    """Run the command with its arguments."""
    resume(parse(Resume, args, "apformer resume"))


def resume(args):
    """Go on with a run from its newest valid checkpoint, or from a saved step; anew if none was saved yet."""
    go_on(directory.find_begun(args.run), args.step)
