"""What is expected of names that PyMC, PyTensor and Numba do not promise to keep."""

import inspect

import numba
import numpy as np
import pymc as pm
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest

from pymc.distributions import transforms
from pytensor.compile.mode import get_mode
from pytensor.scalar.basic import Composite

from pymc_lgm.compile.graphs import upstream


def evaluated(graph):
    return graph.eval(mode="FAST_COMPILE")


def test_distributions_have_a_density_a_transform_and_a_support_point():
    """By their operations: `IntrinsicRV`, `MaternRV` and `VecchiaRV` register theirs."""
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
        upstream.register_funcify_default_op_cache_key,
        upstream.register_scalar_funcify,
    ):
        assert callable(register)


@pytest.mark.slow
def test_loops_are_called_from_loops():
    """Each is compiled without the wrapper that Python would call."""
    x = ps.float64("x")
    op = Composite([x], [x * x + 1.0])
    fused, _ = upstream.numba_funcify_Composite(op, op.make_node(x), is_inlined=True)
    plain = upstream.numba_njit(fused.py_func, forceinline=True)
    assert numba.njit(lambda x: plain(x))(3.0) == 10.0


def test_keys_tell_functions_apart():
    x = ps.float64("x")
    op = Composite([x], [x * x + 1.0])
    keys = {upstream.scalar_op_cache_key(op, name=name) for name in "ab"}
    assert len(keys) == 2
    assert "kwargs" in inspect.signature(upstream.numba_funcify_Composite).parameters


@pytest.mark.slow
def test_a_compiled_function_shows_its_loop():
    x = pt.vector("x")
    function = pytensor.function([x], [2.0 * x], mode="NUMBA")
    assert isinstance(get_mode("NUMBA").linker, upstream.NumbaLinker)
    (doubled,) = function.vm.jit_fn(np.ones(2))
    np.testing.assert_array_equal(doubled, [2.0, 2.0])
