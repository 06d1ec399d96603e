"""Efficiency of a sampler: effective sample size per second and per operation."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import arviz as az
import numpy as np
import pandas as pd
import xarray as xr

from pymc_lgm.drawn import group_of, trace_of

__all__ = ["efficiency", "groups_of", "per_draw", "sampling_seconds", "with_posterior", "written"]


def efficiency(
    idata: Any,
    groups: Mapping[str, str | Sequence[str]] | None = None,
    *,
    var_names: str | Sequence[str] | None = None,
    filter_vars: Literal["like", "regex"] | None = None,
) -> pd.DataFrame:
    r"""Compute effective sample sizes by group of variables, per second and per O(n³) operation.

    With S the least bulk ESS over all elements of a group's variables, t the sampling time and
    c the O(n³) operations of all kept draws of all chains,

    .. math:: \text{ess per second} = S / t, \qquad \text{ess per 1000 ops} = 1000 \, S / c.

    Parameters
    ----------
    idata : DataTree, or anything that ``arviz.convert_to_datatree`` takes
        A trace from ``pm.sample``, by any sampler.
    groups : mapping of str to str or sequence of str, optional
        Row label -> posterior variables merged into that row, as in
        ``{"theta": ["ls", "eta"], "f": "f"}``. Default: one row per variable, then a row
        "all"; without ``f_rotated_``, PyMC's whitened f, if f itself is in the trace.
    var_names, filter_vars : optional
        Restrict the posterior variables first, as in ``arviz.summary``.

    Returns
    -------
    pandas.DataFrame
        One row per group. Columns of the group: ``ess_bulk`` and ``ess_tail`` (least over its
        elements), ``r_hat`` (greatest), ``ess_per_1000_ops``, ``ess_per_second``. Columns of the
        sampler, the same in every row: ``theta_acceptance`` and ``latent_acceptance`` (mean
        probabilities, NaN skipped), ``cubic_ops`` (mean per draw, summed over the steps that
        report it). ``attrs`` holds ``chains``, ``draws``, ``tuning_steps``, ``sampling_time``
        (seconds) and ``total_cubic_ops``.

    Raises
    ------
    ValueError
        If there is no posterior group or no variable in it, or if a group is empty or names a
        variable that is not in the posterior. (For such a name in `var_names` ArviZ raises
        ``KeyError``.)

    See Also
    --------
    report : The same numbers in words, with what to do next.
    compare_samplers : Several samplers with equal budgets.

    Notes
    -----
    - A quantity is NaN if the trace lacks its statistic, for example ``cubic_ops`` of
      NUTS. If several steps are used, only those that report ``cubic_ops`` are counted.
    - The sampling time is PyMC's: wall time of all chains together, *tuning included*,
      compilation excluded. The operations are those of the draws in the trace. If the trace was
      thinned, the number is too small.
    - Zero operations (elliptical slice sampling of f alone) give an infinite ESS per 1000.
    - ESS and R-hat are ArviZ's, the tail at the quantiles that ``arviz.summary`` uses
      (``rcParams["stats.ci_prob"]``): R-hat is NaN for a single chain and skipped for a constant
      element, whose ESS is the number of draws. So if ``r_hat`` is NaN with several chains, and ESS
      is the number of draws, the group was constant.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> idata = az.from_dict(
    ...     {
    ...         "posterior": {"ls": rng.normal(size=(4, 500)), "f": rng.normal(size=(4, 500, 3))},
    ...         "sample_stats": {"cubic_ops": np.full((4, 500), 2.0)},
    ...     }
    ... )
    >>> table = efficiency(idata, groups={"theta": "ls", "f": "f"})
    >>> table[["r_hat", "cubic_ops"]].round(1)
           r_hat  cubic_ops
    theta    1.0        2.0
    f        1.0        2.0
    >>> bool(np.allclose(table["ess_per_1000_ops"], table["ess_bulk"] / 4))  # 4 x 500 x 2 / 1000
    True
    """
    tree = with_posterior(idata)
    posterior = tree["posterior"].to_dataset().azstats.filter_vars(var_names, filter_vars).dataset
    names = [str(name) for name, values in posterior.data_vars.items() if values.size]
    rows = groups_of(groups, names)
    used = posterior[list(dict.fromkeys(name for row in rows.values() for name in row))]
    used = used.astype(np.float64, copy=False)  # ArviZ computes no quantiles of booleans
    bulk, tail = az.ess(used, method="bulk"), az.ess(used, method="tail")
    with np.errstate(divide="ignore", invalid="ignore"):  # 0/0 if nothing moved
        r_hat = az.rhat(used)

    stats = group_of(tree, "sample_stats")
    ops = per_draw(stats, "cubic_ops").sum(axis=-1)
    seconds = sampling_seconds(posterior.attrs)
    table = pd.DataFrame(index=list(rows))
    table["ess_bulk"] = [_flat(bulk, row).min() for row in rows.values()]
    table["ess_tail"] = [_flat(tail, row).min() for row in rows.values()]
    table["r_hat"] = [np.fmax.reduce(_flat(r_hat, row)) for row in rows.values()]
    for name in ("theta_acceptance", "latent_acceptance"):
        values = per_draw(stats, name)
        values = values[~np.isnan(values)]
        table[name] = values.mean() if values.size else np.nan
    table["cubic_ops"] = ops.mean()
    table["ess_per_1000_ops"] = 1000 * table["ess_bulk"] / ops.sum()
    table["ess_per_second"] = table["ess_bulk"] / seconds
    table.attrs = {
        "chains": used.sizes["chain"],
        "draws": used.sizes["draw"],
        "tuning_steps": posterior.attrs.get("tuning_steps"),
        "sampling_time": seconds,
        "total_cubic_ops": float(ops.sum()),
    }
    return table


def with_posterior(idata: Any) -> Any:
    """Return the trace as a DataTree with a posterior group."""
    tree = trace_of(idata)
    if "posterior" not in tree.children:
        found = sorted(tree.children) or "none"
        raise ValueError(
            f"idata has no posterior group (groups found: {found}); pass the result of "
            "pm.sample(), or arviz.from_dict({'posterior': {...}})."
        )
    return tree


def written(names: list[str]) -> list[str]:
    """Return the names of the user's own variables.

    PyMC adds ``f_rotated_``, the whitened f, which f and theta determine.
    """
    return [
        name
        for name in names
        if not name.endswith("_rotated_") or name.removesuffix("_rotated_") not in names
    ]


def groups_of(
    groups: Mapping[str, str | Sequence[str]] | None, names: list[str]
) -> dict[str, list[str]]:
    """Return label -> variables among `names`; by default a group for each that is `written`."""
    shown = written(names)
    if not names:
        raise ValueError("The posterior group holds no variable: sample one, or widen var_names.")
    if groups is None:
        return {**{name: [name] for name in shown}, "all": shown}
    if not isinstance(groups, Mapping):
        raise ValueError(
            f"groups is a {type(groups).__name__}: write variables by label, as "
            f"{{'theta': [{shown[0]!r}]}}."
        )
    rows = {row: [some] if isinstance(some, str) else list(some) for row, some in groups.items()}
    for row, some in rows.items():
        unknown = [name for name in some if name not in names]
        if unknown or not some:
            what = f"names {unknown}, not in the posterior" if unknown else "is empty"
            raise ValueError(f"groups[{row!r}] {what}; write some of the available {names}.")
    if not rows:
        raise ValueError(f"groups is empty; write None, or group some of the available {names}.")
    return rows


def _flat(values: xr.Dataset, names: list[str]) -> np.ndarray:
    """Return all elements of the named variables in one vector."""
    return np.concatenate([np.ravel(values[name].values) for name in names])


def sampling_seconds(attrs: Mapping[str, Any]) -> float:
    """Return the sampling time, or NaN if there is none or the clock was set back meanwhile."""
    seconds = attrs.get("sampling_time")
    return float(seconds) if seconds is not None and seconds > 0.0 else np.nan


def per_draw(stats: xr.Dataset, name: str) -> np.ndarray:
    """Return a statistic as (chains times draws, steps that report it); NaN if there is none."""
    if name not in stats:
        return np.full((1, 1), np.nan)
    values = stats[name].transpose("chain", "draw", ...).values.astype(np.float64)
    return values.reshape(values.shape[0] * values.shape[1], -1)
