"""For compiled loops over arrays: elementary functions, BLAS, and functions called by address."""
