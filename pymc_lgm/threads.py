"""Number of BLAS threads during a draw: one if the matrices are too small for several.

The threads of a BLAS call wait for each other at its end. For a matrix of a few hundred rows they
wait longer than they compute. If chains run in parallel, their threads also compete for the cores.
"""

from __future__ import annotations

import functools
import os

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController

__all__ = ["ROWS_WORTH_THREADS", "few_threads"]

ROWS_WORTH_THREADS = 1000
"""Rows from which on a draw with two threads is faster than with one.

Measured by ``python benchmarks/threads.py --unlimited --only calls draws``.
"""

_IMPORTED_BY = os.getpid()


@contextmanager
def few_threads(n: int) -> Iterator[None]:
    """Limit BLAS to one thread if n is below `ROWS_WORTH_THREADS`, then restore its threads.

    A forked process keeps one thread, since BLAS would start its threads again for every draw.

    For smaller n, results do not depend on the number of threads that the user or PyMC has set, not
    even in the last bit. For larger n the process keeps the number of threads set by
    ``pm.sample(blas_cores=...)``, `threadpoolctl.threadpool_limits` or ``OMP_NUM_THREADS``, and
    rounding depends on this number. A forked process has one thread for every n. PyMC divides the
    cores among spawned processes only, by default one core per process.

    Parameters
    ----------
    n : int
        Rows of the matrices that are factorized.

    Notes
    -----
    It takes a few µs if there is one thread already, and some tens of µs otherwise. If no BLAS is
    found whose threads can be set, as with Apple's Accelerate, nothing is done. In most builds of
    BLAS the number applies to the whole process, so use it from one Python thread at a time.

    Examples
    --------
    >>> from threadpoolctl import threadpool_info
    >>> from pymc_lgm.threads import few_threads
    >>> with few_threads(100):
    ...     pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    >>> {pool["num_threads"] for pool in pools} <= {1}
    True
    """
    forked = os.getpid() != _IMPORTED_BY
    if forked or n < ROWS_WORTH_THREADS:
        pools = _pools(forked)
        if any((pool.num_threads or 1) > 1 for pool in pools.lib_controllers):
            limited = pools.limit(limits=1)
            if forked:
                yield
                return
            with limited:
                yield
            return
    yield


# Within a draw only BLAS and LAPACK use threads: NumPy's copy, SciPy's copy (which PyTensor's Numba
# code calls, too), and the one that PyTensor's C code is linked to. Thread pools of OpenMP itself
# are not changed: no code of a draw runs in them, and in a forked process a call to the OpenMP
# runtime can crash (it did on macOS: PyMC's issue 7354). For the same reason a BLAS built on OpenMP
# is not changed in a forked process. A BLAS that is loaded after the first draw keeps its threads.
@functools.cache
def _pools(forked: bool) -> ThreadpoolController:
    """Find the libraries once. Handles survive a fork, and a spawned process finds its own."""
    if not forked:
        return ThreadpoolController().select(user_api="blas")
    pools = _pools(False)
    safe = [p for p in pools.lib_controllers if getattr(p, "threading_layer", "") != "openmp"]
    return pools.select(filepath=[pool.filepath for pool in safe])
