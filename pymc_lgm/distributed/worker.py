"""The code that runs on a worker: one chain per task, and one at a time per process."""

from __future__ import annotations

import threading

from dataclasses import replace
from functools import lru_cache
from time import monotonic
from typing import Any

import cloudpickle

from threadpoolctl import threadpool_limits

from pymc_lgm.distributed.plan import Chain, Ready

__all__ = ["Stopped", "chain_of"]

EVERY = 0.5
"""Seconds between two reports of a chain's progress."""

_AT_WORK = threading.Lock()
"""Lock: PyTensor compiles in one thread, and a step method has the state of one chain."""


class Stopped(Exception):
    """The chain was canceled."""


def chain_of(plan: bytes, number: int, resumed: bytes | None, topic: str) -> Chain:
    """Run a chain of a pickled plan, with one thread for BLAS."""
    with _AT_WORK, threadpool_limits(limits=1, user_api="blas"):
        ready = _ready(plan)
        voice = _Voice(topic, number)
        with ready.plan.model:
            return replace(ready.run(number, resumed, voice), worker=voice.worker.address)


@lru_cache(maxsize=1)
def _ready(plan: bytes) -> Ready:
    """The plan with its model compiled, which the next chain of this process uses again."""
    unpickled = cloudpickle.loads(plan)
    with unpickled.model:
        return Ready(unpickled)


class _Voice:
    """Reports the progress of a chain to the client, and checks whether it was canceled."""

    def __init__(self, topic: str, number: int):
        from distributed import get_worker

        self.worker = get_worker()
        self.topic = topic
        self.number = number
        self.task = self.worker.get_current_task()
        self.said = -EVERY

    def __call__(self, done: int, of: int) -> None:
        """Send a report if `EVERY` seconds have passed since the last."""
        now = monotonic()
        if now - self.said < EVERY and done < of:
            return
        self.said = now
        self.worker.log_event(self.topic, (self.number, done, of))
        # A thread cannot be stopped from outside, so a canceled task ends itself.
        task: Any = self.worker.state.tasks.get(self.task)
        if task is None or task.state in ("cancelled", "resumed"):
            raise Stopped(f"Chain {self.number} was canceled.")
