"""How f moves given theta: kernels that leave p(f | y, theta) invariant, one file each.

``kernel(rng, state) -> (state, info)``. All but `smmala` cost O(n²), once what depends on theta
alone has been factorized; the prior's factor comes with the state. They are named for users in
`pymc_lgm.sweep.LATENT_MOVES`.
"""
