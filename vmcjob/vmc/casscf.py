"""A start with several determinants: the largest ones of a CASSCF wave function.

If bonds are stretched or levels degenerate, the ground state is a sum of determinants of about
equal weight. VMC finds their ratios as slowly as imaginary time, e^(−ΔE τ). States that differ in
the coupling of distant spins are only millihartrees apart, which takes thousands of steps.
Diagonalization gives the ratios at once.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from vmcjob.vmc.stability import Solver
from vmcjob.vmc.system import System

MIN_COEFFICIENT = 0.02
"""Smallest coefficient of a determinant that is used in the start."""
SAME = 1e-2
"""Relative difference below which two coefficients count as equal by symmetry."""


class ActiveSpace(NamedTuple):
    """Numbers of correlated electrons, and of the orbitals that they share."""

    electrons: int
    orbitals: int

    def n_occupied(self, system: System) -> int:
        """Number of orbitals in use, including the orbitals of the other electrons."""
        return self.orbitals + (system.n_electrons - self.electrons) // 2


class Expansion(NamedTuple):
    """ψ = Σ_k det U_k det D_k; the orbitals include the coefficients of the determinants."""

    energy: float  # CASSCF energy, hartree
    is_converged: bool
    up: Float[np.ndarray, "det basis n_up"]
    down: Float[np.ndarray, "det basis n_down"]


def expand(restricted: Solver, system: System, space: ActiveSpace, n_most: int) -> Expansion:
    """At most `n_most` largest determinants in natural orbitals; the total spin is S_z."""
    from pyscf import mcscf

    n_core = (system.n_electrons - space.electrons) // 2
    active = system.n_up - n_core, system.n_down - n_core
    solver: Any = mcscf.CASSCF(restricted, space.orbitals, active)  # made on the fly: no type fits
    spin = 0.5 * (system.n_up - system.n_down)
    solver.fix_spin_(ss=spin * (spin + 1.0))
    solver.natorb = True
    solver.kernel()
    found = _largest(solver.ci, space.orbitals, active, n_most)
    core = list(range(n_core))
    up, down = [], []
    for coefficient, of_up, of_down in found:
        # The coefficient is shared by all columns, so that no column is much larger than others.
        size = abs(coefficient) ** (1.0 / system.n_electrons)
        up.append(size * solver.mo_coeff[:, core + [n_core + i for i in of_up]])
        down.append(size * solver.mo_coeff[:, core + [n_core + i for i in of_down]])
        up[-1][:, 0] *= np.sign(coefficient)
    return Expansion(float(solver.e_tot), bool(solver.converged), np.array(up), np.array(down))


class _Determinant(NamedTuple):
    coefficient: float
    up: list[int]  # active orbitals, in rising order
    down: list[int]


def _largest(ci: Any, n_orbitals: int, active: tuple[int, int], n_most: int) -> list[_Determinant]:
    """The largest determinants of a CI vector; determinants of equal size only together."""
    from pyscf.fci.addons import large_ci

    every = large_ci(ci, n_orbitals, active, tol=MIN_COEFFICIENT, return_strs=False)
    ordered = [
        _Determinant(float(coefficient), [int(i) for i in up], [int(i) for i in down])
        for coefficient, up, down in sorted(every, key=lambda one: -abs(one[0]))
    ]
    kept = ordered[:n_most]
    if len(ordered) > n_most:
        cut = abs(ordered[n_most].coefficient)
        above = [one for one in kept if abs(one.coefficient) > cut * (1.0 + SAME)]
        kept = above or kept[:1]
    return kept
