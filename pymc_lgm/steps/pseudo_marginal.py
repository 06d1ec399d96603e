"""The default step method: pseudo-marginal sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from pymc_lgm import moves, samplers
from pymc_lgm.approximations.ep import ep
from pymc_lgm.approximations.recall import (
    LOOSE,
    LineSearch,
    Recall,
    WarmSearch,
    laplace_near_sites,
)
from pymc_lgm.steps.marginal import GRADIENTS, SEARCHES, Marginal
from pymc_lgm.steps.options import Importance, StepOptions, refuse_no_metric
from pymc_lgm.steps.plan import Options

__all__ = ["PseudoMarginal"]

INDEPENDENT = {"cached": True, "redrawn": False, "as tuning finds": None}
"""Whether each proposal has random numbers of its own, by the plan's ``estimates``; ``None`` if
tuning decides."""


class PseudoMarginal(Marginal):
    """Integrate f out by importance sampling while theta moves; leaves p(theta, f | y) invariant.

    Draws from a Gaussian approximation q(f | theta) give an unbiased estimate of p(y | theta) and a
    draw of f, so theta and f move together. ``pm.sample()`` runs this sampler on a model with a
    likelihood of this package and a `pymc.MvNormal` or a process of `pymc.gp.Latent`. In any other
    model write ``pm.sample(step=lgm.PseudoMarginal())``.

    Parameters
    ----------
    vars : sequence of variables, optional
        f and the hyper-parameters to move; by default all continuous variables.
    approximation : {"laplace", "ep", "variational"}, optional
        How q is found. "laplace" takes the mode of f. "ep" is expectation propagation, which is
        closer to the posterior. "variational" maximizes the evidence lower bound and does not need
        a log-concave likelihood. The default is "ep"; "variational" if the likelihood is not known
        to be log-concave, for example with Student errors or a `pymc.Potential`, or if an
        observation depends on several elements of f; "laplace" if the likelihood is not a sum over
        the elements of f, and if the observations are normal given f, because q is then the
        posterior.
    move : {"emulator", "nuts", "metropolis", "delayed-metropolis", "slice"}, optional
        How theta moves. "emulator": long jumps proposed by an emulator of the evidence. "nuts":
        trajectories of NUTS on q's evidence; an estimate accepts or rejects their end.
        "metropolis": an adaptive random walk. "delayed-metropolis": the same with delayed
        acceptance, which computes the estimate only if the approximate evidence accepts. "slice":
        component-wise slice sampling with fixed random numbers of the estimate (Murray and Graham
        2016). By default "emulator" for up to 12 hyper-parameters, and "nuts" for more if theta has
        a gradient. While the emulator is fitted, NUTS also moves theta; for up to 3
        hyper-parameters a random walk does. If less than 0.7 of the jumps are accepted from the
        middle of tuning on, a draw makes up to four moves, and NUTS makes a share of them: a
        quarter of the difference to 0.7. If less than 0.1 are accepted, NUTS makes all moves.
    n_importance : int, optional
        N, the draws of f per estimate. By default the smallest power of two from 8 to 64 with which
        the log ratio of two estimates has a variance of at most 0.05; tuning finds it. The search
        begins at 2 for inducing variables, for normal observations and for a sparse precision, with
        which each draw takes a factorization; and at 4 if effects of single observations are
        integrated out. If a factorization takes longer than 2 ms, a variance of 0.25 is enough.
    latent_move : str, optional
        An additional move of f given theta. "posterior" is HMC with the covariance of q, which
        costs no factorization. If estimates have so little noise that each proposal uses
        independent draws (see `Importance`), this move runs only in the draws that ``interweave``
        takes, one in twenty. Other values are ``None`` and the moves of `Sweep`, such as "hmc". The
        default, "auto", is "posterior", and ``None`` if q is close to the posterior: with inducing
        variables or random features, with normal observations, and if effects of single
        observations are integrated out.
    importance : Importance, optional
        How the importance draws are made.
    sites : {"predicted", "optimized"}, optional
        The sites are the Gaussian factors of q that replace the likelihood. "predicted" computes
        them after tuning by a linear model in theta, fitted to the sites of tuning; it costs one
        O(n³) operation. "optimized" searches for q at each theta, starting at that prediction: 2 to
        4 operations for Laplace, 2 to 8 for EP, 4 to 12 for the lower bound. By default
        "predicted"; "optimized" for "variational" with a likelihood that is not log-concave,
        because its sites appear and vanish with theta.
    interweave : bool, optional
        Move theta by a whitened random walk, which needs no estimate, in one draw in five, or in
        one in twenty if estimates have little noise. If less than 0.1 of the proposals were
        accepted in tuning, because no Gaussian is near the posterior of f, each draw gets an
        additional walk for two more O(n³) operations. By default ``True``, and ``False`` if
        ``latent_move`` is ``None`` by default.
    target_accept, scale
        Options of the random walk on theta, as in `Sweep`. If theta has a gradient,
        ``target_accept`` is also the acceptance of NUTS, by default 0.7. If no walk runs, ``scale``
        is refused.
    **kwargs
        ``model``, ``theta``, ``rng``, ``initial_point`` and others: see `LatentGaussianStep`.

    Raises
    ------
    ValueError
        If the likelihood has no gradient in f, if an observation depends on more than 12 elements
        of f, or if an option cannot be met for the model. The message says what to write instead.

    See Also
    --------
    ExactMarginal : If f is integrated out by `pymc.gp.Marginal`.
    ASIS : If no Gaussian is near the posterior of f.
    Importance : How the importance draws are made.
    steps.Plan : The choices for a model, with a reason for each: print ``step.plan``.
    report : Whether to trust the draws.

    Notes
    -----
    A proposal costs two O(n³) operations, the factors of K and B; each step of NUTS costs two more.
    In tuning, and later at thetas far from those of tuning, q is optimized for 3 to 8 operations.
    Tuning stops early if no other step moves anything and four jumps in five are accepted after 320
    draws (or 640, 1280, ...): an eighth of tuning is still used, and the chain does not move in the
    rest. ``sample_stats``: ``theta_acceptance``, ``theta_scale``, ``log_evidence``,
    ``log_evidence_sd``, ``pareto_k``, ``n_importance``, ``mode_iterations``, the statistics of the
    latent move, ``cubic_ops``, ``numerical_rejections``; with NUTS also ``theta_steps``, with a
    slice ``theta_evaluations``.

    References
    ----------
    Filippone and Girolami (2014), *Pseudo-marginal Bayesian inference for Gaussian processes*,
    IEEE TPAMI 36; Deligiannidis, Doucet and Pitt (2018), *The correlated pseudo-marginal method*,
    JRSS-B 80; Ferkingstad and Rue (2015), *Improving the INLA approach for approximate Bayesian
    inference for latent Gaussian models*, EJS 9, for the copula.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     eta = pm.HalfNormal("eta")
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=eta * pm.math.stack([[1, 0.5], [0.5, 1]]))
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.PseudoMarginal(n_importance=16)
    >>> step
    PseudoMarginal([f, eta_log__])
    >>> step.plan.approximation, step.plan.theta_move
    ('ep', 'emulator')
    """

    name = "pseudo_marginal"

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        approximation: str | None = None,
        move: str | None = None,
        n_importance: int | None = None,
        latent_move: str | None = "auto",
        importance: Importance = Importance(),
        sites: str | None = None,
        interweave: bool | None = None,
        target_accept: float | None = None,
        scale: float | None = None,
        **kwargs: Unpack[StepOptions],
    ):
        options = Options(
            "PseudoMarginal",
            approximation=approximation,
            move=move,
            n_importance=n_importance,
            latent_move=latent_move,
            importance=importance,
            sites=sites,
            interweave=interweave,
            target_accept=target_accept,
            scale=scale,
        )
        super().__init__(vars, options, **kwargs)

    def _sweep(self) -> Sequence[samplers.Element]:
        elements = super()._sweep()
        latent = self.plan.latent_move
        if latent in (None, "posterior"):
            return elements
        move = samplers.LATENT_MOVES[latent]()
        refuse_no_metric(self.lgm, move, "latent_move='hmc-curvature'")
        return [move, *elements]

    def _element(self, **common: Any) -> samplers.PseudoMarginal:
        plan = self.plan
        name = str(plan.approximation)
        search: LineSearch | None
        if plan.sites == "exact":
            search = None  # that of exploration
        elif plan.sites == "optimized":
            # A loose tolerance keeps the sampler exact: after tuning q does not depend on the
            # chain.
            near = SEARCHES[name] if name in GRADIENTS else laplace_near_sites
            search = WarmSearch(near, tolerance=LOOSE)
        else:
            search = Recall(SEARCHES[name] if name in GRADIENTS else ep)
        walk = samplers.Theta("whitened", samplers.Metropolis())
        posterior = moves.latent.CurvatureHMC(max_steps=10)
        return samplers.PseudoMarginal(
            search=search,
            latent=posterior if plan.latent_move == "posterior" else None,
            interweave=samplers.Interweaving(walk) if plan.interweaves else None,
            correlation=plan.correlation,
            independent=INDEPENDENT[str(plan.estimates)],
            copula=plan.fits_margins,
            **common,
        )
