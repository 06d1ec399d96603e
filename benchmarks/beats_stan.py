"""The default sampler beside Stan and nutpie: effective draws of the hyper-parameters a CPU second.

    python benchmarks/beats_stan.py [--quick] [--models seeds ...] [--stan-python PYTHON]

The same data, priors, number of chains and cores. Stan runs the programs of benchmarks/stan,
written as its users write them. nutpie runs the same model in PyMC, with effects and processes
whitened, and series as `pm.AR` has them. Before Stan's draws count, the log density of its program
is compared with PyMC's at three points, up to a constant, if the parameters are the same. Stan
needs pystan (`pip install pystan`, the extra "peers"), here or in the interpreter that
``--stan-python`` names; nutpie runs where it is installed. A C++ compiler is needed, too,
and Python 3.12: in the wheel of httpstan 4.17.0 for 3.13, stan_services.o was compiled for 3.10.

ESS is ArviZ's bulk ESS, the smallest over hyper-parameters and coefficients. "CPU" is the user and
system seconds of tuning and sampling, those of all chains together, and "ESS/CPU s" divides by it.
"compile" is the CPU seconds before that: for Stan the compiler's, kept from the first run. Stan's
seconds are those of the processes of its chains alone, the default's are all of `pm.sample`.
"apart" is the largest distance from the default's posterior means, in Monte Carlo standard errors
of both. "Stan, Laplace" has Stan's embedded Laplace approximation, which is not exact.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm

from _design import sampled
from _results import Table, arguments

import pymc_lgm as lgm

HERE = Path(__file__).parent
CACHE = HERE.parent / "build" / "stan"
"""Compiled programs, and the seconds that each took."""
TOLERANCE = 1e-6  # of differences of log densities, relative
COLUMNS = {"model": "<16", "n": "d", "sampler": "<15", "R-hat": ".3f", "ESS": ".0f"}
COLUMNS |= {"compile": ".1f", "wall": ".1f", "CPU": ".1f", "ESS/CPU s": ".2f"}
COLUMNS |= {"default is": ".1f", "apart": ".1f"}


class Problem(NamedTuple):
    """Data for Stan, the model by ``whitened``, the parameters to look at, and Stan's programs."""

    data: dict[str, Any]
    build: Callable[[bool], None]
    names: list[str]
    programs: list[str]


class Run(NamedTuple):
    """Draws by name, with shape (chain, draw, ...), and seconds."""

    draws: dict[str, np.ndarray]
    compile: float
    wall: float
    cpu: float


def effects(name: str, sd: Any, size: int, whitened: bool) -> Any:
    """Return normal effects; whitened, their variables are those of Stan's programs."""
    if not whitened:
        return pm.Normal(name, 0, sd, shape=size)
    return sd * pm.Normal(f"z{name}" if name in "uv" else "z", 0, 1, shape=size)


def seeds() -> Problem:
    """Crowder (1978), Applied Statistics 27:34–37; an example of the BUGS manual."""
    y = [10, 23, 23, 26, 17, 5, 53, 55, 32, 46, 10, 8, 10, 8, 23, 0, 3, 22, 15, 32, 3]
    N = [39, 62, 81, 51, 39, 6, 74, 72, 51, 79, 13, 16, 30, 28, 45, 4, 12, 41, 30, 51, 7]
    x1, x2 = np.repeat([0, 1], [11, 10]), np.repeat([0, 1, 0, 1], [5, 6, 5, 5])
    X = np.stack([np.ones(21), x1, x2, x1 * x2], axis=1)

    def build(whitened: bool) -> None:
        beta, sd = pm.Normal("beta", 0, 2, shape=4), pm.HalfNormal("sd", 1)
        eta = pm.math.dot(X, beta) + effects("b", sd, 21, whitened)
        pm.Binomial("y", n=N, logit_p=eta, observed=y)

    return Problem({"n": 21, "N": N, "y": y, "X": X}, build, ["beta", "sd"], ["seeds"])


def surgical() -> Problem:
    """Deaths after operations in twelve hospitals; an example of the BUGS manual."""
    N = [47, 148, 119, 810, 211, 196, 148, 215, 207, 97, 256, 360]
    y = [0, 18, 8, 46, 8, 13, 9, 31, 14, 8, 29, 24]

    def build(whitened: bool) -> None:
        mu, sd = pm.Normal("mu", 0, 5), pm.HalfNormal("sd", 1)
        eta = mu + effects("b", sd, 12, whitened)
        pm.Binomial("y", n=N, logit_p=eta, observed=y)

    return Problem({"n": 12, "N": N, "y": y}, build, ["mu", "sd"], ["surgical"])


