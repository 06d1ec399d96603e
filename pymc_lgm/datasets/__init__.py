"""Small real data for latent Gaussian models: counts, classes, ordered grades and returns.

Each function returns a new pandas ``DataFrame`` with the published numbers, not standardized. The
last column is the response ``y``, if there is one. ``README.md`` beside this file lists the
sources.
"""

from importlib.resources import files

import pandas as pd

__all__ = [
    "load_coal_mining",
    "load_coal_mining_dates",
    "load_cpus",
    "load_eustocks",
    "load_finpines",
    "load_flu",
    "load_flu_districts",
    "load_flu_neighbors",
    "load_ionosphere",
    "load_longleaf",
    "load_pima",
    "load_rain",
    "load_redwood",
    "load_school_math",
    "load_seatbelts",
    "load_sp500",
    "load_verbal_aggression",
    "load_wine",
    "load_wisconsin",
]


def load_coal_mining(bins: int = 112) -> pd.DataFrame:
    """Count British coal-mining disasters, 1851-1962, in bins of equal width: n = `bins`, d = 1.

    `bins` is 112 (of 365 days) or 811 (of 50 days); any other raises ``ValueError``. Columns: bin
    (from 1), day_mid (days since the first disaster), year_mid (decimal year), y (explosions with
    ten or more deaths; 191 in all). Source: Jarrett (1979), Biometrika 66:191; R package boot,
    ``coal``.

    >>> load_coal_mining()["y"].head(3).tolist()
    [4, 6, 4]
    """
    if bins not in (112, 811):
        raise ValueError(
            f"bins={bins!r}: write bins=112 (of 365 days) or bins=811 (of 50 days), "
            "or bin load_coal_mining_dates() yourself."
        )
    return _read(f"coal_{bins}")


def load_coal_mining_dates() -> pd.DataFrame:
    """Return the dates of the 191 disasters behind `load_coal_mining`: n = 191, no y.

    Columns: date (decimal year), day (days since the first disaster). Source: that of
    `load_coal_mining`.

    >>> load_coal_mining_dates()["day"].tail(1).item()
    40549
    """
    return _read("coal_dates")


def load_redwood() -> pd.DataFrame:
    """Count 195 redwood seedlings on a 25 x 25 grid: n = 625 cells, d = 2.

    Columns: ix, iy (cell, 1 to 25; ix runs fastest), x1, x2 (its center in the unit square, about
    130 feet across), y (seedlings in the cell; the cell's area is 1/625). Source: Strauss (1975),
    Biometrika 62:467; R package spatstat.data, ``redwoodfull``.

    >>> int(load_redwood()["y"].sum())
    195
    """
    return _read("redwood")


def load_finpines() -> pd.DataFrame:
    """Count 126 Finnish pine saplings on a 32 x 32 grid: n = 1024 cells, d = 2.

    Columns: ix, iy (cell, 1 to 32; ix runs fastest), x1, x2 (its center in [-5, 5] x [-8, 2], in
    meters), y (saplings in the cell; its side is 0.3125 m). Source: S. Kellomaki and A. Penttinen;
    R package spatstat.data, ``finpines``.

    >>> int(load_finpines()["y"].sum())
    126
    """
    return _read("finpines")


def load_pima() -> pd.DataFrame:
    """Return diabetes among Pima women: n = 768, d = 8, two classes.

    Columns: pregnant (times), glucose (mg/dl, two hours into a tolerance test), pressure
    (diastolic, mm Hg), triceps (skin fold, mm), insulin (two-hour serum, mu U/ml), mass (kg/m²),
    pedigree (a family-history score), age (years), y (1 = diabetes, 268 of them). In 376 rows a
    zero in glucose, pressure, triceps, insulin or mass stands for a missing value. Source: Smith
    et al. (1988), UCI; R package mlbench, ``PimaIndiansDiabetes``.

    >>> load_pima()["y"].value_counts().to_dict()
    {0: 500, 1: 268}
    """
    return _read("pima")


def load_wisconsin() -> pd.DataFrame:
    """Return breast-cancer biopsies from Wisconsin (original): n = 683, d = 9, two classes.

    Columns: nine scores of the cells from 1 to 10, y (1 = malignant, 239 of them). The 16 cases
    with a missing score are left out; 234 rows repeat another, so a kernel matrix needs jitter.
    Source: Wolberg and Mangasarian (1990), PNAS 87:9193, UCI; R package MASS, ``biopsy``.

    >>> load_wisconsin()["y"].value_counts().to_dict()
    {0: 444, 1: 239}
    """
    return _read("wisconsin")


