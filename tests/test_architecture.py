"""Layers import the layers below them only, and the documents describe the code."""

import ast
import importlib
import inspect
import pkgutil
import re
import runpy
import subprocess
import sys

from functools import cache, reduce
from pathlib import Path

import pytest

from models import build
from PIL import Image

import pymc_lgm as lgm

from pymc_lgm import papers, steps
from pymc_lgm.steps.options import public_name

ROOT = Path(__file__).parents[1]
SAMPLERS = (*steps.SAMPLERS, *papers.SAMPLERS)
MODULES = sorted((ROOT / "pymc_lgm").rglob("*.py"))
WRITTEN = [ROOT / "docs" / name for name in ("generated", "tutorials")]  # by Sphinx
DOCS = sorted(
    str(page.relative_to(ROOT / "docs"))
    for page in (ROOT / "docs").rglob("*.md")
    if not any(page.is_relative_to(folder) for folder in WRITTEN)
)


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def layers() -> list[list[str]]:
    """Rows of CONTRIBUTING's table, from the bottom up: the modules and folders of each layer."""
    (table,) = re.findall(
        r"^\| layer \|.*?\n\n", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL | re.MULTILINE
    )
    cells = [line.split("|")[2] for line in table.splitlines()[2:] if line]
    return [[name.rstrip("/") for name in re.findall(r"`([\w/]+)`", cell)] for cell in cells]


LAYERS = layers()
NUMERIC = 7
"""The number of layers that compute with arrays only, from the bottom up."""

OPTIONAL = {"pymc_lgm.on_device": {"cupy", "cupyx"}}
"""Their files that import another package if a user asks for it, and which."""


def layer(module: str) -> int:
    """The layer that lists the file, or its folder; a file that is not listed is above all."""
    parts = module.split(".")[1:]
    listed = {parts[0], "/".join(parts[:2])} if parts else set()
    found = [i for i, names in enumerate(LAYERS) if listed & {*names}]
    return found[0] if found else len(LAYERS)


NAMES = {dotted(path) for path in MODULES}


@cache
def imports(path: Path) -> set[str]:
    """Modules that are imported, under TYPE_CHECKING and inside functions, too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                found.add(submodule if submodule in NAMES else node.module)
    return found - {dotted(path)}


@cache
def ours() -> dict[str, set[str]]:
    """Of each module, those of this package that it imports."""
    return {
        dotted(path): {n for n in imports(path) if n.startswith("pymc_lgm")} for path in MODULES
    }


def test_every_module_is_in_one_layer():
    listed = [name for names in LAYERS for name in names]
    assert len(listed) == len(set(listed))
    found = {module.name for module in pkgutil.iter_modules(lgm.__path__)}
    assert {name.split("/")[0] for name in listed} == found


def test_a_layer_imports_from_below_only():
    assert not [
        (module, name)
        for module, names in ours().items()
        for name in names - {"pymc_lgm"}
        if layer(name) > layer(module)
    ]


def test_no_import_goes_in_a_circle():
    """Take away what imports nothing that is left, until nothing is left."""
    left = {module: set(names) & NAMES for module, names in ours().items()}
    while free := [module for module, names in left.items() if not names & set(left)]:
        for module in free:
            del left[module]
    assert not left


def test_numeric_layers_import_array_packages_only():
    # Numba writes code with llvmlite.
    known = {*sys.stdlib_module_names, "numpy", "scipy", "numba", "llvmlite", "pymc_lgm"}
    numeric = [path for path in MODULES if layer(dotted(path)) < NUMERIC]
    assert len(numeric) > 80
    assert not [
        (dotted(path), name)
        for path in numeric
        for name in imports(path)
        if name.split(".")[0] not in known | OPTIONAL.get(dotted(path), set())
    ]


def test_nothing_else_imports_the_algorithms_of_papers():
    assert not {
        module
        for module, names in ours().items()
        if not module.startswith("pymc_lgm.papers")
        and any(name.startswith("pymc_lgm.papers") for name in names)
    } - {"pymc_lgm"}


def test_nothing_imports_what_needs_an_optional_package():
    assert not {name for names in ours().values() for name in names} & set(OPTIONAL)


def test_only_the_model_reader_reads_graphs():
    """Walking a graph belongs to model/; of likelihoods, what marks variables or reads one dist."""
    exceptions = {"likelihoods.registry", "likelihoods.closed_forms", "simulated"}
    assert not [
        dotted(path)
        for path in MODULES
        if dotted(path).removeprefix("pymc_lgm.") not in exceptions
        and not dotted(path).startswith(("pymc_lgm.model.", "pymc_lgm.compile.graphs."))
        and any(walk in path.read_text() for walk in ("clone_replace", "ancestors("))
    ]


def test_no_function_is_longer_than_a_page():
    """60 lines without its docstring."""
    long = []
    for path in sorted((ROOT / "pymc_lgm").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                lines = node.end_lineno - node.lineno + 1
                if ast.get_docstring(node) is not None:
                    lines -= node.body[0].end_lineno - node.body[0].lineno + 1
                long += [f"{path.name}: {node.name}, {lines}"] if lines > 60 else []
    assert not long


def test_the_public_names_exist_and_nothing_else_shows():
    assert set(dir(lgm)) == {*lgm.__all__, "__version__"}
    for name in lgm.__all__:
        assert getattr(lgm, name) is not None


def test_the_top_has_few_names():
    assert sum(not inspect.ismodule(getattr(lgm, name)) for name in lgm.__all__) <= 25


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("Vecchia", ": write lgm.gp.Vecchia"),
        ("RobustMax", ": write lgm.likelihoods.RobustMax"),
        ("ICAR", ": write lgm.gmrf.ICAR"),
        ("Poisson", ": write pm.Poisson"),
        ("Nothing", ""),
    ],
)
def test_a_name_from_elsewhere_says_where(name, instead):
    message = f"module 'pymc_lgm' has no attribute '{name}'{instead}"
    with pytest.raises(AttributeError, match=f"^{re.escape(message)}$"):
        getattr(lgm, name)


def listed() -> list[str]:
    """Names in the summary tables of the API pages, as the pages write them."""
    text = "\n".join(page.read_text() for page in sorted((ROOT / "docs" / "api").glob("*.md")))
    tables = re.findall(r"^\.\. autosummary::\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [name for table in tables for name in re.findall(r"^   ([\w.]+)$", table, re.MULTILINE)]


def shown() -> list[str]:
    """The listed names, and those that share the page of one of them."""
    tree = ast.parse((ROOT / "docs" / "conf.py").read_text())
    (pages,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SHOWN_WITH"
    )
    assert set(pages) <= set(listed())
    return [*listed(), *(name for names in pages.values() for name in names)]


def test_the_api_is_short():
    """The data sets are one entry, as their page is one table."""
    assert len(listed()) + 1 <= 60


def test_names_of_the_api_pages_are_names_in_python():
    """What a page calls testing.joint_test, a user finds as lgm.testing.joint_test."""
    for name in shown():
        found = reduce(getattr, name.split("."), lgm)
        assert callable(found), name
        assert inspect.getdoc(found), name


def test_the_api_pages_list_every_public_name():
    """A module is there by the names in it, or as a whole."""
    text = "\n".join(page.read_text() for page in sorted((ROOT / "docs" / "api").glob("*.md")))
    whole = re.findall(r"^\.\. automodule:: pymc_lgm\.(\w+)", text, re.MULTILINE)
    assert set(lgm.__all__) <= {*whole, *(name.split(".")[0] for name in shown())}


def test_no_public_function_hides_a_module():
    """A function `predict` in place of a module `predict`: the module's names are gone."""
    for name in {module.name for module in pkgutil.iter_modules(lgm.__path__)} & {*lgm.__all__}:
        assert inspect.ismodule(getattr(lgm, name)), name


