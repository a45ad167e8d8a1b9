"""A nucleus: its element, its effective charge, and the core that a potential stands for."""

from dataclasses import dataclass
from typing import Final, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

NEGLIGIBLE: Final = 1e-7
"""Hartree: where every (2l + 1) |V_l| is smaller, an electron is out of range."""
FARTHEST: Final = 50.0
"""Largest range in bohr. The most diffuse potential of the shipped sets ends at 12 bohr."""
GRID: Final = 50_000
NEAREST: Final = 1e-6
BOTTOMLESS: Final = -1e5
"""Hartree at `NEAREST` bohr: an attraction ∝ 1/r is lower, and a finite well is higher."""


class Gaussian(NamedTuple):
    """The radial function c r^(n − 2) exp(−α r²), in hartree; r in bohr."""

    power: int  # n
    exponent: float  # α
    coefficient: float  # c


Radial = tuple[Gaussian, ...]
"""A sum of Gaussians."""


@dataclass(frozen=True)
class Core:
    """Core electrons and the semilocal potential that stands for them.

        V = V_loc(r) + Σ_l V_l(r) Σ_m |lm⟩⟨lm|

    The Coulomb attraction −Z_eff / r is not included.
    """

    electrons: int
    local: Radial
    channels: tuple[Radial, ...] = ()  # V_0, V_1, …

    @property
    def reach(self) -> float:
        """Distance in bohr beyond which (2l + 1) |V_l| is negligible for all l; 0 without V_l."""
        r = np.linspace(0.0, FARTHEST, GRID + 1)[1:]
        found = 0.0
        for l, channel in enumerate(self.channels):  # noqa: E741
            inside = r[(2 * l + 1) * np.abs(values(channel, r)) >= NEGLIGIBLE]
            found = max(found, float(inside[-1]) if len(inside) else 0.0)
        return found

    @property
    def depth(self) -> float:
        """Depth of the deepest well, max(0, −min V) over all channels, in hartree.

        Infinite if a potential falls without limit at the nucleus.
        """
        r = np.geomspace(NEAREST, FARTHEST, GRID)
        lowest = [np.minimum(values(channel, r), 0.0) for channel in self.channels]
        well = values(self.local, r) + np.min([np.zeros_like(r), *lowest], axis=0)
        return max(0.0, -float(well.min())) if well[0] > BOTTOMLESS else float("inf")


@dataclass(frozen=True)
class Nucleus:
    """A clamped nucleus."""

    position: tuple[float, float, float]  # bohr
    charge: int  # effective: the charge of the element without its core, units of e
    core: Core | None = None

    @property
    def element(self) -> int:
        """Number of the element in the periodic table."""
        return self.charge + (self.core.electrons if self.core else 0)


def values(radial: Radial, r: Float[np.ndarray, "*some"]) -> Float[np.ndarray, "*some"]:
    """A radial function in hartree, in NumPy."""
    terms = (c * r ** (n - 2) * np.exp(-a * r**2) for n, a, c in radial)
    return np.sum([np.zeros_like(r), *terms], axis=0)


def evaluate(radial: Radial, r: Float[Array, "*some"]) -> Float[Array, "*some"]:
    """A radial function in hartree, in JAX."""
    total = jnp.zeros_like(r)
    for power, exponent, coefficient in radial:
        total += coefficient * r ** (power - 2) * jnp.exp(-exponent * r**2)
    return total
