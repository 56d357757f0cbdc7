"""Save a trained model as one file of named parameters, with Config and architecture as JSON in the metadata."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from apformer.formats import safetensors
from apformer.layers.leaves import named


def write_safetensors(path: str | Path, architecture: str, params: Any, cfg: Any) -> None:
    """Write the parameters, bit for bit, to a new file. Raises UserError as `safetensors.write` does.

    architecture: name of the architecture of cfg, such as "model".
    """
    config = dataclasses.asdict(cfg) | {"architecture": architecture}
    # One entry, since the library writes several in any order, and equal models would give different files.
    safetensors.write(path, named(params), {"config": json.dumps(config)})
