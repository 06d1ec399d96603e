"""Exceedance probabilities with their errors, and maps: what is drawn where, in what color."""

import sys

from types import SimpleNamespace

import arviz as az
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

from scipy.signal import lfilter

from pymc_lgm.spatial import exceedance, plot_map


@pytest.fixture(autouse=True)
def _figures():
    with mpl.rc_context(), plt.ioff():
        plt.switch_backend("Agg")
        yield
        plt.close("all")


def draws(rng, chains=2, size=400):
    """Draws of three areas whose chains remember; the third is never above 0."""
    noise = rng.standard_normal((chains, size, 3))
    values = lfilter([1.0], [1.0, -0.7], noise, axis=1) + np.array([0.0, 1.0, -99.0])
    coords = {"area": ["a", "b", "c"], "draw": range(100, 100 + size)}
    return xr.DataArray(values, dims=("chain", "draw", "area"), coords=coords)


def test_exceedance_is_a_mean_with_its_error():
    values = draws(np.random.default_rng(1))
    found = exceedance(values, 0.0)
    assert set(found.data_vars) == {"probability", "mcse"}
    assert found["area"].values.tolist() == ["a", "b", "c"]
    above = values.values > 0.0
    p = above.mean(axis=(0, 1))
    np.testing.assert_array_equal(found["probability"], p)
    for k in range(2):
        ess = float(az.ess(above[..., k].astype(float), method="mean"))
        assert ess < 400  # of 800 draws
        assert found["mcse"].values[k] == pytest.approx(np.sqrt(p[k] * (1 - p[k]) / ess), rel=2e-3)
    assert found["probability"][2] == found["mcse"][2] == 0.0


def test_the_error_is_that_of_another_run():
    """Of 100 runs the probabilities spread as the errors say."""
    rng = np.random.default_rng(2)
    runs = [exceedance(draws(rng, size=200), 0.5) for _ in range(100)]
    spread = np.std([run["probability"].values[:2] for run in runs], axis=0)
    said = np.mean([run["mcse"].values[:2] for run in runs], axis=0)
    np.testing.assert_allclose(spread, said, rtol=0.35)  # 5 of its own standard errors, 1 / √200


def test_thresholds_by_area_other_dimensions_and_missing_values():
    values = draws(np.random.default_rng(3)).transpose("area", "draw", "chain")
    limits = [0.0, 2.0, -100.0]
    found = exceedance(values, limits)["probability"]
    expected = [(values.isel(area=k) > limit).mean().item() for k, limit in enumerate(limits)]
    np.testing.assert_allclose(found, expected)
    levels = xr.DataArray([0.0, 2.0], dims="level", coords={"level": [0.0, 2.0]})
    both = exceedance(values, levels)
    assert both["mcse"].dims == ("area", "level")
    np.testing.assert_array_equal(
        both["mcse"].sel(level=2.0).values, exceedance(values, 2.0)["mcse"].values
    )
    values[0, 3, 1] = np.nan
    unknown = exceedance(values.isel(chain=[0]), [0.0, np.nan, 0.0])
    assert np.isnan([unknown["probability"][1], unknown["mcse"][1]]).all()
    labelled = values.assign_coords(area=[1, 2, 3])
    with pytest.raises(ValueError, match="one for each label"):
        exceedance(labelled, xr.DataArray([0.0, 1.0], dims="area", coords={"area": [1, 3]}))
    hole = exceedance(values, 0.0)
    assert np.isnan([hole["probability"][0], hole["mcse"][0]]).all()
    assert np.isfinite(hole["probability"][1:]).all()
    number = exceedance(values.isel(area=1), 0.0)
    assert number["mcse"].shape == number["probability"].shape == ()


def test_exceedance_compares_unsigned_and_infinite_values():
    """A difference would overflow: as unsigned numbers of one byte, 3 − 5 is 254."""
    counts = xr.DataArray(np.full((2, 50), 3, dtype=np.uint8), dims=("chain", "draw"))
    assert exceedance(counts, 5)["probability"] == 0.0
    assert exceedance(counts, np.uint8(5))["probability"] == 0.0
    assert exceedance(counts, 2)["probability"] == 1.0
    infinite = xr.full_like(counts, np.inf, dtype=float)
    assert exceedance(infinite, np.inf)["probability"] == 0.0
    assert exceedance(infinite, 0.0)["probability"] == 1.0


