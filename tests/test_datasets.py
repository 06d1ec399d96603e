"""The shipped data are the published ones."""

import io
import zipfile

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pymc_lgm import datasets

# function, rows, feature columns, and how often each value of y occurs
COUNTS_AND_CLASSES = [
    (datasets.load_coal_mining, 112, 3, {0: 33, 1: 29, 2: 18, 3: 16, 4: 7, 5: 5, 6: 3, 7: 1}),
    (datasets.load_redwood, 625, 4, {0: 492, 1: 89, 2: 29, 3: 12, 4: 3}),
    (datasets.load_finpines, 1024, 4, {0: 921, 1: 87, 2: 11, 3: 3, 4: 2}),
    (datasets.load_pima, 768, 8, {0: 500, 1: 268}),
    (datasets.load_wisconsin, 683, 9, {0: 444, 1: 239}),
    (datasets.load_ionosphere, 351, 34, {0: 126, 1: 225}),
    (datasets.load_cpus, 209, 6, {1: 40, 2: 42, 3: 43, 4: 41, 5: 43}),
    (datasets.load_wine, 72, 5, {1: 5, 2: 22, 3: 26, 4: 12, 5: 7}),
]
LOADERS = [getattr(datasets, name) for name in datasets.__all__]


@pytest.mark.parametrize(
    ("load", "n", "d", "y"), COUNTS_AND_CLASSES, ids=lambda value: getattr(value, "__name__", "")
)
def test_shape_and_response(load, n, d, y):
    data = load()
    assert data.shape == (n, d + 1)
    assert data.columns[-1] == "y"
    assert data["y"].dtype == np.int64
    assert data["y"].value_counts().to_dict() == y


@pytest.mark.parametrize("load", LOADERS)
def test_numeric_complete_and_documented(load):
    data = load()
    assert isinstance(data.index, pd.RangeIndex)
    assert {kind.kind for kind in data.dtypes} <= {"i", "f"}
    assert np.isfinite(data.to_numpy(dtype=np.float64)).all()
    assert f"n = {len(data)}" in load.__doc__ or load is datasets.load_coal_mining
    if load is not datasets.load_ionosphere and load is not datasets.load_wisconsin:
        assert [name for name in data.columns if name not in load.__doc__] == []


@pytest.mark.parametrize("load", LOADERS)
def test_every_call_returns_a_new_frame(load):
    first = load()
    first.iloc[0, 0] = -1
    assert load().iloc[0, 0] != -1


