"""The seal of a directory: a manifest with the size and the sha256 of every file, and of itself.

File formats for arrays read a flipped bit as a number like any other. With a manifest that is written last and checked
first, a directory is complete and as it was written, or it is not used.
"""

import hashlib
import json
import os

from apformer.files import disk_errors, fsync, has, write_json

NAME = "MANIFEST.json"
FACTS = {"step": int, "scores": list, "temporary": bool, "tree": dict, "keys": dict, "files": dict}


class Corrupt(Exception):
    """What is wrong with a sealed directory."""


def seal(path, facts):
    """Force the files below the Path `path` to the disk, then write their manifest with the dict `facts` in it."""
    for entry in [path, *path.rglob("*")]:
        fsync(entry)
    files = [file for file in sorted(path.rglob("*")) if file.is_file()]
    facts = {**facts, "files": {str(file.relative_to(path)): [file.stat().st_size, _sha256(file)] for file in files}}
    write_json(path / NAME, {**facts, "sha256": _digest(facts)})


def read(path):
    """The manifest of the sealed directory `path`. Raises Corrupt unless it is as it was written."""
    try:
        with disk_errors(path, "read"):
            manifest = json.loads((path / NAME).read_bytes() if (path / NAME).exists() else b"")
        if isinstance(manifest, dict) and manifest.pop("sha256", None) == _digest(manifest) and _is_whole(manifest):
            return manifest
    except (ValueError, RecursionError):
        pass
    raise Corrupt(f"{NAME} is not as it was written")


def verify(path):
    """The manifest of the sealed directory `path`, every file compared with it. Raises Corrupt, naming the file."""
    manifest = read(path)
    for name, (size, digest) in manifest["files"].items():
        file = path / name
        if not os.path.isfile(file):  # pathlib raises where a name is too long
            raise Corrupt(f"{name} is missing")
        with disk_errors(file, "read"):
            if file.stat().st_size != size or _sha256(file) != digest:
                raise Corrupt(f"{name} is not as it was written")
    return manifest


def _is_whole(manifest):
    """Whether a manifest says all that is asked of a checkpoint, which a sha256 does not show."""
    return (
        has(manifest, FACTS)
        and all(score is None or type(score) is float for score in manifest["scores"])
        and all(type(said) is list and len(said) == 2 for said in manifest["files"].values())
    )


def _sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(facts):
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
