"""Hartree–Fock solutions that are minima: of a restricted one, whether breaking its symmetry helps.

Where bonds are stretched, electrons of a restricted determinant sit on the wrong atoms half of the
time, and pretraining would teach the network to do so.
"""

from typing import Any, TypeAlias

import numpy as np

from vmcjob.vmc.system import System, find_homes

Solver: TypeAlias = Any
"""One of pyscf's: its classes are made on the fly, and have no type that fits them all."""
MAX_DESCENTS = 10
"""From one saddle point to the next; a few atoms need one or two."""
MIN_GAIN = 1e-3
"""In hartree: what a broken symmetry must be worth. Beryllium's, 0.3 mHa, is none to start from."""
TOLERANCE = 1e-6
"""In hartree: what two solutions may differ by and be the same."""


def broken_symmetry(restricted: Solver, system: System) -> Solver | None:
    """A stable unrestricted solution below a restricted one; None if there is none."""
    starts = (_spins_by_home(restricted, system), _mixed_frontier(restricted))
    found = [descended(restricted.to_uhf(), start) for start in starts if start is not None]
    # Of solutions of one energy, that of the first start: its spins are where the walkers' are.
    best = min(found, key=lambda solution: round(float(solution.e_tot) / TOLERANCE))
    return best if best.e_tot < restricted.e_tot - MIN_GAIN else None


def descended(solution: Solver, density: np.ndarray | None = None) -> Solver:
    """An unrestricted solution, taken downhill until no rotation of its orbitals lowers it."""
    from pyscf.lib.exceptions import LinearDependencyError

    solution.kernel(density)
    for _ in range(MAX_DESCENTS):
        try:
            orbitals, _, is_stable, _ = solution.stability(return_status=True)
        except LinearDependencyError:  # no orbital may rotate: nothing is lower
            break
        if is_stable:
            break
        density = solution.make_rdm1(orbitals, solution.mo_occ)
        energy = solution.e_tot
        solution.kernel(density)
        if solution.e_tot > energy - TOLERANCE:
            break
    return solution


def _spins_by_home(restricted: Solver, system: System) -> np.ndarray:
    """Atomic densities, of which each spin has the part that its electrons have at the start."""
    guess = np.asarray(restricted.get_init_guess(key="atom"))
    total = guess if guess.ndim == 2 else guess.sum(axis=0)
    homes = np.array([home.nucleus for home in find_homes(system)])
    parts = np.zeros((2, *total.shape))
    for nucleus, (*_, first, last) in enumerate(restricted.mol.aoslice_by_atom()):
        here = homes == nucleus
        ups = here[: system.n_up].sum()
        block = (slice(first, last), slice(first, last))
        for spin, count in enumerate((ups, here.sum() - ups)):
            parts[spin][block] = total[block] * count / max(1, here.sum())
    return parts


def _mixed_frontier(restricted: Solver) -> np.ndarray | None:
    """The restricted density with its highest orbital mixed with the lowest empty one, by spin."""
    orbitals, occupied = np.array(restricted.mo_coeff), np.asarray(restricted.mo_occ) > 0
    n_occupied = int(occupied.sum())
    if n_occupied == 0 or n_occupied == orbitals.shape[1]:
        return None
    densities = []
    for sign in (1.0, -1.0):
        mixed = orbitals[:, :n_occupied].copy()
        mixed[:, -1] = (orbitals[:, n_occupied - 1] + sign * orbitals[:, n_occupied]) / np.sqrt(2.0)
        densities.append(mixed @ mixed.T)
    return np.array(densities)
