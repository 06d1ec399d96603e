"""What a benchmark saves the documentation shows, and what it has saved is not run again."""

import importlib
import re
import sys

from argparse import Namespace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
COLUMNS = {"sampler": "<7", "n": "", "ESS": ".0f", "R-hat": ".3f"}


@pytest.fixture
def results(monkeypatch, tmp_path):
    for folder in ("benchmarks", "tools"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    module = importlib.import_module("_results")
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    monkeypatch.setattr(module, "machine_once", lambda: "2 cores; Python 3; a BLAS")
    ran(module, monkeypatch, "1234567", "--draws", "10")
    return module


def ran(module, monkeypatch, code, *words):
    """What follows is run by this code, with these arguments."""
    monkeypatch.setattr(module, "code", lambda: code)
    monkeypatch.setattr(sys, "argv", ["benchmarks/speed.py", *words, "--save"])


def table(module, title="ten draws"):
    return module.Table(Namespace(save="speed", quick=False), title, COLUMNS, keys=2)


def test_a_row_is_kept_as_it_is_printed(results, capsys, tmp_path):
    table(results).row("default", 100, 123.4, (1.0512, True))
    table(results).row("nutpie", 100)
    kept, short = results.read(tmp_path / "speed.csv")
    assert [kept[name] for name in COLUMNS] == ["default", "100", "123", "1.051!"]
    assert [short[name] for name in COLUMNS] == ["nutpie", "100", "", ""]
    assert kept["title"] == "ten draws"
    assert kept["code"] == "1234567"
    assert kept["machine"] == "2 cores; Python 3"
    assert "default      100      123    1.051!" in capsys.readouterr().out


def test_nothing_is_kept_unless_it_is_asked_for(results, tmp_path):
    results.Table(Namespace(save=None, quick=True), "", COLUMNS, keys=2).row("default", 100, 1, 1)
    assert not list(tmp_path.iterdir())
    with pytest.raises(SystemExit, match="--quick"):
        results.Table(Namespace(save="speed", quick=True), "", COLUMNS, keys=2)


def test_a_run_that_was_cut_goes_on(results, monkeypatch, capsys):
    """Rows of this title, command and code; what is known of them are the first columns."""
    table(results).row("default", 100, 123.4, 1.0)
    capsys.readouterr()
    assert table(results).has("default", 100)
    assert table(results).has("default")
    assert capsys.readouterr().out.count("123") == 2
    assert not table(results).has("default", 10)
    assert not table(results, "a hundred draws").has("default", 100)
    ran(results, monkeypatch, "1234567", "--draws", "20")
    assert not table(results).has("default", 100)
    ran(results, monkeypatch, "7654321", "--draws", "10")
    assert not table(results).has("default", 100)


def test_what_changed_code_has_made_is_made_again(results, monkeypatch):
    """Two trees that differ from one commit need not be alike."""
    ran(results, monkeypatch, "1234567+", "--draws", "10")
    table(results).row("default", 100, 123.4, 1.0)
    assert not table(results).has("default", 100)


def test_a_newer_row_takes_the_place_of_the_older(results, monkeypatch, tmp_path):
    for n in (100, 200):
        table(results).row("default", n, 123.4, 1.0)
    ran(results, monkeypatch, "7654321", "--draws", "20")
    table(results).row("default", 100, 456.7, 1.0)
    table(results, "a hundred draws").row("default", 100, 789.0, 1.0)
    rows = results.read(tmp_path / "speed.csv")
    assert [row["ESS"] for row in rows] == ["457", "123", "789"]
    assert [row["code"] for row in rows] == ["7654321", "1234567", "7654321"]


def test_other_columns_are_another_table(results):
    table(results).row("default", 100, 1, 1)
    other = results.Table(Namespace(save="speed", quick=False), "", {"sampler": "<7"}, keys=1)
    with pytest.raises(SystemExit, match="other columns"):
        other.row("default")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--n", "1", "--save"], "--n 1"),
        (["--save", "NAME", "--n", "1"], "--n 1"),
        (["--save", "--quick"], "--quick"),
        (["--file", "a/b/data_12.csv", "--sampler", "PM, default"], None),
    ],
)
def test_the_command_is_what_a_user_types(results, monkeypatch, words, shown):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    shown = shown or "--file data_12.csv --sampler 'PM, default'"
    command = results.command(["/somewhere/benchmarks/speed.py", *words])
    assert command == f"OMP_NUM_THREADS=1 python benchmarks/speed.py {shown}"


