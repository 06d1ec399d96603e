"""Sampling on several machines: each chain is a task of a Dask cluster.

Dask is an optional dependency, ``pip install 'pymc_lgm[distributed]'``, and is imported when it is
needed.
"""

from __future__ import annotations

import os

from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import Any

import cloudpickle
import pymc as pm
import xarray as xr

from pymc.stats.convergence import log_warnings, run_convergence_checks
from pymc.util import get_random_generator, get_state_from_generator

from pymc_lgm.distributed.cluster import cluster_for, finished, refuse_options
from pymc_lgm.distributed.keep import StoredChains, as_json, compare, rng_state, settings_of
from pymc_lgm.distributed.plan import Chain, Plan, gathered
from pymc_lgm.drawn import model_of
from pymc_lgm.model.fingerprint import described, fingerprint

__all__ = ["sample"]


def sample(
    model: pm.Model | None = None,
    *,
    draws: int = 1000,
    tune: int | None = None,
    chains: int | None = None,
    client: Any = None,
    cores: int | None = None,
    random_seed: Any = None,
    step: Callable[[], Any] | None = None,
    keep: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    progressbar: Any = True,
    quiet: bool = False,
    compute_convergence_checks: bool = True,
    **sample_kwargs: Any,
) -> xr.DataTree:
    """Draw from p(theta, f | y) as `pymc.sample` does, with chains on workers of a Dask cluster.

    The draws equal those of ``pm.sample(draws, tune=tune, chains=chains, random_seed=random_seed)``
    with several processes, bit for bit on equal processors. Each worker makes seeds, starting
    points and step methods as PyMC does.

    Parameters
    ----------
    model : pymc.Model, optional
        By default the model of the context.
    draws, tune, chains, random_seed
        As in `pymc.sample`; by default 1000, what the step method needs, 4, and a new seed.
    client : distributed.Client, optional
        Client of a cluster whose workers have this package. Give each worker one thread, since a
        process runs one chain at a time. By default a cluster on this machine is started for the
        call and closed after it.
    cores : int, optional
        Number of processes of the cluster on this machine; by default one per chain, up to the
        number of cores.
    step : callable, optional
        Makes a step method, or a list of them, called without arguments inside the model: a class
        (``lgm.ASIS``) or ``lambda: lgm.PseudoMarginal(n_importance=16)``. By default the step
        methods that ``pm.sample(nuts_sampler="pymc")`` chooses.
    keep : path, optional
        A folder in which each chain is stored when it is finished. A second call with the same
        ``keep`` and the same settings reads the stored chains, and runs the missing ones.
    resume : path, optional
        A folder that ``keep`` has filled. Each of its chains continues from its last state for
        ``draws`` more draws, without tuning, and the trace has all draws. ``tune``, ``chains`` and
        ``random_seed`` may be left out; every other setting must be that of the folder. The last
        state is a pickle, and a pickle can run any code, so resume only from a folder that you
        trust.
    progressbar : bool
        One bar over the draws of all chains.
    quiet, compute_convergence_checks : bool
        As in `pymc.sample`.
    **sample_kwargs
        Further options of `pymc.sample`: ``initvals``, ``init``, ``var_names``,
        ``discard_tuned_samples``, ``idata_kwargs``, ``compile_kwargs``, ``target_accept``, options
        of the step methods.

    Returns
    -------
    xarray.DataTree
        As returned by `pymc.sample`. Its ``sampling_time`` is the time in seconds of the slowest
        process from its first draw to its last, without compilation. It includes the time of the
        calls that have filled ``keep`` or ``resume``.

    Raises
    ------
    ImportError
        If Dask is not installed.
    ValueError
        If ``keep`` or ``resume`` holds chains of another model or of other settings.
    distributed.KilledWorker
        If the worker of a chain has died more often than the scheduler allows, by default 3 times
        (``distributed.scheduler.allowed-failures``). Before that, the chain starts again on another
        worker with the same seed, and gets the same draws.

    See Also
    --------
    compare_samplers : Compares samplers, on a cluster too.

    Notes
    -----
    Each process compiles the model once for all of its chains. Processes on one machine share
    PyTensor's compilation cache. BLAS uses one thread per process. A script that makes a cluster on
    this machine needs ``if __name__ == "__main__":`` around its calls, since the processes import
    the script.

    The folder of ``keep`` has a netCDF file for each group of a chain, and a pickle for ``resume``.
    ``xarray.open_dataset`` reads the netCDF files; a variable may have up to 2 GB. The pickle is
    loaded only by a call that names the folder in ``resume``.

    A process that compiles a function may round the last bit differently from one that loads it
    from PyTensor's cache. Therefore draws are equal bit for bit from the second call on, as with
    `pymc.sample`.

    Examples
    --------
    A cluster in this process, to try it out:

    >>> from distributed import Client, LocalCluster
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model() as model:
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=[[1.0, 0.5], [0.5, 1.0]])
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    >>> options = {"draws": 10, "tune": 5, "chains": 3, "step": lgm.EllipticalSlice, "quiet": True}
    >>> local = {"n_workers": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    >>> with LocalCluster(**local) as cluster, Client(cluster) as client:
    ...     idata = lgm.distributed.sample(model, client=client, **options)
    >>> dict(idata["posterior"].sizes)
    {'chain': 3, 'draw': 10, 'f_dim_0': 2}
    """
    model = model_of(model, "lgm.distributed.sample()")
    if not model.free_RVs:
        raise ValueError("All variables of the model are observed, so there is nothing to sample.")
    refuse_options(step, draws, tune, chains, sample_kwargs)
    draws = int(draws)
    tune, chains = (None if count is None else int(count) for count in (tune, chains))
    options = {k: v for k, v in sample_kwargs.items() if k != "nuts_sampler"}
    # Settings that the call leaves out are those of the folder. A resumed study needs the seeds of
    # its first call, because its workers make the same starting points and step methods again.
    kept, before = (None if path is None else StoredChains(path) for path in (keep, resume))
    found = settings_of(kept, before)
    chains = chains or found.get("chains", 4)
    if before is not None:
        tune = found["tune"] if tune is None else tune
    if random_seed is None and found:
        rngs = tuple(map(rng_state, found["random_seed"]))
    else:
        spawned = get_random_generator(random_seed).spawn(chains)
        rngs = tuple(map(get_state_from_generator, spawned))
    plan = Plan(model, step, rngs, draws, tune, options, kept is not None)
    _begin(plan, chains, kept, before, found)

    # Chains that are stored, chains to run, and what each of these continues.
    done = {i: kept.load(i) for i in kept.numbers()} if kept is not None else {}
    todo = [i for i in range(chains) if i not in done]
    earlier = {i: before.load(i) for i in todo} if before is not None else {}
    elapsed = max((chain.seconds for chain in [*done.values(), *earlier.values()]), default=0.0)
    if todo:
        bar = bool(progressbar) and not quiet
        with (
            cluster_for(client, len(todo), cores) as workers,
            closing(_new_chains(workers, plan, todo, earlier, elapsed, bar)) as arriving,
        ):
            for i, chain in arriving:
                done[i] = chain
                if kept is not None:
                    kept.save(i, chain)
    idata = gathered([done[i] for i in range(chains)])
    if compute_convergence_checks:
        warnings = run_convergence_checks(idata, model)
        if not quiet:
            log_warnings(warnings)
    return idata


