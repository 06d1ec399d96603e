"""How theta moves in the target of a parameterization, one file each.

``move(rng, state, target) -> (state, info)``.
"""
