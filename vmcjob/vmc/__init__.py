"""Variational Monte Carlo as a library: it knows physics and JAX, not jobs, files or clusters."""
