"""A run finds its data again: from another folder, after a move, and where they came through a pipe."""

import os
import shutil
import threading

import jax
import pytest

from apformer import model, tasks
from apformer.commands import train
from apformer.errors import DATA, USAGE, UserError
from apformer.files import read_json, write_json
from apformer.runs import fit, restore
from apformer.tasks import settings_file, text
from tests.helpers import small_runs
from tests.helpers.refusals import refused

TEXT = small_runs.TEXT


def settings_of(file, run_dir):
    """The settings of a run of a text."""
    cfg = model.Config(d_model=8, position="learned", max_len=24)
    data = text.Config(text=str(file), context=24)
    return small_runs.settings_of("text", "model", cfg, data, text.Options(), run_dir=str(run_dir))


def keep(file, run_dir):
    """The directory of a run of a text, untrained, and its rows."""
    settings, rows = tasks.load("text").load(settings_of(file, run_dir))
    return train.keep(settings, fit.initial_state(settings).params, rows), rows


def test_a_relative_text_is_found_from_anywhere_and_after_a_move(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "books.txt").write_text(TEXT)
    monkeypatch.chdir(tmp_path / "work")
    path, rows = keep("books.txt", "runs/a")
    monkeypatch.chdir("/")
    assert (restore.load_rows(tmp_path / "work" / path).train == rows.train).all()
    shutil.move(tmp_path / "work", tmp_path / "moved")
    assert (restore.load_rows(tmp_path / "moved" / path).train == rows.train).all()
    (tmp_path / "moved" / "books.txt").write_text(TEXT + "more")
    with refused(DATA, "books.txt has changed since .* was trained on it: restore it"):
        restore.load_rows(tmp_path / "moved" / path)


def test_a_pipe_is_read_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file.txt").write_text(TEXT)
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=(TEXT,), daemon=True)
    writer.start()
    path, _ = keep(tmp_path / "pipe", tmp_path / "piped")
    other, _ = keep(tmp_path / "file.txt", tmp_path / "filed")
    piped, filed = (read_json(each / "config.json")["data"]["sha256"] for each in (path, other))
    assert piped == filed


@pytest.mark.parametrize(
    ("name", "value"),
    [("jax_enable_x64", True), ("jax_default_prng_impl", "rbg"), ("jax_random_seed_offset", 7)],
)
def test_what_decides_the_bits_is_recorded_and_named(name, value, tmp_path, monkeypatch):
    (tmp_path / "books.txt").write_text(TEXT)
    path, _ = keep(tmp_path / "books.txt", tmp_path / "run")
    config = read_json(path / "config.json")
    then, settings = config["environment"][name], settings_file.read(path)
    assert then == getattr(jax.config, name)
    jax.config.update(name, value)
    try:
        said = f"trained under {name.upper()}={then}, and here it is {value}: set this variable"
        with refused(USAGE, said):
            train.go_on(path)
        if name != "jax_random_seed_offset":  # which no parameter that is there depends on
            with pytest.raises(UserError, match=said):
                restore.load_params(path, settings)
    finally:
        jax.config.update(name, then)
    write_json(path / "config.json", {key: config[key] for key in config if key != "environment"})
    assert restore.load_params(path, settings)[1] == 1  # as of an earlier version
