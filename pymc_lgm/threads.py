"""How many threads BLAS has during a draw: one where the matrices are too small for several.

A BLAS call that is split over threads ends with their waiting for each other. On a matrix of a few
hundred rows they wait longer than they work, and where chains run side by side each has threads
that wait for a core.
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
    """Keep BLAS at one thread while n is below `ROWS_WORTH_THREADS`; then restore what was there.

    A forked process stays at one thread: BLAS would begin its threads anew for every draw.

    Below it nothing that is computed inside depends, to the last bit, on how many threads the user
    or PyMC has set. From it on the process keeps what it has been granted, by
    ``pm.sample(blas_cores=...)``, `threadpoolctl.threadpool_limits` or ``OMP_NUM_THREADS``, and
    rounding depends on how many that are. A forked process has one thread for every n: PyMC shares
    out the cores to spawned ones only, and by default leaves one to each.

    Parameters
    ----------
    n : int
        Rows of the matrices that are factorized.

    Notes
    -----
    Costs a few µs where there is one thread already, and some tens where there are more. Where no
    BLAS is found that can be told, as with Apple's Accelerate, nothing is done. In most builds of
    BLAS the number is that of the whole process: this is for one Python thread at a time.

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


# All that a draw spends threads on is BLAS and LAPACK: NumPy's copy, SciPy's copy, which is also
# what PyTensor's Numba code calls, and the one that PyTensor's C code is linked to. Pools of OpenMP
# itself are left alone. No code of a draw runs in them, and in a forked process a call to the
# OpenMP runtime can crash (it did on macOS: PyMC's issue 7354). A BLAS that is built on OpenMP is
# left alone there for the same reason. One that is loaded after the first draw keeps its threads.
@functools.cache
def _pools(forked: bool) -> ThreadpoolController:
    """Find the libraries once; handles outlive a fork, and a spawned process finds its own."""
    if not forked:
        return ThreadpoolController().select(user_api="blas")
    pools = _pools(False)
    safe = [p for p in pools.lib_controllers if getattr(p, "threading_layer", "") != "openmp"]
    return pools.select(filepath=[pool.filepath for pool in safe])