def process(kind: str, n: int, programs: list[str]) -> Problem:
    """A process in two inputs with the priors of `_design`."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, 2))
    scaled = X / [0.2, 0.4]
    K = np.exp(-0.5 * ((scaled[:, None] - scaled) ** 2).sum(-1)) + 1e-6 * np.eye(n)
    f_true = np.linalg.cholesky(K) @ rng.standard_normal(n)
    if kind == "logistic":
        y = rng.binomial(1, 1 / (1 + np.exp(-2 * f_true)))
    else:
        y = rng.poisson(np.exp(f_true))

    def build(whitened: bool) -> None:
        sigma, length = pm.InverseGamma("sigma", 1, 1), pm.Gamma("length", 1, 1, shape=2)
        gp = pm.gp.Latent(cov_func=sigma * pm.gp.cov.ExpQuad(2, ls=length))
        f = gp.prior("f", X, reparameterize=whitened, jitter=1e-6)
        if kind == "logistic":
            pm.Bernoulli("y", logit_p=f, observed=y)
        else:
            pm.Poisson("y", pm.math.exp(f), observed=y)

    return Problem({"n": n, "d": 2, "X": X, "y": y}, build, ["sigma", "length"], programs)


def crossed() -> Problem:
    rng = np.random.default_rng(0)
    rows, columns, n = 400, 100, 4000
    i, j = rng.integers(0, rows, n), rng.integers(0, columns, n)
    eta = 1 + 0.5 * rng.standard_normal(rows)[i] + 0.4 * rng.standard_normal(columns)[j]
    y = rng.poisson(np.exp(eta))

    def build(whitened: bool) -> None:
        b, sd = pm.Normal("b", 0, 2), pm.HalfNormal("sd", 1, shape=2)
        u, v = effects("u", sd[0], rows, whitened), effects("v", sd[1], columns, whitened)
        pm.Poisson("y", pm.math.exp(b + u[i] + v[j]), observed=y)

    data = {"n": n, "rows": rows, "columns": columns, "i": i + 1, "j": j + 1, "y": y}
    return Problem(data, build, ["b", "sd"], ["crossed"])


def volatility() -> Problem:
    """The last 1000 returns of the DAX in `lgm.datasets.load_eustocks`."""
    y = lgm.datasets.load_eustocks()["DAX"].to_numpy()[-1000:]
    y = y - y.mean()
    n = y.size

    def build(whitened: bool) -> None:
        # nutpie samples `pm.AR` as its users write it, which is centered.
        level = pm.Normal("level", 0, 2)
        persistence, sigma = pm.Beta("persistence", 20, 1.5), pm.HalfNormal("sigma", 1)
        rho = 2 * persistence - 1
        start = pm.Normal.dist(0, sigma / pm.math.sqrt(1 - rho**2))
        x = pm.AR("x", rho=[rho], sigma=sigma, init_dist=start, shape=n)
        pm.Normal("y", 0, pm.math.exp((level + x) / 2), observed=y)

    names = ["level", "persistence", "sigma"]
    return Problem({"n": n, "y": y}, build, names, ["volatility", "volatility_centered"])


def areas(counts: pd.DataFrame, edges: np.ndarray) -> Problem:
    """Return the model of Besag, York and Mollié as Riebler et al. (2016) write it."""
    W = lgm.spatial.adjacency(edges, n=len(counts))
    s = lgm.spatial.scaling_factor(W)
    y, E = counts["y"].to_numpy(int), counts["expected"].to_numpy(float)
    n = y.size

    def build(whitened: bool) -> None:
        b0, sigma = pm.Normal("b0", 0, 5), pm.HalfNormal("sigma", 1)
        rho = pm.Beta("rho", 0.5, 0.5)
        theta, phi = pm.Normal("theta", 0, 1, shape=n), pm.ICAR("phi", W=W)
        both = pm.math.sqrt(1 - rho) * theta + pm.math.sqrt(rho / s) * phi
        pm.Poisson("y", E * pm.math.exp(b0 + sigma * both), observed=y)

    one, two = edges.T + 1
    data = {"n": n, "edges": len(edges), "one": one, "two": two, "y": y, "E": E, "s": s}
    return Problem(data, build, ["b0", "sigma", "rho"], ["bym2"])


def slopes() -> Problem:
    """The children of `lgm.datasets.load_school_math`: lines of each child and of each school."""
    tests = lgm.datasets.load_school_math()
    child, school = tests["child"].to_numpy(), tests["school"].to_numpy()
    year, y = tests["year"].to_numpy(float), tests["y"].to_numpy(float)
    poor = (tests["low_income"].to_numpy() - 50) / 50
    Z = np.column_stack([np.ones(len(tests)), year])

    def lines(name: str, size: int, whitened: bool) -> Any:
        chol, corr, _ = pm.LKJCholeskyCov(name, n=2, eta=2, sd_dist=pm.HalfNormal.dist(1))
        pm.Deterministic(f"{name}_rho", corr[0, 1])
        if whitened:
            return pm.math.dot(pm.Normal(f"z_{name}", 0, 1, shape=(size, 2)), chol.T)
        return pm.MvNormal(f"b_{name}", np.zeros(2), chol=chol, shape=(size, 2))

    def build(whitened: bool) -> None:
        average, poverty = pm.Normal("average", 0, 2, shape=2), pm.Normal("poverty", 0, 1, shape=2)
        both = lines("child", 1721, whitened)[child] + lines("school", 60, whitened)[school]
        line = average + poor[:, None] * poverty + both
        noise = pm.HalfNormal("noise", 1)
        pm.Normal("y", pm.math.sum(line * Z, axis=1), noise, observed=y)

    data = {"n": y.size, "children": 1721, "schools": 60, "child": child + 1, "school": school + 1}
    data |= {"year": year, "poor": poor, "y": y}
    names = ["average", "poverty", "noise", "child_stds", "child_rho", "school_stds", "school_rho"]
    return Problem(data, build, names, ["slopes"])


def items() -> Problem:
    """Two parameters for each item; `lgm.datasets.load_verbal_aggression`, no or yes."""
    answers = lgm.datasets.load_verbal_aggression().iloc[:, 2:].to_numpy()
    persons, count = answers.shape
    person, item = (each.ravel() for each in np.indices(answers.shape))
    y = (answers > 0).astype(int).ravel()

    def build(whitened: bool) -> None:
        a = pm.LogNormal("a", 0, 0.5, shape=count)
        b, ability = pm.Normal("b", 0, 2, shape=count), pm.Normal("ability", 0, 1, shape=persons)
        pm.Bernoulli("y", logit_p=a[item] * (ability[person] - b[item]), observed=y)

    data = {"n": y.size, "persons": persons, "items": count, "person": person + 1, "item": item + 1}
    return Problem(data | {"y": y}, build, ["a", "b"], ["items"])


def epil() -> Problem:
    """Thall and Vail (1990), Biometrics 46:657–671; an example of the BUGS manual."""
    table = pd.read_csv(HERE / "stan" / "epil.csv")
    y = table.filter(like="y").to_numpy().ravel()
    base, treated = np.log(table["base"] / 4), table["treated"]
    last = np.tile([0, 0, 0, 1], 59)
    columns = [base, treated, base * treated, np.log(table["age"])]
    known = [np.repeat(column - column.mean(), 4) for column in columns]
    X, patient = np.column_stack([np.ones(236), *known, last]), np.repeat(np.arange(59), 4)

    def build(whitened: bool) -> None:
        beta, sd = pm.Normal("beta", 0, 2, shape=6), pm.HalfNormal("sd", 1, shape=2)
        u, v = effects("u", sd[0], 59, whitened), effects("v", sd[1], 236, whitened)
        pm.Poisson("y", pm.math.exp(pm.math.dot(X, beta) + u[patient] + v), observed=y)

    data = {"n": 236, "patients": 59, "patient": patient + 1, "X": X, "y": y}
    return Problem(data, build, ["beta", "sd"], ["epil"])


def kidney() -> Problem:
    """McGilchrist and Aisbett (1991), Biometrics 47:461–466; an example of the BUGS manual."""
    table = pd.read_csv(HERE / "stan" / "kidney.csv")
    patient, infected = table["patient"].to_numpy() - 1, table["infected"].to_numpy()
    time = table["days"].to_numpy(float) / 30
    diseases = [table["disease"] == k for k in (2, 3, 4)]
    X = np.column_stack([np.ones(76), (table["age"] - 45) / 10, table["female"], *diseases])

    def build(whitened: bool) -> None:
        beta, shape = pm.Normal("beta", 0, 2, shape=6), pm.LogNormal("shape", 0, 0.5)
        sd = pm.HalfNormal("sd", 1)
        eta = pm.math.dot(X, beta) + effects("b", sd, 38, whitened)[patient]
        duration = pm.Weibull.dist(alpha=shape, beta=pm.math.exp(-eta / shape))
        upper = np.where(infected == 1, np.inf, time)
        pm.Censored("y", duration, lower=None, upper=upper, observed=time)

    data = {"n": 76, "patients": 38, "patient": patient + 1, "X": X.astype(float)}
    data |= {"y": time, "infected": infected}
    return Problem(data, build, ["beta", "shape", "sd"], ["kidney"])


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "seeds": seeds,
    "surgical": surgical,
    "logistic GP 100": lambda: process("logistic", 100, ["logistic_gp", "logistic_gp_laplace"]),
    "logistic GP 200": lambda: process("logistic", 200, ["logistic_gp", "logistic_gp_laplace"]),
    "Poisson GP 100": lambda: process("poisson", 100, ["poisson_gp"]),
    "crossed": crossed,
    "volatility": volatility,
    "slopes": slopes,
    "items": items,
    "epil": epil,
    "kidney": kidney,
}


def cpu() -> float:
    """User and system seconds of this process and of those that it has waited for."""
    both = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in both)


def built(problem: Problem, whitened: bool) -> pm.Model:
    with pm.Model() as model:
        problem.build(whitened)
    return model


def default(problem: Problem, draws: int, chains: int) -> Run:
    before = cpu()
    model = built(problem, False)
    step = lgm.PseudoMarginal(model=model)
    made, begin = cpu(), time.perf_counter()
    idata = sampled(model, draws, draws, chains, step=step)
    wall, used = time.perf_counter() - begin, cpu() - made
    found = {name: idata["posterior"][name].to_numpy() for name in problem.names}
    return Run(found, made - before, wall, used)


def nutpie(problem: Problem, draws: int, chains: int) -> Run:
    import nutpie as sampler

    before = cpu()
    compiled = sampler.compile_pymc_model(built(problem, True))
    made, begin = cpu(), time.perf_counter()
    how = {"draws": draws, "tune": draws, "chains": chains, "cores": 2, "seed": 1}
    idata = sampler.sample(compiled, progress_bar=False, **how)
    wall, used = time.perf_counter() - begin, cpu() - made
    found = {name: idata["posterior"][name].to_numpy() for name in problem.names}
    return Run(found, made - before, wall, used)


def stan(problem: Problem, program: str, draws: int, chains: int, python: str) -> Run:
    """Run a program in another interpreter, after a comparison of the log densities."""
    points, ours = densities(problem) if same_parameters(program) else ([], [])
    listed = {name: np.asarray(value).tolist() for name, value in problem.data.items()}
    asked = {
        "program": (HERE / "stan" / f"{program}.stan").read_text(encoding="utf-8"),
        "data": listed,
        "points": points,
        "names": problem.names,
        "draws": draws,
        "chains": chains,
        "seed": 1,
        "cache": str(CACHE),
    }
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        question, reply = Path(folder, "asked.json"), Path(folder, "answer.json")
        question.write_text(json.dumps(asked), encoding="utf-8")
        words = [python, str(HERE / "_stan.py"), str(question), str(reply)]
        environment = os.environ | {"XDG_CACHE_HOME": str(CACHE)}
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"Stan could not run {program}.stan:\n{done.stderr[-2000:]}")
        answer = json.loads(reply.read_text(encoding="utf-8"))
    if points:
        apart(program, ours, answer["log_densities"])
    found = {}
    for name, of_name in answer["draws"].items():
        values = np.moveaxis(np.asarray(of_name), 0, -1).swapaxes(0, 1)
        found[name] = values[..., 0] if np.asarray(of_name).shape[0] == 1 else values
    return Run(found, answer["compile"], answer["wall"], answer["cpu"])


def same_parameters(program: str) -> bool:
    """Whether the model that nutpie samples has the parameters of the program."""
    others = ("logistic_gp_laplace", "volatility", "volatility_centered", "slopes")
    return program not in others


def densities(problem: Problem) -> tuple[list[dict[str, Any]], list[float]]:
    """Return three points by Stan's names, and PyMC's log densities there."""
    model, rng = built(problem, True), np.random.default_rng(1)
    logp = model.compile_logp(jacobian=False)
    outputs = model.replace_rvs_by_values(list(model.free_RVs))
    constrained = model.compile_fn(outputs, inputs=model.value_vars)
    points, found = [], []
    for _ in range(3):
        point = {
            name: value + 0.3 * rng.standard_normal(np.shape(value))
            for name, value in model.initial_point().items()
        }
        found.append(float(logp(point)))
        values = constrained(point)
        names = [v.name.replace("f_rotated_", "z") for v in model.free_RVs]
        points.append({n: np.asarray(v).tolist() for n, v in zip(names, values, strict=True)})
    return points, found


def apart(program: str, ours: list[float], theirs: list[float]) -> None:
    """Stop if differences of the two log densities between points are not the same."""
    one, two = np.diff(ours), np.diff(theirs)
    if not np.allclose(one, two, rtol=TOLERANCE, atol=TOLERANCE):
        sys.exit(f"{program}.stan is not PyMC's model: log densities differ by {one} and {two}")


def summary(run: Run) -> tuple[float, float, np.ndarray, np.ndarray]:
    """Return the largest R-hat, the least ESS, the means, and their Monte Carlo errors."""
    table = az.summary(az.from_dict({"posterior": run.draws}), round_to="none").astype(float)
    least = float(table["ess_bulk"].min())
    errors = (table["sd"] / np.sqrt(table["ess_bulk"])).to_numpy()
    return float(table["r_hat"].max()), least, table["mean"].to_numpy(), errors


def show(table: Table, name: str, n: int, runs: dict[str, Run]) -> None:
    """Print a row for each sampler, the default first."""
    summaries = {sampler: summary(run) for sampler, run in runs.items()}
    (_, ess, mean, error), first = summaries["default"], runs["default"]
    for sampler, run in runs.items():
        r_hat, of_run, means, errors = summaries[sampler]
        beside = ()
        if sampler != "default":
            times = (ess / first.cpu) / (of_run / run.cpu)
            beside = (times, float(np.max(np.abs(means - mean) / np.hypot(errors, error))))
        marked = (r_hat, r_hat > 1.05)
        seconds = (run.compile, run.wall, run.cpu, of_run / run.cpu)
        table.row(name, n, sampler, marked, of_run, *seconds, *beside)


def has_stan(python: str) -> bool:
    found = subprocess.run([python, "-c", "import stan"], capture_output=True)
    return found.returncode == 0


def main() -> None:
    parser = arguments(__doc__, quick="seeds alone, two short chains")
    parser.add_argument("--models", nargs="+", choices=[*PROBLEMS, "areas"], default=list(PROBLEMS))
    parser.add_argument("--areas", nargs=2, metavar="CSV", help="counts (y, expected) and edges")
    every = ["nutpie", "Stan"]
    parser.add_argument("--against", nargs="+", choices=every, default=every)
    parser.add_argument("--laplace", action="store_true", help="Stan's approximation, too")
    parser.add_argument("--stan-python", default=sys.executable, help="which has pystan")
    parser.add_argument("--draws", type=int, default=1000, help="kept, after as many of tuning")
    parser.add_argument("--chains", type=int, default=4, help="on two cores")
    args = parser.parse_args()
    if args.quick:
        args.models, args.draws, args.chains = ["seeds"], 100, 2
    if "areas" in args.models and args.areas is None:
        parser.error("areas needs --areas COUNTS.csv EDGES.csv")
    with_stan = "Stan" in args.against and has_stan(args.stan_python)
    if "Stan" in args.against and not with_stan:
        print("Stan: not installed; pip install pystan, here or for --stan-python.")
    with_nutpie = "nutpie" in args.against and importlib.util.find_spec("nutpie") is not None
    if "nutpie" in args.against and not with_nutpie:
        print("nutpie: not installed")
    title = f"{args.chains} chains of {args.draws} draws after {args.draws}; ! R-hat above 1.05"
    table = Table(args, title, COLUMNS, keys=3)
    for name in args.models:
        if table.has(name):
            continue
        if name == "areas":
            counts, edges = (pd.read_csv(file) for file in args.areas)
            problem = areas(counts, edges.to_numpy())
        else:
            problem = PROBLEMS[name]()
        runs = {"default": default(problem, args.draws, args.chains)}
        if with_nutpie:
            runs["nutpie"] = nutpie(problem, args.draws, args.chains)
        for program in problem.programs if with_stan else []:
            if program.endswith("_laplace") and not args.laplace:
                continue
            label = "Stan" + {"centered": ", centered", "laplace": ", Laplace"}.get(
                program.rpartition("_")[2], ""
            )
            runs[label] = stan(problem, program, args.draws, args.chains, args.stan_python)
        show(table, name, problem.data["n"], runs)


if __name__ == "__main__":
    main()
