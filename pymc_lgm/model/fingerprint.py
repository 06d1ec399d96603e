"""A hash of a model, equal in another process and on another day if the model is the same."""

from __future__ import annotations

import hashlib
import re

from collections.abc import Mapping, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import pymc as pm

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import toposort
from scipy.sparse import issparse

__all__ = ["described", "fingerprint"]

DEEPEST = 12
"""Most levels of an object that are described, since an object may contain itself."""

PLAIN = (bool, int, float, complex, str, bytes, type(None))


def fingerprint(model: pm.Model) -> str:
    """Hash variables, their distributions and transformations, data, deterministics and labels.

    The hash is of the graph in topological order, with the numbers in it. Pickles cannot be used,
    because they depend on the order of sets and on the identity of objects.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_lgm.model.fingerprint import fingerprint
    >>> def model(sigma):
    ...     with pm.Model() as made:
    ...         pm.Normal("x", sigma=sigma)
    ...     return made
    >>> fingerprint(model(1.0)) == fingerprint(model(1.0))
    True
    >>> fingerprint(model(1.0)) == fingerprint(model(2.0))
    False
    """
    lines = _lines([*model.basic_RVs, *model.deterministics, *model.potentials])
    for rv in model.basic_RVs:
        value, transform = model.rvs_to_values[rv], model.rvs_to_transforms.get(rv)
        observed = "" if rv in model.free_RVs else _lines([value])
        lines.append(f"{rv.name} {rv.type} {described(transform)} {observed}")
    lines += [f"{name} {dims}" for name, dims in model.named_vars_to_dims.items()]
    lines += [f"{name} {described(labels)}" for name, labels in model.coords.items()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def described(value: Any, depth: int = 0) -> Any:
    """Describe an option in JSON's types, a function by its code and the values it closes over.

    Examples
    --------
    >>> from pymc_lgm.model.fingerprint import described
    >>> described({"n": 3}) == described({"n": 3})
    True
    >>> described(lambda: 3) == described(lambda: 4)
    False
    """
    down = depth + 1
    if isinstance(value, PLAIN):
        return value if isinstance(value, int | str | None) else repr(value)
    if depth > DEEPEST:
        return type(value).__name__
    if isinstance(value, Mapping):
        return {str(k): described(v, down) for k, v in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(str(described(each, down)) for each in value)
    if isinstance(value, Sequence):
        return [described(each, down) for each in value]
    if isinstance(value, np.ndarray | np.generic):
        return _array(np.asarray(value), down)
    if issparse(value):
        coo = value.tocoo()
        return [str(value.shape), *(_array(x, down) for x in (coo.data, *coo.coords))]
    if isinstance(value, Variable):
        return f"variable {value.name}"
    if isinstance(value, FunctionType):
        return _function(value, down)
    if isinstance(value, CodeType):
        inner = [described(each, down) for each in value.co_consts]
        return [_digest(value.co_code), inner, list(value.co_names)]
    if isinstance(value, type | ModuleType):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value)}"
    if callable(value) and hasattr(value, "func"):  # functools.partial
        return [described(each, down) for each in (value.func, value.args, value.keywords)]
    return _named(value)


def _named(value: Any) -> str:
    """Type and representation of any object, without its address."""
    return f"{type(value).__qualname__} {re.sub(r'0x[0-9a-fA-F]+', '', repr(value))}"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _array(x: np.ndarray, depth: int) -> list[Any]:
    if x.dtype.hasobject:
        return [str(x.shape), *(described(each, depth) for each in x.ravel().tolist())]
    return [str(x.dtype), str(x.shape), _digest(np.ascontiguousarray(x).tobytes())]


def _function(function: FunctionType, depth: int) -> list[Any]:
    """Code, defaults, values that it closes over, and plain global values that it reads."""
    code, scope = function.__code__, function.__globals__
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(described(cell.cell_contents, depth))
        except ValueError:  # not assigned yet
            cells.append(None)
    read = [name for name in code.co_names if name in scope and isinstance(scope[name], PLAIN)]
    names = {name: scope[name] for name in read}
    defaults = function.__defaults__, function.__kwdefaults__
    return [described(each, depth) for each in (code, *defaults, names)] + cells


def _lines(outputs: Sequence[Any]) -> list[str]:
    """A line for each node of a graph, with variables numbered in order of appearance."""
    numbers: dict[Any, int] = {}
    lines: list[str] = []

    def number(variable: Any) -> int:
        if variable not in numbers:
            numbers[variable] = len(numbers)
            if variable.owner is None:
                lines.append(f"{numbers[variable]} {_root(variable)}")
        return numbers[variable]

    for node in toposort(outputs):
        read = [number(variable) for variable in node.inputs]
        made = [(number(variable), str(variable.type)) for variable in node.outputs]
        lines.append(f"{made} {_operation(node.op)} {read}")
    return [*lines, str([number(variable) for variable in outputs])]


def _root(variable: Any) -> str:
    if isinstance(variable, Constant):
        return f"{variable.type} {described(variable.data)}"
    if isinstance(variable, SharedVariable):
        value = variable.get_value(borrow=True)
        # The seed of a random variable's own generator is drawn anew for each model.
        what = "rng" if isinstance(value, np.random.Generator) else described(value)
        return f"{variable.name} {variable.type} {what}"
    return f"{variable.name} {variable.type}"


def _operation(op: Any) -> str:
    """Name and options of an operation, and its inner graph if it has one."""
    options = [_named(getattr(op, name, None)) for name in getattr(op, "__props__", None) or ()]
    inside = _lines(op.fgraph.outputs) if hasattr(op, "fgraph") else []
    return f"{_named(op)} {options} {inside}"
