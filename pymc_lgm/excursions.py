"""Probabilities that values exceed a threshold, and their Monte Carlo errors."""

from typing import Any

import arviz as az
import numpy as np
import xarray as xr

__all__ = ["exceedance"]


def exceedance(values: xr.DataArray, threshold: Any = 0.0) -> xr.Dataset:
    r"""Estimate the probability that each area is above a threshold: P(value > threshold | y).

    .. math:: \hat p = \frac{1}{S} \sum_s 1(v_s > t), \qquad
       \text{mcse} = \sqrt{\hat p (1 - \hat p) / \text{ESS}} .

    Parameters
    ----------
    values : xarray.DataArray, dims (chain, draw, ...)
        A variable of a trace, or a function of variables: risks of areas, rates in cells,
        volatilities of days.
    threshold : float or array_like
        One number, or one for each area: a DataArray with a dimension of the values, or an array.

    Returns
    -------
    xarray.Dataset
        ``probability`` and its Monte Carlo standard error ``mcse``, with the other dimensions of
        the values. NaN if a value or the threshold is NaN.

    Raises
    ------
    ValueError
        If the values have no dimensions chain and draw.

    See Also
    --------
    spatial.plot_map : Draws the probabilities on a map.

    Notes
    -----
    ESS is ArviZ's effective sample size of the indicator, computed for each area. A chain that
    rarely crosses the threshold has a large error. If all draws agree the error is 0, and the other
    event has a probability below about 3 / ESS. The probabilities are marginal, one for each area;
    they are not joint probabilities.

    References
    ----------
    S. Richardson, A. Thomson, N. Best, P. Elliott (2004). Interpreting posterior relative risk
    estimates in disease-mapping studies. Environmental Health Perspectives 112: areas above .8.

    Examples
    --------
    >>> import numpy as np, pymc_lgm as lgm, xarray as xr
    >>> log_risk = np.random.default_rng(1).normal([0.0, 2.0], size=(2, 500, 2))
    >>> risk = np.exp(xr.DataArray(log_risk, dims=("chain", "draw", "area")))
    >>> above = lgm.spatial.exceedance(risk, 1.0)
    >>> above["probability"].values.round(2), above["mcse"].values.round(3)
    (array([0.48, 0.98]), array([0.016, 0.005]))
    """
    if not isinstance(values, xr.DataArray) or not {"chain", "draw"} <= set(values.dims):
        what = f"dims {values.dims}" if isinstance(values, xr.DataArray) else type(values).__name__
        raise ValueError(
            f"values is {what}: pass a variable by chain and draw, as idata.posterior['risk'], or "
            "a result that xarray computed from it."
        )
    draws = values.transpose("chain", "draw", ...)
    limit = threshold if isinstance(threshold, xr.DataArray) else np.asarray(threshold)
    try:
        with xr.set_options(arithmetic_join="exact"):
            # No difference: it overflows for unsigned numbers, and ∞ − ∞ is NaN.
            exceeds = draws > limit
            is_known = draws.notnull() & ~np.isnan(limit)
    except ValueError as differ:
        raise ValueError(
            f"The threshold does not fit the values: {differ}. Write one number, or one for each "
            "label of a dimension that the values have."
        ) from differ
    above = exceeds.astype(np.float64).where(is_known)
    found = {"probability": above.mean(("chain", "draw"), skipna=False)}
    # ArviZ drops the coordinates.
    error = az.mcse(above, method="mean")
    found["mcse"] = found["probability"].copy(data=np.asarray(error, dtype=np.float64))
    return xr.Dataset(found)
