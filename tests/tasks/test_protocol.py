"""Every task has the names of the protocol and no others, and its recipes make settings that a run can follow."""

import inspect
from dataclasses import replace

import pytest

from apformer import tasks
from apformer.tasks import settings_file
from tests.helpers import small_runs

NAMES = set(tasks.NAMES)
OPTIONAL = {"contexts", "predict", "neighbours", "generate", "translate", "missed", "train_step", "adapters"}
every_task = pytest.mark.parametrize("name", tasks.names())
every_recipe = pytest.mark.parametrize(("recipe", "name"), tasks.recipes().items())


def settings_of(recipe, name, folder):
    """The settings of a recipe with data that are small, and a text where the task reads one."""
    settings = tasks.load(name).RECIPES[recipe]()
    if name == "text":
        return replace(settings, data=small_runs.bottles(folder / "run"))
    return replace(settings, data=small_runs.SENTENCES) if name == "translation" else settings


@every_task
def test_a_task_has_the_names_of_the_protocol_and_no_others(name):
    task = tasks.load(name)
    public = {key for key, value in vars(task).items() if not key.startswith("_") and not inspect.ismodule(value)}
    assert public - {"Evaluation", "nats", "every_row", *OPTIONAL} == NAMES


@every_recipe
def test_a_recipe_makes_settings_that_a_run_can_follow(recipe, name, tmp_path):
    task, settings = tasks.load(name), settings_of(recipe, name, tmp_path)
    settings_file.check(settings)
    assert settings.task == name
    assert settings.architecture in task.ARCHITECTURES
    assert (type(settings.data), type(settings.options)) == (task.Config, task.Options)


@every_task
def test_equal_settings_have_equal_data(name, tmp_path):
    task = tasks.load(name)
    settings = settings_of(next(iter(task.RECIPES)), name, tmp_path)
    one, other = (task.describe(*task.load(settings)) for _ in range(2))
    assert one == other and one["source"]


@every_task
def test_its_page_needs_no_name_of_a_task(name, tmp_path):
    """And it shows what the task does before anything is known of a model."""
    task = tasks.load(name)
    settings, rows = task.load(settings_of(next(iter(task.RECIPES)), name, tmp_path))
    for file, text in task.files(rows).items():
        (tmp_path / file).write_text(text)
    shown, other = (task.page(given, rows, None, None, tmp_path) for given in (settings, replace(settings, task="")))
    assert shown == other and shown["task"]["does"]
    assert bool(shown["vocabulary"]) == (name != "words")  # whose words are those of its evaluation
