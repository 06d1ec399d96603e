"""Importance weights that make a chain on an approximate evidence exact."""

from __future__ import annotations

import warnings

from typing import Any

import numpy as np
import xarray as xr

from pymc.util import RandomState, get_random_generator

from pymc_lgm.drawn import group_of, trace_of

__all__ = ["reweight"]

LABEL = "approximate_log_evidence"
"""The statistic that labels an approximate chain."""


def reweight(idata: Any, *, random_seed: RandomState = None) -> xr.DataTree:
    r"""Turn draws of an approximate chain into draws of the exact posterior p(theta, f | y).

    A chain of `papers.ApproximateMarginal` leaves q(y | theta) p(theta) invariant, where q is
    Laplace's or EP's evidence. At each draw it stores an unbiased estimate p̃ of p(y | theta). With
    weights

    .. math:: w = \tilde p(y \mid \theta) / q(y \mid \theta)

    averages over (theta, f) converge to those of the posterior, because f was chosen by weight
    among the draws behind p̃. Draws are resampled by w within each chain, in order. Therefore every
    ArviZ function applies, and repeated draws appear as autocorrelation.

    Parameters
    ----------
    idata : DataTree
        From ``pm.sample(step=lgm.papers.ApproximateMarginal())``.
    random_seed : int or numpy.random.Generator, optional

    Returns
    -------
    xarray.DataTree
        The groups of ``idata`` that belong to these draws, resampled. Groups with other draws, such
        as predictions from a thinned trace, are removed. The posterior's ``attrs`` have
        ``importance_ess``, (Σw)²/Σw² over all draws, and ``pareto_k``, the tail shape of the
        weights.

    Raises
    ------
    ValueError
        If the chain was not an approximate one, if another step moved variables that the densities
        depend on, or if the trace has been reweighted before.

    Warns
    -----
    UserWarning
        If Pareto-k is above 0.7: the approximate posterior misses a part of the exact one.

    See Also
    --------
    papers.ApproximateMarginal : The sampler of the approximate chain.
    PseudoMarginal : A sampler of the exact posterior.

    References
    ----------
    Vihola, Helske and Franks (2020), *Importance sampling type estimators based on approximate
    marginal Markov chain Monte Carlo*, Scandinavian Journal of Statistics 47.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     eta = pm.HalfNormal("eta")
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=eta * pm.math.stack([[1, 0.5], [0.5, 1]]))
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.papers.ApproximateMarginal(n_importance=16)
    ...     idata = pm.sample(200, tune=200, chains=2, step=step, random_seed=1, progressbar=False)
    >>> exact = lgm.reweight(idata, random_seed=1)
    >>> exact.posterior["eta"].sizes["draw"], exact.posterior.attrs["importance_ess"] > 100
    (200, True)
    """
    tree = trace_of(idata)
    log_ratio = _log_ratio(tree)
    # ArviZ expects log-likelihoods, the negatives of leave-one-out log weights.
    pareto_k = float((-log_ratio).stack(sample=("chain", "draw")).azstats.psislw(dim="sample")[1])
    if pareto_k > 0.7:
        warnings.warn(
            f"Pareto-k of the weights is {pareto_k:.2f}, above 0.7: the approximate posterior "
            "misses a part of the exact one. Sample that directly, lgm.PseudoMarginal(), or use "
            "approximation='ep' or more importance draws.",
            stacklevel=2,
        )
    weights = np.exp(log_ratio.to_numpy() - log_ratio.to_numpy().max())
    rng = get_random_generator(random_seed)
    # Each chain is scaled by its own largest weight, so that a chain with small weights does not
    # underflow.
    chosen = xr.DataArray(
        [_systematic(rng, np.exp(chain - chain.max())) for chain in log_ratio.to_numpy()],
        dims=("chain", "draw"),
    )
    corrected = tree.copy()
    for group in tree.children:
        data = tree[group].to_dataset()
        of_draws = {"chain", "draw"} <= set(data.dims)
        if not of_draws or str(group).startswith(("prior", "warmup_")):
            continue
        if not all(data[dim].equals(log_ratio[dim]) for dim in ("chain", "draw")):
            del corrected[group]  # its draws may differ from the resampled ones
            continue
        picked = data.isel(draw=chosen.assign_coords(chain=data["chain"]))
        corrected[group] = xr.DataTree(picked.assign_coords(draw=data["draw"]))
    corrected["posterior"].attrs |= {
        "importance_ess": float(weights.sum() ** 2 / (weights**2).sum()),
        "pareto_k": pareto_k,
    }
    return corrected


def _log_ratio(tree: xr.DataTree) -> xr.DataArray:
    """log p̃ − log q of each draw, (chain, draw); raise if no weights make the draws exact."""
    stats = group_of(tree, "sample_stats")
    if LABEL not in stats:
        raise ValueError(
            f"The trace has no {LABEL} in its sample_stats: it is not from an "
            "approximate chain. Write pm.sample(step=lgm.papers.ApproximateMarginal()); any "
            "other chain of this package is exact as it is."
        )
    if "log_evidence" not in stats:
        raise ValueError(
            "The trace has no log_evidence in its sample_stats: another step moved variables that "
            "the evidence or the prior of theta depends on, so no weights make the draws exact. "
            "Let lgm.papers.ApproximateMarginal() move all variables, or sample the posterior "
            "itself, lgm.PseudoMarginal()."
        )
    if "importance_ess" in tree["posterior"].attrs:
        raise ValueError(
            "The trace has been reweighted before: its draws are of the exact posterior, and "
            "weighing them again would make them wrong. Use it as it is."
        )
    log_ratio = stats["log_evidence"] - stats[LABEL]
    if log_ratio.ndim != 2:
        raise ValueError(
            "Two steps of this trace report their evidence, but reweight() takes the trace of one."
        )
    log_ratio = log_ratio.transpose("chain", "draw")
    if np.isnan(log_ratio).any():
        chain, draw = np.argwhere(np.isnan(log_ratio.to_numpy()))[0]
        raise ValueError(
            f"The evidence of draw {draw} of chain {chain} is NaN: no q was found at its theta, or "
            "all of its importance draws have a likelihood of zero. Sample the posterior itself, "
            "lgm.PseudoMarginal()."
        )
    return log_ratio


def _systematic(rng: np.random.Generator, weights: np.ndarray) -> np.ndarray:
    """Systematic resampling: each index appears N times its share of the weights, up to one."""
    cumulated = np.cumsum(weights) / weights.sum()
    positions = (rng.uniform() + np.arange(weights.size)) / weights.size
    return np.minimum(np.searchsorted(cumulated, positions), weights.size - 1)
