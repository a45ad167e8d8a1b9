"""Energies of orbitals of Hartree–Fock with core potentials of ccECP, against pyscf's integrals."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from pyscf import gto, scf
from pyscf.dft import gen_grid
from scipy.spatial.transform import Rotation

from vmcjob.run.calculation import make_system
from vmcjob.spec import parse_spec
from vmcjob.stats import estimate
from vmcjob.vmc.ansatz.determinants import sum_of_determinants
from vmcjob.vmc.contracts import ChainState, Nuclei, Psi, SignedWaveFunction
from vmcjob.vmc.hamiltonian import ECP_NONLOCAL, Hamiltonian, make_hamiltonian
from vmcjob.vmc.hartree_fock import (
    Coefficients,
    HartreeFock,
    make_orbitals,
    molecule_of,
    solve,
)
from vmcjob.vmc.pseudopotential import NonLocalPotential
from vmcjob.vmc.sampler import Moves, distance_scale, sample
from vmcjob.vmc.system import System, deviates, find_homes, initial_positions, nuclei_of

SODIUM_DIMER = '["Na", 0.2, -0.1, -2.9], ["Na", 0.2, -0.1, 2.9]'  # 5.8 bohr
GERMANIUM_HYDRIDE = '["Ge", 0, 0, 0], ["H", 0, 1.0, 2.8]'
BASIS = "ccecp-ccpvdz"


def system_of(atoms: str, more: str) -> System:
    """A system with ccECP for all atoms but hydrogen."""
    text = f'name = "x"\n[system]\natoms = [{atoms}]\necp = "ccecp"\n{more}'
    return make_system(parse_spec(text, "job.toml").points[0].spec.system)


def determinant(system: System, solution: HartreeFock) -> SignedWaveFunction:
    """The Hartree–Fock wave function; the parameters are its coefficients."""
    orbitals = make_orbitals(system, solution.basis, False)

    def psi(coefficients: Coefficients, r: Array, nuclei: Nuclei) -> Psi:
        return sum_of_determinants(orbitals(r, nuclei, coefficients))

    return psi


def terms_at(
    system: System, solution: HartreeFock, hamiltonian: Hamiltonian, r: np.ndarray
) -> Mapping[str, np.ndarray]:
    """The terms of the local energy of Hartree–Fock at these walkers."""
    psi, nuclei = determinant(system, solution), nuclei_of(system)
    coefficients = Coefficients.of(solution)

    @jax.jit
    def terms(r: Array, keys: Array) -> Mapping[str, Array]:
        def of_one(r: Array, key: Array) -> Mapping[str, Array]:
            return hamiltonian.local_energy(psi, coefficients, r, nuclei, key).terms

        return jax.vmap(of_one)(r, keys)

    keys = jax.random.split(jax.random.key(0), len(r))
    return {name: np.asarray(found) for name, found in terms(jnp.asarray(r), keys).items()}


def on_grid(system: System, solution: HartreeFock) -> tuple[np.ndarray, np.ndarray]:
    """Walkers of one electron, and weights whose sum with f is ∫ |φ|² f, both from pyscf."""
    molecule = molecule_of(system, BASIS)
    grid: Any = gen_grid.Grids(molecule)
    grid.level = 1
    grid.build(with_non0tab=False)
    phi = molecule.eval_gto("GTOval_sph", grid.coords) @ solution.up[:, 0]
    weights = grid.weights * phi**2
    is_seen = np.abs(weights) > 1e-12  # some weights of a sphere are negative
    return grid.coords[is_seen][:, None], weights[is_seen]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("atoms", "more", "n_points"),
    [(SODIUM_DIMER, "charge = 1", 12), (GERMANIUM_HYDRIDE, "charge = 4", 50)],
    ids=["Na2+", "GeH4+"],
)
def test_one_electron_has_the_energy_that_pyscf_integrates(
    atoms: str, more: str, n_points: int
) -> None:
    """∫ |φ|² E_loc on a grid, without chance but for the rotations: channels up to d, two cores.

    Catches a wrong factor or range of any channel, and a local part without its nuclei.
    """
    system = system_of(atoms, more)
    solution = solve(system, BASIS)
    r, weights = on_grid(system, solution)
    found = terms_at(system, solution, make_hamiltonian(system, n_points), r)
    assert sum(weights @ e for e in found.values()) == pytest.approx(solution.energy, abs=1e-5)


@pytest.mark.usefixtures("float64")
def test_the_nearest_core_alone_is_not_enough() -> None:
    """In Na2 at 5.8 bohr an electron may be in range of both nuclei, and the energy is their sum.

    The energy of the nearest nucleus alone is off by more than 1e-4 hartree near the middle.
    """
    system = system_of(SODIUM_DIMER, "charge = 1")
    solution = solve(system, BASIS)
    r = np.array(system.nuclei).mean(axis=0) + np.array([[0.3, 0.2, z] for z in (-0.4, 0.1, 0.8)])
    first, second = system.cores
    masked = [replace(system, cores=cores) for cores in ((first, None), (None, second))]
    both, *each = (
        terms_at(system, solution, nonlocal_only(one), r[:, None])[ECP_NONLOCAL]
        for one in (system, *masked)
    )
    distances = np.linalg.norm(r[:, None] - np.array(system.nuclei), axis=-1)
    nearest = np.where(distances[:, 0] < distances[:, 1], *each)
    np.testing.assert_allclose(both, sum(each), atol=1e-7)  # hartree, of 50 points
    assert np.abs(nearest - both).max() > 1e-4


def nonlocal_only(system: System) -> Hamiltonian:
    """The non-local part of the potentials alone."""
    return Hamiltonian({ECP_NONLOCAL: NonLocalPotential(system.species, 50)})


@pytest.mark.usefixtures("float64")
def test_hartree_fock_knows_the_potentials_as_pyscf_does() -> None:
    """Catches a channel or a power that is lost on the way from pyscf's table to pyscf."""
    system = system_of(GERMANIUM_HYDRIDE, "charge = 1")
    atoms = [("Ge", system.nuclei[0]), ("H", system.nuclei[1])]
    molecule = gto.M(atom=atoms, unit="Bohr", basis=BASIS, ecp={"Ge": "ccecp"}, charge=1, verbose=0)
    assert solve(system, BASIS, "rhf").energy == pytest.approx(scf.RHF(molecule).kernel(), abs=1e-8)