def _begin(
    plan: Plan,
    chains: int,
    kept: StoredChains | None,
    before: StoredChains | None,
    found: Mapping[str, Any],
) -> None:
    """Write the settings of a call into its folder; refuse a folder with other settings.

    ``found`` are the settings in the folders of earlier calls.
    """
    if kept is None and before is None:
        return
    asked: dict[str, Any] = {"draws": plan.draws, "tune": plan.tune, "chains": chains}
    asked |= {"random_seed": as_json(plan.rngs), "model": fingerprint(plan.model)}
    asked |= {"step": described(plan.step), "options": described(plan.options)}
    if before is not None:  # only the number of draws may differ
        compare(asked | {"draws": found["draws"]}, found, f"resume={str(before.path)!r}")
        before.refuse_unfinished(chains)
        asked["draws"] = plan.draws + found["draws"]
    if kept is not None and kept.settings is not None:
        compare(asked, kept.settings, f"keep={str(kept.path)!r}")
    elif kept is not None:
        labels = {name: x for name, x in plan.model.coords.items() if x is not None}
        kept.refuse_labels(labels)
        kept.begin(asked)


def _new_chains(
    workers: Any,
    plan: Plan,
    todo: Sequence[int],
    earlier: Mapping[int, Chain],
    elapsed: float,
    bar: bool,
) -> Generator[tuple[int, Chain]]:
    """Run the chains ``todo``, and append each to the earlier one that it continues.

    ``elapsed`` is the sampling time of the study before this call.
    """
    states = {i: earlier[i].state if earlier else None for i in todo}
    # For the bar alone, until a worker knows how many tuning draws its step methods need.
    length = plan.draws
    if not earlier:
        length += 1000 if plan.tune is None else plan.tune
    # A process runs its chains one after another, so their times add up.
    busy: defaultdict[str, float] = defaultdict(float)
    with closing(finished(workers, cloudpickle.dumps(plan), states, length, bar)) as arriving:
        for i, chain in arriving:
            whole = chain.after(earlier[i]) if earlier else chain
            busy[chain.worker] += chain.seconds
            yield i, whole.timed(elapsed + busy[chain.worker])
