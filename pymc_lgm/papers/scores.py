"""Scores of class probabilities: log density, squared error, abstention, capacity."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from numpy.typing import ArrayLike
from scipy.stats import rankdata

from pymc_lgm.linalg import Array

__all__ = ["Capacity", "abstention_curve", "brier_score", "capacity", "log_predictive_density"]

LEVELS = tuple(np.arange(51) / 100)
"""Default thresholds ρ of `abstention_curve`, those of Filippone and Girolami (2014)."""

ROUNDING = 1e-12
"""Rounding tolerance of a level, so that a probability of 0.51 is at the level 0.01."""


def log_predictive_density(y: ArrayLike, probability: ArrayLike) -> float:
    """Average the log predictive probability of the observations: Σ log p(y_i | data) / n.

    Parameters
    ----------
    y : array_like of int, shape (n,)
        Observed classes.
    probability : array_like
        p(y_i = 1), shape (n,), or that of each class 0...r − 1, shape (n, r).

    Returns
    -------
    float
        In nats per observation: 0 at best, −∞ if an observation had probability 0.

    Raises
    ------
    ValueError
        If the shapes of `y` and `probability` do not fit, if a label is not one of 0...r − 1, or if
        a probability is outside [0, 1].

    See Also
    --------
    papers.scores.brier_score : The mean squared error of the same probabilities.
    predict : Computes the probabilities.

    Examples
    --------
    >>> round(log_predictive_density([0, 1], [0.5, 0.8]), 4)
    -0.4581
    >>> round(log_predictive_density([0, 2], [[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]), 4)
    -0.4581
    """
    labels, p = _checked(y, probability)
    with np.errstate(divide="ignore"):
        return float(np.log(p[np.arange(len(p)), labels]).mean())


def brier_score(y: ArrayLike, probability: ArrayLike) -> float:
    r"""Average the squared error of predictive probabilities.

    For two classes, with :math:`p_i = p(y_i = 1)`, and for more, with :math:`p_{ic} = p(y_i = c)`,

    .. math::

       \frac{1}{n} \sum_i (p_i - y_i)^2, \qquad
       \frac{1}{n} \sum_i \sum_c (p_{ic} - [y_i = c])^2 .

    Parameters
    ----------
    y, probability : array_like
        As in `log_predictive_density`.

    Returns
    -------
    float
        0 at best; at worst 1 for two classes and 2 for more.

    Raises
    ------
    ValueError
        As for `log_predictive_density`.

    See Also
    --------
    papers.scores.log_predictive_density : The logarithmic score of the same probabilities.
    predict : Computes the probabilities.

    Notes
    -----
    G. W. Brier and some later authors sum over the two classes, which is twice as large.

    References
    ----------
    G. W. Brier (1950). Verification of forecasts expressed in terms of probability. Monthly Weather
    Review 78, 1-3.

    Examples
    --------
    >>> round(brier_score([0, 1], [0.5, 0.8]), 4)
    0.145
    >>> round(brier_score([0, 2], [[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]), 4)
    0.22
    """
    labels, p = _checked(y, probability)
    squares = np.square(p - np.eye(p.shape[1])[labels]).sum(axis=1)
    return float(squares.mean()) / (2.0 if p.shape[1] == 2 else 1.0)


def abstention_curve(
    y: ArrayLike, probability: ArrayLike, levels: Sequence[float] = LEVELS
) -> pd.DataFrame:
    """Accuracy and AUC among the observations that a classifier does not abstain from.

    At level ρ the classifier abstains if 0.5 − ρ < p < 0.5 + ρ, otherwise it predicts 1 if p > 0.5.
    With r classes it predicts the most probable class, and abstains if its probability is below
    (1 + 2 (r − 1) ρ) / r, which is the same rule for two classes.

    Parameters
    ----------
    y, probability : array_like
        As in `log_predictive_density`.
    levels : sequence of float
        Thresholds ρ; by default 0, 0.01, ..., 0.5 as in the source.

    Returns
    -------
    pandas.DataFrame
        One row per level, with columns ``abstention`` (the share of observations that are left
        out), ``accuracy`` and ``auc``. They are NaN if no observations are left, and ``auc`` also
        if only one class is left. For several classes, ``auc`` is the mean of the AUC of each class
        against the others.

    Raises
    ------
    ValueError
        As for `log_predictive_density`.

    See Also
    --------
    papers.scores.capacity : The area under these curves.
    predict : Computes the probabilities.

    Notes
    -----
    AUC is the Mann–Whitney statistic, the probability that a 1 ranks above a 0, with ties counted
    as one half. It is computed exactly, without scikit-learn.

    References
    ----------
    M. Filippone, M. Girolami (2014). Pseudo-marginal Bayesian inference for Gaussian processes.
    IEEE Transactions on Pattern Analysis and Machine Intelligence 36, 2214-2226, section 5.3.

    Examples
    --------
    >>> curve = abstention_curve([0, 1, 1, 0], [0.1, 0.9, 0.45, 0.7], levels=[0, 0.1, 0.3])
    >>> curve.round(2).to_dict("list")
    {'abstention': [0.0, 0.25, 0.5], 'accuracy': [0.5, 0.67, 1.0], 'auc': [0.75, 1.0, 1.0]}
    """
    labels, p = _checked(y, probability)
    classes = p.shape[1]
    highest_level = (classes * p.max(axis=1) - 1.0) / (2.0 * (classes - 1))
    is_right = p.argmax(axis=1) == labels
    rows = []
    for level in levels:
        judged = highest_level >= level - ROUNDING
        accuracy = is_right[judged].mean() if judged.any() else np.nan
        aucs = np.array([_auc(labels[judged] == c, p[judged, c]) for c in range(classes)])
        known = aucs[~np.isnan(aucs)]
        auc = known.mean() if known.size else np.nan
        rows.append((1.0 - judged.mean(), accuracy, auc))
    index = pd.Index(levels, name="level")
    return pd.DataFrame(rows, index, columns=["abstention", "accuracy", "auc"])


class Capacity(NamedTuple):
    """Areas under the curves of `abstention_curve`, between 0 and 1."""

    accuracy: float
    auc: float


def capacity(y: ArrayLike, probability: ArrayLike, levels: Sequence[float] = LEVELS) -> Capacity:
    r"""Compute the capacity: how well probabilities indicate which predictions to trust.

    The area under accuracy, or AUC, against the degree of abstention :math:`a`, divided by the
    largest degree :math:`a_{\max}` at which the curve is defined:

    .. math:: \frac{1}{a_{\max}} \int_0^{a_{\max}} \text{score}(a) \, da ,

    by the trapezoidal rule over the levels. If it is close to one, confident predictions are right.
    If no level abstains, it is the score itself.

    Parameters
    ----------
    y, probability, levels
        As in `abstention_curve`.

    Returns
    -------
    Capacity
        ``accuracy`` and ``auc``; NaN if the curve is not defined at any level.

    Raises
    ------
    ValueError
        As for `log_predictive_density`.

    See Also
    --------
    papers.scores.abstention_curve : The curves.

    References
    ----------
    As for `abstention_curve`.

    Examples
    --------
    >>> accuracy, auc = capacity([0, 1, 1, 0], [0.1, 0.9, 0.45, 0.7])
    >>> round(accuracy, 4), auc
    (0.7083, 0.9375)
    """
    curve = abstention_curve(y, probability, levels).sort_index()

    def area(score: str) -> float:
        defined = curve[["abstention", score]].dropna().to_numpy()
        if not len(defined):
            return float("nan")
        a, values = defined.T
        width = a[-1] - a[0]
        return float(np.trapezoid(values, a) / width if width > 0.0 else values[0])

    return Capacity(area("accuracy"), area("auc"))


def _auc(labels: np.ndarray, p: Array) -> float:
    """Return the share of (1, 0) pairs that p ranks correctly, with ties counted as one half."""
    ones = int(labels.sum())
    zeros = len(labels) - ones
    if not ones or not zeros:
        return float("nan")
    ranks = float(rankdata(p)[labels == 1].sum())
    return (ranks - ones * (ones + 1) / 2) / (ones * zeros)


def _checked(y: ArrayLike, probability: ArrayLike) -> tuple[np.ndarray, Array]:
    """Return y as integers and p with one column per class; raise if either is invalid."""
    labels, p = np.asarray(y), np.asarray(probability, dtype=np.float64)
    if p.ndim == 1:
        p = np.stack([1.0 - p, p], axis=1)
    if p.ndim != 2 or p.shape[1] < 2:
        raise ValueError(
            f"probability has shape {p.shape}: give p(y = 1), a number per row, or a column per "
            "class."
        )
    classes = p.shape[1]
    if labels.ndim != 1 or len(labels) != len(p) or not len(p):
        raise ValueError(f"y has shape {labels.shape}, probability {p.shape}: give one row each.")
    if not np.isin(labels, np.arange(classes)).all():
        raise ValueError(f"y holds {np.unique(labels)}: with {classes} classes it counts from 0.")
    if not ((p >= 0.0) & (p <= 1.0)).all():
        raise ValueError("probability has values outside [0, 1]: pass p(y = 1), not f or log p.")
    return labels.astype(np.int64), p
