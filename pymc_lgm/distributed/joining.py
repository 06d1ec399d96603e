"""Join chains from different processes to one trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import xarray as xr

from pymc_lgm.distributed.plan import Chain

__all__ = ["gathered", "joined", "seconds", "timed"]

APART: dict[str, Any] = {
    "data_vars": "minimal",
    "coords": "minimal",
    "compat": "override",
    "join": "exact",
    "combine_attrs": "override",
}
"""Options of `xarray.concat`: variables with the dimension are joined, the others are equal."""

TIME = "sampling_time"


def gathered(chains: Sequence[Chain]) -> xr.DataTree:
    """Put chains side by side, as `pymc.sample` does."""
    groups = {}
    for name, group in chains[0].groups.items():
        if "chain" in group.dims:
            group = xr.concat([chain.groups[name] for chain in chains], "chain", **APART)
            if TIME in group.attrs:
                group.attrs[TIME] = max(map(seconds, chains))
        groups[name] = group
    return xr.DataTree.from_dict(groups)


def joined(first: Chain, then: Chain) -> Chain:
    """Append the draws of a continued chain."""
    groups = dict(first.groups)
    for name, group in then.groups.items():
        if "draw" in group.dims and not name.startswith("warmup_"):
            begin = first.groups[name].sizes["draw"]
            later = group.assign_coords(draw=group["draw"] + begin)
            groups[name] = xr.concat([first.groups[name], later], "draw", **APART)
    return replace(then, groups=groups)


def seconds(chain: Chain) -> float:
    """Return the sampling time in seconds of the study when the chain ended."""
    return float(chain.groups["posterior"].attrs[TIME])


def timed(chain: Chain, elapsed: float) -> Chain:
    """Store the sampling time in seconds of the study when the chain ends."""
    groups = {
        name: group.assign_attrs({TIME: elapsed}) if TIME in group.attrs else group
        for name, group in chain.groups.items()
    }
    return replace(chain, groups=groups)
