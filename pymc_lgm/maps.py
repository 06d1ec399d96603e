"""Plots of maps: areas by their geometry (with GeoPandas), or square cells by their centers."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from numpy.typing import ArrayLike

from pymc_lgm.linalg import Array

__all__ = ["plot_map"]

SAME = 1e-9
"""Two coordinates are equal if their distance is less than this share of the map's width. It is far
above rounding errors, and far below the distance of two cells."""


def plot_map(
    values: ArrayLike,
    geometry: Any = None,
    *,
    cells: ArrayLike | None = None,
    size: float | None = None,
    ax: Any = None,
    title: str | None = None,
    colorbar: bool = True,
    **style: Any,
) -> Any:
    """Draw one value per area in colors, for example risks, probabilities, standard deviations.

    Parameters
    ----------
    values : array_like, shape (n,)
        One value per area; areas with NaN are white.
    geometry : geopandas.GeoSeries, GeoDataFrame, or sequence of shapely geometries
        Geometry of the areas, in the order of the values. Needs GeoPandas.
    cells : array_like, shape (n, 2)
        Centers of cells, (x, y), instead of a geometry.
    size : float, optional
        Length of a cell's side. By default the smallest distance of two centers in x, and in y.
    ax : matplotlib.axes.Axes, optional
        By default the axes of a new figure.
    title : str, optional
    colorbar : bool
    **style
        As in ``matplotlib.axes.Axes.pcolormesh`` and ``GeoDataFrame.plot``: ``cmap``, ``vmin``,
        ``vmax``, ``norm``, ``edgecolor`` and more.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If there is not one area per value, or if there are no areas.
    ImportError
        If there is a geometry and GeoPandas is not installed.

    See Also
    --------
    spatial.exceedance : Probabilities that values exceed a threshold.

    Notes
    -----
    Each cell is drawn as one polygon, so the cost is O(n), even if there are gaps between cells.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> import pymc_lgm as lgm
    >>> risk, centers = [0.8, 1.0, 1.7], [(0.5, 0.5), (1.5, 0.5), (1.5, 1.5)]
    >>> ax = lgm.spatial.plot_map(risk, cells=centers, title="Relative risk", vmin=0.0)
    >>> ax.get_xlim(), ax.get_ylim()
    ((np.float64(0.0), np.float64(2.0)), (np.float64(0.0), np.float64(2.0)))
    """
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1:
        raise ValueError(
            f"values has shape {numbers.shape}: a map shows one number per area. For draws take "
            "values.mean(('chain', 'draw')) or a quantile first."
        )
    if (geometry is None) == (cells is None):
        raise ValueError(
            "The places of the areas are not given. Write geometry= or cells=, one of them."
        )
    if cells is None:
        shapes = getattr(geometry, "geometry", geometry)
        _one_each(len(shapes), numbers, "geometry")
        geopandas = _imported("geopandas", "geopandas", " Or draw centers of areas by cells=.")
        # A list, so that an index of the shapes is not aligned with an index of the values.
        crs = getattr(shapes, "crs", None)
        frame = geopandas.GeoDataFrame({"value": numbers}, geometry=list(shapes), crs=crs)
    else:
        corners = _corners(np.asarray(cells, dtype=np.float64), size, numbers)
    if ax is None:
        _, ax = _imported("matplotlib.pyplot", "matplotlib").subplots(layout="constrained")
    # The color bar is as high as the map, even if equal scales make the map smaller than its axes.
    bar = ax.inset_axes((1.03, 0.0, 0.05, 1.0)) if colorbar else None
    if cells is None:
        frame.plot(column="value", ax=ax, legend=colorbar, cax=bar, **style)
    else:
        # Without edges of the same color, the background would show between cells.
        style = {"edgecolor": "face", "linewidth": 0.2} | style
        limits = style.pop("vmin", None), style.pop("vmax", None)
        collections = _imported("matplotlib.collections", "matplotlib")
        shown = collections.PolyCollection(corners, array=numbers, **style)
        shown.set_clim(*limits)
        ax.add_collection(shown, autolim=False)
        low, high = corners.min(axis=(0, 1)), corners.max(axis=(0, 1))
        ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
        if colorbar:
            ax.figure.colorbar(shown, cax=bar)
    if title is not None:
        ax.set_title(title)
    return ax


def _corners(cells: Array, size: float | None, values: Array) -> Array:
    """Four corners of each cell, (n, 4, 2)."""
    if cells.ndim != 2 or cells.shape[1] != 2 or not np.isfinite(cells).all():
        raise ValueError(
            f"cells has shape {cells.shape}: write the center of each cell, across and up, in two "
            "columns of finite numbers."
        )
    _one_each(len(cells), values, "cells")
    sides = [size or _gap(column) for column in cells.T]
    known = [side for side in sides if side]
    across, up = (side or (known or [1.0])[0] for side in sides)
    around = np.array([[-across, -up], [across, -up], [across, up], [-across, up]])
    return cells[:, None] + 0.5 * around


def _gap(column: Array) -> float:
    """Return the smallest distance of two different coordinates; 0 if all are equal."""
    distances = np.diff(np.unique(column))
    distances = distances[distances > SAME * np.ptp(column)]
    return float(distances.min()) if distances.size else 0.0


def _one_each(count: int, values: Array, what: str) -> None:
    if count != len(values):
        raise ValueError(f"values has {len(values)} areas and {what} {count}: give one each.")


def _imported(name: str, package: str, instead: str = "") -> Any:
    """Import a module that is not a dependency of this package."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"This map needs {package}: pip install {package}.{instead}") from error
