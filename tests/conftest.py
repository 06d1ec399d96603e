"""Fixtures of all tests, and the table of mutants that `make mutants` prints."""

from __future__ import annotations

import csv
import gc
import os
import shutil

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from _pytest.doctest import DoctestItem, DoctestModule

LIST = Path(__file__).with_name("mutants.csv")
SHARE = 0.8
"""Of the mutants, those that `make test` must notice."""
CHAINS = (
    "calibration.calibrate",
    "comparison.compare_samplers",
    "cross_validation.leave_one_out",
    "cross_validation.loo",
    "inducing_points.place_inducing_points",
    "reweighting.reweight",
    "testing.joint_test",
)
"""Examples of docstrings that run chains, or a fit: slow."""
LONGEST = (
    "tests/test_examples.py::test_the_page_on_saving_and_predicting_runs",
    "tests/test_examples.py::test_examples_run_without_a_warning",
    "tests/test_compiling.py::test_all_runs_uncompiled_too",
    "tests/test_inducing.py::test_fifty_thousand_points_are_predicted_in_less_than_three_gibibytes",
    "tests/test_architecture.py::test_the_readme_shows_what_its_example_prints_today",
)
"""They come first: one that began last would leave the other process without work."""
TESTS = pytest.StashKey[dict[str, bool]]()
"""Each test, and each case, with whether `make test` runs it."""

# PyMC finds a first point with PyTensor's C back end if there is a compiler: that builds the back
# end for 15 seconds, and each function for a tenth of one. `c_compiler` is for the tests of it.
# Where in a script each node of a graph was made takes PyTensor an eighth of the time of a reading.
# Nothing here imports PyTensor: the process that only shares the tests out needs none.
FLAGS = [*filter(None, [os.environ.get("PYTENSOR_FLAGS")]), "cxx=", "traceback__limit=0"]
os.environ["PYTENSOR_FLAGS"] = ",".join(FLAGS)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(4)


