"""Models of several latent variables: their default sampler against nutpie.

    python benchmarks/linear_predictors.py [--quick] [--problems additive hsgp noise classes]

Counts of n observations, simulated from log rates a + X beta + b[subject] + f(t): an intercept,
four coefficients, effects of 30 subjects, and a process in one input ("additive"), or that process
by 20 basis functions ("hsgp"). nutpie samples what its users write: the process whitened, effects
not centered. Ours reads `gp.prior(reparameterize=False)` and centered effects; every Gaussian
variable is integrated out with f, and drawn back. "noise" is a regression whose mean and log sd
are processes, "classes" has three, one a class: there an observation reads several.

ESS is ArviZ's bulk ESS, the smallest over the hyper-parameters and, in a second column, over
intercept, coefficients and effects; ESS/s per second of tuning and sampling. "apart" is the largest
difference of the two posterior means of hyper-parameters and coefficients, in its Monte Carlo
standard errors.
"""

from __future__ import annotations

import argparse
import time

from typing import Any

import arviz as az
import numpy as np
import pymc as pm

from _results import Table, arguments

import pymc_lgm as lgm

THETA = ["scale", "length", "spread"]
LINEAR = ["a", "beta", "b"]
COUPLED = ("noise", "classes")


def simulated(n: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    t, X = np.sort(rng.uniform(0, 10, n)), rng.standard_normal((n, 4))
    subject = rng.permutation(np.arange(n) % 30)
    distance = np.abs(t[:, None] - t)
    r = np.sqrt(5) * distance / 1.5
    K = 0.7**2 * (1 + r + r**2 / 3) * np.exp(-r) + 1e-6 * np.eye(n)
    eta = 0.5 + X @ [0.5, -0.3, 0.2, 0.0] + 0.4 * rng.standard_normal(30)[subject]
    eta += np.linalg.cholesky(K) @ rng.standard_normal(n)
    y = rng.poisson(np.exp(eta))
    return {"t": t[:, None], "X": X, "subject": subject, "y": y, "seed": seed}


def coupled(problem: str, data: dict[str, Any], *, whitened: bool) -> pm.Model:
    """A mean with its own noise, or three classes, in one input."""
    t, rng = data["t"], np.random.default_rng(data["seed"])
    with pm.Model() as model:
        count = 2 if problem == "noise" else 3
        scale = pm.HalfNormal("scale", 1, shape=count)
        length = pm.InverseGamma("length", 3, 3, shape=count)

        def process(k: int) -> Any:
            cov = scale[k] ** 2 * pm.gp.cov.Matern52(1, ls=length[k])
            gp = pm.gp.Latent(cov_func=cov)
            return gp.prior(f"f{k}", t, reparameterize=whitened)

        f = [process(k) for k in range(count)]
        mean, other = np.sin(t[:, 0]), np.cos(0.5 * t[:, 0])
        if problem == "noise":
            y = mean + np.exp(-1 + other) * rng.standard_normal(len(t))
            pm.Normal("y", f[0], pm.math.exp(f[1]), observed=y)
        else:
            eta = 2 * np.stack([mean, other, np.zeros_like(mean)])
            labels = (eta + rng.gumbel(size=eta.shape)).argmax(axis=0)
            # A likelihood of this package would call its sampler.
            logits = pm.math.stack(f, axis=-1)
            if whitened:
                pm.Categorical("y", logit_p=logits, observed=labels)
            else:
                lgm.Softmax("y", f=f, observed=labels)
    return model


def build(problem: str, data: dict[str, Any], *, whitened: bool) -> pm.Model:
    if problem in COUPLED:
        return coupled(problem, data, whitened=whitened)
    with pm.Model() as model:
        scale, spread = pm.HalfNormal("scale", 1), pm.HalfNormal("spread", 1)
        length = pm.InverseGamma("length", 3, 3)
        cov = scale**2 * pm.gp.cov.Matern52(1, ls=length)
        if problem == "hsgp":
            f = pm.gp.HSGP(m=[20], c=1.5, cov_func=cov).prior("f", data["t"] - 5.0)
        else:
            gp = pm.gp.Latent(cov_func=cov)
            f = gp.prior("f", data["t"], reparameterize=whitened)
        if whitened:
            b = pm.Deterministic("b", spread * pm.Normal("z", 0, 1, shape=30))
        else:
            b = pm.Normal("b", 0, spread, shape=30)
        a, beta = pm.Normal("a", 0, 2), pm.Normal("beta", 0, 1, shape=4)
        eta = a + pm.math.dot(data["X"], beta) + b[data["subject"]] + f
        pm.Poisson("y", pm.math.exp(eta), observed=data["y"])
    return model


def sample(model: pm.Model, seed: int, args: argparse.Namespace, **kwargs: Any) -> Any:
    begin = time.perf_counter()
    with model:
        idata = pm.sample(
            args.draws,
            tune=args.tune,
            chains=args.chains,
            cores=args.cores,
            random_seed=seed,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
            **kwargs,
        )
    return idata, time.perf_counter() - begin


def summary(idata: Any) -> Any:
    names = [name for name in THETA + LINEAR if name in idata["posterior"]]
    return az.summary(idata, var_names=names, round_to="none")


def main() -> None:
    parser = arguments(__doc__, quick="one small problem, short chains")
    problems = ["additive", "hsgp", *COUPLED]
    parser.add_argument("--problems", nargs="*", choices=problems, default=problems)
    samplers = ["default", "nutpie"]
    parser.add_argument("--samplers", nargs="*", choices=samplers, default=samplers)
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 0")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--tune", type=int, default=1000)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--cores", type=int, default=2)
    args = parser.parse_args()
    if args.quick:
        args.problems, args.n, args.seeds, args.draws, args.tune = ["additive"], 40, 1, 100, 100
    columns = {"problem": "<8", "seed": "", "sampler": "<7", "R-hat": ".3f", "ESS": ".0f"}
    columns |= {"linear": ".0f", "ESS/s": ".1f", "linear/s": ".1f", "ops/draw": ".1f", "s": ".0f"}
    title = f"{args.chains} chains of {args.draws} draws after {args.tune}, n = {args.n}"
    results = Table(args, title, columns | {"apart": ".1f"}, keys=3)
    for problem in args.problems:
        for seed in range(args.seeds):
            if all([results.has(problem, seed, sampler) for sampler in args.samplers]):
                continue
            data, found = simulated(args.n, seed), {}
            for sampler in args.samplers:
                ours = sampler == "default"
                model = build(problem, data, whitened=not ours)
                with model:
                    how = {"step": lgm.PseudoMarginal()} if ours else {"nuts_sampler": "nutpie"}
                idata, seconds = sample(model, seed, args, **how)
                table = found[sampler] = summary(idata)
                theta = table.loc[[i for i in table.index if i.split("[")[0] in THETA]]
                linear = table.loc[[i for i in table.index if i.split("[")[0] in LINEAR]]
                ess, of_linear = theta["ess_bulk"].min(), linear["ess_bulk"].min()
                ops = float(idata["sample_stats"]["cubic_ops"].mean()) if ours else np.nan
                apart = np.nan
                if len(found) == 2:
                    one, two = found.values()
                    error = np.hypot(one["mcse_mean"], two["mcse_mean"])
                    apart = float((np.abs(one["mean"] - two["mean"]) / error).max())
                rates = (ess / seconds, of_linear / seconds, ops, seconds, apart)
                r_hat = table["r_hat"].max()
                results.row(problem, seed, sampler, r_hat, ess, of_linear, *rates)


if __name__ == "__main__":
    main()
