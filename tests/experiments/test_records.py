"""Results are data: each record can be read, its tables say what it says, and its command can be run again."""

import re
import sys
from pathlib import Path

import pytest

from apformer.errors import DATA, USAGE, UserError
from apformer.files import write_json
from tests.helpers import scripts
from tests.helpers.refusals import refused

ROOT = Path(__file__).parents[2]
tables, reproduce = scripts.load("tables", "reproduce")

BEGUN = {"question", "claim", "command"}  # of a record whose command was not run yet
KEYS = {
    *("question", "claim", "command", "commit", "version", "recorded", "processor", "threads", "loaded", "python"),
    *("versions", "yardstick", "seconds", "figures", "spread", "notes"),
}


def test_a_record_says_all_there_is_to_say_and_its_command_names_scripts_that_there_are():
    for name in reproduce.names():
        record = tables.read(name)
        for script in re.findall(r"(?:experiments|datasets|tests)/[\w/]+\.py", record["command"]):
            assert (ROOT / script).exists(), (name, script)
        if set(record) == BEGUN:
            continue
        assert KEYS <= set(record) <= KEYS | {"table"}, name
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", record["recorded"]) and record["processor"] and record["version"], name
        assert record["question"].endswith("?") and not re.search(r"[{}]", tables.claim(record)), name
        for figure, (low, high) in record["spread"].items():
            assert low <= record["figures"][figure] <= high, (name, figure)
        assert len({len(row) for row in record.get("table", [[]])}) == 1, name


def test_every_record_is_one_row_of_the_results():
    text = "".join(path.read_text("utf-8") for path in (tables.HERE / "README.md", *ROOT.glob("docs/*.md")))
    shown = [name for names in re.findall(r"<!-- results: (.*) -->", text) for name in names.split()]
    done = [name for name in reproduce.names() if set(tables.read(name)) != BEGUN]
    assert sorted(shown) == done
    detailed = re.findall(r"<!-- details: (.*) -->", text)
    assert sorted(detailed) == [name for name in reproduce.names() if "table" in tables.read(name)]


RECORD = {
    "question": "Is it right?",
    "claim": "{exact:share} of {terms:,}, excess {by.0.excess:.4f}",
    "command": "python train.py --seed 3 --run_dir RUN",
    "figures": {"exact": 1.0, "terms": 1234, "by.0.excess": 0.00171},
    "spread": {"exact": [0.99, 1.0]},
    "seconds": 246,
    "loaded": True,
    "yardstick": None,
    "processor": "a processor",
    "threads": 2,
    "version": "0.1.0",
}


def test_rows():
    assert tables.claim(RECORD) == "100.00 % of 1,234, excess 0.0017"
    row = ["Is it right?", "`python train.py --seed 3`", tables.claim(RECORD), "4 min 6 s, loaded"]
    assert tables.full_table([RECORD]).splitlines()[-1] == f"{' | '.join(row)} | a processor, 2 threads, 0.1.0"
    quiet = RECORD | {"yardstick": 100, "loaded": False}
    assert tables.summary([quiet]).endswith("| 4 min 6 s")
    assert " | 4 min 6 s, 2.5 yardsticks | " in tables.full_table([quiet])
    linked = tables.results([RECORD | {"name": "one"}]).splitlines()[-1]
    assert linked == f"[Is it right?](records/one.json) | {row[2]} | {row[3]}"


def test_a_table_out_of_date_is_found_and_written(tmp_path, monkeypatch, capsys):
    (tmp_path / "records").mkdir()
    write_json(tmp_path / "records" / "one.json", RECORD)
    file = tmp_path / "README.md"
    file.write_text("before\n<!-- results: one -->\nold\n<!-- end -->\nafter\n")
    monkeypatch.setattr(tables, "HERE", tmp_path)
    monkeypatch.setattr(tables, "FILES", [file])
    with pytest.raises(SystemExit) as done:
        tables.main(tables.Tables(check=True))
    assert done.value.code == 1 and "old" in file.read_text()
    tables.main(tables.Tables())
    assert file.read_text().startswith("before\n<!-- results: one -->\nquestion |")
    assert file.read_text().endswith("4 min 6 s, loaded\n<!-- end -->\nafter\n")
    tables.main(tables.Tables(check=True))


