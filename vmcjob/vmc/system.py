"""What is simulated: nuclei, charges, electrons and spins in atomic units, and where they start."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from vmcjob.vmc.contracts import Nuclei
from vmcjob.vmc.nucleus import Core, Nucleus


@dataclass(frozen=True)
class System:
    """Clamped nuclei and the electrons around them.

    Electrons are ordered by spin: the first `n_up` of every walker are spin-up.
    """

    nuclei: tuple[tuple[float, float, float], ...]  # bohr
    charges: tuple[int, ...]  # effective, without the charge of the cores, units of e
    n_up: int
    n_down: int
    cores: tuple[Core | None, ...] = ()  # of each nucleus, or empty if there are none

    def __post_init__(self) -> None:
        """Make tuples of other sequences: programs are kept by their system."""
        tuples = {
            "nuclei": tuple(map(tuple, self.nuclei)),
            "charges": tuple(self.charges),
            "cores": tuple(self.cores),
        }
        for name, value in tuples.items():
            object.__setattr__(self, name, value)

    @property
    def species(self) -> tuple[Nucleus, ...]:
        """The nuclei one by one."""
        cores = self.cores or (None,) * len(self.charges)
        return tuple(map(Nucleus, self.nuclei, self.charges, cores))

    @property
    def has_cores(self) -> bool:
        """Whether a potential stands for the core electrons of some nucleus."""
        return any(self.cores)

    @property
    def n_electrons(self) -> int:
        """Number of electrons of both spins."""
        return self.n_up + self.n_down


def core_orbitals(system: System) -> tuple[int, ...]:
    """Number of orbitals in the core of each nucleus."""
    return tuple(one.core.electrons // 2 if one.core else 0 for one in system.species)


def bare_nuclei(system: System) -> tuple[int, ...] | None:
    """Numbers of the nuclei without a core; None if no nucleus has one."""
    if not system.has_cores:
        return None
    return tuple(i for i, one in enumerate(system.species) if one.core is None)


def nuclei_of(system: System) -> Nuclei:
    """The nuclei of a system as arrays of the process's precision."""
    positions, charges = np.array(system.nuclei, float), np.array(system.charges, float)
    return Nuclei(jnp.asarray(positions, dtype=float), jnp.asarray(charges, dtype=float))


def energy_bound(system: System) -> float:
    """An energy that the ground state's is never below, in hartree.

    Electrons that do not repel each other, all nuclei in one place but for their own repulsion:

        E ≥ Σ_{I<J} Z_I Z_J / |R_I − R_J| − ½ (Σ_I Z_I)² Σ_i 1/n_i²

    For −½∇² − Σ_I Z_I/|r − R_I| is an average, with weights Z_I / Σ Z, of atoms of charge Σ Z, and
    the sum of the lowest eigenvalues of an average is at least the average of their sums. Each core
    lowers each electron by the depth of its potential at most.
    """
    nuclei, charges = np.array(system.nuclei), np.array(system.charges, float)
    i, j = np.triu_indices(len(charges), k=1)
    distances = np.linalg.norm(nuclei[i] - nuclei[j], axis=-1)
    repulsion = float(np.sum(charges[i] * charges[j] / distances))
    left, shell, filled = system.n_electrons, 1, 0.0
    while left > 0:
        filled += min(left, 2 * shell**2) / shell**2
        left, shell = left - 2 * shell**2, shell + 1
    wells = system.n_electrons * sum(core.depth for core in system.cores if core)
    return repulsion - 0.5 * float(charges.sum()) ** 2 * filled - wells


ROUNDING = 1e-6  # of populations that are whole numbers


class Home(NamedTuple):
    """The start of one electron: around a nucleus, at a radius set by the screened charge."""

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


def homes_of(system: System, populations: Float[np.ndarray, "2 nuc"]) -> list[Home]:
    """Where each electron starts, in electron order, so that nuclei have these populations.

    Those of each spin are rounded to whole electrons, the largest remainders up; of equal
    ones, that of the nucleus which is least screened by then. At a nucleus the spins take turns,
    the more frequent one first.
    """
    up = _apportioned(populations[0], system.n_up, np.array(system.charges))
    down = _apportioned(populations[1], system.n_down, system.charges - up)
    counts = np.array([up, down])
    homes: tuple[list[Home], list[Home]] = ([], [])
    for nucleus, charge in enumerate(system.charges):
        left, placed = counts[:, nucleus].copy(), 0
        while left.any():
            spin = int(np.argmax(left))
            homes[spin].append(Home(nucleus, max(1, charge - placed)))
            left[spin] -= 1
            placed += 1
    return homes[0] + homes[1]


def exchanged(system: System, homes: Sequence[Home]) -> list[Home]:
    """The homes with the two spins exchanged; both spins need as many electrons."""
    return [*homes[system.n_up :], *homes[: system.n_up]]


def _apportioned(
    shares: Float[np.ndarray, " nuc"], total: int, unscreened: np.ndarray
) -> np.ndarray:
    """Whole numbers near the shares, with the given sum, by largest remainders; none negative."""
    shares = np.maximum(shares, 0.0)
    whole = np.floor(shares + ROUNDING).astype(int)
    remainders = np.round((shares - whole) / ROUNDING)  # equal ones of symmetric nuclei stay equal
    for place in np.lexsort((whole - unscreened, -remainders))[: max(0, total - whole.sum())]:
        whole[place] += 1
    while whole.sum() > total:
        whole[np.argmax(whole - shares)] -= 1
    while whole.sum() < total:
        whole[np.argmin(whole - shares)] += 1
    return whole


def deviates(system: System, key: Array, n_walkers: int) -> Float[Array, "walker elec 3"]:
    """Normal deviates for the places of so many walkers."""
    return jax.random.normal(key, (n_walkers, system.n_electrons, 3))


def initial_positions(
    system: System,
    xi: Float[Array, "walker elec 3"],
    spread: float = 1.0,
    arrangements: Sequence[Sequence[Home]] = (),
) -> Float[np.ndarray, "walker elec 3"]:
    """A batch of walkers in bohr: each electron normally distributed around its home nucleus.

    By the `deviates` ξ, with a standard deviation of spread / Z, Z the charge that it sees there,
    which is the size of its orbital: an electron much farther out would be where ψ underflows, and
    nothing leads back.

    Walkers take turns among the arrangements. Each is a list of homes, one for each electron.
    Without arrangements all walkers have the homes of `find_homes`.
    """
    arrangements = arrangements or [find_homes(system)]
    turns = np.arange(len(xi)) % len(arrangements)
    dtype = np.dtype(xi.dtype)
    nuclei = np.array([[home.nucleus for home in homes] for homes in arrangements])
    charges = np.array([[[home.charge] for home in homes] for homes in arrangements], dtype)
    centres = np.array(system.nuclei, dtype)[nuclei]
    sizes = dtype.type(spread) / charges
    return centres[turns] + sizes[turns] * np.asarray(xi)  # NumPy: not worth a program