def load_ionosphere() -> pd.DataFrame:
    """Return radar returns from the ionosphere: n = 351, d = 34, two classes.

    Columns: V1 to V34 (real and imaginary part, in [-1, 1], of 17 pulses), y (1 = good, 225 of
    them; 0 = bad). V2 is zero throughout: drop it before standardizing. Source: Sigillito et al.
    (1989), Johns Hopkins APL Technical Digest 10:262, UCI; R package mlbench, ``Ionosphere``.

    >>> load_ionosphere()["y"].value_counts().to_dict()
    {1: 225, 0: 126}
    """
    return _read("ionosphere")


def load_cpus() -> pd.DataFrame:
    """Return the performance of computers in five ordered classes: n = 209, d = 6.

    Columns: syct (cycle time, ns), mmin, mmax (least and most main memory, kB), cach (cache, kB),
    chmin, chmax (least and most channels), y (1 to 5: published performance cut at its quintiles;
    an ordinal likelihood that counts from 0 takes y - 1). Source: Ein-Dor and Feldmesser (1987),
    Communications of the ACM 30:308; R package MASS, ``cpus``.

    >>> load_cpus()["y"].value_counts().sort_index().tolist()
    [40, 42, 43, 41, 43]
    """
    return _read("cpus")


def load_longleaf() -> pd.DataFrame:
    """Return the longleaf pines of a forest in Georgia: n = 584 trees, d = 2, and no y.

    Columns: x1, x2 (where a tree stands, in a square of 200 meters), diameter (of the trunk at
    breast height, in centimeters, 2 and more). Source: Platt, Evans and Rathbun (1988), The
    American Naturalist 131:491; R package spatstat.data, ``longleaf``.

    >>> int((load_longleaf()["diameter"] < 10).sum())
    154
    """
    return _read("longleaf")


def load_wine() -> pd.DataFrame:
    """Return the bitterness of white wine as nine judges rated it: n = 72, d = 4, five grades.

    Columns: temp_warm (1 = grapes crushed warm), contact_yes (1 = juice and skins in contact),
    bottle (1 to 8, two per treatment), judge (1 to 9), response (the score, 0 to 100, that y was
    cut from: not a feature), y (1 to 5; an ordinal likelihood that counts from 0 takes y - 1).
    Source: Randall (1989), Biometrical Journal 31:781; R package ordinal, ``wine``.

    >>> load_wine()["y"].value_counts().sort_index().tolist()
    [5, 22, 26, 12, 7]
    """
    return _read("wine")


def load_eustocks() -> pd.DataFrame:
    """Return daily log returns of four European stock indices, 1991-98: n = 1859, 4 series, no y.

    Columns: t (trading day, from 1), DAX, SMI, CAC, FTSE (100 x difference of log closing prices,
    in percent). Source: Erste Bank; R package datasets, ``EuStockMarkets``.

    >>> load_eustocks()[["DAX", "SMI", "CAC", "FTSE"]].std().round(2).tolist()
    [1.03, 0.93, 1.1, 0.8]
    """
    return _read("eustocks")


def load_sp500() -> pd.DataFrame:
    """Return daily log returns of the S&P 500, 1999-2018: n = 5030, no y.

    Columns: year, month, day, return (100 x difference of log closing prices, in percent, rounded
    to four digits). ``pd.to_datetime(data[["year", "month", "day"]])`` makes dates. Source: Python
    package arch, ``sp500``.

    >>> load_sp500()["return"].abs().max().round(2).item()
    10.96
    """
    return _read("sp500")


def load_seatbelts() -> pd.DataFrame:
    """Count the car drivers killed in Great Britain by month, 1969-84: n = 192.

    Columns: year, month (1 to 12), kms (distance driven), petrol_price, law (1 = front seat belts
    were compulsory, from February 1983), van_drivers (drivers of light goods vehicles killed), y
    (drivers of cars killed). Source: Harvey and Durbin (1986), Journal of the Royal Statistical
    Society A 149:187; R package datasets, ``Seatbelts``.

    >>> load_seatbelts().groupby("law")["y"].mean().round(1).to_dict()
    {0: 125.9, 1: 100.3}
    """
    return _read("seatbelts")


