"""What is expected of names that PyMC, PyTensor and Numba do not promise to keep."""

import numba
import numpy as np
import pymc as pm
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest

from pymc.distributions import transforms
from pytensor.compile.mode import get_mode
from pytensor.graph.traversal import ancestors
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot

from pymc_lgm.compile.graphs import upstream
from pymc_lgm.model.operations import core_of


def evaluated(graph):
    return graph.eval(mode="FAST_COMPILE")


def test_distributions_have_a_density_a_transform_and_a_support_point():
    """By their operations: those of fields register theirs."""
    rv = pm.HalfNormal.dist(2.0, shape=3)
    op, inputs = rv.owner.op, rv.owner.inputs
    log_density = upstream.log_density_of(op, (pt.constant(np.ones(3)),), *inputs)
    np.testing.assert_allclose(evaluated(log_density), evaluated(pm.logp(rv, np.ones(3))))
    transform = upstream.default_transform_of(op, rv)
    assert transform.name == transforms.log.name
    point = upstream.support_point_of(op, rv, *inputs)
    np.testing.assert_allclose(evaluated(point), 2.0)


def test_objects_register_how_they_become_variables():
    class Thing:
        pass

    upstream.tensor_variable_of.register(Thing)(lambda thing, *_: pt.constant(2.0))
    assert pt.as_tensor_variable(Thing()).data == 2.0


def test_operations_register_their_loops():
    for register in (
        upstream.numba_funcify.register,
        upstream.numba_core_rv_funcify.register,
        upstream.register_funcify_and_cache_key,
        upstream.register_funcify_default_op_cache_key,
    ):
        assert callable(register)


def test_operations_have_functions_with_keys():
    """A loop calls the function, and what is on disk is found by its key."""
    x = ps.float64("x")
    functions = [
        upstream.numba_funcify_ensure_cache(op, node=op.make_node(x)) for op in (ps.sin, ps.cos)
    ]
    assert len({key for _, key in functions}) == 2
    sine = functions[0][0]
    assert numba.njit(lambda x: sine(x))(0.5) == pytest.approx(np.sin(0.5))


def test_constants_that_are_not_arrays_have_keys():
    whole, part = slice(None), slice(1)
    assert upstream.numba_typify(part) == part
    assert upstream.cache_key_for_constant(whole) != upstream.cache_key_for_constant(part)


def test_source_becomes_a_function_that_numba_finds_on_disk():
    source = "def double(x):\n    return 2.0 * x\n"
    double = upstream.compile_numba_function_src(source, "double", {}, cache_key="a key")
    assert double(2.0) == 4.0
    assert double.__source__ == source


@pytest.mark.slow
def test_a_compiled_function_shows_its_loop():
    x = pt.vector("x")
    function = pytensor.function([x], [2.0 * x], mode="NUMBA")
    assert isinstance(get_mode("NUMBA").linker, upstream.NumbaLinker)
    (doubled,) = function.vm.jit_fn(np.ones(2))
    np.testing.assert_array_equal(doubled, [2.0, 2.0])


def test_cumulative_sums_have_an_axis():
    """The rules of `reads` and `elements` have none for a sum along no axis."""
    x, A = pt.vector("x"), pt.matrix("A")
    for summed in (pt.cumsum(x), pt.cumsum(A), pt.cumsum(A, axis=1)):
        ops = [v.owner.op for v in ancestors([summed]) if v.owner is not None]
        (op,) = (op for op in ops if isinstance(op, CumOp))
        assert isinstance(op.axis, int)


def test_products_are_of_matrices():
    """Those rules know no product with a vector: PyTensor adds an axis to it."""
    x, A, B = pt.vector("x"), pt.matrix("A"), pt.tensor3("B")
    for product in (x @ x, A @ x, x @ A, A @ A, B @ x, A @ B, pt.dot(x, x), pt.dot(A, x)):
        nodes = [v.owner for v in ancestors([product]) if v.owner is not None]
        (node,) = (node for node in nodes if isinstance(core_of(node.op), Dot))
        left, right = node.inputs
        assert left.ndim == right.ndim >= 2
