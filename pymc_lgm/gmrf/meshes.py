"""Triangles over a region of the plane, for fields that are piecewise linear on them."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from numpy.typing import ArrayLike, NDArray
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable
from scipy.sparse import csc_array, csr_array, diags_array
from scipy.spatial import ConvexHull, Delaunay, KDTree, QhullError

from pymc_lgm.gaussian.content import ByContent
from pymc_lgm.gaussian.spde import FiniteElements
from pymc_lgm.linalg import Array

__all__ = ["Mesh"]

Index = NDArray[np.intp]

OUTSIDE = 1e-9
"""A point is in a triangle if no barycentric weight is below minus this number. It allows for
rounding errors of coordinates up to five million edges from the origin."""

FLAT = 1e-10
"""A triangle has no area if twice its area is less than this share of its longest edge squared."""

MOST = 300_000
"""Largest number of vertices, approximately. A mesh with more is refused, since a length in the
wrong unit is the likely cause."""

FRINGE = 2.0
"""How far the fine part of a mesh extends beyond the region, in edges. No coarse triangle may
overlap the region. By hand, in 40 random meshes none does with one edge, and in each mesh some do
with half an edge."""

RING = 3.0
"""Width of each ring of coarser triangles, in edges of that ring. By hand, with half an edge some
angles are 7 degrees, and from one edge on none is below 30. With three edges instead of one a mesh
has 1.4 times as many vertices, and its coarse triangles are farther from the region."""


class Mesh(ByContent):
    r"""A triangulated domain in the plane: `around` makes one for given points.

    Parameters
    ----------
    vertices : array_like, shape (N, 2)
    triangles : array_like of int, shape (T, 3)
        Three vertices each, counted from 0, in any order. They may be made by any program, for
        example MeshPy, Gmsh or fmesher.

    Attributes
    ----------
    vertices : ndarray, shape (N, 2)
    triangles : ndarray of int, shape (T, 3)
        Counterclockwise.
    n : int
        N.

    Raises
    ------
    ValueError
        If a vertex is there twice, is not finite, or belongs to no triangle; if a triangle has a
        vertex that is not there, or no area; if an edge belongs to more than two triangles.

    See Also
    --------
    gmrf.Matern : A field on it.

    Notes
    -----
    Triangles with small angles make the field on them a worse approximation: see `angles`.

    Examples
    --------
    >>> import pymc_lgm as lgm
    >>> square = lgm.gmrf.Mesh([[0, 0], [1, 0], [1, 1], [0, 1]], [[0, 1, 2], [0, 2, 3]])
    >>> square.C.diagonal().round(3)
    array([0.333, 0.167, 0.333, 0.167])
    >>> square.G.toarray()
    array([[ 1. , -0.5,  0. , -0.5],
           [-0.5,  1. , -0.5,  0. ],
           [ 0. , -0.5,  1. , -0.5],
           [-0.5,  0. , -0.5,  1. ]])
    """

    def __init__(self, vertices: ArrayLike, triangles: ArrayLike):
        points, corners = _as_points(vertices, "vertices"), np.asarray(triangles)
        if corners.ndim != 2 or corners.shape[1] != 3 or not len(corners):
            raise ValueError(
                f"triangles has shape {corners.shape}: write a row of three vertices for each."
            )
        if corners.dtype.kind not in "iu":
            raise ValueError("triangles are numbers of vertices, integers that count from 0.")
        corners = corners.astype(np.intp)
        _refuse_vertices(points, corners)
        a, b, c = (points[corners[:, k]] for k in range(3))
        clockwise = _cross(b - a, c - a) < 0.0
        corners[clockwise] = corners[clockwise][:, [0, 2, 1]]
        self.vertices, self.triangles, self.n = points, corners, len(points)
        edges = self._edges
        flat = 2.0 * self.areas <= FLAT * (edges**2).sum(axis=2).max(axis=1)
        if flat.any():
            k = int(np.argmax(flat))
            raise ValueError(
                f"Triangle {k}, of the vertices {corners[k].tolist()}, has no area: leave it out."
            )
        pairs = np.sort(corners[:, [[1, 2], [2, 0], [0, 1]]].reshape(-1, 2), axis=1)
        each, count = np.unique(pairs, axis=0, return_counts=True)
        if count.max() > 2:
            i, j = each[np.argmax(count)].tolist()
            raise ValueError(
                f"The edge between vertices {i} and {j} belongs to {count.max()} triangles: "
                "triangles must not overlap."
            )

    @classmethod
    def around(
        cls,
        points: ArrayLike,
        *,
        max_edge: float,
        extension: float | None = None,
        max_outer_edge: float | None = None,
        boundary: ArrayLike | None = None,
    ) -> Mesh:
        """Triangulate a region around points: fine where they are, coarser outside.

        Parameters
        ----------
        points : array_like, shape (n, 2)
            Points at which the field is needed. Some may be equal.
        max_edge : float
            Length of edges inside the region, at most. A field is approximated well if this is a
            fifth of its range, or less.
        extension : float, optional
            Smallest distance by which the mesh extends beyond the region. By default a third of the
            region's diameter. On the boundary of a mesh the variance of a field is twice, at
            corners three times, that inside. So the extension should be about the largest range
            that is likely.
        max_outer_edge : float, optional
            Approximate length of edges where the mesh is coarsest, by default a third of
            ``extension``.
        boundary : array_like, shape (k, 2), optional
            Corners of the region, a polygon, one after another. By default the convex hull of the
            points.

        Returns
        -------
        Mesh

        Raises
        ------
        ValueError
            If a length is not positive, or so small that the mesh would have more than some 300 000
            vertices.

        See Also
        --------
        gmrf.Matern : A field on a mesh.

        Notes
        -----
        Inside the region all triangles are equilateral, with vertices on a triangular lattice.
        Around the region are rings. The vertices of each ring are on a lattice with edges twice as
        long as in the ring before. A Delaunay triangle between two rings has a circumscribed circle
        with a radius of at most 2/√3 of its shortest edge, so that no angle is below 25 degrees.
        The boundary of the mesh is a hexagon of lattice lines.

        References
        ----------
        F. Lindgren, H. Rue (2015). Bayesian spatial modelling with R-INLA. Journal of Statistical
        Software 63(19). Section 2.1.

        Examples
        --------
        >>> import numpy as np, pymc_lgm as lgm
        >>> points = np.random.default_rng(0).uniform(size=(50, 2))
        >>> mesh = lgm.gmrf.Mesh.around(points, max_edge=0.1, extension=0.5)
        >>> mesh.n, bool(mesh.angles.min() > 25.0)
        (543, True)
        """
        x = _as_points(points, "points")
        if not len(x) and boundary is None:
            raise ValueError("There are no points: write boundary= of the region.")
        region = _hull(x) if boundary is None else _as_points(boundary, "boundary")
        if boundary is not None and len(region) < 3:
            raise ValueError(f"boundary has {len(region)} corner(s): a region has three or more.")
        center = 0.5 * (region.min(axis=0) + region.max(axis=0))
        diameter = float(np.linalg.norm(np.ptp(region, axis=0)))
        if extension is None:
            if diameter == 0.0:
                raise ValueError("All points are at one place: write extension=, a length.")
            extension = diameter / 3.0
        if max_outer_edge is None:
            max_outer_edge = max(extension / 3.0, max_edge)
        lengths = {"max_edge": max_edge, "extension": extension, "max_outer_edge": max_outer_edge}
        for name, length in lengths.items():
            if not 0.0 < length < np.inf:
                raise ValueError(f"{name} is {length}: a positive length in units of the points.")
        levels = max(0, int(np.floor(np.log2(max_outer_edge / max_edge))))
        sides = np.ptp(region, axis=0)
        _refuse_many("max_edge", max_edge, sides + 2.0 * FRINGE * max_edge)
        _refuse_many("max_outer_edge", max_edge * 2.0**levels, sides + 2.0 * extension)
        scaled = (region - center) / max_edge
        return _lattice(scaled, extension / max_edge, levels, max_edge, center)

    @property
    def _content(self) -> tuple[np.ndarray, ...]:
        """Vertices and triangles."""
        return self.vertices, self.triangles

    def __repr__(self) -> str:
        return f"Mesh({self.n} vertices, {len(self.triangles)} triangles, {self._digest[:12]})"

    # Finite elements

    @cached_property
    def _edges(self) -> Array:
        """Edge vectors opposite to each corner, shape (T, 3, 2)."""
        at = self.vertices[self.triangles]
        return np.asarray(at[:, [2, 0, 1]] - at[:, [1, 2, 0]])

    @cached_property
    def areas(self) -> Array:
        """Areas of the triangles, shape (T,)."""
        return 0.5 * _cross(self._edges[:, 0], self._edges[:, 1])

    @cached_property
    def angles(self) -> Array:
        """Angles of the triangles in degrees, shape (T, 3).

        A mesh made by `around` has none below 25.
        """
        e = self._edges
        along = -(e[:, [1, 2, 0]] * e[:, [2, 0, 1]]).sum(axis=2)
        return np.degrees(np.arctan2(2.0 * self.areas[:, None], along))

    @cached_property
    def elements(self) -> FiniteElements:
        """C, as its diagonal, and G."""
        T, e = self.triangles, self._edges
        c = np.bincount(T.ravel(), np.repeat(self.areas / 3.0, 3), minlength=self.n)
        products = np.einsum("tid,tjd->tij", e, e) / (4.0 * self.areas)[:, None, None]
        rows, columns = np.repeat(T, 3, axis=1), np.tile(T, 3)
        places = rows.ravel(), columns.ravel()
        G = csc_array((products.ravel(), places), shape=(self.n, self.n))
        return FiniteElements(c, csc_array(0.5 * (G + G.T)))

    @property
    def C(self) -> csc_array:
        r"""Lumped mass matrix, diagonal, :math:`C_{ii} = \int \psi_i`."""
        return csc_array(diags_array(self.elements.c))

    @property
    def G(self) -> csc_array:
        r"""Stiffness matrix, :math:`G_{ij} = \int \nabla \psi_i \cdot \nabla \psi_j`."""
        return self.elements.G

    # Points

    def locate(self, points: ArrayLike) -> tuple[Index, Array]:
        """Find the corners of the triangle around each point, and the point's barycentric weights.

        Parameters
        ----------
        points : array_like, shape (n, 2)

        Returns
        -------
        corners : ndarray of int, shape (n, 3)
        weights : ndarray, shape (n, 3)
            They are not negative, and sum to one.

        Raises
        ------
        ValueError
            If a point is outside of the mesh.
        TypeError
            If the points are a variable of a model.

        Examples
        --------
        >>> import pymc_lgm as lgm
        >>> square = lgm.gmrf.Mesh([[0, 0], [1, 0], [1, 1], [0, 1]], [[0, 1, 2], [0, 2, 3]])
        >>> corners, weights = square.locate([[0.5, 0.25]])
        >>> corners.tolist(), weights.tolist()
        ([[0, 1, 2]], [[0.5, 0.25, 0.25]])
        """
        x = _as_points(points, "points")
        best, found = np.full(len(x), -np.inf), np.zeros(len(x), dtype=np.intp)
        for of_points, of_triangles in self._near(x):
            least = self._weights(x[of_points], of_triangles).min(axis=1)
            # In this order, the best triangle of each point is the last one of the point.
            order = np.lexsort((least, of_points))
            last = order[np.flatnonzero(np.diff(of_points[order], append=-1))]
            last = last[least[last] > best[of_points[last]]]
            best[of_points[last]], found[of_points[last]] = least[last], of_triangles[last]
        if (outside := np.flatnonzero(best < -OUTSIDE)).size:
            i = int(outside[0])
            low, high = self.vertices.min(axis=0), self.vertices.max(axis=0)
            raise ValueError(
                f"{outside.size} of {len(x)} points are outside of the mesh; the first is points"
                f"[{i}], ({x[i, 0]:g}, {x[i, 1]:g}). The mesh is within [{low[0]:g}, {high[0]:g}] "
                f"x [{low[1]:g}, {high[1]:g}]. Make it with these points, too, or with a larger "
                "extension=."
            )
        weights = np.maximum(self._weights(x, found), 0.0)
        return self.triangles[found], weights / weights.sum(axis=1, keepdims=True)

    @cached_property
    def _trees(self) -> list[tuple[Index, float, KDTree]]:
        """For triangles of each size: their numbers, a radius, and a tree of their centers.

        A point in one of these triangles is within the radius of its center. The radii of a group
        differ by less than a factor of two, so that a search around a point finds few triangles.
        """
        at = self.vertices[self.triangles]
        centers = at.mean(axis=1)
        reach = np.linalg.norm(at - centers[:, None], axis=2).max(axis=1)
        octave = np.floor(np.log2(reach))
        alike = [np.flatnonzero(octave == k) for k in np.unique(octave)]
        more = 1 + 1e-6  # a corner is in the triangle in spite of rounding
        return [(k, float(reach[k].max()) * more, KDTree(centers[k])) for k in alike]

    def _near(self, x: Array) -> list[tuple[Index, Index]]:
        """Pairs of a point and a triangle that may contain it."""
        pairs = []
        for triangles, reach, tree in self._trees:
            lists = tree.query_ball_point(x, reach)
            count = np.array([len(each) for each in lists], dtype=np.intp)
            if count.any():
                which = np.concatenate([np.asarray(each, dtype=np.intp) for each in lists])
                pairs.append((np.repeat(np.arange(len(x)), count), triangles[which]))
        return pairs

    def _weights(self, x: Array, triangles: Index) -> Array:
        """Barycentric weights of each point in its triangle; some are negative if it is outside."""
        toward = self.vertices[self.triangles[triangles]] - x[:, None]
        parts = [_cross(toward[:, i], toward[:, j]) for i, j in ((1, 2), (2, 0), (0, 1))]
        return np.stack(parts, axis=1) / (2.0 * self.areas[triangles])[:, None]

    def projector(self, points: ArrayLike) -> csr_array:
        """Make the matrix A of a field: from its values u at the vertices, A u are those at points.

        Parameters
        ----------
        points : array_like, shape (n, 2)

        Returns
        -------
        sparse array, shape (n, N)
            With three elements in each row.

        Raises
        ------
        ValueError
            If a point is outside of the mesh.

        See Also
        --------
        gmrf.Mesh.at : A u itself, in a model and of its draws.

        Examples
        --------
        >>> import pymc_lgm as lgm
        >>> square = lgm.gmrf.Mesh([[0, 0], [1, 0], [1, 1], [0, 1]], [[0, 1, 2], [0, 2, 3]])
        >>> square.projector([[0.5, 0.25]]).toarray()
        array([[0.5 , 0.25, 0.25, 0.  ]])
        """
        corners, weights = self.locate(points)
        starts = np.arange(0, corners.size + 1, 3)
        A = csr_array((weights.ravel(), corners.ravel(), starts), shape=(len(corners), self.n))
        A.sort_indices()
        return A

    def at(self, points: ArrayLike, u: Any, *, dim: str = "point") -> Any:
        """The values of a field at points, from its values u at the vertices.

        A model uses it for the points of the data, and the same call with draws of u predicts at
        new points. The prediction is exact, because the field is linear on each triangle.

        Parameters
        ----------
        points : array_like, shape (n, 2)
        u : variable, DataArray or array, shape (..., N)
            Its last axis is that of the vertices.
        dim : str
            Name of the last axis of the result if u is a DataArray.

        Returns
        -------
        variable, DataArray or ndarray, shape (..., n)

        Raises
        ------
        ValueError
            If a point is outside of the mesh, or the last axis of u has not N elements.

        See Also
        --------
        spatial.exceedance : Probabilities that the values exceed a threshold.

        Examples
        --------
        >>> import numpy as np, pymc_lgm as lgm
        >>> square = lgm.gmrf.Mesh([[0, 0], [1, 0], [1, 1], [0, 1]], [[0, 1, 2], [0, 2, 3]])
        >>> square.at([[0.5, 0.25], [1.0, 1.0]], np.array([0.0, 1.0, 3.0, 2.0]))
        array([1., 3.])
        """
        corners, weights = self.locate(points)
        is_variable = isinstance(u, TensorVariable)
        length = tuple(u.type.shape if is_variable else np.shape(u))[-1:]
        if length not in ((self.n,), (None,)):
            raise ValueError(
                f"The last axis of u has {length[0] if length else 0} elements, and the mesh "
                f"{self.n} vertices."
            )
        if (last := getattr(u, "dims", (None,))[-1]) in ("chain", "draw"):
            raise ValueError(
                f"The last axis of u is {last!r}: write u.transpose('chain', 'draw', ...)."
            )
        if is_variable:
            read = u[corners] if u.ndim == 1 else u[..., corners]
            return (read * weights).sum(axis=-1)
        # One corner after another: no array of three times the result.
        values = np.asarray(u)
        result = sum(values[..., corners[:, k]] * weights[:, k] for k in range(3))
        if not hasattr(u, "dims"):
            return result
        *others, _ = u.dims
        coords = {name: u.coords[name] for name in others if name in u.coords}
        return type(u)(result, dims=(*others, dim), coords=coords, name=u.name)

    def plot(self, ax: Any = None, points: ArrayLike | None = None, **style: Any) -> Any:
        """Draw the triangles, and points if there are some.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            By default the axes of a new figure.
        points : array_like, shape (n, 2), optional
        **style
            As in ``matplotlib.axes.Axes.triplot``.

        Returns
        -------
        matplotlib.axes.Axes

        Examples
        --------
        >>> import matplotlib
        >>> matplotlib.use("Agg")
        >>> import pymc_lgm as lgm
        >>> lgm.gmrf.Mesh.around([[0, 0], [1, 1]], max_edge=0.5).plot(points=[[0, 0], [1, 1]])
        <Axes: >
        """
        if ax is None:
            _, ax = import_module("matplotlib.pyplot").subplots(layout="constrained")
        style = {"color": "0.6", "linewidth": 0.5} | style
        ax.triplot(*self.vertices.T, self.triangles, **style)
        if points is not None:
            ax.plot(*_as_points(points, "points").T, ".", markersize=3)
        ax.set_aspect("equal")
        return ax


def _lattice(region: Array, extension: float, levels: int, edge: float, center: Array) -> Mesh:
    """Make a mesh from parts of one lattice with edges of length 1, then scale and move it.

    Level k has every 2^k-th vertex of the lattice up to a distance from the region, and the last
    level has those of the whole hexagon.

    Parameters
    ----------
    region : ndarray, shape (k, 2)
        Corners of the region, in units of ``edge`` from ``center``.
    extension : float
        Distance from the region to the boundary of the mesh, at least, in units of ``edge``.
    levels : int
        Number of rings.
    edge, center
        The scale and place of the mesh.
    """
    largest = 2**levels
    # The three coordinates i, j and i + j are each constant along lattice lines of one direction.
    lines = np.array([[1.0, -(3.0**-0.5)], [0.0, 2.0 * 3.0**-0.5], [1.0, 3.0**-0.5]])
    along, reach = region @ lines.T, extension * 2.0 * 3.0**-0.5
    low = (np.floor((along.min(axis=0) - reach) / largest) * largest).astype(int)
    high = (np.ceil((along.max(axis=0) + reach) / largest) * largest).astype(int)
    found, radius = [], FRINGE
    for level in range(levels + 1):
        step = 2**level
        is_last = level == levels
        if level:
            radius += RING * step
        wide = radius * 2.0 * 3.0**-0.5
        begin = np.floor((along.min(axis=0) - wide) / step) * step
        end = np.ceil((along.max(axis=0) + wide) / step) * step
        begin = low if is_last else np.maximum(low, begin.astype(int))
        end = high if is_last else np.minimum(high, end.astype(int))
        i, j = np.meshgrid(
            np.arange(begin[0], end[0] + 1, step), np.arange(begin[1], end[1] + 1, step)
        )
        ij = np.column_stack([i.ravel(), j.ravel()])
        total = ij.sum(axis=1)
        ij = ij[(total >= low[2]) & (total <= high[2])]
        found.append(ij if is_last else ij[_distances(_placed(ij), region) <= radius])
    ij = np.unique(np.concatenate(found), axis=0)
    places = _placed(ij)
    triangles = Delaunay(places).simplices
    at = places[triangles]
    double = np.abs(_cross(at[:, 1] - at[:, 0], at[:, 2] - at[:, 0]))
    # Because of rounding, some triangles along the boundary have three vertices on one line. Twice
    # the area of any other triangle is at least √3/2.
    return Mesh(places * edge + center, triangles[double > 0.1])


def _refuse_many(name: str, edge: float, sides: Array) -> None:
    """Raise a ValueError if a box would have too many vertices."""
    count = float(np.prod(sides)) / (0.75**0.5 * edge**2)
    if not count < MOST:
        raise ValueError(
            f"A box of {sides[0]:g} x {sides[1]:g} would have about {count:.2g} vertices with "
            f"edges of {edge:g}: write a larger {name}."
        )


def _placed(ij: NDArray[np.integer]) -> Array:
    """Places of lattice points with coordinates i and j: i (1, 0) + j (½, √3/2)."""
    return np.column_stack([ij[:, 0] + 0.5 * ij[:, 1], 0.75**0.5 * ij[:, 1]])


def _distances(points: Array, polygon: Array) -> Array:
    """Distances of points from a polygon, 0 inside."""
    nearest = np.full(len(points), np.inf)
    inside = np.zeros(len(points), dtype=bool)
    for a, b in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        edge, toward = b - a, points - a
        square = float(edge @ edge)
        t = np.clip(toward @ edge / square, 0.0, 1.0) if square else np.zeros(len(points))
        nearest = np.minimum(nearest, np.linalg.norm(toward - t[:, None] * edge, axis=1))
        if a[1] != b[1]:
            crosses = (a[1] > points[:, 1]) != (b[1] > points[:, 1])
            inside ^= crosses & (points[:, 0] < a[0] + (points[:, 1] - a[1]) * edge[0] / edge[1])
    nearest[inside] = 0.0
    return nearest


def _hull(points: Array) -> Array:
    """Corners of the convex hull, or of the box around points on one line."""
    try:
        return points[ConvexHull(points).vertices]
    except QhullError:
        low, high = points.min(axis=0), points.max(axis=0)
        return np.array([low, [high[0], low[1]], high, [low[0], high[1]]])


def _cross(a: Array, b: Array) -> Array:
    return np.asarray(a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0])


def _as_points(points: ArrayLike, what: str) -> Array:
    if isinstance(points, Variable):
        raise TypeError(
            f"{what} is a variable of a model: the triangles of points are found once, so write "
            "numbers."
        )
    x = np.array(points, dtype=np.float64)
    if x.ndim != 2 or x.shape[1] != 2:
        raise ValueError(f"{what} has shape {x.shape}: write a row of two coordinates for each.")
    if not np.isfinite(x).all():
        i = int(np.flatnonzero(~np.isfinite(x).all(axis=1))[0])
        raise ValueError(f"{what}[{i}] is not finite.")
    return x


def _refuse_vertices(points: Array, corners: Index) -> None:
    n = len(points)
    bad = np.flatnonzero(((corners < 0) | (corners >= n)).any(axis=1))
    if bad.size:
        k = int(bad[0])
        raise ValueError(
            f"triangles[{k}] is {corners[k].tolist()}, and the mesh has {n} vertices: they are "
            f"counted from 0 to {n - 1}."
        )
    _, first, index = np.unique(points, axis=0, return_index=True, return_inverse=True)
    if first.size < n:
        j = int(np.flatnonzero(first[index.ravel()] != np.arange(n))[0])
        raise ValueError(
            f"Vertices {int(first[index.ravel()[j]])} and {j} are the same point, "
            f"({points[j, 0]:g}, {points[j, 1]:g}): leave one of them out."
        )
    alone = np.setdiff1d(np.arange(n), corners)
    if alone.size:
        raise ValueError(f"Vertex {int(alone[0])} belongs to no triangle: leave it out.")
