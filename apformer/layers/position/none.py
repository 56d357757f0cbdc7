"""No positions: the causal mask alone tells a token what came before it (Haviv et al. 2022)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scheme:
    """One causal layer cannot see order; a second layer can infer it from how many keys each token had."""

    def reach(self, window: int | None) -> int | None:
        return None if window is None else window - 1
