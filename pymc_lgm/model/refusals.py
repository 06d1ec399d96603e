"""Messages of `pymc_lgm.model.read`, and those of several modules, about models not to be read.

They are functions of names and sizes. A message of one module is where that module raises it.
"""

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


def labeled(names: Sequence[str]) -> str:
    """Variables of `pymc.dims`."""
    return (
        f"This package does not read variables of pymc.dims, here {', '.join(map(repr, names))}. "
        "Write them with PyMC's distributions, which take dims, too: pm.Normal('u', 0, sigma, "
        f"dims='group'), not pymc.dims.Normal. {AS_IT_IS}"
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


def no_model(what: str) -> str:
    """A function was called outside of a ``with model:`` block."""
    return f"{what} needs a model: write it inside `with model:`, or pass model=model."


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
