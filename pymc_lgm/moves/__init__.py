"""Moves: kernels of f given theta (`latent`), of theta in a target (`theta`), and of amplitudes."""
