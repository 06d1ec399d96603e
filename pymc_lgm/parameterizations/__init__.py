"""What is held fixed while theta moves, one file each: ``fix(rng, state) -> target``.

``target(theta)`` gives the log density of theta in that parameterization and the state there,
f included; any move on theta can use it. They are named in `pymc_lgm.sweep.PARAMETERIZATIONS`.
"""
