"""Compare combinations of flags, each with several seeds: apformer sweep --position alibi,relative."""

from apformer.sweep import sweep


def main(args: list[str]) -> None:
    """Run the command with its arguments; apformer/sweep.py says what they are."""
    sweep(args)
