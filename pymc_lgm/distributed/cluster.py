"""The chains of a study as tasks of a Dask cluster, and how far all of them are."""

from __future__ import annotations

import logging
import uuid
import warnings

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from pymc.progress_bar import create_simple_progress

from pymc_lgm.distributed.plan import Chain
from pymc_lgm.distributed.worker import chain_of

__all__ = ["OF_THIS_MACHINE", "cluster_for", "finished"]


OF_THIS_MACHINE: dict[str, Any] = {
    "threads_per_worker": 1,
    "memory_limit": None,
    # Any port: two clusters at a time shall not warn of each other.
    "dashboard_address": "127.0.0.1:0",
    "scheduler_kwargs": {"dashboard": False},
    # Failures are raised here; workers that take seconds to exit may be killed.
    "silence_logs": logging.CRITICAL,
}
"""For `distributed.LocalCluster`: a thread a process, all the memory there is, no dashboard."""


def import_dask() -> Any:
    """Import Dask's scheduler, or say how to install it."""
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
    """Yield the client, or one of a cluster of this machine that is closed afterwards."""
    dask = import_dask()
    if client is not None:
        if not isinstance(client, dask.Client) or client.asynchronous:
            raise TypeError(
                f"client is {client!r}: write distributed.Client(...), and not an asynchronous one."
            )
        if cores is not None:
            raise TypeError(
                "cores= is how many processes the cluster of this machine has. With client=, its "
                "workers are the processes: leave cores out."
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
    """Run chains, and yield each with its number when it is finished.

    Parameters
    ----------
    client : distributed.Client
    plan : bytes
        A pickled `Plan`.
    chains : dict of int to bytes
        Number -> the state that it goes on from, or None.
    draws : int
        Of a chain with its tuning, as far as is known; for the bar.
    progressbar : bool
    """
    dask = import_dask()
    study = f"pymc_lgm-{uuid.uuid4().hex}"
    # Each task has the plan in itself. Data on one worker would draw all chains to it, and be lost
    # with it.
    with warnings.catch_warnings():
        # A model with its data may well have more than the 10 MB of a task that Dask warns of.
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
        # On the way out of an error or of an interrupt the others are still at work.
        client.cancel(list(number_of), force=True)


@contextmanager
def _progress(client: Any, topic: str, chains: int, draws: int, progressbar: Any) -> Iterator[None]:
    """Show one bar over the draws of all chains."""
    progress: Any = create_simple_progress(bool(progressbar))
    done: dict[int, int] = {}
    with progress:
        bar = progress.add_task(f"{chains} chains", completed=0, total=chains * draws)

        def heard(event: Any) -> None:
            number, of_chain, total = event[1]
            # A chain that is run again elsewhere begins with its first draw.
            done[number] = of_chain
            progress.update(bar, completed=sum(done.values()), total=chains * total)

        client.subscribe_topic(topic, heard)
        try:
            yield
            progress.update(bar, refresh=True)
        finally:
            client.unsubscribe_topic(topic)
