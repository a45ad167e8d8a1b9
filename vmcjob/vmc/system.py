"""What is simulated: nuclei, charges, electrons and spins in atomic units, and where they start."""

from dataclasses import dataclass

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


def home_nuclei(system: System) -> list[int]:
    """The nucleus near which each electron starts, in electron order.

    Each place goes to the nucleus that is least screened so far (nuclear charge minus electrons
    already there), which holds for neutral atoms, ions and dissociated molecules alike. The places
    of one nucleus take turns in spin, as long as both spins last. One pass: it always ends.
    """
    unscreened = list(system.charges)
    places = [0] * len(unscreened)
    for _ in range(system.n_electrons):
        nucleus = max(range(len(unscreened)), key=unscreened.__getitem__)
        unscreened[nucleus] -= 1
        places[nucleus] += 1
    homes: tuple[list[int], list[int]] = ([], [])
    room = [system.n_up, system.n_down]
    for nucleus, count in enumerate(places):
        spin = 0 if room[0] >= room[1] else 1
        for _ in range(count):
            if room[spin] == 0:
                spin = 1 - spin
            homes[spin].append(nucleus)
            room[spin] -= 1
            spin = 1 - spin
    return homes[0] + homes[1]


def initial_positions(
    system: System, key: Array, n_walkers: int, spread: float = 1.0
) -> Float[Array, "walker elec 3"]:
    """A batch of walkers in bohr: each electron normally distributed around its home nucleus."""
    centres = jnp.asarray(np.array(system.nuclei)[home_nuclei(system)], dtype=float)
    return centres + spread * jax.random.normal(key, (n_walkers, system.n_electrons, 3))
