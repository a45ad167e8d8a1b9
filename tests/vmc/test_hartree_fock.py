"""Hartree–Fock energies against the literature, orbitals against pyscf's own evaluation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vmcjob.vmc.ansatz.determinants import Stacks, sum_of_determinants
from vmcjob.vmc.basis import make_basis
from vmcjob.vmc.hartree_fock import (
    Coefficients,
    HartreeFock,
    HartreeFockError,
    make_orbitals,
    molecule_of,
    solve,
)
from vmcjob.vmc.system import System, nuclei_of

pytestmark = pytest.mark.usefixtures("float64")
FLUORIDE = System(((0.0, 0.0, 0.0), (0.3, -0.2, 2.9)), (3, 9), 6, 6)
LITHIUM = System(((0.0, 0.0, 0.0),), (3,), 2, 1)


def orbitals_at(system: System, solution: HartreeFock, is_full: bool, r: jax.Array) -> Stacks:
    """The matrices of orbitals of one walker."""
    orbitals = make_orbitals(system, solution.basis, is_full)
    return orbitals(r, nuclei_of(system), Coefficients.of(solution))


@pytest.mark.parametrize("basis", ["sto-3g", "6-31g", "cc-pvdz", "cc-pvqz"])
def test_basis_functions_equal_those_of_pyscf(basis) -> None:
    """Up to g functions: catches an order, a norm or a contraction that is not pyscf's."""
    molecule = molecule_of(FLUORIDE, basis)
    r = np.random.default_rng(0).normal(scale=1.5, size=(12, 3))
    found = jax.jit(make_basis(molecule))(r, nuclei_of(FLUORIDE))
    np.testing.assert_allclose(found, molecule.eval_gto("GTOval_sph", r), atol=1e-13)


@pytest.mark.parametrize(
    ("system", "energy"),
    [
        (System(((0.0, 0.0, 0.0),), (2,), 1, 1), -2.86168),
        (LITHIUM, -7.43275),
        (System(((0.0, 0.0, 0.0),), (4,), 2, 2), -14.57301),
        (System(((0.0, 0.0, 0.0), (0.0, 0.0, 3.015)), (3, 1), 2, 2), -7.98737),
        (System(((0.0, 0.0, 0.0),), (1,), 1, 0), -0.5),
        (System(((0.0, 0.0, 0.0), (0.0, 0.0, 2.0)), (1, 1), 1, 0), -0.602634),
    ],
)
def test_energies_are_those_of_the_literature(system, energy) -> None:
    """Limits of large bases; cc-pVTZ lies above them by less than 2 mHa, and never below."""
    solution = solve(system, "cc-pvtz")
    assert solution.is_converged
    assert energy - 1e-5 < solution.energy < energy + 2e-3


def test_by_default_open_shells_are_unrestricted() -> None:
    """UHF is never above ROHF; each spin has its own number of orbitals."""
    unrestricted, restricted = (solve(LITHIUM, "cc-pvdz", method) for method in ("auto", "rohf"))
    assert (unrestricted.method, restricted.method) == ("uhf", "rohf")
    assert unrestricted.energy <= restricted.energy + 1e-9
    assert (unrestricted.up.shape[1], unrestricted.down.shape[1]) == (2, 1)


def test_full_and_block_determinants_are_one_wave_function() -> None:
    """det of a block-diagonal matrix = product of the blocks' determinants."""
    solution = solve(FLUORIDE, "sto-3g")
    r = jax.random.normal(jax.random.key(0), (12, 3))
    full, blocks = (orbitals_at(FLUORIDE, solution, is_full, r) for is_full in (True, False))
    assert [stack.shape for stack in full] == [(1, 12, 12)]
    assert [stack.shape for stack in blocks] == [(1, 6, 6), (1, 6, 6)]
    np.testing.assert_allclose(
        sum_of_determinants(full).log_abs, sum_of_determinants(blocks).log_abs, rtol=1e-12
    )


def test_a_single_electron_has_orbitals_too() -> None:
    """A spin without electrons has no block."""
    hydrogen = System(((0.0, 0.0, 0.0),), (1,), 1, 0)
    solution = solve(hydrogen, "sto-3g")
    for is_full in (True, False):
        (stack,) = orbitals_at(hydrogen, solution, is_full, jnp.ones((1, 3)))
        assert stack.shape == (1, 1, 1)


def test_an_element_without_basis_is_told() -> None:
    """pyscf's own error would be a traceback."""
    heavy = System(((0.0, 0.0, 0.0),), (92,), 46, 46)
    with pytest.raises(HartreeFockError, match="no basis cc-pvdz"):
        solve(heavy, "cc-pvdz")


@pytest.mark.parametrize(
    ("charge", "n_up", "n_down", "basis", "words"),
    [
        (37, 19, 18, "def2-svp", "no functions for the cores of heavy atoms"),
        (2, 2, 0, "sto-3g", "has 1 functions for 2 electrons of one spin"),
    ],
)
def test_a_basis_too_small_for_the_electrons_is_told(charge, n_up, n_down, basis, words) -> None:
    """Without the core's potential pyscf would fill a valence basis with all electrons."""
    atom = System(((0.0, 0.0, 0.0),), (charge,), n_up, n_down)
    with pytest.raises(HartreeFockError, match=words):
        solve(atom, basis)
