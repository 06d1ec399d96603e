"""Maps of areas: the adjacency matrix, and the scale of an intrinsic model.

Pictures and exceedance probabilities are here under the same public name, `pymc_lgm.spatial`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from numpy.typing import ArrayLike
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from pymc_lgm.excursions import exceedance as exceedance
from pymc_lgm.gaussian.structure import Structure
from pymc_lgm.maps import plot_map as plot_map

__all__ = ["adjacency", "exceedance", "plot_map", "scaling_factor"]


def adjacency(neighbors: Any, n: int | None = None, *, sparse: bool = False) -> Any:
    """Make the adjacency matrix W of a map for PyMC: W_ij = 1 if areas i and j are neighbors.

    Parameters
    ----------
    neighbors : array_like, shape (edges, 2), or libpysal.weights.W
        Pairs of areas, counted from 0, each in one order or in both; or weights of libpysal, which
        are neighbors if the weight is positive.
    n : int, optional
        Number of areas, by default the largest number in a pair plus one. Weights of libpysal know
        theirs.
    sparse : bool
        Whether W is a sparse matrix. `pymc.CAR` accepts it, and with ten thousand areas it saves an
        array of 800 MB. `pymc.ICAR` accepts only arrays.

    Returns
    -------
    ndarray, or scipy.sparse.csr_matrix, shape (n, n)

    Raises
    ------
    ValueError
        If `neighbors` is not an array of pairs of integers, if there are no pairs and no `n`, if an
        area is not in 0, …, n − 1, or if an area is its own neighbor.

    See Also
    --------
    spatial.scaling_factor : The scale of an intrinsic model on the map.
    spatial.plot_map : A picture of the map.

    Examples
    --------
    >>> import pymc_lgm as lgm
    >>> lgm.spatial.adjacency([(0, 1), (1, 2)])
    array([[0, 1, 0],
           [1, 0, 1],
           [0, 1, 0]])
    """
    if hasattr(neighbors, "sparse"):  # weights of libpysal
        joined = csr_matrix(neighbors.sparse > 0, dtype=np.int64)
        return joined if sparse else joined.toarray()
    edges = np.asarray(neighbors)
    if edges.ndim != 2 or edges.shape[1] != 2 or not np.issubdtype(edges.dtype, np.integer):
        raise ValueError(
            f"neighbors has shape {edges.shape} and type {edges.dtype}: write pairs of areas, "
            "counted from 0, one per row."
        )
    if n is None and not edges.size:
        raise ValueError("neighbors has no pairs: write the number of areas, n=.")
    size = int(edges.max()) + 1 if n is None else n
    outside = edges[(edges < 0) | (edges >= size)]
    if outside.size:
        raise ValueError(f"neighbors has area {outside[0]}, but there are {size}: count from 0.")
    if (edges[:, 0] == edges[:, 1]).any():
        own = int(edges[edges[:, 0] == edges[:, 1]][0, 0])
        raise ValueError(f"Area {own} is its own neighbor: leave the pair ({own}, {own}) out.")
    both = np.unique(np.vstack([edges, edges[:, ::-1]]), axis=0)
    # PyTensor accepts sparse matrices, but not sparse arrays.
    W = csr_matrix((np.ones(len(both), dtype=np.int64), both.T), shape=(size, size))
    return W if sparse else W.toarray()


def scaling_factor(W: ArrayLike) -> Any:
    r"""Compute the scale of an intrinsic model: the geometric mean of its marginal variances.

    The model has the precision :math:`Q = D - W`, where D has the row sums of W, and a sum of zero
    in each connected component of the map. Its covariance is the generalized inverse :math:`Q^-`,
    and the scale is :math:`s = \exp \operatorname{mean}_i \log Q^-_{ii}`. So the variances of
    ``sqrt(rho / s) * phi``, the structured part of the model of Besag, York and Mollié, have the
    geometric mean rho.

    Parameters
    ----------
    W : array_like or sparse, shape (n, n)
        Symmetric; 0 for areas that are not neighbors.

    Returns
    -------
    float, or ndarray of shape (n,)
        One number for a connected map. For a map with several components, the scale of the
        component of each area. An area without neighbors has scale 1.

    Raises
    ------
    ValueError
        If W is not square and symmetric, or if it has a weight that is negative or not finite.

    See Also
    --------
    spatial.adjacency : Makes W.
    gmrf.ICAR : With ``scale=True`` the model is scaled.

    Notes
    -----
    If areas have few neighbors, as on a map, it takes about n^1.5 operations, and for a sparse W no
    n × n array is allocated. The variances follow from a sparse Cholesky factor by the Takahashi
    equations.

    References
    ----------
    A. Riebler, S. H. Sørbye, D. Simpson, H. Rue (2016). An intuitive Bayesian spatial model for
    disease mapping that accounts for scaling. Statistical Methods in Medical Research 25. Several
    components: A. Freni-Sterrantino, M. Ventrucci, H. Rue (2018), Spatial and Spatio-temporal
    Epidemiology 26.

    Examples
    --------
    >>> import pymc_lgm as lgm
    >>> W = lgm.spatial.adjacency([(0, 1), (1, 2), (2, 3)])
    >>> round(lgm.spatial.scaling_factor(W), 4)
    0.5728
    """
    # A scaled structure is R times the scale of each component.
    plain, scaled = Structure.map(W).R, Structure.map(W, scale=True).R
    scales = scaled.diagonal() / plain.diagonal()
    count, _ = connected_components(plain, directed=False)
    return float(scales[0]) if count == 1 else scales
