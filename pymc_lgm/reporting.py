"""The report on a trace: whether to trust the draws, and what to do next."""

from __future__ import annotations

import os

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pymc_lgm._report.numbers import Numbers, numbers
from pymc_lgm._report.pages import Page, as_document, as_html, as_text
from pymc_lgm._report.pictures import BACKENDS, draw
from pymc_lgm._report.tables import cost, tables
from pymc_lgm._report.verdicts import Verdict, headline, verdicts

if TYPE_CHECKING:  # a report needs no sampler
    from pymc_lgm.steps.plan import Plan

__all__ = ["Report", "Verdict", "report"]


def report(
    idata: Any,
    groups: Mapping[str, str | Sequence[str]] | None = None,
    *,
    path: str | Path | None = None,
    backend: str = "matplotlib",
    plan: Plan | None = None,
) -> Report:
    """Judge a trace: verdicts with recommended actions, tables and pictures.

    R-hat and effective sample sizes decide whether to trust the draws. The sampler's statistics
    explain problems. A statistic outside of its healthy range is a warning only if R-hat or ESS is
    poor, too, or if R-hat and ESS can miss the problem: a heavy tail of importance weights, a chain
    that stays at one value, proposals lost to rounding.

    Parameters
    ----------
    idata : DataTree, or anything that ``arviz.convert_to_datatree`` takes
        A trace from ``pm.sample``, by any sampler. Missing statistics are omitted.
    groups : mapping of str to str or sequence of str, optional
        Label -> posterior variables, as in `efficiency`: ``{"theta": ["ls", "eta"], "f": "f"}``.
        Default: one group per variable, then "all".
    path : str or path, optional
        File to which the report is saved as HTML.
    backend : {"matplotlib", "bokeh", "plotly", "none"}
        Library that draws the pictures of the HTML. If it is not installed the report has no
        pictures, and gives the reason. For bokeh and plotly the page contains some megabytes of
        scripts, so that it needs no network.
    plan : Plan, optional
        ``step.plan`` of the sampler, printed at the end: how it sampled the model, and why.

    Returns
    -------
    Report
        Plain text in a terminal, HTML with pictures in a notebook.

    Raises
    ------
    ValueError
        If `backend` is unknown, if there is no posterior group, or if a group is empty or names a
        variable that is not in the posterior.

    See Also
    --------
    efficiency : The table of effective sample sizes alone.
    compare_samplers : Several samplers with equal budgets.

    Notes
    -----
    The limits are R-hat 1.01 and 400 effective draws, 100 per chain, bulk and tail [1]_, and
    Pareto-k 0.7 [2]_. With enough effective draws the largest R-hat of hundreds of elements may be
    above 1.01 by chance. If a variable has 20 or more elements, it is a warning only where it is
    too large for that. The limits of statistics are in ``docs/sample_statistics.md``. `efficiency`
    defines the costs.

    ArviZ's diagnostics take most of the time, a few milliseconds per element of the posterior for
    some thousand draws. Pictures are drawn when a page is made.

    References
    ----------
    .. [1] Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021), *Rank-normalization, folding, and
       localization: an improved R-hat for assessing convergence of MCMC*, Bayesian Analysis 16.
    .. [2] Vehtari, Simpson, Gelman, Yao, Gabry (2024), *Pareto smoothed importance sampling*,
       Journal of Machine Learning Research 25.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> import pymc_lgm as lgm
    >>> rng = np.random.default_rng(1)
    >>> ls = rng.normal(size=(4, 500))
    >>> ls[3] += 1.0  # one chain is elsewhere
    >>> idata = az.from_dict({"posterior": {"ls": ls, "f": rng.normal(size=(4, 500, 3))}})
    >>> found = lgm.report(idata, {"theta": "ls", "f": "f"})
    >>> [verdict.subject for verdict in found.verdicts if verdict.level != "good"]
    ['R-hat', 'effective draws']
    >>> print(str(found).splitlines()[0])
    Do not use these draws yet: 2 problems.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend={backend!r} is unknown. Choose from {', '.join(BACKENDS)}.")
    computed = numbers(idata, groups)
    made = Report(verdicts(computed), computed, backend, "" if plan is None else str(plan))
    if path is not None:
        made.save(path)
    return made


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """The result of `report`: print it, show it in a notebook, or save it as a page.

    Attributes
    ----------
    verdicts : list of Verdict
        Problems first, then warnings, then good results. Each has a ``level`` ("problem",
        "warning", "good"), a ``subject``, a ``sentence`` and an ``advice``.
    """

    verdicts: list[Verdict]
    _numbers: Numbers
    _backend: str
    _plan: str = ""

    @property
    def ok(self) -> bool:
        """Whether there are neither problems nor warnings."""
        return all(verdict.level == "good" for verdict in self.verdicts)

    @property
    def groups(self) -> pd.DataFrame:
        """The worst element of each group: ESS, R-hat, Monte Carlo error over sd, and costs."""
        return self._numbers.groups

    @property
    def elements(self) -> pd.DataFrame:
        """Diagnostics with one row per element of each variable."""
        return self._numbers.elements

    @property
    def statistics(self) -> pd.DataFrame:
        """Mean of each sampler statistic, over all chains and for the extreme chains."""
        return self._numbers.statistics

    def save(self, path: str | Path) -> None:
        """Write one self-contained HTML file.

        An existing file is replaced only when the new one is complete, so an error does not change
        it.
        """
        _write_whole(Path(path), as_document(self._repr_html_()))

    def __repr__(self) -> str:
        return as_text(self._page())

    def _repr_html_(self) -> str:
        return as_html(self._page(), draw(self._numbers, self._backend))

    def _page(self) -> Page:
        found = self.verdicts
        shown = tables(self._numbers)
        return Page(headline(found), cost(self._numbers), found, shown, self._plan)


def _write_whole(path: Path, text: str) -> None:
    """Write a file beside the path, then rename it to the path; remove it after an error.

    If the path is not a regular file, for example a terminal, it is written to directly.
    """
    path = path.resolve()  # A symbolic link is kept, and its target is replaced.
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
