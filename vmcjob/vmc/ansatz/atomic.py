"""Atomic functions around each nucleus, and the atomic states in which electrons start."""

from collections import Counter
from collections.abc import Iterator
from itertools import count, islice
from typing import Final, NamedTuple

from vmcjob.vmc.nucleus import Core
from vmcjob.vmc.system import System, find_homes

HIGHEST_L: Final = 2
"""Angular momentum of d. Instead of f, electrons start in s, p and d of higher shells."""
SPACING: Final = 2.0
"""Ratio of neighbouring exponents of a subshell, about as in double-zeta bases of light atoms."""
EFFECTIVE_N: Final = (1.0, 2.0, 3.0, 3.7, 4.0, 4.2)
"""Slater's effective quantum numbers of the shells 1, 2, …; the last holds for higher shells."""


class Subshell(NamedTuple):
    """The states of an atom that share a radial function."""

    n: int
    l: int  # noqa: E741 -- as everybody writes it


class State(NamedTuple):
    """One atomic orbital; `m` numbers the 2l + 1 orbitals of a subshell from zero."""

    nucleus: int
    subshell: Subshell
    m: int


class Radial(NamedTuple):
    """A radial function of 2l + 1 atomic functions; a subshell may have several."""

    nucleus: int
    subshell: Subshell
    zeta: float  # initial exponent, 1/bohr
    has_core: bool = False  # then ψ has no cusp at the nucleus


def subshells() -> Iterator[Subshell]:
    """1s, 2s, 2p, 3s, 3p, 4s, 3d, …: all subshells up to d, in Madelung's order."""
    for n_plus_l in count(1):
        for l in reversed(range(min(HIGHEST_L, (n_plus_l - 1) // 2) + 1)):  # noqa: E741
            yield Subshell(n_plus_l - l, l)


def core_subshells(n_electrons: int) -> set[Subshell]:
    """The subshells that a core of so many electrons fills: 1s, 2s, 2p, 3s, 3p, 3d, 4s, …

    Cores are filled shell by shell, as in ions of high charge.
    """
    found: set[Subshell] = set()
    for n in count(1):
        for l in range(n):  # noqa: E741
            n_electrons -= 2 * (2 * l + 1)
            if n_electrons < 0:
                return found
            found.add(Subshell(n, l))
    return found


def valence(core: Core | None) -> Iterator[Subshell]:
    """The subshells of an atom outside its core."""
    inside = core_subshells(core.electrons) if core else set()
    return (shell for shell in subshells() if shell not in inside)


def states(nucleus: int, n_states: int, core: Core | None = None) -> list[State]:
    """The first states of an atom, in the order in which electrons of one spin fill them."""
    shells = valence(core)
    endless = (State(nucleus, shell, m) for shell in shells for m in range(2 * shell.l + 1))
    return list(islice(endless, n_states))


def slater_exponent(charge: int, own: Subshell) -> float:
    """(Z − s) / n* of a neutral atom by Slater's rules (Phys. Rev. 36, 57 (1930)), in 1/bohr.

    At least 1 / n*: an electron beyond those of the neutral atom sees the charge of an ion.
    """
    endless = (shell for shell in subshells() for _ in range(2 * (2 * shell.l + 1)))
    others = list(islice(endless, charge))
    if own in others:
        others.remove(own)
    seen = charge - sum(shielding(own, other) for other in others)
    return max(1.0, seen) / EFFECTIVE_N[min(own.n, len(EFFECTIVE_N)) - 1]


def shielding(own: Subshell, other: Subshell) -> float:
    """Nuclear charge that one electron shields from another, by Slater's rules, in e."""
    if other.n == own.n and (other.l == HIGHEST_L) == (own.l == HIGHEST_L):
        return 0.3 if own.n == 1 else 0.35
    if other.n > own.n or (other.n == own.n and other.l > own.l):
        return 0.0
    return 0.85 if other.n == own.n - 1 and own.l < HIGHEST_L else 1.0


def radials(system: System, functions: int) -> list[Radial]:
    """All radial functions of all nuclei, by rising angular momentum.

    A nucleus has the subshells of its neutral atom, and more if more electrons of one spin start
    there. It also has one subshell of the next angular momentum, of the size of the last, to
    polarize bonds. The first exponent of each is Slater's; further exponents are larger and smaller
    in turn.
    """
    counts = Counter((state.nucleus, spin) for spin in (0, 1) for state in starts(system, spin))
    found = []
    for nucleus, own in enumerate(system.species):
        n_states = max((own.charge + 1) // 2, counts[nucleus, 0], counts[nucleus, 1])
        occupied = dict.fromkeys(state.subshell for state in states(nucleus, n_states, own.core))
        exponents = {shell: slater_exponent(own.element, shell) for shell in occupied}
        if (l_next := 1 + max(shell.l for shell in occupied)) <= HIGHEST_L:
            exponents[Subshell(l_next + 1, l_next)] = list(exponents.values())[-1]
        for shell, zeta in exponents.items():
            steps = ((k + 1) // 2 * (1 if k % 2 else -1) for k in range(functions))
            has_core = own.core is not None
            found += [Radial(nucleus, shell, zeta * SPACING**step, has_core) for step in steps]
    return sorted(found, key=lambda radial: radial.subshell.l)


def starts(system: System, spin: int) -> list[State]:
    """The state in which each electron of a spin (0 up, 1 down) starts, around its home nucleus.

    All states of a spin differ. So the determinant does not vanish, for any charge, spin and
    distances.
    """
    homes = [home.nucleus for home in find_homes(system)]
    homes = homes[: system.n_up] if spin == 0 else homes[system.n_up :]
    filling = {
        nucleus: iter(states(nucleus, homes.count(nucleus), system.species[nucleus].core))
        for nucleus in dict.fromkeys(homes)
    }
    return [next(filling[nucleus]) for nucleus in homes]
