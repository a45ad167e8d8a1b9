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
    """A stable unrestricted solution below a restricted one; None if none was found."""
    counts = _counts(system)
    starts = [_atoms(restricted, counts)]
    apart = alternating(counts, np.array(system.nuclei))
    if (apart != counts).any():
        starts.append(_atoms(restricted, apart))
    starts += _mixed_frontier(restricted)
    found = [descended(restricted.to_uhf(), start) for start in starts]
    # Of solutions of one energy, that of the first start: its spins are where the walkers' are.
    best = min(found, key=lambda solution: round(float(solution.e_tot) / TOLERANCE))
    return best if best.e_tot < restricted.e_tot - MIN_GAIN else None


def descended(solution: Solver, density: np.ndarray | None = None) -> Solver:
    """An unrestricted solution, taken downhill until no rotation of its orbitals lowers it."""
    from pyscf.lib.exceptions import LinearDependencyError

    solution.kernel(density)
    n_empty = solution.mo_coeff[0].shape[1] - np.array(solution.nelec)
    if not (np.array(solution.nelec) * n_empty).any():
        return solution
    for _ in range(MAX_DESCENTS):
        try:
            orbitals, _, is_stable, _ = solution.stability(return_status=True)
        except LinearDependencyError:  # by symmetry no orbital may rotate: nothing is lower
            break
        if is_stable:
            break
        density = solution.make_rdm1(orbitals, solution.mo_occ)
        energy = solution.e_tot
        solution.kernel(density)
        if solution.e_tot > energy - TOLERANCE:
            break
    return solution


def alternating(counts: np.ndarray, nuclei: np.ndarray) -> np.ndarray:
    """Exchange spins of equal atoms until neighbours point apart, as in an antiferromagnet.

    Each exchange is that of two equal atoms which lowers the sum of m_i m_j / |R_i − R_j| most.
    """
    counts = counts.copy()
    distances = np.linalg.norm(nuclei[:, None] - nuclei, axis=-1)
    inverse = 1.0 / np.where(distances > 0.0, distances, np.inf)
    totals = counts.sum(axis=0)
    while True:
        spins = counts[0] - counts[1]
        field = inverse @ spins
        differences = spins[:, None] - spins
        change = differences * (field - field[:, None] - inverse * differences)
        change[totals[:, None] != totals] = 0.0
        first, second = np.unravel_index(np.argmin(change), change.shape)
        if change[first, second] > -1e-9:
            return counts
        counts[:, [first, second]] = counts[:, [second, first]]


def _counts(system: System) -> np.ndarray:
    """Shape (2, n_nuclei): electrons of either spin that start at each nucleus."""
    counts = np.zeros((2, len(system.charges)), int)
    for electron, home in enumerate(find_homes(system)):
        counts[int(electron >= system.n_up), home.nucleus] += 1
    return counts


def _atoms(restricted: Solver, counts: np.ndarray) -> np.ndarray:
    """Atomic densities; each spin has the share that it has of the atom's electrons.

    Args:
        restricted: knows the molecule and its basis.
        counts: shape (2, n_nuclei), electrons of either spin at each nucleus.
    """
    guess = np.asarray(restricted.get_init_guess(key="atom"))
    total = guess if guess.ndim == 2 else guess.sum(axis=0)
    parts = np.zeros((2, *total.shape))
    for nucleus, (*_, first, last) in enumerate(restricted.mol.aoslice_by_atom()):
        block = (slice(first, last), slice(first, last))
        for spin, count in enumerate(counts[:, nucleus]):
            parts[spin][block] = total[block] * count / max(1, counts[:, nucleus].sum())
    return parts


def _mixed_frontier(restricted: Solver) -> list[np.ndarray]:
    """The restricted density, its highest orbital mixed with the lowest empty one, if there is one.

    One spin has their sum, the other their difference.
    """
    orbitals, occupied = np.array(restricted.mo_coeff), np.asarray(restricted.mo_occ) > 0
    n_occupied = int(occupied.sum())
    if n_occupied == 0 or n_occupied == orbitals.shape[1]:
        return []
    densities = []
    for sign in (1.0, -1.0):
        mixed = orbitals[:, :n_occupied].copy()
        mixed[:, -1] = (orbitals[:, n_occupied - 1] + sign * orbitals[:, n_occupied]) / np.sqrt(2.0)
        densities.append(mixed @ mixed.T)
    return [np.array(densities)]
