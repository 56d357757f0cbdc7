"""No positions: the causal mask alone tells a token what came before it (Haviv et al. 2022)."""

from dataclasses import dataclass

from apformer.layers.position import window_reach


@dataclass(frozen=True)
class Scheme:
    """One causal layer cannot see order; a second layer can infer it from how many keys each token had."""

    reach = window_reach
