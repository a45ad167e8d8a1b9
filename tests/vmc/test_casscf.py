"""The determinants of CASSCF against pyscf's own density matrix, and against the symmetry of ψ."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pyscf import gto, mcscf, scf

from vmcjob.run.calculation import make_system
from vmcjob.spec import parse_spec
from vmcjob.vmc.ansatz.determinants import Stacks, sum_of_determinants
from vmcjob.vmc.casscf import ActiveSpace
from vmcjob.vmc.contracts import Psi
from vmcjob.vmc.hartree_fock import (
    Coefficients,
    HartreeFock,
    HartreeFockError,
    make_orbitals,
    populations,
    solve,
)
from vmcjob.vmc.system import System, nuclei_of

pytestmark = pytest.mark.usefixtures("float64")
STRETCHED = System(((0.0, 0.0, 0.0), (0.0, 0.0, 4.0)), (1, 1), 1, 1)
SIDE = 4.6447
SQUARE = System(
    ((0.0, 0.0, 0.0), (SIDE, 0.0, 0.0), (SIDE, SIDE, 0.0), (0.0, SIDE, 0.0)), (1, 1, 1, 1), 2, 2
)
BASIS = "6-31g"


def psi_of(system: System, solution: HartreeFock, r: np.ndarray, n: int, full: bool) -> Psi:
    """ψ of walkers, as the sum of n determinants."""
    orbitals = make_orbitals(system, BASIS, full)
    coefficients = Coefficients.of(solution, n)

    def at(r: jax.Array) -> Psi:
        stacks: Stacks = orbitals(r, nuclei_of(system), coefficients)
        return sum_of_determinants(stacks)

    return jax.jit(jax.vmap(at))(jnp.asarray(r))


@pytest.mark.slow
def test_two_electrons_have_the_density_matrix_of_pyscf() -> None:
    """ψ(r, r′) = Σ_k u_k(r) d_k(r′) = φ(r)ᵀ M φ(r′), and M S Mᵀ is that of one spin.

    Catches a lost sign: without it the hydrogen atoms would share their electrons as ions do.
    """
    found = solve(STRETCHED, BASIS, space=ActiveSpace(2, 2), n_determinants=4)
    matrix = np.einsum("kai,kbi->ab", found.up, found.down)
    molecule = gto.M(atom=[("H", (0, 0, 0)), ("H", (0, 0, 4.0))], unit="Bohr", basis=BASIS)
    molecule.verbose = 0
    restricted = scf.RHF(molecule)
    restricted.kernel()
    solver: Any = mcscf.CASSCF(restricted, 2, 2)  # made on the fly: no type fits
    solver.kernel()
    expected, _ = solver.make_rdm1s()
    overlap = molecule.intor("int1e_ovlp")
    np.testing.assert_allclose(matrix @ overlap @ matrix.T, expected, atol=1e-5)
    assert found.casscf_energy == pytest.approx(solver.e_tot, abs=1e-8)
    # Far apart, one electron is at each proton: M has no ionic part to speak of.
    ions = molecule.ao_labels(fmt=False)
    first = np.array([label[0] == 0 for label in ions])
    ionic = matrix[np.ix_(first, first)]
    assert np.abs(ionic).max() < 0.2 * np.abs(matrix).max()


@pytest.mark.slow
@pytest.mark.parametrize("full", [True, False])
def test_a_square_singlet_is_symmetric_in_its_spins(full: bool) -> None:
    """ψ(r↑, r↓) = ψ(r↓, r↑) where S = 0: a wrong sign, or half of a pair, would show at once."""
    found = solve(SQUARE, BASIS, space=ActiveSpace(4, 4), n_determinants=16)
    assert found.up.shape == (10, 8, 2)
    assert found.energy > (found.casscf_energy or 0.0) + 0.2
    r = np.random.default_rng(0).normal(scale=2.0, size=(50, 4, 3)) + SIDE / 2
    here = psi_of(SQUARE, found, r, 10, full)
    there = psi_of(SQUARE, found, r[:, [2, 3, 0, 1]], 10, full)
    np.testing.assert_allclose(here.log_abs, there.log_abs, atol=1e-4)
    np.testing.assert_array_equal(here.phase, there.phase)


@pytest.mark.slow
def test_more_determinants_than_needed_share_their_weights() -> None:
    found = solve(SQUARE, BASIS, space=ActiveSpace(4, 4), n_determinants=16)
    r = np.random.default_rng(1).normal(scale=2.0, size=(20, 4, 3)) + SIDE / 2
    ten, sixteen = (psi_of(SQUARE, found, r, n, full=True) for n in (10, 16))
    np.testing.assert_allclose(ten.log_abs, sixteen.log_abs, atol=1e-10)
    np.testing.assert_array_equal(ten.phase, sixteen.phase)


@pytest.mark.slow
@pytest.mark.parametrize(("n_most", "kept"), [(10, 10), (9, 6), (5, 4), (3, 2), (1, 1)])
def test_no_determinant_comes_without_the_others_of_its_size(n_most: int, kept: int) -> None:
    """Of the square's ten, two, four and four are alike; one alone can't be helped."""
    found = solve(SQUARE, BASIS, space=ActiveSpace(4, 4), n_determinants=n_most)
    assert len(found.up) == len(found.down) == kept


@pytest.mark.slow
def test_electrons_are_where_the_first_determinant_has_them() -> None:
    found = solve(SQUARE, BASIS, space=ActiveSpace(4, 4), n_determinants=10)
    counts = populations(SQUARE, found)
    np.testing.assert_allclose(counts.sum(axis=1), [2.0, 2.0], atol=1e-8)


@pytest.mark.slow
def test_an_open_shell_begins_restricted() -> None:
    """Of oxygen's kind: a triplet of two electrons among others, with S = 1 for certain."""
    system = System(((0.0, 0.0, 0.0),), (6,), 4, 2)
    found = solve(system, BASIS, space=ActiveSpace(4, 4), n_determinants=8)
    assert found.method == "rohf"
    assert (found.up.shape[2], found.down.shape[2]) == (4, 2)
    assert (found.casscf_energy or 0.0) < found.energy


def test_a_basis_must_have_the_orbitals() -> None:
    with pytest.raises(HartreeFockError, match="4 functions, and 6 orbitals are in use"):
        solve(STRETCHED, BASIS, space=ActiveSpace(2, 6), n_determinants=4)


def test_electrons_outside_a_core_are_correlated_with_its_potential() -> None:
    """Carbon's 2s and 2p, against pyscf with a potential that it reads itself."""
    text = 'name = "c"\n[system]\natoms = [["C", 0, 0, 0]]\nspin = 2\necp = "ccecp"\n'
    system = make_system(parse_spec(text, "c.toml").points[0].spec.system)
    found = solve(system, "ccecp-ccpvdz", space=ActiveSpace(4, 4), n_determinants=4)
    molecule = gto.M(atom="C", basis="ccecp-ccpvdz", ecp="ccecp", spin=2, verbose=0)
    restricted = scf.ROHF(molecule).run()
    solver: Any = mcscf.CASSCF(restricted, 4, 4)  # made on the fly: no type fits
    solver.fix_spin_(ss=2.0)
    solver.kernel()
    assert found.casscf_energy is not None
    assert found.casscf_energy == pytest.approx(solver.e_tot, abs=1e-6)
    assert found.casscf_energy < found.energy - 1e-3
    assert found.up.shape[0] > 1
    assert found.up.shape[2] == 3
