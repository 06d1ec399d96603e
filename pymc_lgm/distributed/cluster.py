"""The chains of one call, a study, as tasks of a Dask cluster: their options and their progress."""

from __future__ import annotations

import logging
import uuid
import warnings

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pymc.progress_bar import create_simple_progress
from pymc.step_methods.compound import BlockedStep, CompoundStep

from pymc_lgm.distributed.plan import Chain, chain_of

__all__ = ["OF_THIS_MACHINE", "cluster_for", "finished", "refuse_options"]


OF_THIS_MACHINE: dict[str, Any] = {
    "threads_per_worker": 1,
    "memory_limit": None,
    # Any port, so that two clusters at a time give no warning.
    "dashboard_address": "127.0.0.1:0",
    "scheduler_kwargs": {"dashboard": False},
    # Failures are raised here, so workers that take seconds to exit may be killed.
    "silence_logs": logging.CRITICAL,
}
"""Options of `distributed.LocalCluster`: one thread per process, all memory, no dashboard."""


REFUSED = {
    "mp_ctx": "Dask starts the processes",
    "blas_cores": "each chain has one thread",
    "callback": "the chains run in other processes",
    "trace": "write keep='folder' to store the chains",
    "return_inferencedata": "a DataTree is returned",
    "keep_warning_stat": "the warnings of a draw remain in its process",
    "nuts_sampler_kwargs": "write nuts={...}",
    "progressbar_theme": "there is one bar",
}
"""Options of `pymc.sample` that have no meaning here, and why."""


def refuse_options(
    step: Any, draws: int, tune: int | None, chains: int | None, options: Mapping[str, Any]
) -> None:
    """Raise the errors that the workers would raise, before there are any workers."""
    for name, why in REFUSED.items():
        if name in options:
            raise TypeError(f"lgm.distributed.sample() has no {name}=: {why}.")
    if options.get("nuts_sampler", "pymc") != "pymc":
        raise ValueError(
            f"nuts_sampler={options['nuts_sampler']!r} runs all chains itself: write "
            "pm.sample(nuts_sampler=...)."
        )
    if isinstance(step, BlockedStep | CompoundStep):
        name = type(step).__name__
        raise TypeError(
            f"step is an instance of {name}, but each worker makes its own: write the "
            f"class, or lambda: {name}(...)."
        )
    if step is not None and not callable(step):
        raise TypeError(f"step is {step!r}: write a class, or lambda: [lgm.ASIS(...), ...].")
    for name, value, least in (("draws", draws, 1), ("tune", tune, 0), ("chains", chains, 1)):
        if value is not None and (value != int(value) or value < least):
            raise ValueError(f"{name} must be a whole number, {least} or more: not {value!r}.")


def _import_dask() -> Any:
    """Import Dask's scheduler, or raise an error that explains how to install it."""
    try:
        import distributed
    except ImportError as error:
        raise ImportError(
            "lgm.distributed.sample() runs chains on Dask, which is not installed. Write "
            "pip install 'pymc_lgm[distributed]', or pm.sample(cores=...) on this machine."
        ) from error
    return distributed


@contextmanager
def cluster_for(client: Any, chains: int, cores: int | None) -> Iterator[Any]:
    """Yield the client, or that of a local cluster, which is closed afterwards."""
    dask = _import_dask()
    if client is not None:
        if not isinstance(client, dask.Client) or client.asynchronous:
            raise TypeError(
                f"client is {client!r}: write distributed.Client(...), and not an asynchronous one."
            )
        if cores is not None:
            raise TypeError(
                "cores= is the number of processes of the cluster on this machine. With client=, "
                "its workers are the processes, so leave cores out."
            )
        yield client
        return
    from dask.system import CPU_COUNT

    workers = min(chains, cores or CPU_COUNT)
    with (
        dask.LocalCluster(n_workers=workers, **OF_THIS_MACHINE) as cluster,
        dask.Client(cluster) as own,
    ):
        yield own


def finished(
    client: Any, plan: bytes, chains: dict[int, bytes | None], draws: int, progressbar: Any
) -> Generator[tuple[int, Chain]]:
    """Run chains on the workers, and yield each with its number as soon as it is finished.

    Parameters
    ----------
    client : distributed.Client
    plan : bytes
        A pickled `Plan`.
    chains : dict of int to bytes
        Number -> the state from which it continues, or None.
    draws : int
        Number of draws of a chain with its tuning, if it is known; for the progress bar.
    progressbar : bool
    """
    dask = _import_dask()
    study = f"pymc_lgm-{uuid.uuid4().hex}"
    # Each task contains the plan. If the plan were data on one worker, all chains would be
    # scheduled there, and the plan would be lost with that worker.
    with warnings.catch_warnings():
        # Dask warns of tasks above 10 MB, and a model with its data may well be larger.
        warnings.filterwarnings("ignore", "Sending large graph")
        number_of = {
            client.submit(chain_of, plan, i, state, study, key=f"{study}-{i}", pure=False): i
            for i, state in chains.items()
        }
    try:
        with _progress(client, study, len(chains), draws, progressbar):
            for future in dask.as_completed(list(number_of)):
                number = number_of.pop(future)
                try:
                    chain = future.result()
                except Exception as error:
                    error.add_note(f"This was chain {number}.")
                    raise
                future.release()
                yield number, chain
    finally:
        # After an error or an interrupt the other chains are still running.
        client.cancel(list(number_of), force=True)


@contextmanager
def _progress(client: Any, topic: str, chains: int, draws: int, progressbar: Any) -> Iterator[None]:
    """Show one bar over the draws of all chains."""
    progress: Any = create_simple_progress(bool(progressbar))
    done: dict[int, int] = {}
    with progress:
        bar = progress.add_task(f"{chains} chains", completed=0, total=chains * draws)

        def update(event: Any) -> None:
            number, of_chain, total = event[1]
            # A chain that is run again on another worker starts with its first draw.
            done[number] = of_chain
            progress.update(bar, completed=sum(done.values()), total=chains * total)

        client.subscribe_topic(topic, update)
        try:
            yield
            progress.update(bar, refresh=True)
        finally:
            client.unsubscribe_topic(topic)
