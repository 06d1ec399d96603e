"""Sphinx configuration. `make docs` builds this folder into build/docs; warnings are errors.

`make docs-fast` builds it into build/docs-fast without running the tutorials, in about a minute.
"""

import importlib.metadata
import inspect
import re
import sys

from pathlib import Path

import jupytext
import nbformat

from docutils import nodes
from latex2mathml.converter import convert
from nbformat.v4 import new_code_cell
from sphinx.util.inspect import stringify_signature

from pymc_lgm.likelihoods import Likelihood
from pymc_lgm.steps import LatentGaussianStep

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from notebooks import notebook

# A check that runs at the end of each tutorial, on its last trace, idata.
CONVERGED = """\
import arviz

r_hat = arviz.rhat(idata).to_dataset().to_array().max().item()
assert r_hat < 1.01, r_hat
"""

project = "pymc_lgm"
author = "The pymc_lgm developers"
copyright = author
release = importlib.metadata.version("pymc_lgm")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]

# The tutorials are examples/*.py. A tutorial runs only if no earlier build has run the same code:
# results are cached by the content of the code cells, and `make clean` removes them. A cell may
# take as long as it needs. No other page runs anything.
nb_execution_mode = "cache"
nb_execution_cache_path = str(Path(__file__).parents[1] / "build" / "notebook-cache")
nb_execution_timeout = -1
nb_execution_raise_on_error = True
nb_merge_streams = True
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
templates_path = ["_templates"]
exclude_patterns = ["tutorials/notebooks"]  # what the tutorials offer for download

# Docstrings: numpydoc sections, names in single backticks. A name that is no page of this
# reference (a module of the package, a function of PyMC) stays plain code.
default_role = "py:obj"
autosummary_generate = True
# The page of a function also documents the objects that it returns or takes.
SHOWN_WITH = {
    "PseudoMarginal": ["Importance", "steps.Plan"],
    "Sweep": ["steps.LatentGaussianStep"],
    "likelihoods.Likelihood": ["likelihoods.LikelihoodRV"],
    "gp.Expected": ["gp.Projected"],
    "report": ["reporting.Report", "reporting.Verdict"],
    "compare_samplers": ["comparison.Comparison"],
    "loo": ["leave_one_out"],
    "laplace": ["evidence.Evidence", "evidence.Fit"],
    "read": ["model.LatentGaussianModel"],
    "testing.joint_test": ["testing.JointTest"],
    "testing.calibrate": ["testing.Calibration"],
    "testing.quadrature": ["testing.Moments"],
    "papers.WhitenedMetropolis": ["papers.SufficientMetropolis"],
    "papers.RandomFeatures": ["papers.ArcCosine"],
    "papers.laplace_by_pcg": [
        "papers.iterative_laplace.IterativeEvidence",
        "papers.iterative_laplace.IterativeMode",
    ],
}
autosummary_context = {
    "shown_with": {f"pymc_lgm.{name}": others for name, others in SHOWN_WITH.items()},
    "functions": ["leave_one_out"],
}
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = False
# As fields of the class: attributes described once more as members would be doubled.
napoleon_custom_sections = [("Attributes", "params_style")]

html_theme = "pydata_sphinx_theme"
html_title = "pymc_lgm"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
    # Not on the pages of tutorials and of benchmarks, whose tables need the width, nor on those of
    # single names, where the column would have one line.
    "secondary_sidebar_items": {"*": ["page-toc"], "api/*": ["page-toc"]},
}
# These pages belong to no section, so that a column for its pages would be empty.
html_sidebars = {"genindex": [], "search": []}
html_show_sourcelink = False
html_math_renderer = "mathml"


def setup(app):
    """The tutorials, formulas, and two habits of docstrings that Sphinx does not know."""
    app.add_html_math_renderer("mathml", (write_inline, None), (write_block, None))
    app.connect("builder-inited", make_notebooks)
    app.connect("autodoc-process-docstring", escape_bars, priority=100)
    app.connect("autodoc-process-signature", show_constructor)


def write_inline(translator, node):
    """Write a formula as MathML, which browsers show by themselves: no network, no script."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def write_block(translator, node):
    """Write a formula on a line of its own."""
    translator.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def make_notebooks(app):
    """Write each script of examples/ as a page of tutorials/, for MyST-NB to run.

    Below its title is a link to the notebook for the reader, a file beside the pages. A page that
    has not changed is not written again, so that Sphinx does not read it again.
    """
    folder, made = Path(app.srcdir) / "tutorials", set()
    (folder / "notebooks").mkdir(parents=True, exist_ok=True)
    for script in (folder.parent.parent / "examples").glob("*.py"):
        name = f"{script.stem}.ipynb"
        page = jupytext.read(script, fmt="py:percent")
        title, text = page.cells[0].source.split("\n", 1)
        link = f"[Download as a notebook](path:notebooks/{name})"
        page.cells[0].source = f"{title}\n\n{link}\n{text}"
        page.cells.append(new_code_cell(CONVERGED, metadata={"tags": ["remove-cell"]}))
        # What a kernel would say: without it a page that is not run has no colors.
        page.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
        for path, cells in (
            (folder / "notebooks" / name, notebook(script)),
            (folder / name, page),
        ):
            made.add(path)
            for number, cell in enumerate(cells.cells):
                cell["id"] = f"cell-{number}"
            text = nbformat.writes(cells, version=4)
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")
    for path in set(folder.rglob("*.ipynb")) - made:
        path.unlink()


def escape_bars(app, what, name, obj, options, lines):
    """Docstrings write |x| for a size or a determinant: reST would read a substitution."""
    lines[:] = [re.sub(r"(?<!\S)\|(?=\w)", r"\\|", line) for line in lines]


def show_constructor(app, what, name, obj, options, signature, return_annotation):
    """PyMC makes steps and distributions in `__new__`, whose signature says nothing."""
    if what != "class" or obj is Likelihood:
        return None
    if issubclass(obj, LatentGaussianStep):
        parameters = list(inspect.signature(obj.__init__).parameters.values())[1:]
    elif issubclass(obj, Likelihood):
        first = inspect.Parameter("name", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = [first, *inspect.signature(obj.dist).parameters.values()]
    else:
        return None
    return stringify_signature(inspect.Signature(parameters), show_annotation=False), ""
