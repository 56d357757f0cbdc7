"""check.py proves what is right, finds whatever is planted, and computes what `model.apply` computes."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

from apformer import cli
from apformer.analysis import certificate
from apformer.errors import CHECKPOINT, NOT_CERTIFIED, USAGE
from apformer.files import read_json, write_json
from apformer.formats.weights import write_safetensors
from apformer.proof import check, rounding
from apformer.runs.provenance import digest
from apformer.tasks.progressions.generator import Config
from apformer.tasks.progressions.proof import contexts
from tests.helpers import circuit
from tests.helpers.small_models import circuit_run

D2 = Config(digits=2, min_difference=-49, max_difference=49)
CFG = circuit.config(2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A certified circuit of two digits, exported."""
    run = tmp_path_factory.mktemp("proof") / "run"
    circuit_run(run, D2)
    assert cli.main(["certify", str(run)]) == 0
    assert cli.main(["export", str(run), "--to", "proof"]) == 0
    return run / "proof"


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "proof")


def checked(folder, capsys):
    """(exit code, what is printed, what is printed on standard error)"""
    try:
        code = check.main(folder, contexts)
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    return code, out, err


def replant(folder, params):
    """Put other weights into a folder, whose certificate then says that it is of them."""
    (folder / "model.safetensors").unlink()
    write_safetensors(folder / "model.safetensors", "model", params, CFG)
    certificate = read_json(folder / "certificate.json") | {"parameters_sha256": digest(params)}
    write_json(folder / "certificate.json", certificate)