@pytest.fixture
def dies(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Assert that a mutant is noticed, and note what noticed it for the table.

    ``dies(mutant, pvalue, below=1e-6)`` for a statistical test; ``dies(mutant, error, above=0.01)``
    for a deterministic one, whose error is 0 to rounding without the mutant.
    """

    def verdict(
        mutant: str, value: float, *, below: float | None = None, above: float | None = None
    ) -> None:
        dead = value < below if below is not None else value > above  # type: ignore[operator]
        limit = f"p < {below:.0e}" if below is not None else f"error > {above:g}"
        row = {"mutant": mutant, "value": f"{value:.1e}", "limit": limit, "dead": dead}
        row["fast"] = is_fast(request.config, mutant)
        request.node.user_properties.append(("mutant", row))
        assert dead, f"{mutant} is not noticed: {value:.3g}, and not {limit}"

    return verdict


@pytest.fixture(autouse=True)
def without_audit(request: pytest.FixtureRequest) -> Iterator[None]:
    """No step compares itself with PyMC in a test of a mutant: the test itself has to notice it."""
    if request.node.get_closest_marker("mutant") is None:
        yield
        return
    from pymc_lgm.model.check import Audit

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Audit, "__call__", lambda *_, **__: None)
        yield


@pytest.fixture(scope="module")
def interpreted() -> Iterator[None]:
    """PyTensor's functions run in Python: nothing waits for a compiler, unless a test asks for one.

    For modules that evaluate a function a thousand times, not a million:
    ``pytestmark = pytest.mark.usefixtures("interpreted")``.
    """
    import pytensor

    from models import QUICK

    with pytensor.config.change_flags(**QUICK):
        yield


@pytest.fixture
def quick(request: pytest.FixtureRequest) -> Iterator[None]:
    """As `interpreted`, but for the slow tests, whose chains are worth a compiler."""
    import pytensor

    from models import QUICK

    slow = request.node.get_closest_marker("slow") or request.node.get_closest_marker("mutant")
    with pytensor.config.change_flags(**({} if slow else QUICK)):
        yield


@pytest.fixture
def c_compiler() -> Iterator[None]:
    """PyTensor's C back end compiles: for the few tests of it."""
    import pytensor

    if (found := shutil.which("g++")) is None:
        pytest.skip("no C compiler")
    with pytensor.config.change_flags(cxx=found):
        yield


class Examples:
    """The examples of docstrings are run as they stand, but interpreted: most are run once."""

    @pytest.fixture(autouse=True)
    def interpreted_examples(self, request: pytest.FixtureRequest) -> Iterator[None]:
        if not isinstance(request.node, DoctestItem):
            yield
            return
        import pytensor

        from models import QUICK

        with pytensor.config.change_flags(**QUICK):
            yield


def pytest_configure(config: pytest.Config) -> None:
    """A plugin, since a fixture of this file would be for tests in this folder only.

    The collector is off until all tests are imported, since imported modules stay.
    """
    config.pluginmanager.register(Examples(), "examples-of-docstrings")
    gc.disable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Iterator[None]:
    """Nothing in this folder has examples in docstrings: nobody need look for them."""
    return [found for found in (yield) if not isinstance(found, DoctestModule)]


def pytest_collection_finish() -> None:
    """What all tests import stays, so the garbage collector need not look at it again and again.

    Nor at what has survived a collection of everything: caches grow to millions of objects, and a
    tenth of the time went into looking at them. A test of what is collected unfreezes it.
    """
    gc.freeze()
    gc.enable()
    gc.callbacks.append(freeze_what_survives)


def freeze_what_survives(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutants", action="store_true", help="print the table of mutants")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark as slow what runs chains, and cases that `fast` does not name.

    What is marked as whole is left out but by that mark. The longest tests come first.
    """
    cases: dict[object, dict[str, pytest.Item]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("fast") is not None:
            cases.setdefault(item.function, {})[item.callspec.id] = item
    for found in cases.values():
        named = next(iter(found.values())).get_closest_marker("fast").args
        for name in found.keys() - set(named):
            found[name].add_marker(pytest.mark.slow)
        if len(found) > 1 and not found.keys() >= set(named):
            raise pytest.UsageError(f"no such case: {set(named) - found.keys()} of {[*found]}")
    for item in items:
        if isinstance(item, DoctestItem) and item.name.endswith(CHAINS):
            item.add_marker(pytest.mark.slow)
    left_out = ("slow", "mutant", "whole")
    tests = config.stash[TESTS] = {}
    for item in items:
        fast = not any(map(item.get_closest_marker, left_out))
        case = item.nodeid.removeprefix("tests/")
        for name in (case, case.split("[")[0]):
            tests[name] = tests.get(name, False) or fast
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))
    if "whole" not in config.option.markexpr:
        items[:] = [item for item in items if item.get_closest_marker("whole") is None]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not terminalreporter.config.getoption("--mutants"):
        return
    rows = list(table(terminalreporter))
    write = terminalreporter.write_line
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
    dead = sum(row[3] == "dead" for row in rows)
    write(f"{dead} of {len(rows) - 1} mutants are dead.")
    fast = sum(row[4] == "yes" for row in rows)
    write(f"{fast} of them die in `make test`: {fast / (len(rows) - 1):.0%}.")


def table(terminalreporter: pytest.TerminalReporter) -> Iterator[list[str]]:
    """Each mutant of the list: what had noticed it, what notices it now, and how clearly."""
    found: dict[str, list[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, row in getattr(report, "user_properties", ()):
                if name == "mutant":
                    test = report.nodeid.removeprefix("tests/").split("[")[0]
                    state = "dead" if row["dead"] else "ALIVE"
                    fast = "yes" if row["fast"] else ""
                    found[row["mutant"]] = [row["value"], row["limit"], state, fast, test]
    yield ["mutant", "measured", "limit", "state", "in make test", "test", "before"]
    for line in listed():
        missing = ["", "", "NOT RUN", "", ""]
        yield [line["mutant"], *found.pop(line["mutant"], missing), line["before"]]
    for mutant, cells in found.items():
        yield [mutant, *cells, "NOT LISTED"]


def is_fast(config: pytest.Config, mutant: str) -> bool:
    """Whether `make test` runs the test that asks of the right code what the mutant fails."""
    asked = next((line["asked"] for line in listed() if line["mutant"] == mutant), "")
    if asked and asked not in config.stash[TESTS] and asked.split("::")[0] in collected(config):
        raise pytest.UsageError(f"tests/mutants.csv, {mutant}: there is no {asked}")
    return config.stash[TESTS].get(asked, False)


def collected(config: pytest.Config) -> set[str]:
    """The files whose tests are known here."""
    return {name.split("::")[0] for name in config.stash[TESTS]}


@cache
def listed() -> list[dict[str, str]]:
    """The mutants that must die, each with the test that noticed it before.

    And with the test of the right code that asks the same, with as many draws, where there is one:
    `make test` notices the mutant if it runs that one.
    """
    with LIST.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """`make mutants` fails with a mutant that no test has run, or if too few die in `make test`."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.config.getoption("--mutants") and not hasattr(session.config, "workerinput"):
        _, *rows = table(reporter)
        missed = any(row[3] != "dead" or row[6] == "NOT LISTED" for row in rows)
        if missed or sum(row[4] == "yes" for row in rows) < SHARE * len(rows):
            session.exitstatus = 1
