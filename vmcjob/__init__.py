"""From a TOML job spec to a variational Monte Carlo energy with an honest error bar."""

__version__ = "0.1.0"
