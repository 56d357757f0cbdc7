"""Tasks and architectures of other packages: found by entry point, and every fault is one sentence."""

from dataclasses import replace
from functools import partial
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from apformer import optimizer, plugins, settings, tasks
from apformer.errors import USAGE
from apformer.layers import config
from apformer.runs import fit, recipes
from apformer.runs.metrics import Log
from apformer.tasks import defaults
from tests.helpers.refusals import refused


@pytest.fixture
def bring(monkeypatch):
    """A function ((package, name, module), ...) that makes these the entry points of every group."""

    def install(*brought):
        found = [EntryPoint(n, m, "any")._for(SimpleNamespace(name=package)) for package, n, m in brought]
        monkeypatch.setattr(plugins, "_entries", lambda group: EntryPoints(found))
        monkeypatch.setattr(plugins, "_used", {})

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


def test_a_second_recipe_of_one_name_and_a_task_at_fault_are_left_out_and_named(bring, capsys, monkeypatch):
    bring(("other", "letters", "apformer.tasks.words"), ("another", "fault", "there_is_no_such_module"))
    assert tasks.recipes()["words"] == "words"
    fault, twice = capsys.readouterr().err.splitlines()
    assert fault.startswith("apformer: another brings the task fault, which cannot be imported (ModuleNotFoundError: ")
    assert fault.endswith("): repair or uninstall another")
    assert twice == (
        "apformer: other brings the task letters, whose recipe words is left out, since the task words has one of that "
        "name: repair or uninstall other"
    )
    monkeypatch.setattr("apformer.tasks.words.RECIPES", ["words"])
    assert "whose RECIPES is no {recipe: function}" in refusal(tasks.load, "letters")


def score(param, q_BTHK, k_BSHK):
    """A score of a package, with T and S confused."""
    return jnp.einsum("BTHK,BSHK->BHST", q_BTHK, k_BSHK)


@pytest.mark.parametrize(
    ("brought", "load", "fault"),
    [
        ("apformer.tokenizers.words", tasks.load, "task letters, which lacks the frozen dataclass Config, .*make_loss"),
        (
            "apformer.layers.position.none",
            partial(config.load, "position"),
            "whose Scheme has none of",
        ),
        ("tests.test_plugins", partial(config.load, "similarity"), "shape .4, 2, 5, 3. where .B, H, T, S. is"),
        ("operator:is_", lambda name: optimizer.make(optimizer.Config(name), 1), "is not a function .cfg, steps. that"),
        ("", lambda name: defaults.checked((), SimpleNamespace(task=name)), "whose `sample` returns no Batch of "),
    ],
)
def test_what_a_package_has_to_mend_is_said_in_a_sentence(brought, load, fault, bring):
    bring(("other", "letters", brought))
    with refused(USAGE, f"^other brings the .*{fault}.*: repair or uninstall other$"):
        load("letters")


@pytest.fixture
def of_the_page(bring, tmp_path, monkeypatch):
    """The architecture and the task of docs/your-own.md, as an installed package brings them."""
    blocks = (Path(__file__).parents[1] / "docs" / "your-own.md").read_text().split("```")
    for name, block in (("page_mean", blocks[3]), ("page_progressions", blocks[5])):
        (tmp_path / f"{name}.py").write_text(block.removeprefix("python"))
    monkeypatch.syspath_prepend(tmp_path)
    names = ("mean", "page_mean"), ("mean_progressions", "page_progressions"), ("lion", "tests.test_plugins:lion")
    bring(*(("other", *each) for each in names))


def test_the_architecture_of_the_page_and_an_optimizer_of_a_package_train(of_the_page, tmp_path):
    """The choices of --rule are read when apformer is imported: here the settings are made by hand."""
    run = recipes.parse("--recipe mean --batch_size 4 --steps 2 --hard_fraction 0 --prefix_rows 0 --width 4".split())
    run = replace(run, optimizer=optimizer.Config("lion", 0.5))
    before = fit.initial_state(run)
    params = jax.tree.map(np.asarray, before.params)
    after, metrics = fit.run_steps(before, tasks.load(run.task).train_rows(None), run, 1)
    moved = jax.tree.map(lambda old, new: np.abs(new - old).max(), params, after.params)
    assert {round(float(step), 5) for step in jax.tree.leaves(moved)} <= {0.0, 0.5}  # of a sign
    with Log(tmp_path / "metrics.jsonl", run, 0, 0.5) as log:
        log.pending = 1, metrics, None
        assert "learning_rate" not in log.flush()


def test_an_architecture_without_a_cache_writes_by_computing_all_tokens_again(of_the_page):
    mean = settings.load_architecture("mean")
    cfg = mean.Config(width=4)
    params, tokens_BT = mean.init(jax.random.key(0), cfg), np.arange(8).reshape(2, 4)
    cache = mean.init_cache(cfg, 2, 4)
    first_BTV, cache = mean.extend(params, tokens_BT[:, :3], cache, cfg, lengths_B=np.array([3, 1]))
    last_BTV, cache = mean.extend(params, tokens_BT[[0, 1], [3, 1]][:, None], cache, cfg)
    all_BTV = mean.apply(params, tokens_BT, cfg)
    np.testing.assert_allclose(first_BTV[0], all_BTV[0, :3], rtol=1e-6)
    np.testing.assert_allclose(last_BTV[:, 0], all_BTV[[0, 1], [3, 1]], rtol=1e-6)


def lion(cfg, steps):
    """An optimizer as a package brings it."""
    return optax.lion(cfg.learning_rate, weight_decay=0.0)