def test_a_command_becomes_argument_lists():
    command = 'apformer train --a "b c" --run_dir RUN && env X=1 python f.py RUN/01 RUNS'
    assert reproduce.parts(command, "runs/x") == [
        [sys.executable, "-m", "apformer", "train", "--a", "b c", "--run_dir", "runs/x"],
        ["env", "X=1", sys.executable, "f.py", "runs/x/01", "RUNS"],
    ]


def test_another_seed_takes_the_place_of_the_recorded_one():
    assert reproduce.set_seed(RECORD["command"], 7) == "python train.py --seed 7 --run_dir RUN"
    with refused(USAGE, "--seed 7 has no use for `pytest`"):
        reproduce.set_seed("pytest", 7)


def test_figures_are_read_from_the_files_of_a_run(tmp_path):
    write_json(tmp_path / "evaluation.json", {"exact": 0.5, "by": [{"excess": 2.0}], "contexts": 1})
    write_json(tmp_path / "certificate.json", {"contexts": 3, "smallest_margin": None})
    assert reproduce.figures(tmp_path) == {"exact": 0.5, "by.0.excess": 2.0, "contexts": 3}
    members = {"01/0": {"certified": True, "smallest_margin": 2.0}, "01/1": {"certified": False}}
    members["02/0"] = {"certified": None}
    write_json(tmp_path / "suites.json", members)
    assert reproduce.figures(tmp_path)["certified"] == 1
    assert reproduce.sweep_figures([{"certified": None}, {}]) == {"members": 2}


def test_a_figure_outside_the_spread_is_found():
    lines, fits = reproduce.compare(RECORD, {"exact": 0.991, "terms": 1234})
    assert fits and "0.99 to 1: within" in lines[1] and "read the output" in lines[3]
    lines, fits = reproduce.compare(RECORD, {"exact": 0.98})
    assert not fits and "OUTSIDE" in lines[1]
    lines, fits = reproduce.compare(RECORD, {"terms": 1234})
    assert not fits and "MISSING" in lines[1]


def test_a_command_runs_again_and_its_record_is_renewed(tmp_path, monkeypatch, capsys):
    write = "import json, pathlib, sys; run = pathlib.Path(sys.argv[-1]); run.mkdir(parents=True); "
    write += "(run / 'evaluation.json').write_text(json.dumps({'exact': 0.5})); "
    write += "(run / 'table.json').write_text(json.dumps([['seed'], ['0']]))"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "records").mkdir()
    monkeypatch.setattr(tables, "HERE", tmp_path)
    monkeypatch.setattr(reproduce, "RECORDS", tmp_path / "records")
    new = {"question": "Is it?", "claim": "{exact:share}", "command": f'python -c "{write}" --run_dir RUN'}
    write_json(tmp_path / "records" / "new.json", new)
    reproduce.run(reproduce.Reproduce("new", record=True, yardstick=10.0))
    record = tables.read("new")
    assert KEYS | {"table"} == set(record) and record["figures"] == {"exact": 0.5} and record["yardstick"] == 10.0
    assert record["table"] == [["seed"], ["0"]] and record["commit"] is None  # no repository of git
    assert tables.claim(record) == "50.00 %" and "exact" in capsys.readouterr().out
    write_json(tmp_path / "records" / "new.json", record | {"spread": {"exact": [0.9, 1.0]}})
    with pytest.raises(SystemExit) as done:
        reproduce.run(reproduce.Reproduce("new", seed=1))
    assert done.value.code == 1


def test_what_cannot_be_reproduced_is_said(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="there is no record exact-33: give one of .*exact-3"):
        reproduce.run(reproduce.Reproduce("exact-33"))
    with refused(5, "exit code 5"):
        reproduce.execute('python -c "raise SystemExit(5)"', tmp_path)
    assert reproduce.execute('python -c "raise SystemExit(8)"', tmp_path) >= 0  # a model that is not certified
    with refused(DATA, "no file of the run gives terms, by.0.excess"):
        reproduce.select_figures(RECORD, {"exact": 1.0})
