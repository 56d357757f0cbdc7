"""A run as one page, report.html, that works from the disk without a network: `apformer report RUN`.

What training, evaluation and certificate have found, and the model itself with its weights, so that who opens the page
can play with it. What a run does not have, the page says is missing.
"""

import sys
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np
from tyro.conf import Positional

from apformer import files
from apformer.analysis import circuit
from apformer.errors import CHECKPOINT, UserError
from apformer.formats.weights import named
from apformer.report import template
from apformer.runs import directory, provenance, restore
from apformer.runs.metrics import read_metrics
from apformer.tasks import choose
from apformer.tasks.digits import generator as wide
from apformer.tasks.progressions import generator
from apformer.tasks.progressions import page_data as probe
from apformer.tasks.text import corpus as text
from apformer.tasks.translation import corpus, page_data
from apformer.tokenizers import digits as tokenizer
from apformer.tokenizers import merges, pretrained
from apformer.tokenizers import text as text_tokenizer

LARGEST = 24_000_000  # bytes of weights in a page
TASKS = {generator.Config: "progressions", wide.Config: "wide", text.Config: "text", corpus.Config: "pairs"}
END = "‹end›"  # the token that ends a sentence and begins its translation
MOST_WORDS = 1024  # tokens of a vocabulary whose embeddings are drawn
CERTIFICATE = {"certified", "claim", "contexts", "errors", "smallest_margin"}  # what the page reads in certificate.json
EVALUATION = {  # and, of each task, in evaluation.json
    "progressions": {"terms", "exact_teacher_forced", "exact_free_running", "exact_sequences", "errors"}
    | {"by_position", "by_difference", "by_carries", "by_first_and_difference"},
    "wide": {"trained_digits", "widths"},
    "text": {"nats_by_position", "nats_per_token", "perplexity", "bits_per_character"},
    "pairs": {"alpha", "beams", "bleu", "bleu_signature", "by_length", "chrf", "chrf_signature", "exact", "sentences"},
}


@dataclass(frozen=True)
class Report:
    """Write report.html: one offline page that shows a run, and its model at work."""

    run: Positional[str | None] = None
    """Run directory; the latest if not given."""
    member: int | None = None
    """Member of a population; the best on validation if not given."""
    weights: bool = True
    """Put the model into the page; without it the page shows what was measured, and is small."""


def report(args):
    """Write the page of a run and say where it is. Raises UserError, also for a run of a newer version."""
    path = directory.find(args.run)
    _refuse_newer(path)
    settings, missing = restore.load_settings(path), {}
    rows = _or_missing(missing, "probe", lambda: restore.load_rows(path))
    print(write(path, settings, rows, args.member, args.weights, missing))


def write(path, settings, rows, member=None, weights=True, missing=None):
    """report.html of a run's best checkpoint, from the rows it was trained on; returns a sentence that says where.

    missing: {what: why} it is not to be had, to be said on the page.
    """
    data, params = gather(path, settings, rows, member, missing or {})
    size, missing = 4 * data["parameters"], data["missing"]
    if not weights:
        missing["weights"] = "The page was written without the model (--no-weights)."
    elif size > LARGEST:
        missing["weights"] = f"The model is too large for a page: {size / 1e6:,.0f} MB of weights."
        print(f"{path}: the page is without the model, whose weights are {size / 1e6:,.0f} MB", file=sys.stderr)
    elif "probe" not in missing:
        data |= _asked(settings, rows, params, data["vocabulary"])
    whole = template.fill(data, None if "weights" in missing else named(params))
    files.write_text(path / "report.html", whole)
    return f"{path / 'report.html'}: open it in a browser ({len(whole) / 1e6:,.1f} MB)"


def _asked(settings, rows, params, vocabulary):
    if isinstance(settings.data, corpus.Config):
        return page_data.of_model(settings, rows, params)
    return probe.of_model(settings, rows, params, vocabulary)


