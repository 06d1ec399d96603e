"""Sphinx configuration: `make docs` builds this folder into build/docs, warnings are errors."""

import importlib.metadata
import inspect
import re
import shutil
import sys

from pathlib import Path

import jupytext
import nbformat

from nbformat.v4 import new_code_cell
from sphinx.util.inspect import stringify_signature

from pymc_lgm.likelihoods import Likelihood
from pymc_lgm.steps import LatentGaussianStep

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from notebooks import TIMEOUT, notebook

# What each tutorial must pass at its end: its last trace is called idata.
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
    "sphinx.ext.mathjax",
]

# The tutorials are examples/*.py. They run where their code is not that of an earlier build, whose
# results are kept beside the pages; `make clean` forgets them. No other page runs anything.
nb_execution_mode = "cache"
nb_execution_timeout = TIMEOUT
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
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = False
# As fields of the class: attributes described once more as members would be doubled.
napoleon_custom_sections = [("Attributes", "params_style")]

html_theme = "pydata_sphinx_theme"
html_title = "pymc_lgm"
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    # Not in tutorials: the tables that they print need the width.
    "secondary_sidebar_items": {"*": ["page-toc"], "generated/*": ["page-toc"]},
}
html_show_sourcelink = False


def setup(app):
    """The tutorials, and two habits of docstrings and classes that Sphinx does not know."""
    app.connect("builder-inited", make_notebooks)
    app.connect("autodoc-process-docstring", escape_bars, priority=100)
    app.connect("autodoc-process-signature", show_constructor)


def make_notebooks(app):
    """Write each script of examples/ as a page of tutorials/, for MyST-NB to run.

    Below its title is a link to the notebook for who reads it, a file beside the pages.
    """
    folder = Path(app.srcdir) / "tutorials"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "notebooks").mkdir(parents=True)
    for script in (folder.parent.parent / "examples").glob("*.py"):
        name = f"{script.stem}.ipynb"
        nbformat.write(notebook(script), folder / "notebooks" / name)
        page = jupytext.read(script, fmt="py:percent")
        title, text = page.cells[0].source.split("\n", 1)
        link = f"[Download as a notebook](path:notebooks/{name})"
        page.cells[0].source = f"{title}\n\n{link}\n{text}"
        page.cells.append(new_code_cell(CONVERGED, metadata={"tags": ["remove-cell"]}))
        jupytext.write(page, folder / name)


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
