"""What is simulated: nuclei, charges, electrons and spins in atomic units, and where they start."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float


@dataclass(frozen=True)
class System:
    """Clamped nuclei and the electrons around them.

    Electrons are ordered by spin: the first `n_up` of every walker are spin-up.
    """

    nuclei: tuple[tuple[float, float, float], ...]  # bohr
    charges: tuple[int, ...]  # units of e
    n_up: int
    n_down: int

    @property
    def n_electrons(self) -> int:
        """Number of electrons of both spins."""
        return self.n_up + self.n_down


class Home(NamedTuple):
    """Where one electron starts: around a nucleus, as far out as its screened charge lets it."""

    nucleus: int
    charge: int  # what the electrons placed before leave of the nuclear charge, at least 1


def find_homes(system: System) -> list[Home]:
    """Where each electron starts, in electron order.

    Each place goes to the nucleus that is least screened so far (nuclear charge minus electrons
    already there), which holds for neutral atoms, ions and dissociated molecules alike. The places
    of one nucleus take turns in spin, as long as both spins last. One pass: it always ends.
    """
    unscreened = list(system.charges)
    places: list[list[Home]] = [[] for _ in unscreened]
    for _ in range(system.n_electrons):
        nucleus = max(range(len(unscreened)), key=unscreened.__getitem__)
        places[nucleus].append(Home(nucleus, max(1, unscreened[nucleus])))
        unscreened[nucleus] -= 1
    homes: tuple[list[Home], list[Home]] = ([], [])
    room = [system.n_up, system.n_down]
    for place in places:
        spin = 0 if room[0] >= room[1] else 1
        for home in place:
            if room[spin] == 0:
                spin = 1 - spin
            homes[spin].append(home)
            room[spin] -= 1
            spin = 1 - spin
    return homes[0] + homes[1]


def initial_positions(
    system: System, key: Array, n_walkers: int, spread: float = 1.0
) -> Float[Array, "walker elec 3"]:
    """A batch of walkers in bohr: each electron normally distributed around its home nucleus.

    With a standard deviation of spread / Z, Z the charge that it sees there, which is the size of
    its orbital: an electron much farther out would be where ψ underflows, and nothing leads back.
    """
    homes = find_homes(system)
    centres = jnp.asarray(np.array(system.nuclei)[[home.nucleus for home in homes]], dtype=float)
    sizes = spread / jnp.asarray([[home.charge] for home in homes], dtype=float)
    return centres + sizes * jax.random.normal(key, (n_walkers, system.n_electrons, 3))
