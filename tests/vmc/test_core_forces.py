"""Forces of core potentials: at single walkers by differences, and their means against pyscf."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from pyscf import scf

from tests.matrix import rest
from tests.vmc.test_core_energies import (
    GERMANIUM_HYDRIDE,
    SODIUM_DIMER,
    determinant,
    on_grid,
    system_of,
)
from vmcjob.vmc import forces
from vmcjob.vmc.contracts import Nuclei, Psi
from vmcjob.vmc.core_forces import fixed_slopes_of_local, slopes_of_nonlocal
from vmcjob.vmc.hamiltonian import ECP_LOCAL, ECP_NONLOCAL, make_hamiltonian
from vmcjob.vmc.hartree_fock import Coefficients, molecule_of, solve
from vmcjob.vmc.nucleus import Core, Gaussian
from vmcjob.vmc.observing import Sample
from vmcjob.vmc.system import System, nuclei_of
from vmcjob.vmc.warp import warp

pytestmark = pytest.mark.usefixtures("float64")
S, P = (Gaussian(2, 1.1, 3.0),), (Gaussian(2, 0.9, -2.0), Gaussian(3, 0.7, 0.5))
FIRST = Core(10, (Gaussian(1, 5.0, 1.0), Gaussian(2, 4.0, -3.0)), (S, P))
SECOND = Core(2, (Gaussian(2, 1.3, 0.7),), (S,))
PLACES = ((0.1, -0.2, 0.3), (0.5, 0.4, 1.6), (-1.0, 0.6, 0.2))
MOLECULE = System(PLACES, (1, 2, 1), 1, 1, (FIRST, None, SECOND))
R = np.array([[0.5, 0.1, 0.9], [-0.4, -0.5, 0.4]])
KEY = jax.random.key(5)
STEP = 1e-4


def walker() -> Array:
    """Both electrons, in the precision of the test."""
    return jnp.asarray(R, float)


def psi(params: None, r: Array, nuclei: Nuclei) -> Psi:
    """Two electrons around all nuclei, with a node; both see each other."""
    del params
    d = jnp.linalg.norm(r[:, None] - nuclei.positions, axis=-1)
    orbitals = jnp.exp(-jnp.array([1.3, 0.8])[:, None] * d) @ jnp.array([1.0, 0.7, -0.9])
    apart = jnp.linalg.norm(r[0] - r[1])
    value = jnp.prod(orbitals) * (1.0 + 0.3 * apart)
    return Psi(jnp.sign(value), jnp.log(jnp.abs(value)))


def sample() -> Sample:
    """The walker `R`, with few points: rotations matter."""
    hamiltonian, nuclei = make_hamiltonian(MOLECULE, 4), nuclei_of(MOLECULE)
    r = walker()
    local = hamiltonian.local_energy(psi, None, r, nuclei, KEY)
    return Sample(hamiltonian, psi, None, r, nuclei, 1, local, KEY)


def moved(step: Array, nucleus: int, axis: int) -> Nuclei:
    nuclei = nuclei_of(MOLECULE)
    return nuclei._replace(positions=nuclei.positions.at[nucleus, axis].add(step))


def followed(r: Array, step: Array, nucleus: int, axis: int) -> Array:
    """Electrons that follow a nucleus by the weights of the warp."""
    weight = warp(r, jnp.array(PLACES)).weight[:, nucleus]
    return r.at[:, axis].add(step * weight)


# 1 is bare; the others have cores.
@pytest.mark.parametrize("nucleus", [0, 1, *rest(2)])
def test_slopes_of_the_nonlocal_part_are_differences_at_fixed_rotations(nucleus: int) -> None:
    """[D, V]ψ/ψ = D (Vψ/ψ) − d/dt (V φ_t)/φ_t, with φ_t the ψ that the warp has moved by t.

    Catches a forgotten move of the points, of the electron, of its distance or of its direction.
    Without the warp: the derivative by the nucleus alone. Of a bare nucleus: [V, Q]ψ/ψ.
    """
    axis, home = 2, nuclei_of(MOLECULE)
    term = sample().hamiltonian.terms[ECP_NONLOCAL]

    def warped(step: Array, r: Array) -> Psi:
        return psi(None, followed(r, step, nucleus, axis), moved(step, nucleus, axis))

    def pulled(step: Array, r: Array) -> Psi:
        apart = r - home.positions[nucleus]
        q = home.charges[nucleus] * jnp.sum(apart[:, axis] / jnp.linalg.norm(apart, axis=-1))
        found = psi(None, r, home)
        return found._replace(log_abs=found.log_abs + step * q)

    @jax.jit
    def at(step: Array) -> Array:
        there, r = moved(step, nucleus, axis), followed(walker(), step, nucleus, axis)
        of_warp = term(psi, None, r, there, KEY)
        of_warp -= term(lambda _, r, __: warped(step, r), None, walker(), home, KEY)
        if nucleus == 1:
            unwarped = term(lambda _, r, __: pulled(step, r), None, walker(), home, KEY)
        else:
            unwarped = term(lambda _, r, __: psi(None, r, home), None, walker(), there, KEY)
        return jnp.stack([of_warp, unwarped])

    expected = (at(jnp.array(STEP)) - at(jnp.array(-STEP))) / (2.0 * STEP)
    found = jax.jit(lambda: slopes_of_nonlocal(sample()))()
    assert np.abs(expected).min() > 1e-3
    np.testing.assert_allclose(found[nucleus, axis], expected, atol=1e-6)


def test_slopes_of_the_local_part_are_differences() -> None:
    """With electrons at their places; a nucleus without a core has none."""
    term = sample().hamiltonian.terms[ECP_LOCAL]
    found = np.asarray(fixed_slopes_of_local(sample()))
    for nucleus in range(3):
        ends = [
            term(psi, None, walker(), moved(jnp.array(t), nucleus, 1), KEY) for t in (STEP, -STEP)
        ]
        slope = float(ends[0] - ends[1]) / (2.0 * STEP)
        assert found[nucleus, 1] == pytest.approx(slope, abs=1e-6)
    assert np.abs(found[1]).max() == 0.0


def test_forces_of_a_molecule_that_moves_as_a_whole_are_zero() -> None:
    """The sum over all nuclei at every walker and rotation, by the warp."""
    found = jax.jit(lambda: forces.measure(sample()).local)()
    assert np.abs(found).max() > 0.1
    np.testing.assert_allclose(found[..., 0].sum(axis=0), 0.0, atol=1e-9)


@pytest.mark.parametrize(
    ("atoms", "more", "n_points"),
    [
        (SODIUM_DIMER, "charge = 1", 12),
        pytest.param(GERMANIUM_HYDRIDE, "charge = 4", 50, marks=pytest.mark.full_matrix),
    ],
    ids=["Na2+", "GeH4+"],
)
def test_one_electron_has_the_forces_that_pyscf_derives(
    atoms: str, more: str, n_points: int
) -> None:
    """∫ |φ|² of the force on a grid is −dE/dR of Hartree–Fock, whose orbitals follow the nuclei.

    Catches a wrong factor, and a part of Pulay's term or of the warp that is missing. The check by
    the gradient alone is exact with the exact Pulay term.
    """
    system = system_of(atoms, more)
    basis = "ccecp-ccpvdz"
    solution = solve(system, basis)
    r, weights = on_grid(system, solution)
    hamiltonian = make_hamiltonian(system, n_points)
    phi, nuclei = determinant(system, solution), nuclei_of(system)
    coefficients = Coefficients.of(solution)

    @jax.jit
    @jax.vmap
    def measure(r: Array, key: Array) -> tuple[Array, ...]:
        local = hamiltonian.local_energy(phi, coefficients, r, nuclei, key)
        one = Sample(hamiltonian, phi, coefficients, r, nuclei, 1, local, key)
        slopes = forces.slopes_of_log_psi(one).nuclei
        return *forces.measure(one)[:4], slopes, local.total * slopes

    found = measure(jnp.asarray(r), jax.random.split(jax.random.key(0), len(r)))
    means = (np.tensordot(weights, np.asarray(one), 1) for one in found)
    local, score, product, energy, slopes, with_slopes = means
    plain = (8.0 * score[..., 0] - score[..., 1]) / 7.0
    pulay = -2.0 * ((8.0 * product[..., 0] - product[..., 1]) / 7.0 - energy * plain)
    solver: Any = scf.UHF(molecule_of(system, basis)).run(conv_tol=1e-11)
    expected = -solver.nuc_grad_method().kernel()
    assert np.abs(expected).max() > 5e-3
    np.testing.assert_allclose(local[..., 0] + pulay, expected, atol=1e-4)
    unwarped = -2.0 * (with_slopes - energy * slopes)
    np.testing.assert_allclose(local[..., 1] + unwarped, expected, atol=3e-4)