def test_public_names_are_documented():
    for name in lgm.__all__:
        documented = getattr(lgm, name).__doc__
        assert documented is not None, name
        assert documented.strip(), name


def test_what_a_docstring_says_to_see_exists():
    """The names of See Also are names of the package, or of its modules."""
    seen = 0
    for name in shown():
        text = inspect.getdoc(reduce(getattr, name.split("."), lgm)) or ""
        for block in re.findall(r"^See Also\n-+\n((?:\S+ : .*\n?)+)", text, re.MULTILINE):
            for line in block.splitlines():
                reduce(getattr, line.split(" : ")[0].split("."), lgm)
                seen += 1
    assert seen > 50


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: s.__name__)
def test_the_table_of_all_samplers_is_the_registry(sampler):
    name = public_name(sampler)
    assert f"\n| `{name}` | " in (ROOT / "docs" / "which_sampler.md").read_text()
    assert reduce(getattr, name.split(".")[1:], lgm) is sampler


def test_the_readme_example_is_the_demo():
    """What the README prints is printed by the demo: the same model, draws and seed."""
    readme = (ROOT / "README.md").read_text()
    code = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[0]
    demo = (ROOT / "examples" / "coal_mining.py").read_text()
    for line in ('"mean", 0, 2', '"length", 3, 60', '"amplitude", 1', "Matern52(1, ls=length)"):
        assert line in code
        assert line in demo
    assert "pm.sample(2_000, chains=4, random_seed=1)" in code
    assert "pm.sample(draws=2_000, chains=4, random_seed=1)" in demo
    ast.parse(code)