def test_exceedance_says_what_it_takes():
    for wrong, message in [
        (np.zeros((2, 3)), r"values is ndarray: .*idata\.posterior\['risk'\]"),
        (xr.DataArray(np.zeros(3), dims="sample"), r"values is dims \('sample',\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            exceedance(wrong, 0.0)


def squares(ax):
    (shown,) = ax.collections
    return shown, np.array([path.vertices[:4] for path in shown.get_paths()])


def test_cells_are_squares_that_touch():
    centers = 0.1 * np.array([(i, j) for i in range(3) for j in range(4)]) + 0.3  # not exact
    values = np.arange(12.0)
    values[7] = np.nan
    ax = plot_map(values, cells=centers, title="Risk", cmap="magma", vmin=-1.0)
    shown, corners = squares(ax)
    np.testing.assert_allclose(corners.mean(axis=1), centers)
    np.testing.assert_allclose(np.ptp(corners, axis=1), 0.1)
    assert shown.get_array().mask.tolist() == [k == 7 for k in range(12)]
    assert shown.get_cmap().name == "magma"
    assert shown.get_clim() == (-1.0, 11.0)
    assert ax.get_title() == "Risk"
    assert ax.get_aspect() == 1.0
    np.testing.assert_allclose([*ax.get_xlim(), *ax.get_ylim()], [0.25, 0.55, 0.25, 0.65])
    assert len(ax.child_axes) == 1  # the color bar


def test_a_row_of_cells_a_size_and_axes_of_ones_own():
    _, ax = plt.subplots()
    assert plot_map([True, False], cells=[(0, 0), (3, 0)], ax=ax, colorbar=False) is ax
    assert not ax.child_axes
    np.testing.assert_allclose(np.ptp(squares(ax)[1], axis=1), 3.0)
    one = plot_map([1.0], cells=[(5, 5)])
    np.testing.assert_allclose(one.get_xlim(), (4.5, 5.5))
    given = plot_map([1.0, 2.0], cells=[(0, 0), (3, 1)], size=0.5)
    np.testing.assert_allclose(np.ptp(squares(given)[1], axis=1), 0.5)
    oblong = plot_map([1.0, 2.0, 3.0], cells=[(0, 0), (3, 0), (3, 1)])
    np.testing.assert_allclose(np.ptp(squares(oblong)[1], axis=1), [[3.0, 1.0]] * 3)


def test_geometry_is_drawn_by_geopandas_in_the_order_of_the_values(monkeypatch):
    seen = {}

    class Frame:
        def __init__(self, columns, geometry, crs):
            seen.update(columns, geometry=geometry, crs=crs)

        def plot(self, **options):
            seen.update(options)

    monkeypatch.setitem(sys.modules, "geopandas", SimpleNamespace(GeoDataFrame=Frame))
    ax = plot_map([2.0, 1.0], ["north", "south"], cmap="magma", title="Risk")
    assert ax.get_title() == "Risk"
    assert seen.pop("value").tolist() == [2.0, 1.0]
    assert seen == {
        "geometry": ["north", "south"],
        "crs": None,
        "column": "value",
        "ax": ax,
        "legend": True,
        "cax": ax.child_axes[0],
        "cmap": "magma",
    }


def test_geometry_of_geopandas_itself():
    geopandas = pytest.importorskip("geopandas")  # no dependency; the test above is its stand-in
    shapely = pytest.importorskip("shapely")
    shapes = [shapely.box(k, 0, k + 1, 1) for k in range(3)]
    frame = geopandas.GeoDataFrame(geometry=shapes, index=[7, 8, 9], crs="EPSG:3857")
    for areas in (frame, frame.geometry, shapes):
        ax = plot_map([3.0, 1.0, 2.0], areas, vmin=0.0, edgecolor="k")
        (shown,) = ax.collections
        np.testing.assert_array_equal(shown.get_array(), [3.0, 1.0, 2.0])
        assert len(ax.child_axes) == 1


def test_maps_say_what_they_take(monkeypatch):
    centers = [(0, 0), (1, 0)]
    for values, options, message in [
        (np.zeros((4, 2)), {"cells": centers}, r"\(4, 2\): a map shows one number per area"),
        ([1, 2], {}, "Write geometry= or cells="),
        ([1, 2], {"geometry": ["a", "b"], "cells": centers}, "one of them"),
        ([1, 2, 3], {"cells": centers}, "values has 3 areas and cells 2"),
        ([1, 2], {"cells": [0.0, 1.0]}, r"cells has shape \(2,\)"),
        ([1, 2], {"cells": [(0, 0), (1, np.nan)]}, "finite"),
        ([1, 2, 3], {"geometry": ["a", "b"]}, "values has 3 areas and geometry 2"),
    ]:
        with pytest.raises(ValueError, match=message):
            plot_map(values, **options)
    monkeypatch.setitem(sys.modules, "geopandas", None)
    with pytest.raises(ImportError, match=r"pip install geopandas\. Or draw centers .* cells="):
        plot_map([1, 2], ["a", "b"])
