"""Gaussian approximations q(f) of p(f | y, theta), and importance sampling with them.

`laplace` and `ep` return the same type, `GaussianApproximation`: a center f̂ = m + K a and site
precisions W, q(f) = N(f̂, (K⁻¹ + W)⁻¹). Any W ≥ 0 and any a give a valid q. The approximation
determines the efficiency of a pseudo-marginal sampler. The sampler is exact with any of them.
"""