@pytest.mark.parametrize("flags", [[], ["--theorem"]])
def test_the_circuit_is_proven_with_numpy_alone(folder, flags):
    """In a Python that has neither JAX nor apformer."""
    without = "import runpy, sys; sys.modules |= dict.fromkeys(['jax', 'apformer', 'safetensors'])"
    code = f"{without}; sys.path.insert(0, {str(folder)!r}); runpy.run_module('check', run_name='__main__')"
    done = subprocess.run([sys.executable, "-I", "-c", code, *flags], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    contexts = read_json(folder / "certificate.json")["contexts"]
    assert done.stdout.startswith(f"contexts {contexts:,}, ") and ("\nPROVEN, rounding" in done.stdout) != bool(flags)
    assert "wrong 0, smallest margin 256\nPROVEN, the theorem" in done.stdout


def test_one_wrong_character_is_found_and_shown(copy, capsys):
    params = circuit.params(2)
    bias_V = params["head"]["output"]["bias"].at[7].add(300.0)  # more than any margin
    replant(copy, params | {"head": {"output": params["head"]["output"] | {"bias": bias_V}}})
    code, out, _ = checked(copy, capsys)
    assert code == 1 and "contexts are continued wrongly" in out and "has to follow" in out and "PROVEN, the" not in out


def test_a_margin_of_nothing_is_no_proof(copy, capsys):
    """All logits alike but for a billionth: of exact arithmetic that says nothing."""
    params = circuit.params(2)
    output = {name: leaf * 1e-9 for name, leaf in params["head"]["output"].items()}
    output["bias"] = output["bias"] + 256.0
    replant(copy, params | {"head": {"output": output}})
    code, out, _ = checked(copy, capsys)
    assert code == 1 and "NOT PROVEN" in out and "PROVEN, the" not in out


def test_numbers_that_overflow_are_no_proof(copy, capsys, monkeypatch):
    right = rounding.bounded_logits

    def wrong(*args):
        found, ratio = right(*args)
        found[-1] = np.nan
        return found, ratio

    monkeypatch.setattr(rounding, "bounded_logits", wrong)
    code, out, _ = checked(copy, capsys)
    assert code == 1 and "wrong 2, smallest margin -3.40282e+38" in out and "NOT PROVEN: 2 of" in out


@pytest.mark.parametrize(
    ("file", "part", "name", "value"),
    [
        ("certificate.json", None, "contexts", "9"),
        ("both", "data", "digits", 2.0),
        ("both", "data", "min_difference", True),
        ("both", "model", "window", "5"),
    ],
)
def test_a_file_that_says_nonsense_is_at_fault(copy, capsys, file, part, name, value):
    for each in ("certificate.json", "config.json"):
        if file in (each, "both"):
            said = read_json(copy / each)
            (said if part is None else said[part])[name] = value
            write_json(copy / each, said)
    code, out, err = checked(copy, capsys)
    assert (code, out) == (2, "") and err.startswith("check.py: ") and "Traceback" not in err


def test_no_context_is_no_proof(copy, capsys):
    """Of a domain without a third term all weights would be right."""
    for each in ("certificate.json", "config.json"):
        said = read_json(copy / each)
        said["data"] |= {"min_difference": 5, "max_difference": 4}
        said |= {"contexts": 0} if each == "certificate.json" else {}
        write_json(copy / each, said)
    code, out, _ = checked(copy, capsys)
    assert code == 2 and "PROVEN" not in out


def test_a_compiler_that_computes_wrongly_is_found(tmp_path, says, fails, monkeypatch):
    """One logit after one string is 1 away: far less than any margin."""
    run, right = circuit_run(tmp_path / "run", D2), certificate.last_logits
    assert "float32: logits at most " in says("certify", run, "--compare")
    found = read_json(run / "certificate.json")
    by_numpy, xla = found["witnesses"]
    assert by_numpy["witness"].startswith("numpy ") and xla["witness"].startswith("XLA, jaxlib ")
    assert xla["largest_gap"] <= 1e-6 and xla["strings"] == 3 * found["contexts"]

    def wrong(model, text_NT, asked):
        logits_NAV = np.array(right(model, text_NT, asked))
        logits_NAV[7, 1, 3] += 1.0
        return logits_NAV

    monkeypatch.setattr(certificate, "last_logits", wrong)
    said = "logits of JAX differ by 1 from those of the proof"
    fails(said, NOT_CERTIFIED, "certify", run, "--compare")


def test_files_that_do_not_belong_together_are_refused(copy, capsys):
    config = read_json(copy / "config.json")
    other = config | {"data": config["data"] | {"max_difference": 20}}
    write_json(copy / "config.json", other)
    assert checked(copy, capsys)[::2] == (2, "check.py: the certificate is of another config.json\n")
    other = config | {"model": config["model"] | {"activation": "gelu"}}
    write_json(copy / "config.json", other)
    assert checked(copy, capsys)[::2] == (2, "check.py: activation is gelu, and only relu is computed\n")
    write_json(copy / "config.json", config)
    file = copy / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4])
    code, _, err = checked(copy, capsys)
    assert code == 2 and "cannot be read" in err and "Traceback" not in err


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff", b"[]", b'{"model": 1, "data": 2}'])
@pytest.mark.parametrize("name", ["config.json", "certificate.json", "model.safetensors"])
def test_a_file_that_is_none_ends_with_a_sentence(copy, capsys, name, content):
    (copy / name).write_bytes(content)
    code, out, err = checked(copy, capsys)
    assert (code, out) == (2, "") and err.startswith("check.py: ") and err.count("\n") == 1 and len(err) < 1100


def test_a_proof_wants_a_certificate_and_a_new_folder(folder, tmp_path, fails):
    run = circuit_run(tmp_path / "run", D2)
    wants = ("export", run, "--to", "proof")
    fails("has no certificate: run `apformer certify", USAGE, *wants)
    other = ("export", folder.parent, "--to", "proof")
    fails("none is overwritten", USAGE, *other, "--out", folder)
    fails("certificate.json is of member 0, not of --member 1", USAGE, *other, "--member", 1)
    sound = read_json(folder / "certificate.json")
    older = {name: value for name, value in sound["model"].items() if name != "norm"}
    damaged = "certificate.json is damaged or of another version: run `apformer certify"
    for found, sentence in (
        ({"member": 0, "step": 0, "parameters_sha256": "0"}, damaged),  # which named no format
        (sound | {"parameters_sha256": "0"}, "is of other parameters"),
        (sound | {"model": older}, damaged),
    ):
        write_json(run / "certificate.json", found)
        fails(sentence, CHECKPOINT, *wants)
