"""Messages about PyMC models that cannot be read, as functions of names and sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

AS_IT_IS = "To sample the model as it is, pass step=pm.NUTS()."


def refuse_float32(floatX: str) -> None:
    """Raise under ``floatX="float32"``."""
    if floatX != "float64":
        raise ValueError(
            f"pytensor.config.floatX is {floatX!r}; Cholesky factors of covariances need float64. "
            "Write pytensor.config.floatX = 'float64' before the model."
        )


def which_latent(candidates: Sequence[str]) -> str:
    """Several latent vectors, of which a step can sample only one."""
    return (
        f"The model has {len(candidates)} latent Gaussian vectors: {', '.join(candidates)}. "
        f"Name the one to sample and its hyper-parameters: lgm.ASIS([{candidates[0]}, ...]); "
        "give each of the others a step of its own. If one is a gp.conditional, add it to the "
        "model after pm.sample()."
    )


def observed_process(name: str) -> str:
    """The only Gaussian vector is observed."""
    return (
        f"The process of this model is integrated out already: {name!r} is an observed "
        "pm.MvNormal, as pm.gp.Marginal makes it, and there is no latent vector to sample. "
        "Write lgm.ExactMarginal(), which samples its hyper-parameters."
    )


def none_is_latent(reasons: Mapping[str, str]) -> str:
    """No Gaussian variable is latent, and why."""
    each = "; ".join(f"{name!r} is Gaussian, but {why}" for name, why in reasons.items())
    return f"The model has no latent Gaussian vector: {each}. {AS_IT_IS}"


def nothing_reads(names: Sequence[str]) -> str:
    """Gaussian variables without a likelihood."""
    return (
        f"No density depends on {', '.join(map(repr, names))}: there is no likelihood to sample "
        f"from. Write one, as in lgm.Probit('y', f={names[0]}, observed=y)."
    )


def not_named(names: Sequence[str]) -> str:
    """Hyper-parameters are named, and the Gaussian variables are not."""
    return (
        f"{', '.join(map(repr, names))} could be latent, but hyper-parameters are named and it is "
        f"not. Name it, too, as in lgm.PseudoMarginal([{names[0]}, ...]), or leave all names out."
    )


def transformed_normal(name: str) -> str:
    """The only normal variable has a transform."""
    return (
        f"The model has no latent Gaussian vector: {name!r} has a transform, so it is not Gaussian "
        f"on the sampled scale. Remove transform= from it. {AS_IT_IS}"
    )


def no_latent(free: Sequence[str]) -> str:
    """The model has no Gaussian variable."""
    whitened = [name.removesuffix("_rotated_") for name in free if name.endswith("_rotated_")]
    shown = ", ".join(free[:8]) + (", ..." if len(free) > 8 else "")
    instead = (
        f"{whitened[0]!r} is whitened in the model: write gp.prior({whitened[0]!r}, X, "
        "reparameterize=False), since the samplers whiten."
        if whitened
        else "Write effects, coefficients and processes as pm.Normal or pm.MvNormal."
    )
    return (
        f"The model has no latent Gaussian vector: none of its free variables ({shown}) is a "
        "pm.MvNormal, or a Gaussian vector that densities read through an affine map. "
        f"{instead} {AS_IT_IS}"
    )


def student_process(name: str) -> str:
    """A process whose values are not Gaussian."""
    return (
        f"{name!r} is a Student t process, as pm.gp.TP makes it. It is not Gaussian given the "
        "hyper-parameters, and this package does not integrate it out. Write pm.gp.Latent for a "
        "Gaussian process, or sample the model with step=pm.NUTS()."
    )


def already_integrated(name: str, kind: str, maker: str) -> str:
    """The density of the data has the process integrated out, in a form that has no f."""
    return (
        f"The process of this model is integrated out already: {name!r} is {kind}, as {maker} "
        "makes it, and there is no latent vector to sample. Sample its hyper-parameters with "
        "step=pm.NUTS()."
    )


def no_observed(observed: Sequence[str], gaussian: Sequence[str], free: Sequence[str]) -> str:
    """No multivariate normal vector is observed, or several are."""
    if len(gaussian) > 1:
        return (
            f"The model observes {len(gaussian)} multivariate normal vectors: "
            f"{', '.join(gaussian)}. lgm.ExactMarginal takes one: write them as one vector, or "
            "sample with pm.NUTS()."
        )
    instead = (
        f"lgm.PseudoMarginal() samples theta with {', '.join(free)}"
        if free
        else 'with normal noise write y = gp.marginal_likelihood("y", X, y=y, sigma=sigma)'
    )
    return (
        f"No vector that the model observes ({', '.join(observed) or 'nothing'}) is a pm.MvNormal, "
        f"as pm.gp.Marginal makes it: {instead}."
    )


def not_a_latent(name: str, candidates: Sequence[str]) -> str:
    """The named variable is not a `pymc.MvNormal`."""
    return (
        f"{name!r} is not a latent Gaussian vector (a free pm.MvNormal). "
        f"This model has: {', '.join(candidates) or 'none; write reparameterize=False'}."
    )


def shapes_disagree(
    latent: str, n: int, observed: dict[str, tuple[int, ...]], error: Exception
) -> str:
    """The likelihood cannot be evaluated."""
    return (
        f"The log density cannot be evaluated: {latent!r} has shape ({n},), the observed data "
        f"{observed}. If the shapes disagree, index the latent, as in {latent}[group] for repeated "
        f"measurements. PyTensor says: {str(error).splitlines()[0]}"
    )


def not_a_hyperparameter(name: str) -> str:
    """A variable in theta is not continuous and free, or is latent."""
    return (
        f"{name!r} cannot be part of theta, which holds continuous free variables of the model "
        "other than f. Leave it out; pm.sample() gives a discrete variable a step of its own."
    )


def not_latent(name: str, reason: str) -> str:
    """A variable that the user has named as latent cannot be."""
    return (
        f"{name!r} cannot be latent: {reason}. Leave it out of latent=, and it is a "
        "hyper-parameter."
    )


def not_affine() -> str:
    """Values of the predictor are not affine, although its operations are."""
    return (
        "The linear predictor is not an affine function of the latent variables, although its "
        "operations are. Name those that enter it linearly: latent=[...]."
    )


def not_known(distribution: str) -> str:
    """A Gaussian variable has a distribution that this package does not integrate out."""
    return f"this package does not integrate out {distribution}"


def not_integrated() -> str:
    """No more specific reason is known."""
    return "it is not part of a linear predictor that the samplers integrate out"


def left_alone(density: str) -> str:
    """A density reads one number, such as a common log standard deviation."""
    return f"{density!r} reads one number that depends on it"


def left_in(operation: str) -> str:
    """An operation is not affine in the variable."""
    return f"{operation!r} depends on it in a way that is not affine"


def left_in_prior(name: str) -> str:
    """The prior of a latent variable depends on it, and not by an affine mean of a normal."""
    return (
        f"the prior of {name!r} depends on it, and the samplers integrate out a variable in a "
        "prior only if it is in the mean of a pm.Normal or a pm.MvNormal that is affine in it"
    )


def not_affine_in(name: str) -> str:
    """The prior of a variable that no density reads depends on a latent variable."""
    return f"its prior depends on {name!r}, and not only by a mean that is affine in it"


def left_gaussian(
    name: str, size: int, reason: str, left: Sequence[str], beside: Sequence[str]
) -> str:
    """A Gaussian vector with many elements would be a part of theta."""
    names = ", ".join(map(repr, left))
    return (
        f"{name!r} is Gaussian and has {size} elements, but {reason}. Its elements would be "
        "hyper-parameters, of which the samplers can move few. Sample the model with "
        "step=pm.NUTS()"
        + (
            f", or these variables alone: step=[lgm.PseudoMarginal([{', '.join(beside)}, ...]), "
            f"pm.NUTS([{', '.join(left)}])], with the hyper-parameters instead of the dots. "
            f"To sample them as hyper-parameters nevertheless, name them: "
            f"lgm.PseudoMarginal(theta=[{names}]), or lgm.read(theta=[{names}])."
            if beside
            else "."
        )
    )


def left_few(name: str, size: int, reason: str) -> str:
    """A Gaussian vector with few elements is a part of theta."""
    return f"{name!r} ({size} elements) is sampled among the hyper-parameters: {reason}."


def map_jumps(latents: str, discrete: str) -> str:
    """The map from several latents to the predictor depends on a discrete variable."""
    return (
        f"The linear predictor, affine in {latents!r}, depends on {discrete!r} too, which is "
        "discrete and is not only added: the samplers need coefficients of the latent variables "
        "that do not jump. If there are several processes, name one as latent and give the others "
        f"steps of their own, or sum {discrete!r} out."
    )


def labeled(names: Sequence[str]) -> str:
    """Variables of `pymc.dims`."""
    return (
        f"This package does not read variables of pymc.dims, here {', '.join(map(repr, names))}. "
        "Write them with PyMC's distributions, which take dims, too: pm.Normal('u', 0, sigma, "
        f"dims='group'), not pymc.dims.Normal. {AS_IT_IS}"
    )


def draws(name: str) -> str:
    """A density that differs at each evaluation, as that of a `pymc.Simulator`."""
    return (
        f"The log density of {name!r} draws random numbers: each evaluation gives another value, "
        "and a chain on it has no posterior. Write the density of the data, or make the random "
        "numbers a variable of the model."
    )


def infinite_predictor(latent: str, at: str) -> str:
    """A sampler would reject a theta at which the density is positive."""
    return (
        f"The linear predictor of {latent!r} is infinite at {{{at}}}, where PyMC's density is "
        "positive. The samplers of this package reject such a point, so draws would not be of the "
        "posterior. A factor that may be 0 must stand outside the logarithm: write the rate as "
        "pt.maximum(t - t0, 0) * pm.math.exp(f), not as pm.math.exp(f + pt.log(pt.maximum(t - t0, "
        "0))). Or sample this model with step=pm.NUTS()."
    )


def not_symmetric(name: str, at: str) -> str:
    """A covariance is not symmetric, as the factor that `pymc.LKJCorr` is."""
    return (
        f"The covariance matrix of {name!r} is not symmetric at {{{at}}}. PyMC reads one triangle "
        "of it, so its density is not that of the model as it is written. If L is a Cholesky "
        f"factor, as what pm.LKJCorr returns, write pm.MvNormal({name!r}, chol=sd * L), with sd "
        "one number or a column."
    )


def lost_in_rounding(name: str, here: float, pymc: float, at: str) -> str:
    """A chain has come to where a density has no digits."""
    return (
        f"The log density of {name!r} is lost in rounding errors at {{{at}}}, where the chain is: "
        f"two ways to compute it give {here:.6g} and {pymc:.6g}. Draws there are not of the "
        "posterior, whatever samples it. Write priors with less mass at extreme values, or a "
        "likelihood that keeps its digits there, as pm.Multinomial instead of a "
        "pm.DirichletMultinomial with parameters of 1e15."
    )


def minibatch() -> str:
    """The data differ at each evaluation."""
    return (
        "The data are a pm.Minibatch: each evaluation of the density sees other rows, and a chain "
        "on such a density has no posterior. Write all of the data, without total_size=, or fit "
        "this model with pm.fit()."
    )


def new_data(names: Sequence[str]) -> str:
    """Data that decide how the model is read were replaced afterwards."""
    step = "lgm.PseudoMarginal()"
    return (
        f"The data {', '.join(names)} were replaced after this step had read them: a chain would "
        "mix old and new data. Make the step after pm.set_data, as in "
        f"pm.sample(step={step})."
    )


def not_finite(latents: str, index: int, where: str = "at the starting point") -> str:
    """The predictor is not finite, because of a NaN in a covariate, say."""
    return (
        f"The linear predictor of {latents!r} is not finite at index {index} {where}. Remove or "
        "impute a NaN or an infinity in that row of X, or start elsewhere, with initval= of a "
        "variable, if it is finite there."
    )


def moves_nothing(latents: str) -> str:
    """All columns of A are 0, as for a single covariate less its mean."""
    return (
        f"The linear predictor does not depend on {latents!r}: its coefficients are zero. Leave "
        "it out, or name another latent variable: latent=[...]."
    )


def range_moves(latents: str, elements: int, rank: int) -> str:
    """The predictor has fewer degrees of freedom than elements, and its range depends on theta."""
    return (
        f"The {elements} elements of the linear predictor of {latents!r} have {rank} degrees of "
        "freedom, and which combinations are possible depends on theta. The samplers need a range "
        "that does not depend on theta. "
        "Write the prior on f itself, or sample this model with pm.NUTS()."
    )


def range_jumps(latent: str, operation: str) -> str:
    """The range of A may change beyond the threshold of an operation."""
    return (
        f"How {latent!r} enters the linear predictor depends on theta through {operation!r}, which "
        "has a threshold: beyond it other combinations of the predictor's elements may be "
        "possible, or fewer. The samplers need a range that does not depend on theta. Add an "
        "effect for each observation, pm.Normal('eps', 0, sigma, shape=n), or sample this model "
        "with pm.NUTS()."
    )


def range_is_less_at_the_start(latents: str, elements: int, rank: int, elsewhere: int) -> str:
    """A coefficient of latent variables is 0 at the starting point, and not near it."""
    return (
        f"The {elements} elements of the linear predictor of {latents!r} have {rank} degrees of "
        f"freedom at the starting point, and {elsewhere} near it: the coefficient of a latent "
        "variable is 0 there. "
        "Start it elsewhere, as in pm.Normal('beta', 0, 1, initval=0.5)."
    )


def read_by_too_many(name: str) -> str:
    """Elements of the predictor read too many elements of a vector walk."""
    return (
        f"{name!r} is a pm.MvGaussianRandomWalk, and the linear predictor reads too many of its "
        "elements together. This package integrates it out if each element of the predictor reads "
        "few of them. Sample the model with step=pm.NUTS()."
    )


def couples(latent: str, density: str, what: str) -> str:
    """A density reads several elements of f together."""
    return (
        f"The likelihood does not factorize over {latent!r}: the log density of {density!r} "
        "couples its elements, like that of several classes or of a mean and a scale. "
        f"{what} needs p(y | f) = ∏ p(y_i | f_i). Write "
        "lgm.PseudoMarginal(), lgm.ASIS() or lgm.LatentHMC(), which do not, or observations that "
        f"depend on one element of {latent!r} each."
    )


def does_not_split(likelihood: Sequence[str], latent: str) -> str:
    """A density is one number that depends on several elements of f, and sites are asked for."""
    return (
        f"A log density ({', '.join(likelihood)}) is a sum over several elements of {latent!r}, "
        "and sites need them one by one, p(y_i | f_i). Write a pm.Potential without its sum, or "
        "approximation='laplace'."
    )


def no_gaussian_near(likelihood: Sequence[str]) -> str:
    """A likelihood of classes that is not log-concave, as one that truncates f."""
    return (
        f"The likelihood ({', '.join(likelihood)}) is not log-concave in the processes of its "
        "classes, as lgm.likelihoods.RobustMax is not, and few importance draws of a Gaussian hit "
        "the region of high likelihood. Write step=lgm.Sweep(latent_move='hmc-curvature'), or "
        "lgm.Softmax instead of it. To try importance draws nevertheless, write "
        "lgm.PseudoMarginal(approximation='variational')."
    )


def no_model(what: str) -> str:
    """A function was called outside of a ``with model:`` block."""
    return f"{what} needs a model: write it inside `with model:`, or pass model=model."


def no_metric(metric: str, elements: int, rank: int) -> str:
    """Proposals with this metric leave the range of the predictor."""
    return (
        f"metric={metric!r} moves each of the {elements} elements of the linear predictor "
        f"separately, but they have {rank} degrees of freedom. Write metric='prior' or 'curvature'."
    )


def other_constraint(name: str) -> str:
    """A GMRF with constraints has a transform that is not its own."""
    return (
        f"{name!r} is a GMRF of lgm.gmrf with a transform other than its own, which keeps the "
        "constraints. Leave out transform= and default_transform=."
    )


def transformed(name: str) -> str:
    """The latent vector has a transform."""
    return (
        f"The latent {name!r} has a transform, so it is not Gaussian on the sampled scale. "
        "Remove transform= from it and apply the function in the likelihood."
    )


def range_held(latent: str) -> str:
    """The map from the latent variables to f depends on theta, so f cannot stay fixed."""
    return (
        f"Theta cannot move while f is held: the map from {latent} to f depends on theta. "
        "Write parameterization='whitened', which moves f with theta, "
        "lgm.papers.WhitenedMetropolis() or lgm.PseudoMarginal()."
    )


def beside_inducing(names: Sequence[str]) -> str:
    """A model has other latent processes beside inducing variables."""
    return (
        f"The model has {', '.join(names)}: processes with inducing variables cannot be combined "
        "with other processes. Add the covariance functions of the processes and write one "
        "lgm.gp.SparseLatent; coefficients beside it are hyper-parameters. Or name the variables "
        "to sample, lgm.PseudoMarginal([...]), and give the others a step of their own."
    )


def hidden_layer(inner: str, outer: str) -> str:
    """A process is the input of another process."""
    hidden, f = (
        name.removesuffix("_weights").removesuffix("_u_rotated_") for name in (inner, outer)
    )
    return (
        f"{inner!r} enters the model in a way that is not affine: {hidden!r} is the input of the "
        f"process {f!r}. The samplers of this package need latent variables that enter affinely, "
        "and a hidden layer does not. Write fitted = pm.fit(20_000) and idata = "
        "fitted.sample(1000) instead of pm.sample(), with pm.Minibatch if there are many data."
    )


def inducing_read_otherwise(name: str) -> str:
    """A density reads the inducing variables themselves."""
    return (
        f"A density reads the inducing variables {name} themselves, and not only their process. "
        "Leave that density out, or sample the model with pm.NUTS()."
    )


def intrinsic_scale(name: str) -> str:
    """The scale of a `pymc.ICAR` is a variable."""
    return (
        f"pm.ICAR({name!r}) has a sigma, or a zero_sum_stdev, that is not constant. Its density "
        "leaves out -(n - 1) log(sigma): the posterior of sigma would be wrong with any sampler. "
        f"Write pm.ICAR({name!r}, W=W), and multiply it by the scale: mu = pm.math.exp(b0 + "
        "sigma * (pm.math.sqrt(1 - rho) * theta + pm.math.sqrt(rho / s) * phi)) with "
        "s = lgm.spatial.scaling_factor(W)."
    )


def not_connected(name: str, sizes: Sequence[int]) -> str:
    """The map of an ICAR is not connected."""
    return (
        f"The map of pm.ICAR({name!r}) has {len(sizes)} connected parts, of "
        f"{', '.join(map(str, sizes))} areas: the level of each is free, and the prior improper. "
        "Join them, as by a ferry. Or use one ICAR per part, and independent effects for areas "
        "without neighbors: phi = pt.concatenate([pm.ICAR('north', W=W_north), "
        "pm.ICAR('south', W=W_south), pm.Normal('islands', 0, 1, shape=k)]), divided by "
        "np.sqrt(lgm.spatial.scaling_factor(W)), which has the scale of each area's part."
    )
