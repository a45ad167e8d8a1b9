"""Forward-mode Laplacian of any JAX function: value, Jacobian and Laplacian in one pass."""

from vmcjob.fwdlap import (
    calls,
    concatenation,
    contraction,
    generic,
    pointwise,
    products,
    structure,
    sums,
)
from vmcjob.fwdlap.api import (
    Jet,
    derivatives,
    lap,
    lap_partial,
    laplacian,
    zero_tangent_from_primal,
)
from vmcjob.fwdlap.chunks import chunk_size, over_walkers, peak_bytes
from vmcjob.fwdlap.cpu import elementwise, normal, tanh
from vmcjob.fwdlap.determinant import slogdet

__all__ = [
    "Jet",
    "chunk_size",
    "derivatives",
    "elementwise",
    "lap",
    "lap_partial",
    "laplacian",
    "normal",
    "over_walkers",
    "peak_bytes",
    "slogdet",
    "tanh",
    "zero_tangent_from_primal",
]

# These modules are imported only because they register rules.
del calls, concatenation, contraction, generic, pointwise, products, structure, sums
