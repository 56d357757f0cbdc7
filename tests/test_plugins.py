"""Tasks and architectures of other packages: found by entry point, and every fault is one sentence."""

import pkgutil
from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import optax
import pytest

from apformer import plugins, settings, tasks
from apformer.errors import USAGE, UserError
from apformer.runs import fit, recipes
from apformer.runs.metrics import Log
from tests.helpers.refusals import refused


class Entry(SimpleNamespace):
    """An entry point that is not installed."""

    def load(self):
        return pkgutil.resolve_name(self.value)


@pytest.fixture
def bring(monkeypatch):
    """A function ((package, name, module), ...) that makes these the entry points of every group."""

    def install(*brought):
        found = [Entry(name=n, value=m, dist=SimpleNamespace(name=package)) for package, n, m in brought]
        monkeypatch.setattr(
            plugins, "entry_points", lambda group, **of: [e for e in found if of.get("name", e.name) == e.name]
        )

    return install


def refusal(load, name):
    with refused(USAGE) as error:
        load(name)
    return str(error.value)


def test_an_unknown_task_lists_the_known_ones_and_where_others_come_from(bring):
    bring(("other", "letters", "apformer.tasks.words"))
    for name in ("leters", "../words", "words.training", None, 3):
        said = refusal(tasks.load, name)
        assert said.startswith(f"there is no task {name!r} here, only ") and "letters, progressions" in said
        assert said.endswith("the package that brings it may not be installed; install it, or give one of these")


def test_two_packages_that_bring_one_name_are_both_named(bring):
    bring(("one", "letters", "apformer.tasks.words"), ("two", "letters", "apformer.tasks.text"))
    assert refusal(tasks.load, "letters") == "one and two bring the task letters each: uninstall all but one"
    bring(("one", "words", "apformer.tasks.words"))
    assert refusal(tasks.load, "words") == "apformer and one bring the task words each: uninstall all but one"


def test_two_tasks_with_one_recipe_are_both_named(bring):
    bring(("other", "letters", "apformer.tasks.words"))
    with pytest.raises(UserError, match="the tasks letters and words both have a recipe words: uninstall"):
        tasks.recipes()


def test_a_task_that_cannot_be_imported_names_its_package(bring):
    bring(("other", "letters", "there_is_no_such_module"))
    said = refusal(tasks.load, "letters")
    assert said.startswith("other brings the task letters, which cannot be imported (ModuleNotFoundError: ")
    assert said.endswith("repair or uninstall other")


def test_a_task_that_lacks_names_of_the_protocol_lists_them(bring):
    bring(("other", "letters", "apformer.tokenizers.words"))
    said = refusal(tasks.load, "letters")
    assert said.startswith("other brings the task letters, which lacks the frozen dataclass Config, ")
    assert "make_loss" in said and said.endswith(": repair or uninstall other")


def test_an_optimizer_of_a_package_trains_a_built_in_task_and_no_learning_rate_is_invented(bring, tmp_path):
    """The choices of --rule are read when apformer is imported: here the settings are made by hand."""
    settings = recipes.parse("--recipe sketch --d_model 8 --d_ff 8 --batch_size 4 --steps 2 --digits 2".split())
    settings = replace(settings, optimizer=replace(settings.optimizer, rule="lion", learning_rate=0.5))
    settings, rows = tasks.load(settings.task).load(settings)
    bring(("other", "lion", "tests.test_plugins:lion"))
    before = fit.initial_state(settings)
    params = jax.tree.map(np.asarray, before.params)
    after, metrics = fit.run_steps(before, tasks.load(settings.task).train_rows(rows), settings, 1)
    moved = jax.tree.map(lambda old, new: np.abs(new - old).max(), params, after.params)
    assert {round(float(step), 5) for step in jax.tree.leaves(moved)} <= {0.0, 0.5}  # of a sign
    with Log(tmp_path / "metrics.jsonl", settings, 0, 0.5) as log:
        log.hold(1, metrics)
        assert "learning_rate" not in log.flush()


def lion(cfg, steps):
    """An optimizer as a package brings it."""
    return optax.lion(cfg.learning_rate, weight_decay=0.0)


def test_an_architecture_is_a_module_of_apformer_or_of_a_package(bring):
    bring(("other", "memory", "apformer.recurrent"))
    assert settings.load_architecture("memory") is settings.load_architecture("recurrent")
    assert "only memory, model, " in refusal(settings.load_architecture, "loss")
    bring(("other", "memory", "apformer.loss"))
    lacks = "other brings the architecture memory, which lacks the frozen dataclass Config, init, apply: repair or "
    assert refusal(settings.load_architecture, "memory").startswith(lacks)