@pytest.mark.parametrize(("bins", "days"), [(112, 365), (811, 50)])
def test_coal_bins_are_the_dates_counted(bins, days):
    data = datasets.load_coal_mining(bins)
    dates = datasets.load_coal_mining_dates()
    assert len(dates) == data["y"].sum() == 191
    np.testing.assert_array_equal(data["y"], np.bincount(dates["day"] // days, minlength=bins))
    np.testing.assert_array_equal(data["day_mid"], (data["bin"] - 0.5) * days)
    start = dates["date"].iloc[0]
    np.testing.assert_allclose(data["year_mid"], start + data["day_mid"] / 365.25, atol=1e-6)


@pytest.mark.parametrize("bins", [100, "112", None])
def test_coal_refuses_other_bins(bins):
    with pytest.raises(ValueError, match=r"write bins=112 .* or bins=811"):
        datasets.load_coal_mining(bins)


@pytest.mark.parametrize(
    ("load", "side", "corner", "width", "total"),
    [
        (datasets.load_redwood, 25, (0.0, 0.0), 1.0, 195),
        (datasets.load_finpines, 32, (-5.0, -8.0), 10.0, 126),
    ],
)
def test_grids(load, side, corner, width, total):
    data = load()
    assert data["y"].sum() == total
    np.testing.assert_array_equal(data["ix"], np.tile(np.arange(1, side + 1), side))
    np.testing.assert_array_equal(data["iy"], np.repeat(np.arange(1, side + 1), side))
    for x, i, low in (("x1", "ix", corner[0]), ("x2", "iy", corner[1])):
        np.testing.assert_allclose(data[x], low + (data[i] - 0.5) * width / side, rtol=1e-12)


def test_documented_peculiarities():
    pima = datasets.load_pima()[["glucose", "pressure", "triceps", "insulin", "mass"]]
    assert (pima == 0).any(axis=1).sum() == 376
    wisconsin = datasets.load_wisconsin()
    assert wisconsin.duplicated().sum() == 234
    assert wisconsin.drop(columns="y").stack().between(1, 10).all()
    ionosphere = datasets.load_ionosphere()
    assert (ionosphere["V2"] == 0).all()
    assert ionosphere.drop(columns="y").stack().between(-1, 1).all()


def test_wine_grades_are_cut_from_the_response():
    wine = datasets.load_wine()
    np.testing.assert_array_equal(wine["y"], wine["response"] // 20 + 1)
    assert (wine.groupby("bottle")[["temp_warm", "contact_yes"]].nunique() == 1).all(axis=None)
    assert not wine.duplicated(["bottle", "judge"]).any()


def test_stock_returns():
    returns = datasets.load_eustocks()
    assert list(returns.columns) == ["t", "DAX", "SMI", "CAC", "FTSE"]
    np.testing.assert_array_equal(returns["t"], np.arange(1, 1860))
    # First closing prices of EuStockMarkets: DAX 1628.75, then 1613.63; FTSE 2443.6, then 2460.2.
    expected = 100 * np.log([1613.63 / 1628.75, 2460.2 / 2443.6])
    np.testing.assert_allclose(returns.loc[0, ["DAX", "FTSE"]].astype(float), expected, rtol=1e-6)


def test_returns_of_twenty_years():
    data = datasets.load_sp500()
    dates = pd.to_datetime(data[["year", "month", "day"]])
    assert (dates.diff().dt.days.iloc[1:].between(1, 7)).all()  # the exchange was closed for a week
    assert (dates.dt.day_of_week < 5).all()
    # Closing prices: 1228.099976 and 1244.780029 at the beginning, 2506.850098 at the end.
    np.testing.assert_allclose(
        data["return"].iloc[0], 100 * np.log(1244.780029 / 1228.099976), atol=5e-5
    )
    total = 100 * np.log(2506.850098 / 1228.099976)
    np.testing.assert_allclose(data["return"].sum(), total, atol=0.01)


def test_counts_of_months_rain_and_flu():
    months = datasets.load_seatbelts()
    np.testing.assert_array_equal(12 * (months["year"] - 1969) + months["month"], range(1, 193))
    law = 12 * months["year"] + months["month"] >= 12 * 1983 + 2
    np.testing.assert_array_equal(months["law"], law)
    assert months["y"].sum() == 23_578
    rain = datasets.load_rain()
    assert rain["y"].sum() == 86_042
    assert not rain.duplicated(["x1", "x2"]).any()
    flu, districts = datasets.load_flu(), datasets.load_flu_districts()
    np.testing.assert_array_equal(flu["district"], np.tile(np.arange(140), 16))
    assert flu["y"].sum() == 3655
    # The federal states by their official keys.
    assert (districts["key"] // 1000).value_counts().to_dict() == {9: 96, 8: 44}
    pairs = datasets.load_flu_neighbors()
    assert (pairs["first"] < pairs["second"]).all()
    assert set(pairs.to_numpy().ravel()) == set(range(140))


def test_children_belong_to_a_school_and_answers_are_three():
    children = datasets.load_school_math()
    assert children.groupby("child")[["school", "low_income"]].nunique().eq(1).all(axis=None)
    assert sorted(children["year"].unique()) == [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5]
    answers = datasets.load_verbal_aggression().drop(columns=["anger", "male"])
    assert set(answers.to_numpy().ravel()) == {0, 1, 2}
    # Cursing is said to be more likely than shouting, and wanting more likely than doing.
    means = answers.mean()
    assert means.filter(like="curse").min() > means.filter(like="shout").mean()
    assert means.filter(like="want").mean() > means.filter(like="_do_").mean()


def test_every_file_is_loaded_and_sourced():
    folder = Path(datasets.__file__).parent
    readme = (folder / "README.md").read_text(encoding="utf-8")
    tables = sorted(folder.glob("*.csv"))
    assert [table.name for table in tables if f"| `{table.name}` |" not in readme] == []
    assert [name for name in datasets.__all__ if f"{name}(" not in readme] == []
    assert sum(table.stat().st_size for table in tables) < 600_000


def test_loads_from_a_zipped_package(tmp_path, monkeypatch):
    folder = Path(datasets.__file__).parent
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        for name in ("__init__.py", "wine.csv"):
            zipped.write(folder / name, f"zipped_datasets/{name}")
    (tmp_path / "package.zip").write_bytes(archive.getvalue())
    monkeypatch.syspath_prepend(str(tmp_path / "package.zip"))
    import zipped_datasets

    pd.testing.assert_frame_equal(zipped_datasets.load_wine(), datasets.load_wine())
