"""A graph that is written as one function of plain loops computes what PyTensor does."""

import re

import numpy as np
import pymc as pm
import pytensor
import pytensor.sparse as sparse
import pytensor.tensor as pt
import pytest

from pytensor.compile.mode import get_mode
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import vectorize_graph
from pytensor.scalar import basic as ps
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from scipy.sparse import csc_matrix

from pymc_lgm.compile.graphs import source as writing
from pymc_lgm.compile.graphs.functions import called_once, compiled, in_loops, without_c
from pymc_lgm.compile.graphs.rewrites import Alone
from pymc_lgm.compile.graphs.source import SMALL, LoopLinker, Writer, written
from pymc_lgm.compile.loops import digest_of

x, y = pt.vector("x", shape=(5,)), pt.vector("y")
A, B = pt.matrix("A", shape=(5, 3)), pt.matrix("B")
T = pt.tensor("T", shape=(2, 5, 3))
k = pt.iscalar("k")
INPUTS = [x, y, A, B, T, k]
AT = np.array([0, 3, -1, 2])
LONG = np.linspace(-1.0, 2.0, 5 * (SMALL // 5 + 1)).reshape(5, -1)

CHOSEN = pt.take_along_axis(A, np.array([[0], [2], [1], [0], [1]]), axis=1)
"""The probabilities of observed classes, say."""

ELEMENTWISE = {
    "broadcast": x[:, None] * A + 1.0,
    "outer": x[:, None] - x[None, :],
    "number": pt.exp(x[0]) * x[1],
    "of several axes": T * A[None] * x[None, :, None],
    "dynamic": B * 2.0 + B.sum(),
    "switch": pt.switch(x > 0.0, x, -1.0),
    "nested conditions": pt.switch((x > 0.0) & (x < 1.0), pt.maximum(x, 0.5), pt.minimum(x, -0.5)),
    "clip": pt.clip(x, -0.5, 0.5),
    "not": pt.invert(x > 0.0) * 1.0,
    "special": pt.sigmoid(x) + pt.reciprocal(x) + pt.sqr(x) / 3.0,
    "not finite": pt.switch(pt.isnan(x / 0.0 * 0.0) | pt.isinf(x / 0.0), x, 0.0),
    "constant": x + np.arange(5.0),
    "large constant": x[:, None] * LONG,
    "one number": x + pt.constant(np.full((1,), 2.0)),
    "infinite": x + pt.constant(-np.inf),
    "the input itself": x,
    "one that is read twice": pt.exp(x) + pt.exp(x)[::-1],
}
MOVED = {
    "added axis": x[None, :, None] * 1.0,
    "transposed": A.T * 2.0,
    "axes": T.dimshuffle(2, 0, 1),
    "from the end": x[-1] + x[-2],
    "slice": x[1:4] * 2.0,
    "steps": x[::2] - x[4:1:-1][:3],
    "of a row": A[1] + A[-1],
    "of a column": A[:, 1:] * x[:, None],
    "of unknown length": y[1:] * 2.0,
    "of unknown length backwards": y[::-1] + y[::-2].sum() - y[1::2].prod(),
    "at a number": x[k] + A[k, 0],
    "taken": x[AT] * 2.0,
    "rows taken": A[AT],
    "columns taken": A[:, np.array([2, 0])],
    "elements taken": A[AT, np.array([0, 1, 2, 0])],
    "in the middle": T[:, AT, 1:],
    "by a matrix": x[np.array([[0, 1], [-1, 2]])],
    "joined": pt.concatenate([x * 2.0, A.ravel(), pt.zeros(2)]),
    "joined columns": pt.concatenate([A, x[:, None], A], axis=1),
    "joined with unknown length": pt.concatenate([y, x]),
    "split": sum(part * 2.0 for part in pt.split(A, [1, 2], n_splits=2, axis=1)),
    "stacked": pt.stack([x[0], x[1], pt.constant(2.0)]),
    "shape": A.reshape((3, 5)) + 1.0,
    "shape with an unknown length": y.reshape((2, -1)) + y.reshape((-1, 1, 4))[0, 0, 0],
    "shape that is computed": y.reshape((2, y.shape[0] - 2)),
    "up to a number": y[: k + 3] * 2.0,
    "from a number": A[k + 1 :] + y[k + 9 :].sum(),
    "between numbers": x[k : k + 2] - x[k + 2 : 5 + k].sum(),
    "set between numbers": pt.set_subtensor(x[k + 3 : 4], 7.0),
    "one long axis": A.reshape((15,)) * 2.0,
    "an axis less": A[:, :1].reshape((5,)) * x,
    "filled": pt.alloc(x, 4, 5) * 1.0,
    "filled with unknown length": pt.alloc(2.0, y.shape[0]) + y,
    "set": pt.set_subtensor(x[1:3], A[0, :2]),
    "set twice": pt.set_subtensor(pt.set_subtensor(x[0], 7.0)[1], 8.0),
    "set a column": pt.set_subtensor(A[:, 1], x) + A,
    "added": pt.inc_subtensor(x[1:], 2.0 * x[:-1]),
    "added at repeated places": pt.inc_subtensor(pt.zeros(5)[np.array([0, 0, -1])], x[:3]),
    "added to elements": pt.inc_subtensor(A[AT, 1], x[:4]),
    "taken at many rows": vectorize_graph(A[AT, [0, 1, 2, 0]], {A: T}),
    "rows taken at many rows": vectorize_graph(A[AT], {A: T}),
    "added at many rows": vectorize_graph(pt.inc_subtensor(A[AT, 1], x[:4]), {A: T}),
    "chosen at many rows": vectorize_graph(CHOSEN, {A: T}),
    "slope of chosen at many rows": vectorize_graph(pytensor.grad((CHOSEN**2).sum(), A), {A: T}),
    "set at many rows": vectorize_graph(pt.set_subtensor(x[AT[:3]], A[0]), {A: T}),
}
MIXTURE = pt.logsumexp(pt.stack([x - 1.0, pt.zeros(5)], axis=-1), axis=-1)
STACK = pt.stack([x, pt.exp(x), pt.zeros(5)], axis=1)
REDUCED = {
    "sum": A.sum(),
    "of loops": pt.exp(A).sum(axis=1),
    "over rows": (A * x[:, None]).sum(axis=0),
    "over the middle": T.sum(axis=1),
    "over outer axes": T.sum(axis=(0, 2)),
    "of an axis of one": x[:, None].sum(axis=1),
    "mean and variance": A.mean(axis=0) + A.var(),
    "product": A.prod(axis=1),
    "maximum": A.max(axis=1) - A.min(),
    "all": pt.switch(pt.all(A > -9.0), x, 0.0),
    "any": pt.any(A > 1.0, axis=1),
    "of unknown length": B.sum(axis=1) + B.max(),
    "softmax": pt.special.softmax(A, axis=1) + pt.logsumexp(A, axis=1)[:, None],
    "gradient": pytensor.grad((pt.exp(A) * x[AT[:3]]).sum(), x),
    "mixture": MIXTURE,
    "mixture with weights": pt.logsumexp(pt.log(pt.stack([x[0] ** 2, 0.5])) + STACK[:, :2], axis=1),
    "stack": (STACK * [1.0, 2.0, 3.0]).sum(axis=1),
    "sums of a stack": (STACK + x[:, None]).sum(axis=0),
    "parts of a stack": (STACK.T[1:] * 2.0)[::-1, ::2] + STACK[:3, 0],
    "largest of a stack": (STACK + A).max(axis=1) - pt.all(STACK > 0.0, axis=1),
    "slope of a stack": pytensor.grad((pt.special.softmax(STACK, axis=1)[:, 0] ** 2).sum(), x),
    "slope of a mixture": pytensor.grad(MIXTURE.sum(), x),
    "mixture at many rows": vectorize_graph(MIXTURE, {x: A.T}),
    "cumulated": pt.cumsum(x * 2.0),
    "cumulated rows": pt.cumsum(A * 2.0, axis=0) + pt.cumsum(A, axis=1),
    "cumulated product": pt.cumprod(A[:, :1], axis=1) + pt.cumprod(x)[:, None],
    "cumulated in one order": pt.cumsum(A),
    "slopes at many rows": vectorize_graph(pytensor.grad(MIXTURE.sum(), x), {x: A.T}),
}
S = pt.dot(A.T, A) + 5.0 * np.eye(3)
L = pt.linalg.cholesky(S)
SEVERAL = pt.matmul(T.mT, T) + 5.0 * np.eye(3)
MATRICES = {
    "factor": L * 2.0,
    "upper factor": pt.linalg.cholesky(S, lower=False),
    "no factor": pt.linalg.cholesky(S - 100.0),
    "its lower triangle": pt.linalg.cholesky(S + pt.triu(A[:3], 1)),
    "solution": pt.linalg.solve_triangular(L, x[:3], lower=True, b_ndim=1),
    "solutions": pt.linalg.solve_triangular(L, A[:3, :2], lower=True, b_ndim=2),
    "solution by the transpose": pt.linalg.solve_triangular(L.T, A[:3], lower=False, b_ndim=2),
    "upper triangle": pt.linalg.solve_triangular(S, A.T, lower=False, b_ndim=2),
    "of a singular matrix": pt.linalg.solve_triangular(S * [1.0, 0.0, 1.0], A.T, b_ndim=2),
    "gradient": pytensor.grad(pt.log(pt.diagonal(L)).sum() + L[2, 0], A),
    "diagonal": pt.diagonal(A, offset=-1) * 2.0,
    "diagonal above": pt.diagonal(A[:2], offset=1),
    "diagonals": pt.diagonal(T, axis1=0, axis2=2),
    "diagonal of unknown length": pt.diagonal(B) * 1.0,
    "no diagonal": pt.diagonal(A, offset=7),
    "diagonal matrix": pt.diag(x) + pt.diag(x[1:], 1),
    "diagonal matrices": pytensor.grad((pt.diagonal(T, axis1=1, axis2=2) ** 2).sum(), T),
    "solution by a factor": pt.linalg.cho_solve((L, True), A.T, b_ndim=2),
    "solution by an upper factor": pt.linalg.cho_solve((L.T, False), x[:3], b_ndim=1),
    "solutions for each": vectorize_graph(pt.linalg.solve_triangular(A[:3], A.T), {A: T}),
    "one matrix for each": vectorize_graph(
        pt.linalg.solve_triangular(L, x[:3], lower=True, b_ndim=1), {x: A.T}
    ),
    "gradient for each": pytensor.grad(
        pm.logp(pm.MvNormal.dist(np.zeros(3), chol=L), A[:2] ** 2).sum(), A
    ),
    "diagonal matrix for each": vectorize_graph(pt.diag(x, 1), {x: T.dimshuffle(2, 0, 1)}),
    "products": pt.matmul(T, A.T[None] + T.dimshuffle(0, 2, 1)),
    "Kronecker product": pt.linalg.kron(A, S),
    "factors": pt.linalg.cholesky(SEVERAL),
    "upper factors": pt.linalg.cholesky(SEVERAL, lower=False) * 2.0,
    "no factors": pt.linalg.cholesky(SEVERAL - np.array([0.0, 100.0])[:, None, None]),
    "solution by transposes": pt.linalg.solve_triangular(
        pt.linalg.cholesky(SEVERAL).mT, x[:3], lower=False, b_ndim=1
    ),
}
CALLED = {
    "small integers": pt.cast(x * 100.0, "int8") + pt.cast(100, "int8"),
    "where it is positive": x[pt.nonzero(A[:, 0] > 0.0)[0]],
    "integers": pt.cast(x * 3.0, "int64") // 2,
    "sign and power": pt.sign(x) * pt.abs(x) ** 2.5,
    "product": pt.dot(A.T, A) + pt.dot(A.T, x),
    "a part without a rule": y[: k + 3 : 2] * 2.0,
    "inverse": pt.linalg.inv(S),
    "two results for each": vectorize_graph(pt.linalg.lu_factor(S)[1], {A: T}),
    "log gamma": pt.gammaln(pt.abs(x) + 1.0),
    "log gamma in a scan": pytensor.scan(
        lambda v, before: pt.gammaln(pt.abs(before) + 1.0) + v, x, A[0], return_updates=False
    ),
    "sorted": pt.sort(x)[::-1],
}


class InPython(LoopLinker):
    """The function that is written, not compiled."""

    def jit_compile(self, fn_and_cache):
        function, _ = fn_and_cache
        called = [name for name in function.__globals__ if re.fullmatch(r"f\d+", name)]
        assert not called, (
            f"PyTensor's functions cannot be called from Python\n{function.__source__}"
        )
        return function


def in_python(inputs, outputs):
    """A function of arrays, and its source."""
    mode = in_loops(get_mode("NUMBA"), InPython())
    function = pm.compile(inputs, outputs, mode=mode, on_unused_input="ignore")
    return function, function.vm.jit_fn.__source__


def test_operations_on_many_arrays_are_one_loop():
    """Without the name of a C compiler PyTensor fuses up to 32 arrays."""
    constants = np.random.default_rng(1).normal(size=(40, 5))
    graph = sum(pt.switch(x > each, x * each, each) for each in constants)
    with without_c():
        function, source = in_python([x], [graph])
    assert source.count("for ") == 1
    value = np.linspace(-1.0, 1.0, 5)
    expected = np.where(value > constants, value * constants, constants).sum(axis=0)
    np.testing.assert_allclose(function(value)[0], expected)


def test_components_are_no_axis():
    """The derivatives of a mixture of two were 49 loops."""
    slope = pytensor.grad(MIXTURE.sum(), x)
    curvature = pytensor.grad(slope.sum(), x)
    _, source = in_python([x], [MIXTURE, slope, pytensor.grad(curvature.sum(), x)])
    assert source.count("for ") == 1, source


def test_an_empty_part_of_a_stack_is_an_empty_array(caplog):
    """The rewrite failed, and PyTensor printed how."""
    function, _ = in_python([x], [STACK[:, 3:] * 2.0])
    assert function(np.zeros(5))[0].shape == (5, 0)
    assert not caplog.records


def test_a_function_that_is_called_has_a_loop_of_its_own():
    """Else its neighbors are not vectorized."""
    graph = pt.exp(x) + pt.gammaln(pt.exp(x) + 1.0) * pt.exp(-x)
    with without_c():
        function = compiled([x], [graph], {})
    ops = [node.op.scalar_op for node in function.maker.fgraph.apply_nodes]
    assert [str(op.op) for op in ops if isinstance(op, Alone)] == ["gammaln"]
    assert not any("gammaln" in str(op) for op in ops if not isinstance(op, Alone))


@pytest.mark.parametrize("y", [CHOSEN, pytensor.grad((CHOSEN**2).sum(), A)])
def test_elements_at_many_rows_are_one_operation(y):
    """PyTensor's linker compiled the operation on each row for three seconds."""
    function, _ = in_python([T], [vectorize_graph(y, {A: T})])
    assert not any(isinstance(node.op, Blockwise) for node in function.maker.fgraph.apply_nodes)


def at():
    rng = np.random.default_rng(1)
    return [rng.normal(size=s) for s in (5, 4, (5, 3), (4, 3), (2, 5, 3))] + [
        np.array(-2, dtype=np.int32)
    ]


def assert_same(ours, expected):
    for value, right in zip(ours, expected, strict=True):
        np.testing.assert_allclose(value, right, rtol=1e-12, atol=1e-14)
        assert np.shape(value) == np.shape(right)
        assert np.asarray(value).dtype == np.asarray(right).dtype


@pytest.mark.fast("each", "moved", "reduced")
@pytest.mark.parametrize(
    "graphs",
    [ELEMENTWISE, MOVED, REDUCED, MATRICES],
    ids=["each", "moved", "reduced", "matrices"],
)
def test_what_is_written_is_the_graph_in_python_too(graphs):
    """The function is Python that Numba can compile, so its rules are tested without compiling."""
    with np.errstate(all="ignore"):
        for name, graph in graphs.items():
            function, source = in_python(INPUTS, [graph])
            try:
                assert_same(function(*at()), called_once(INPUTS, [graph])(*at()))
            except Exception as error:
                raise AssertionError(f"{name}\n{source}") from error


@pytest.mark.slow  # one function with a hundred loops to compile
@pytest.mark.parametrize("graphs", [ELEMENTWISE, MOVED, REDUCED, MATRICES, CALLED])
def test_compiled_functions_are_their_graphs(graphs):
    outputs = list(graphs.values())
    with np.errstate(all="ignore"):
        assert_same(compiled(INPUTS, outputs, {})(*at()), called_once(INPUTS, outputs)(*at()))


def test_an_operation_with_two_results_is_called():
    with pytest.raises(AssertionError, match="PyTensor's functions"):
        in_python(INPUTS, [CALLED["two results for each"]])


def test_operations_without_a_rule_are_called():
    outputs = [CALLED["product"], CALLED["log gamma"]]
    assert_same(compiled(INPUTS, outputs, {})(*at()), called_once(INPUTS, outputs)(*at()))


@pytest.mark.slow  # PyTensor's functions of sparse matrices are compiled
def test_objects_that_are_not_arrays_are_passed_on():
    data = csc_matrix(np.diag([1.0, 2.0, 0.0, 3.0, 4.0]))
    product = sparse.structured_dot(sparse.as_sparse_variable(data), A)
    function = compiled([A], [product * 2.0], {})
    inputs = at()[2]
    assert_same(function(inputs), [2.0 * (data @ inputs)])
    _, key, _ = written(function.maker.fgraph)
    assert key is not None


def test_an_input_without_axes_may_be_a_number():
    function = compiled([k], [k + 1], {})
    for number in (2, np.int32(2), np.array(2, dtype=np.int32)):
        assert function(number) == [3]


def test_arrays_that_do_not_match_are_errors():
    """A loop would read beyond them, as where `pymc.set_data` has given fewer observations."""
    data = pytensor.shared(np.arange(5.0))
    graphs = [
        x * data,
        x * pt.specify_shape(data, (5,)),
        pt.inc_subtensor(pt.zeros(5)[:], data),
        pt.concatenate([x[:, None], data[:, None]], axis=1),
    ]
    functions = [in_python([x], [graph])[0] for graph in graphs]
    for function in functions:
        function(np.ones(5))
    data.set_value(np.arange(3.0))
    for function in functions:
        with pytest.raises(ValueError, match="do not match"):
            function(np.ones(5))


@pytest.mark.parametrize("position", [5, -6])
def test_an_index_beyond_an_axis_is_an_error(position):
    one, several = pt.iscalar("one"), pt.ivector("several")
    for index, value in ((one, position), (several, [0, position])):
        function, _ = in_python([x, index], [2.0 * x[index]])
        with pytest.raises(IndexError, match="out of bounds"):
            function(np.ones(5), np.array(value, dtype=np.int32))
    function, _ = in_python([y], [2.0 * y[position]])
    with pytest.raises(IndexError, match="out of bounds"):
        function(np.ones(5))


def test_a_function_may_have_no_results():
    assert compiled([x], [], {})(at()[0]) == []


def test_an_axis_may_have_one_element_although_its_length_is_not_known():
    """A rewrite may have replaced the input by one whose type says more."""
    one, unknown = pt.vector("one", shape=(1,)), pt.vector("unknown")
    Apply(Elemwise(ps.neg), [one], [unknown])
    function, *_ = written(FunctionGraph([one], [unknown], clone=True))
    assert_same(function(np.array([2.0])), [np.array([-2.0])])


def results():
    """Results that are the input, equal, a constant, or one that another one is made of."""
    twice = 2.0 * x
    changed = pt.set_subtensor(twice[0], 3.0)
    outputs = [x, twice, twice, changed, x[None], pt.constant(np.arange(3.0))]
    values = np.arange(5.0)
    return values, in_python([x], outputs)[0](values), called_once([x], outputs)(np.arange(5.0))


def test_results_are_new_arrays_and_inputs_stay_as_they_are():
    values, ours, expected = results()
    assert_same(ours, expected)
    for i, one in enumerate(ours):
        assert not any(np.shares_memory(one, other) for other in (values, *ours[:i]))
    np.testing.assert_array_equal(values, np.arange(5.0))


@pytest.mark.mutant
def test_an_array_that_is_overwritten_too_early_is_noticed(monkeypatch, dies):
    monkeypatch.setattr(Writer, "_may_overwrite", lambda self, v: self.value(v).is_new)
    _, ours, expected = results()
    pairs = zip(ours, expected, strict=True)
    apart = max(np.abs(one - other).max() for one, other in pairs)
    dies("source: an array is overwritten too early", apart, above=0.1)


def test_other_data_of_the_same_size_need_no_compilation():
    """What is on disk is found by the source and by small constants."""
    data = np.random.default_rng(2).normal(size=(2, 5, SMALL))
    graphs = [(x[:, None] * each).sum(axis=0) for each in data]
    keys = [written(FunctionGraph([x], [graph], clone=True))[1] for graph in graphs]
    assert keys[0] == keys[1] is not None
    assert len(keys_of_small_constants()) == 2


def test_functions_on_disk_are_those_of_this_code(monkeypatch, tmp_path):
    """Their machine code calls functions of the package, which another version may not have."""
    (tmp_path / "loops").mkdir()
    file = tmp_path / "loops" / "blas.py"
    file.write_text("calls = ('dgemm', 'dgemv')")
    before = digest_of(tmp_path)
    file.write_text("calls = ('dgemm',)")
    assert digest_of(tmp_path) != before
    graph = FunctionGraph([x], [x + 1.0], clone=True)
    _, key, _ = written(graph)
    monkeypatch.setattr(writing, "CODE", before)
    assert written(graph)[1] != key


def keys_of_small_constants():
    graphs = [x[:2] * np.array([1.0, b]) for b in (2.0, 3.0)]
    return {written(FunctionGraph([x], [graph], clone=True))[1] for graph in graphs}


@pytest.mark.mutant
def test_a_key_without_constants_is_noticed(monkeypatch, dies):
    refer = Writer.refer
    monkeypatch.setattr(Writer, "refer", lambda *args: refer(*args[:-1], "a constant"))
    dies("source: a key without constants", len(keys_of_small_constants()), below=2)


def test_a_number_that_does_not_move_is_computed_outside_of_loops():
    _, source = in_python([x, A], [pt.exp(x[0]) * A + pt.sqrt(x)[:, None]])
    inner = [line for line in source.splitlines() if line.startswith(" " * 12)]
    assert inner
    assert not any("sqrt" in line or "exp" in line for line in inner)