def gather(path, settings, rows, member, missing):
    """(data, params): all that a page says of a run but its weights, and these."""
    params, step, member = restore.load_params(path, settings, member)
    config = files.read_json(path / "config.json")
    data = {
        "name": path.resolve().name,
        "task": TASKS[type(settings.data)],
        "architecture": _architecture(params),
        "settings": config["flags"],
        "versions": _dict(config.get("versions")),
        "source": _dict(config.get("data")),
        "parameters": sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(params)),
        "parameters_sha256": provenance.digest(params),
        "step": step,
        "member": member,
        "missing": missing,
    }
    data |= _vocabulary(path, settings, missing)
    data["metrics"] = _or_missing(missing, "metrics", lambda: read_metrics(path))
    data["evaluation"] = _of_this_model(path / "evaluation.json", data, EVALUATION[data["task"]])
    data["certificate"] = _of_this_model(path / "certificate.json", data, CERTIFICATE)
    if data["evaluation"] and data["task"] == "progressions":
        data["evaluation"]["errors"] = probe.explained(data["evaluation"].get("errors", []), settings.data)
    if data["evaluation"] and data["task"] == "pairs":
        read = partial(page_data.translations, path, rows)
        data["translations"] = _or_missing(missing, "translations", read)
    data["floor"] = probe.floor(settings, rows)
    if _is_circuit(settings, params):
        data["circuit"] = {f"{i}.{k}": text for i, layer in enumerate(circuit.HEADS) for k, text in enumerate(layer)}
    table_VD = np.asarray(params.get("encoder", params)["embedding"]["table"], np.float64)
    data["embedding"] = _plane(table_VD) if len(table_VD) <= MOST_WORDS else None
    return data, params


def _of_this_model(file, data, keys):
    """What a file of the run says, if it is there, whole, and of these parameters; keys: what it is to hold."""
    if not file.exists():
        return None
    found = _or_missing(data["missing"], file.stem, lambda: files.read_json(file))
    if found is None:
        return None
    absent = sorted(keys - _dict(found).keys())
    if absent:
        again = f"run `apformer {_COMMANDS[file.stem]}` again"
        data["missing"][file.stem] = f"{file.name} is damaged or of another version ({absent[0]}): {again}."
        return None
    if (found.get("step"), found.get("member", 0)) != (data["step"], data["member"]):
        whose = f"step {found.get('step')}, member {found.get('member', 0)}"
        data["missing"][file.stem] = f"{file.name} is of {whose}: run `apformer {_COMMANDS[file.stem]}` again."
        return None
    return found


_COMMANDS = {"evaluation": "evaluate", "certificate": "certify"}


def _or_missing(missing, name, read):
    """What `read` gives, or None and its complaint among what is missing."""
    try:
        return read()
    except UserError as error:
        missing[name] = f"{error}."
        return None


def _refuse_newer(path):
    """Raises UserError (exit CHECKPOINT) if a run is of a later version of apformer than this."""
    theirs = str(_dict(_dict(files.read_json(path / "config.json")).get("versions")).get("apformer"))
    ours = str(provenance.versions()["apformer"])
    if _numbers(ours) and _numbers(theirs) > _numbers(ours):
        sentence = f"{path} was written by apformer {theirs}, and this is {ours}: install the newer one to read it"
        raise UserError(sentence, CHECKPOINT)


def _dict(value):
    """A value from JSON, if it is a dict, or an empty one."""
    return value if isinstance(value, dict) else {}


def _numbers(version):
    return [int(part) for part in version.split(".") if part.isdecimal()]


def _is_circuit(settings, params):
    """Whether these are the weights written by hand, whose heads can be named."""
    digits = settings.data.digits if isinstance(settings.data, generator.Config) else 0
    if not digits or settings.model != circuit.config(digits):
        return False
    return provenance.digest(params) == provenance.digest(circuit.params(digits))


def _architecture(params):
    return "recurrent" if "cells" in params else "encoder-decoder" if "encoder" in params else "decoder"


def _vocabulary(path, settings, missing):
    """The text of each token, and of byte pairs how a text is cut into them."""
    if not isinstance(settings.data, choose.LANGUAGE):
        return {"vocabulary": list(tokenizer.VOCABULARY)}
    words = pretrained.load(path / "tokenizer.json")
    texts = [words.bytes_of(token).decode("utf-8", "replace") for token in range(words.vocab_size)]
    if isinstance(words, text_tokenizer.Characters):
        return {"vocabulary": texts}
    end = [END] if isinstance(settings.data, corpus.Config) else []
    return {"vocabulary": texts + end, "byte_pairs": _or_missing(missing, "byte_pairs", partial(merges.of, words))}


def _plane(table_VD):
    """The rows of a table in the plane in which they vary most: {"points", "shares"} of the variance on either axis."""
    centred_VD = table_VD - table_VD.mean(0)
    left_VK, scale_K, _ = np.linalg.svd(centred_VD, full_matrices=False)
    shares_K = scale_K**2 / np.sum(scale_K**2)
    return {"points": (left_VK * scale_K)[:, :2].round(6).tolist(), "shares": shares_K[:2].tolist()}
