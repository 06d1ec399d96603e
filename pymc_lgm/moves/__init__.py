"""Moves: kernels of f given theta (`latent`), and of theta in a target (`theta`)."""