def test_the_documentation_starts_with_the_readme_example(monkeypatch):
    """The same code, the same output below it, and the same three numbers."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    readme = importlib.import_module("readme")
    first, second = (page.read_text() for page in readme.PAGES)
    assert readme.CODE.findall(first)[0] == readme.CODE.findall(second)[0]
    ((_, shown, _),) = readme.PRINTED.findall(first)
    assert readme.PRINTED.findall(second)[0][1] == shown
    assert readme.numbers(shown)["r_hat", "theta"] < 1.01
    headline = re.compile(r"<!-- results: headline -->.*?<!-- end -->", re.DOTALL)
    assert headline.findall(first) == headline.findall(second)


def test_what_differs_by_more_than_monte_carlo_error_is_a_sentence(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    readme = importlib.import_module("readme")
    ((_, shown, _),) = readme.PRINTED.findall((ROOT / "README.md").read_text())
    assert not readme.differences(shown, shown)
    assert not readme.differences(shown, re.sub(r"(ess_per_second +)\d", r"\g<1>9", shown))
    mean = readme.numbers(shown)["length", "mean"]
    other = re.sub(r"(length +)\S+", rf"\g<1>{mean + 1.0:.1f}", shown)
    (said,) = readme.differences(shown, other)
    assert said.startswith(f"length, mean: README.md shows {mean:g}")
    assert readme.differences(shown, shown.replace("cubic_ops", "operations"))


@pytest.mark.slow
def test_the_readme_shows_what_its_example_prints_today():
    script = [sys.executable, str(ROOT / "tools" / "readme.py"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{page}" for page in DOCS)])
def test_pictures_are_there_small_and_drawn_by_a_script(page):
    for name in re.findall(r"!\[[^]]*\]\((.*?)\)", (ROOT / page).read_text()):
        picture = (ROOT / page).parent / name
        assert picture.stat().st_size < 120_000
        assert picture.with_suffix(".py").is_file()


@pytest.mark.parametrize(
    ("name", "numbers"), [("speed", "ratios"), ("against_stan", "rates"), ("growth", "curves")]
)
def test_pictures_of_speed_show_the_tables_of_today(name, numbers):
    """A picture carries the numbers that it shows."""
    script = runpy.run_path(str(ROOT / "docs" / "figures" / f"{name}.py"))
    with Image.open(script["PICTURE"]) as picture:
        drawn = picture.info["Description"]
    again = f"benchmarks/results has other numbers: run python docs/figures/{name}.py"
    assert drawn == script["shown"](script[numbers]()), again


def test_the_tables_of_the_documentation_are_those_of_the_benchmarks():
    """A table that was typed, or is not of the csv of today, is a sentence that says so."""
    script = [sys.executable, str(ROOT / "tools" / "tables.py"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_importing_imports_two_modules_and_registers_the_steps_when_pymc_asks():
    """Modules are counted, not seconds. PyMC's own list stays in place, also after a reload."""
    script = """
import importlib, sys
import pymc as pm
from pymc.sampling.mcmc import assign_step_methods, instantiate_steppers
from pymc.step_methods import STEP_METHODS
from pytensor.compile.mode import Mode
theirs, before = list(STEP_METHODS), set(sys.modules)

import pymc_lgm as lgm
assert set(sys.modules) - before == {"pymc_lgm", "pymc_lgm.registration"}
assert STEP_METHODS[:-1] == theirs

with pm.Model() as model:
    f = pm.MvNormal("f", [0.0, 0.0], [[1.0, 0.5], [0.5, 1.0]])
    lgm.Logistic("y", f=f, observed=[1, 0])
assert "pymc_lgm.steps" not in sys.modules
interpreted = {"mode": Mode(linker="py", optimizer="fast_compile")}
step = instantiate_steppers(model, *assign_step_methods(model), compile_kwargs=interpreted)
assert type(step) is lgm.PseudoMarginal

from pymc_lgm import steps
assert STEP_METHODS == [*theirs, *steps.SAMPLERS], STEP_METHODS
assert "distributed" not in sys.modules  # Dask, an extra
importlib.reload(steps)
importlib.reload(lgm)
assert STEP_METHODS == [*theirs, *steps.SAMPLERS], STEP_METHODS
assert lgm.ASIS is steps.ASIS
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_type_checkers_and_python_find_a_name_in_the_same_module():
    tree = ast.parse((ROOT / "pymc_lgm" / "__init__.py").read_text())
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    read = [node for node in ast.walk(checked) if isinstance(node, ast.ImportFrom)]
    assert {alias.name: node.module for node in read for alias in node.names} == {
        name: lgm._DEFINED_IN.get(name, "pymc_lgm") for name in lgm.__all__
    }


def test_a_star_imports_every_public_name_and_a_name_that_is_not_there_is_an_error():
    found: dict[str, object] = {}
    exec("from pymc_lgm import *", found)
    assert set(lgm.__all__) <= set(found)
    assert lgm.reporting.report is lgm.report
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = lgm.no_such_name


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: s.__name__)
def test_every_statistic_is_documented(sampler):
    page = (ROOT / "docs" / "sample_statistics.md").read_text()
    for name in build(sampler, "probit").stats_dtypes_shapes:
        assert f"| `{name}` |" in page, name


def test_one_file_imports_what_other_packages_do_not_promise():
    def is_private(name: str) -> bool:
        inner = ".link.numba" in name or name.startswith("numba.core")
        return inner or any(
            part.startswith("_") and part != "__future__" for part in name.split(".")
        )

    found = {
        (dotted(path), f"{node.module}.{alias.name}")
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if is_private(f"{node.module}.{alias.name}") and "pymc_lgm" not in node.module
    }
    # Code of LLVM's: Numba's own documentation of intrinsics uses it.
    allowed = {("pymc_lgm.compile.loops.blas", "numba.core.cgutils")}
    assert {pair for pair in found if pair[0] != "pymc_lgm.compile.graphs.upstream"} == allowed