@pytest.mark.usefixtures("float64")
def test_charges_of_moves_and_starts_are_those_outside_the_core() -> None:
    """Near germanium, electrons move by 1/4 bohr, not by 1/32, and start as far out."""
    system = system_of(GERMANIUM_HYDRIDE, "charge = 1")
    nuclei = nuclei_of(system)
    np.testing.assert_array_equal(nuclei.charges, [4.0, 1.0])
    assert float(distance_scale(nuclei)(nuclei.positions)[0]) == pytest.approx(0.25, rel=1e-3)
    (core, *_), homes = system.nuclei, find_homes(system)
    r = initial_positions(system, deviates(system, jax.random.key(0), 4000))
    for electron, home in enumerate(homes):
        if home.nucleus == 0:
            spread = (r[:, electron] - np.array(core)).std()
            assert spread == pytest.approx(1.0 / home.charge, rel=0.05)
    assert sorted(home.charge for home in homes if home.nucleus == 0)[-1] == 4


@pytest.mark.usefixtures("float64")
def test_a_molecule_moved_and_turned_as_a_whole_keeps_its_energies() -> None:
    """The mean over rotations at each walker, within 4 standard errors of both.

    Catches directions that are taken from the axes of space instead of the electron, and points
    around the origin instead of the nucleus.
    """
    turn, shift = Rotation.from_quat([0.5, -0.1, 0.7, 0.2]).as_matrix(), np.array([1.0, -2.0, 0.5])
    system = system_of(GERMANIUM_HYDRIDE, "charge = 1")
    moved = replace(system, nuclei=tuple(map(tuple, system.nuclei @ turn.T + shift)))
    xi = deviates(system, jax.random.key(5), 4)
    walkers = initial_positions(system, xi, 1.5).astype(float)
    means, errors = [], []
    for one, r in ((system, walkers), (moved, walkers @ turn.T + shift)):
        n = 100
        found = terms_at(one, solve(one, BASIS), make_hamiltonian(one, 12), np.repeat(r, n, axis=0))
        energies = np.sum(list(found.values()), axis=0).reshape(len(r), n)
        means.append(energies.mean(axis=1))
        errors.append(energies.std(axis=1) / n**0.5)
    assert (np.abs(means[1] - means[0]) < 4.0 * np.hypot(*errors) + 1e-9).all()


def test_a_determinant_has_the_energy_of_hartree_fock() -> None:
    """Carbon's four electrons by Monte Carlo, within 3 standard errors, which are below 8 mHa.

    Catches a ratio of ψ without its sign, and a pair of electron and nucleus that is left out: the
    non-local part is 0.5 hartree.
    """
    system = system_of('["C", 0, 0, 0]', "spin = 2")
    solution = solve(system, BASIS)
    psi, nuclei = determinant(system, solution), nuclei_of(system)
    hamiltonian = make_hamiltonian(system, 6)

    def log_psi(coefficients: Coefficients, r: Array) -> Array:
        return psi(coefficients, r, nuclei).log_abs

    def step(carry: tuple[ChainState, Coefficients], key: Array) -> tuple[tuple, Array]:
        chain, coefficients = carry

        def of_one(r: Array, key: Array) -> Array:
            return hamiltonian.local_energy(psi, coefficients, r, nuclei, key).total

        of_moves, of_energies = jax.random.split(key)
        moved = sample(log_psi, coefficients, of_moves, chain, Moves(10, True), nuclei)
        keys = jax.random.split(of_energies, len(chain.r))
        return (moved.chain, coefficients), jnp.mean(jax.vmap(of_one)(moved.chain.r, keys))

    xi = deviates(system, jax.random.key(0), 512)
    chain = ChainState(jnp.asarray(initial_positions(system, xi)), jnp.asarray(0.2))
    keys = jax.random.split(jax.random.key(1), 120)
    _, energies = jax.jit(lambda *start: jax.lax.scan(step, start, keys))(
        chain, Coefficients.of(solution)
    )
    found = estimate(np.asarray(energies, float)[60:])
    assert found.error < 8e-3
    assert abs(found.mean - solution.energy) < 3.0 * found.error
