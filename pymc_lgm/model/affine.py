"""Find the linear predictor in a model's graph.

Each variable of the graph does not depend on the latent variables, is jointly affine in those on
which it depends, or depends on them in another way. The linear predictor is the frontier: the last
affine variables on the way to a density. The rules for operations are in
`pymc_lgm.model.operations`.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pytensor.scalar as ps
import pytensor.tensor as pt

from pymc.distributions.distribution import SymbolicRandomVariable
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import toposort
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.subtensor import Subtensor

from pymc_lgm.compile.graphs.nodes import function_of
from pymc_lgm.gmrf import IntrinsicRV, MaternRV
from pymc_lgm.model.operations import (
    OF_SHAPES,
    Variable,
    bare,
    is_affine,
    is_sparse_product,
    number_of,
)
from pymc_lgm.vecchia import VecchiaRV

__all__ = ["Frontier", "find_frontier", "with_dense_products"]

WITHOUT_MEAN = (IntrinsicRV, MaternRV, VecchiaRV)
"""Random variables whose first parameter is not their mean."""


class Frontier(NamedTuple):
    """The result of `find_frontier`.

    Attributes
    ----------
    predictor : list of variable
        The affine variables that are inputs of a density, or of a node that is not affine.
    refused : dict of latent to node
        Variables that cannot be latent, because another latent's covariance depends on them, or its
        mean in a way that is not affine. Each has the node of that other latent.
    factors : list of list of (set, set)
        For each product of latents, or other operation that is affine in some of them given the
        others: the latents that might be given, and the others. For b z they are ({b}, {z}) and
        ({z}, {b}).
    """

    predictor: list[Variable]
    refused: dict[Variable, Apply[Any, Any]]
    factors: list[list[tuple[set[Variable], set[Variable]]]]


def find_frontier(
    terms: Sequence[Variable], latents: Sequence[Variable], given: Container[Variable]
) -> Frontier:
    """Follow the latents through the graph of ``terms``, random variables and potentials.

    Parameters
    ----------
    terms : sequence of variables
        Random variables and potentials that have a density, except the latents.
    latents : sequence of variables
        Random variables N(μ, ·), or the variables that replace them in the graph. Each is affine in
        the latents that its mean is affine in.
    given : container of variables
        Random variables that have a value of their own: dependence ends at them.
    """
    # Latents on which a variable depends, and those among them in which it is affine.
    depends: dict[Variable, set[Variable]] = {latent: {latent} for latent in latents}
    affine: dict[Variable, set[Variable]] = {latent: {latent} for latent in latents}
    readers: dict[Variable, list[Variable]] = {}  # of each variable of the predictor
    refused: dict[Variable, Apply[Any, Any]] = {}
    factors: list[list[tuple[set[Variable], set[Variable]]]] = []
    for node in toposort([*terms, *latents]):  # a latent that no term reads has a mean, too
        depend_on = [depends.get(x, set()) for x in node.inputs]
        if not any(depend_on) or isinstance(node.op, OF_SHAPES):
            continue
        affine_in = [affine.get(x, set()) for x in node.inputs]
        latent = next((x for x in node.outputs if x in latents), None)
        if latent is not None and isinstance(node.op, RandomVariable | SymbolicRandomVariable):
            # No other latent may enter a series, or a field of `pymc_lgm.gmrf`: all parameters
            # count as its precision, and the latent itself stands for the mean.
            known = isinstance(node.op, RandomVariable) and not isinstance(node.op, WITHOUT_MEAN)
            mean, *spread = node.op.dist_params(node) if known else (latent, *node.inputs)
            # Other latents may enter through an affine mean, and in no other way.
            nonlinear = depends.get(mean, set()) - affine.get(mean, set())
            for other in nonlinear.union(*(depends.get(x, set()) for x in spread)) - {latent}:
                refused[other] = node
            affine[latent] = {latent} | affine.get(mean, set())
            depends[latent] = affine[latent]
        elif latent is not None:
            # The latent is L v with v whitened, so any other latent that it depends on is in L.
            refused |= dict.fromkeys(set().union(*depend_on) - {latent}, node)
        elif is_affine(node, [bool(x) for x in depend_on]) and affine_in == depend_on:
            for x in node.outputs:
                affine[x] = depends[x] = set().union(*affine_in)
        else:
            if to_give := _factors(node, depend_on, affine_in):
                factors.append(to_give)
            for x, of in zip(node.inputs, affine_in, strict=True):
                if of:
                    readers.setdefault(x, []).extend(node.outputs)
            if not any(x in given for x in node.outputs):
                for x in node.outputs:
                    depends[x] = set().union(*depend_on)
    for term in terms:
        if affine.get(term):  # a potential may be affine itself
            readers.setdefault(term, []).append(term)
    found = [
        _before_probit(v) if all(isinstance(function_of(x), ps.Erfc) for x in of_v) else v
        for v, of_v in readers.items()
    ]
    paths = [_elementwise_path(v, affine) for v in found]
    narrow = [_before_broadcasting(path) for path in paths]
    # A vector that one density broadcasts is the predictor also of those that do not.
    shared = {u for u, v in zip(narrow, found, strict=True) if u is not v}
    narrow = [
        next((u for u in path if u in shared), v) for path, v in zip(paths, narrow, strict=True)
    ]
    return Frontier(list(dict.fromkeys(narrow)), refused, factors)


def _factors(
    node: Apply[Any, Any], depend_on: Sequence[set[Variable]], affine_in: Sequence[set[Variable]]
) -> list[tuple[set[Variable], set[Variable]]]:
    """The latents of an input, and those of the others, if a node is affine in these given it."""
    found: list[tuple[set[Variable], set[Variable]]] = []
    if is_affine(node, [bool(of) for of in depend_on]):
        return found  # an input of it is not affine, and that input has its own node
    for i, given in enumerate(depend_on):
        others = [set() if k == i else of for k, of in enumerate(depend_on)]
        rest: set[Variable] = set().union(*others)
        if not given or not rest or not given.isdisjoint(rest):
            continue
        are_affine = all(not of or of == affine_in[k] for k, of in enumerate(others))
        if are_affine and is_affine(node, [bool(of) for of in others]):
            found.append((given, rest))
    return found


def _before_probit(v: Variable) -> Variable:
    """The predictor u of `pymc.math.invprobit`, if v is −u/√2 in Φ(u) = ½ erfc(−u/√2)."""
    if not isinstance(function_of(v), ps.TrueDiv):
        return v
    minus, root = v.owner.inputs[0], bare(v.owner.inputs[1])
    if not isinstance(function_of(minus), ps.Neg) or not isinstance(function_of(root), ps.Sqrt):
        return v
    (u,) = minus.owner.inputs
    is_known = number_of(root.owner.inputs[0]) == 2.0
    return u if is_known and u.type.broadcastable == v.type.broadcastable else v


def _elementwise_path(v: Variable, affine: dict[Variable, set[Variable]]) -> list[Variable]:
    """v, what v is an elementwise function or a slice of, and so on."""
    path = [v]
    while (node := path[-1].owner) is not None:
        reached = [x for x in node.inputs if affine.get(x)]
        is_slice = isinstance(node.op, Subtensor) and reached == [node.inputs[0]]
        if len(reached) != 1 or not (isinstance(node.op, Elemwise | DimShuffle) or is_slice):
            break
        if is_slice and not all(isinstance(x, Constant) for x in node.inputs[1:]):
            break
        path.append(reached[0])
    return path


def _before_broadcasting(path: Sequence[Variable]) -> Variable:
    """The last vector u on the path of v before it is broadcast; v itself if nothing is.

    f then has the elements of u, which are fewer. For example, an ordinal likelihood subtracts a
    predictor from several cut points, and each observation reads one element of the predictor. A
    single number u does not count.
    """
    found = path[0]
    for v, inner in pairwise(path):
        if not isinstance(v.owner.op, Elemwise):
            continue
        pairs = zip(inner.type.broadcastable, v.type.broadcastable, strict=True)
        if any(one and not also for one, also in pairs):
            narrow = bare(inner)
            if all(narrow.type.broadcastable):
                break
            found = narrow
    return found


def with_dense_products(variables: Sequence[Variable]) -> list[Variable]:
    """The same graphs with dense constants instead of sparse ones in products.

    Only the rules that read a graph use the result, because they find the zeros of a dense constant
    as well. A model's functions keep the sparse product.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pytensor import sparse
    >>> from scipy.sparse import csr_matrix
    >>> A = sparse.as_sparse_or_tensor_variable(csr_matrix([[1.0, 0.0], [0.0, 2.0]]))
    >>> (eta,) = with_dense_products([sparse.structured_dot(A, pt.ones((2, 1)))])
    >>> eta.eval().ravel()
    array([1., 2.])
    """
    graphs = list(variables)
    while True:
        node = next(filter(is_sparse_product, toposort(graphs)), None)
        if node is None:
            return graphs
        A, x = node.inputs
        product = pt.dot(pt.constant(A.data.toarray()), x).astype(node.outputs[0].dtype)
        graphs = clone_replace(graphs, {node.outputs[0]: product}, rebuild_strict=False)
