"""Run one Stan program: started by beats_stan.py in the interpreter that has pystan.

    python benchmarks/_stan.py ASKED.json ANSWER.json

The question has the program, its data, points at which to evaluate the log density, and how much to
draw; the answer has the log densities, the draws of the parameters asked for, and the seconds.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import time

from pathlib import Path
from typing import Any


def cpu() -> float:
    """Seconds of processes that have ended: the compiler, then those of the chains."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    import aiohttp.client
    import httpstan.cache
    import httpstan.services_stub
    import stan

    # pystan gives up on a compiler that needs more than five minutes, as on a busy machine.
    aiohttp.client.DEFAULT_TIMEOUT = aiohttp.ClientTimeout(total=None)
    used = cpu()
    model = stan.build(asked["program"], data=asked["data"], random_seed=asked["seed"])
    # A program that was compiled before is not compiled again: its seconds are kept beside it.
    known = Path(asked["cache"]) / f"{model.model_name.replace('/', '_')}.txt"
    compilation = cpu() - used
    if known.exists():
        compilation = float(known.read_text(encoding="utf-8"))
    known.write_text(str(compilation), encoding="utf-8")
    log_densities = [
        model.log_prob(model.unconstrain_pars(point), adjust_transform=False)
        for point in asked["points"]
    ]
    # Draws of an earlier run with this seed would take no time.
    shutil.rmtree(httpstan.cache.model_directory(model.model_name) / "fits", ignore_errors=True)
    begin, used = time.perf_counter(), cpu()
    how = {"num_warmup": asked["draws"], "num_samples": asked["draws"]}
    fit = model.sample(num_chains=asked["chains"], **how)
    seconds = time.perf_counter() - begin
    httpstan.services_stub.executor.shutdown(wait=True)
    names = asked["names"]
    draws = {name: fit._draws[list(fit._parameter_indexes(name))].tolist() for name in names}
    times = {"compile": compilation, "cpu": cpu() - used, "wall": seconds}
    return times | {"log_densities": log_densities, "draws": draws}


if __name__ == "__main__":
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    Path(sys.argv[2]).write_text(json.dumps(answer(asked)), encoding="utf-8")
