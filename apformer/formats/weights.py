"""Save a trained model as one file of named parameters, with architecture and Config as JSON in the metadata."""

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
    metadata = {"format": "apformer", "architecture": architecture, "config": json.dumps(dataclasses.asdict(cfg))}
    safetensors.write(path, named(params), metadata)