def test_a_page_shows_the_files_of_today(results, monkeypatch, tmp_path):
    """Each fault is a sentence; a page that is filled has none."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    tables = importlib.import_module("tables")
    monkeypatch.setattr(tables, "FOLDER", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("Before.\n\n<!-- results: speed -->\n<!-- end -->\n\nAfter.\n")
    assert "speed.csv, which does not exist" in tables.faults(page)[0]
    table(results).row("default", 100, 123.4, 1.0)
    ran(results, monkeypatch, "7654321", "--draws", "10")
    table(results).row("nutpie", 100, 5.0, (1.1, True))
    assert "not as its csv" in tables.faults(page)[0]
    text = tables.filled(page.read_text())
    assert "\n```none\nten draws\nsampler    n  ESS" in text
    assert "\nnutpie   100    5  1.100!\n```\n\n<details>" in text
    assert "</summary>\n\n    python benchmarks/speed.py --draws 10\n" in text
    assert "<small>Row 1: code 1234567 of " in text
    assert tables.filled(text) == text
    page.write_text(text)
    assert not tables.faults(page)
    page.write_text(f"{text}\n```\ntyped  12\n```\n")
    assert "no csv made: 'typed  12'" in tables.faults(page)[0]


def test_goals_are_of_the_best_nuts_and_say_what_is_a_bound(results):
    """One NUTS for a cell, the one that is nearest to the default; bold is what is met."""
    goals = importlib.import_module("goals")

    def row(model, n, sampler, times, alone="", r_hat="1.01", compiled="3.00"):
        cells = {"model": model, "n": n, "d": "2", "sampler": sampler, "default is": times}
        return cells | {"by ops": alone, "R-hat": r_hat, "compile": compiled}

    table = goals.table(
        [
            row("LRG", "100", "nutpie", "4.6", r_hat="1.076!"),
            row("LRG", "100", "nutpie", "12.1", "370"),
            row("LRG", "100", "numpyro", "250.0"),
            row("LCX", "100", "default", ""),
            row("LCX", "100", "nutpie", "112.7"),
            row("VLT", "100", "nutpie", "44.1", "232", "nan", "0.00>"),
        ]
    )
    assert table.splitlines()[2] == (
        "| d = 2, n = 100: 40 or 60 "
        "| 4.6! to 12 (370) | **113** | more than 44 (more than 232) |  |"
    )


def test_published_numbers_are_alike_or_have_a_word(results):
    published = importlib.import_module("published")
    files = {name: [] for name in published.FILES}
    moves = {"model": "LRG", "min ESS": "30"}
    files["latent_moves"] = [
        moves | {"latent move": name, "table 2": theirs}
        for name, theirs in (("a", "40"), ("b", "10"), ("c", "321"), ("d", ""))
    ]
    counts = {"1": "4", "other": "5"}
    files["pcg"] = [{"scheme": "none"} | counts, {"scheme": "published: none"} | counts]
    rows = published.rows(files)
    assert [row["agreement"] for row in rows] == ["alike", "more", "open", "alike"]
    assert [row["ours"] for row in rows] == ["30", "30", "30", "4"]


def test_a_race_with_stan_has_a_row_for_each_sampler(results, tmp_path):
    """The same draws are alike, and the ratio is that of effective draws per CPU second."""
    race = importlib.import_module("beats_stan")
    draws = {"sd": np.random.default_rng(0).standard_normal((4, 200))}
    runs = {"default": race.Run(draws, 1.0, 3.0, 2.0), "Stan": race.Run(draws, 40.0, 9.0, 8.0)}
    columns = race.COLUMNS
    kept = results.Table(Namespace(save="race", quick=False), "four chains", columns, keys=3)
    race.show(kept, "seeds", 21, runs)
    default, stan = results.read(tmp_path / "race.csv")
    assert list(default)[: len(columns)] == list(columns)
    assert (default["default is"], default["apart"]) == ("", "")
    assert (stan["sampler"], stan["default is"], stan["apart"]) == ("Stan", "4.0", "0.0")


@pytest.mark.parametrize("program", ["seeds", "surgical", "crossed", "bym2"])
def test_a_stan_program_has_the_parameters_of_the_model(results, program):
    race = importlib.import_module("beats_stan")
    if program == "bym2":
        counts = pd.DataFrame({"y": [1, 2, 3], "expected": 1.0})
        problem = race.areas(counts, np.array([[0, 1], [1, 2]]))
    else:
        problem = race.PROBLEMS[program]()
    text = (ROOT / "benchmarks" / "stan" / f"{program}.stan").read_text(encoding="utf-8")
    blocks = {
        name: text.split(f"\n{name} {{")[1].split("\n}")[0] for name in ("data", "parameters")
    }
    declared = {
        name: set(re.findall(r"(\w+)(?=[,;])", re.sub(r"<.*?>|\[.*?\]", "", block)))
        for name, block in blocks.items()
    }
    assert declared["data"] == set(problem.data)
    assert declared["parameters"] == {v.name for v in race.built(problem, True).free_RVs}
    assert set(problem.names) <= declared["parameters"]


def test_a_program_of_another_model_is_refused(results):
    race = importlib.import_module("beats_stan")
    race.apart("seeds", [1.0, 2.0, 4.0], [11.0, 12.0, 14.0])
    with pytest.raises(SystemExit, match="not PyMC's model"):
        race.apart("seeds", [1.0, 2.0, 4.0], [11.0, 12.0, 14.1])