def load_rain() -> pd.DataFrame:
    """Return the rain of 8 May 1986 at places in Switzerland: n = 467, d = 2.

    Columns: x1, x2 (east and north of the middle of the country, in kilometers), given (1 = one of
    the 100 places whose rain those who took part in the comparison were given, to predict the other
    367), y (rain of the day in tenths of a millimeter). Source: Spatial Interpolation Comparison
    97; Dubois (1998), Journal of Geographic Information and Decision Analysis 2:1; R package gstat,
    ``sic97``.

    >>> load_rain()["given"].value_counts().to_dict()
    {0: 367, 1: 100}
    """
    return _read("rain")


def load_flu() -> pd.DataFrame:
    """Count cases of influenza by district and week in southern Germany, 2005: n = 2240.

    Columns: week (1 to 16, of the year 2005), district (0 to 139, a row of `load_flu_districts`),
    y (cases reported). Source: Robert Koch Institute, SurvStat; Paul and Held (2011), Statistics in
    Medicine 30:1118; R package surveillance, ``fluBYBW``.

    >>> load_flu().groupby("week")["y"].sum().tolist()[5:13]
    [276, 357, 506, 630, 607, 547, 232, 100]
    """
    return _read("flu")


def load_flu_districts() -> pd.DataFrame:
    """Return the districts of `load_flu`, in Baden-Württemberg and Bavaria: n = 140.

    Columns: key (official number), x1, x2 (where its name stands on a map, east and north, in units
    of the map), population (at the end of 2004). Source: that of `load_flu`.

    >>> load_flu_districts()["population"].sum().item()
    23161312
    """
    return _read("flu_districts")


def load_flu_neighbors() -> pd.DataFrame:
    """Return the pairs of districts of `load_flu` that have a common border: n = 336.

    Columns: first, second (rows of `load_flu_districts`, counted from 0). Source: that of
    `load_flu`.

    >>> load_flu_neighbors().head(2).to_numpy().tolist()
    [[0, 1], [0, 2]]
    """
    return _read("flu_neighbors")


def load_school_math() -> pd.DataFrame:
    """Return tests in mathematics of 1721 children over six years: n = 7230.

    Columns: child (0 to 1720), school (0 to 59), year (of school, less 3.5: -2.5 to 2.5),
    low_income (per cent of the pupils of the school who live in poverty), y (the score of the
    child, on one scale for all years). Source: Raudenbush and Bryk (2002), Hierarchical Linear
    Models, chapter 8; R package mlmRev, ``egsingle``.

    >>> load_school_math()[["child", "school"]].nunique().to_dict()
    {'child': 1721, 'school': 60}
    """
    return _read("school_math")


def load_verbal_aggression() -> pd.DataFrame:
    """Return what 316 students say that they would do if they got angry: n = 316, 24 items, no y.

    Columns: anger (a score of the trait), male (1 = a man), and 24 items (0 = no, 1 = perhaps,
    2 = yes). In each of four situations (a bus does not stop, one misses a train since the clerk
    gave wrong information, a store closes as one enters, the operator disconnects a call) a student
    says whether he or she would want to curse, scold and shout, and whether he or she would do it:
    bus_want_curse, bus_want_scold, bus_want_shout, train_want_curse, train_want_scold,
    train_want_shout, store_want_curse, store_want_scold, store_want_shout, operator_want_curse,
    operator_want_scold, operator_want_shout, bus_do_curse, bus_do_scold, bus_do_shout,
    train_do_curse, train_do_scold, train_do_shout, store_do_curse, store_do_scold, store_do_shout,
    operator_do_curse, operator_do_scold, operator_do_shout. Source: De Boeck and Wilson (2004),
    Explanatory Item Response Models; R package lme4, ``VerbAgg``.

    >>> load_verbal_aggression()["bus_want_curse"].value_counts().sort_index().to_dict()
    {0: 91, 1: 95, 2: 130}
    """
    return _read("verbal_aggression")


def _read(name: str) -> pd.DataFrame:
    """Read one csv file of this folder, also from a zipped package."""
    with files(__name__).joinpath(f"{name}.csv").open("rb") as file:
        return pd.read_csv(file)
