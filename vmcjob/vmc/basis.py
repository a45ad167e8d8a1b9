"""Gaussian basis functions of pyscf's basis sets, as functions that JAX can evaluate."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from vmcjob.vmc.contracts import Nuclei

if TYPE_CHECKING:
    from pyscf.gto import Mole

Basis = Callable[[Array, Nuclei], Array]
"""``(r, nuclei) -> basis functions at each electron`` of one walker, in bohr^(−3/2)."""


class Shell(NamedTuple):
    """The 2l + 1 basis functions around one nucleus that share a contraction of Gaussians."""

    nucleus: int
    angular_momentum: int
    exponents: np.ndarray
    coefficients: np.ndarray  # the norms of the primitives are included


class Expansion(NamedTuple):
    """Basis functions, each a sum of Gaussians times a sum of monomials around a nucleus."""

    nuclei: np.ndarray  # nucleus of each distinct Gaussian
    exponents: np.ndarray
    contraction: Float[np.ndarray, "gaussian function"]
    # coordinates are (1, x, y, z, x, y, z, ...)
    factors: Float[np.ndarray, "degree coordinate monomial"]
    harmonics: Float[np.ndarray, "monomial function"]


def make_basis(molecule: "Mole") -> Basis:
    """Contracted Gaussians times real solid harmonics, in pyscf's order of functions.

    Uses matrix products only: a compiler makes slow loops of other operations along short axes.
    """
    expansion = _expansion(list(_shells(molecule)), molecule.natm)

    def basis(r: Array, nuclei: Nuclei) -> Array:
        nucleus, exponents, contraction, factors, harmonics = expansion
        contraction, factors, harmonics = (
            jnp.asarray(matrix, r.dtype) for matrix in (contraction, factors, harmonics)
        )
        away = r[:, None] - nuclei.positions
        distance2 = jnp.sum(away**2, axis=-1)
        gaussians = jnp.exp(-jnp.asarray(exponents, r.dtype) * distance2[:, nucleus])
        coordinates = jnp.hstack([jnp.ones((len(r), 1), r.dtype), away.reshape(len(r), -1)])
        monomials = jnp.ones((len(r), factors.shape[-1]), r.dtype)
        for factor in factors:
            monomials = monomials * (coordinates @ factor)
        return (gaussians @ contraction) * (monomials @ harmonics)

    return basis


def _shells(molecule: "Mole") -> Iterator[Shell]:
    """All shells in the order of pyscf's basis functions."""
    for i in range(molecule.nbas):
        norms = [_norm(molecule.bas_angular(i), a) for a in molecule.bas_exp(i)]
        for column in molecule.bas_ctr_coeff(i).T:
            angular_momentum = molecule.bas_angular(i)
            yield Shell(molecule.bas_atom(i), angular_momentum, molecule.bas_exp(i), column * norms)


def _norm(angular_momentum: int, exponent: float) -> float:
    """Norm of the radial part r^l exp(−a r²)."""
    from pyscf import gto

    return float(gto.gto_norm(angular_momentum, exponent))


def _expansion(shells: list[Shell], n_nuclei: int) -> Expansion:
    """The Gaussians and monomials of these shells, each distinct one once."""
    from pyscf.gto import cart2sph

    n_functions = sum(2 * shell.angular_momentum + 1 for shell in shells)
    gaussians: dict[tuple[int, float], np.ndarray] = {}
    monomials: dict[tuple[int, tuple[int, ...]], np.ndarray] = {}
    first = 0
    for shell in shells:
        degree = shell.angular_momentum
        own = slice(first, first := first + 2 * degree + 1)
        for exponent, coefficient in zip(shell.exponents, shell.coefficients, strict=True):
            key = shell.nucleus, float(exponent)
            gaussians.setdefault(key, np.zeros(n_functions))[own] += coefficient
        for axes, row in zip(_monomials(degree), np.asarray(cart2sph(degree)), strict=True):
            monomials.setdefault((shell.nucleus, axes), np.zeros(n_functions))[own] = row
    factors = np.zeros((max(len(axes) for _, axes in monomials), 1 + 3 * n_nuclei, len(monomials)))
    for column, (nucleus, axes) in enumerate(monomials):
        for i, factor in enumerate(factors):
            factor[1 + 3 * nucleus + axes[i] if i < len(axes) else 0, column] = 1.0
    nuclei, exponents = zip(*gaussians, strict=True)
    return Expansion(
        nuclei=np.array(nuclei),
        exponents=np.array(exponents),
        contraction=np.array(list(gaussians.values())),
        factors=factors,
        harmonics=np.array(list(monomials.values())),
    )


def _monomials(degree: int) -> list[tuple[int, ...]]:
    """All x^i y^j z^k of one degree, by falling i, each as the list of its axes."""
    down = range(degree, -1, -1)
    powers = [(i, j, degree - i - j) for i in down for j in down if i + j <= degree]
    return [(0,) * i + (1,) * j + (2,) * k for i, j, k in powers]
