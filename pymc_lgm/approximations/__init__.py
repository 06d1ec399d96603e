"""Gaussian approximations q(f) of p(f | y, theta), and what importance sampling makes of them.

`laplace` and `ep` end in the same `GaussianApproximation`: a center f̂ = m + K a and precisions W,
q(f) = N(f̂, (K⁻¹ + W)⁻¹). Any W ≥ 0 and any a give a valid q: the approximation decides how
efficient a pseudo-marginal sampler is, never whether it is exact.
"""
