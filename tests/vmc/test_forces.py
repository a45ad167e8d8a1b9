"""Estimators of forces at single walkers, and their means by quadrature."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from tests.ansatze import ANSATZE
from tests.two_centres import averaged, exact_force, protons, sample_of, two_centres
from vmcjob.observables import Forces
from vmcjob.observables.forces import COLUMNS, bond_force
from vmcjob.vmc import forces
from vmcjob.vmc.ansatz import make_psi
from vmcjob.vmc.contracts import Nuclei, Psi
from vmcjob.vmc.hamiltonian import Hamiltonian, Multiplicative
from vmcjob.vmc.observing import Walker
from vmcjob.vmc.system import System, nuclei_of

pytestmark = pytest.mark.usefixtures("float64")
POSITIONS = np.array([[0.1, -0.2, 0.3], [0.5, 0.4, 1.6], [-1.0, 0.6, 0.2]])


def correlated(params: None, r: Array, nuclei: Nuclei) -> Psi:
    """Two electrons around all nuclei, with different orbitals and a Jastrow factor."""
    del params
    d = jnp.linalg.norm(r[:, None] - nuclei.positions, axis=-1)
    orbitals = jnp.exp(-jnp.array([1.3, 0.8])[:, None] * d) @ jnp.array([1.0, 0.7, -0.4])
    apart = jnp.linalg.norm(r[0] - r[1])
    log_abs = jnp.sum(jnp.log(jnp.abs(orbitals))) + 0.5 * apart / (1.0 + apart)
    return Psi(jnp.ones(()), log_abs)


def tilted() -> Nuclei:
    """Three nuclei that no symmetry relates."""
    return Nuclei(jnp.array(POSITIONS), jnp.full(3, 1.5))


@pytest.mark.parametrize(
    "sign",
    [
        pytest.param(-1.0, id="a node"),
        pytest.param(1.0, id="no node", marks=pytest.mark.full_matrix),
    ],
)
def test_the_mean_force_is_the_derivative_of_the_mean_energy(sign: float) -> None:
    """A forgotten part of the warp, of the kinetic energy or of Pulay's term would be missing.

    The check by the gradient alone has a Pulay term of its own. With the exact one it is exact.
    """
    found, exact = averaged(sign), exact_force(sign)
    by_warp = found.local[1, 0] + found.by_warp[0]
    assert by_warp == pytest.approx(exact, abs=1e-6)
    # Parts ∝ 1/d at a nucleus are no work for this quadrature, so that 1e-6 is out of reach.
    assert found.local[1, 1] + found.unwarped == pytest.approx(exact, abs=3e-4)
    assert abs(found.by_warp[0]) > 0.003  # a forgotten Pulay's term would show
    assert found.local[1, 1] + found.by_gradient == pytest.approx(exact, abs=0.1)
    np.testing.assert_allclose(found.local[0], -found.local[1], atol=1e-9)
    np.testing.assert_allclose(found.controls, 0.0, atol=1e-9)


def test_a_response_of_the_parameters_is_a_part_of_the_derivative() -> None:
    """Catches a wrong sign or factor, and a response that the wrong nucleus or form gets."""
    found, exact = averaged(1.0, response=0.3), exact_force(1.0, response=0.3)
    assert abs(exact - exact_force(1.0)) > 0.01
    assert found.local[1, 0] + found.by_warp[1] == pytest.approx(exact, abs=1e-6)
    fixed = averaged(1.0)
    assert found.local[1, 0] == fixed.local[1, 0]
    assert found.by_gradient == fixed.by_gradient


def test_zones_at_nodes_leave_a_bias_that_extrapolation_removes() -> None:
    """A molecule without a node has no zone. With a node, the bias is as the cube of the width."""
    exact, *zones = averaged(1.0).by_warp
    np.testing.assert_allclose(zones, exact, rtol=1e-12)
    exact, first, second = averaged(-1.0).by_warp
    assert 4.0 < (second - exact) / (first - exact) < 16.0
    assert abs((8.0 * first - second) / 7.0 - exact) < 1e-4


def test_weights_of_the_warp_have_these_derivatives() -> None:
    """Against derivatives of the formula by JAX, also where an electron is near a nucleus."""

    def weights(r: Array) -> Array:
        powers = jnp.sum((r - POSITIONS) ** 2, axis=-1) ** -2
        return powers / jnp.sum(powers)

    near = POSITIONS[1] + jnp.array([1e-3, 0.0, 1e-3])
    r = jnp.concatenate([jax.random.normal(jax.random.key(0), (4, 3)), near[None]])
    found = forces.warp(r, tilted().positions)
    gradient = jax.vmap(jax.jacfwd(weights))(r)
    laplacian = jnp.trace(jax.vmap(jax.hessian(weights))(r), axis1=-2, axis2=-1)
    np.testing.assert_allclose(found.weight, jax.vmap(weights)(r), rtol=1e-12)
    np.testing.assert_allclose(found.gradient, gradient, atol=1e-9)
    np.testing.assert_allclose(found.laplacian, laplacian, atol=1e-6)
    alone = forces.warp(r, tilted().positions[:1])
    np.testing.assert_array_equal(alone.weight, 1.0)
    np.testing.assert_array_equal(alone.gradient, 0.0)
    np.testing.assert_array_equal(alone.laplacian, 0.0)


def moved(r: Array, step: Array, nucleus: int, axis: int) -> tuple[Array, Nuclei, Array]:
    """A walker and nuclei when one nucleus has moved, and the log of the electrons' volume."""

    def follow(one: Array) -> Array:
        weight = forces.warp(one[None], tilted().positions).weight[0, nucleus]
        return one + step * weight * jnp.eye(3)[axis]

    volumes = jnp.linalg.slogdet(jax.vmap(jax.jacfwd(follow))(r))[1]
    positions = jnp.array(POSITIONS).at[nucleus, axis].add(step)
    return jax.vmap(follow)(r), Nuclei(positions, tilted().charges), jnp.sum(volumes)


def test_estimators_are_derivatives_by_finite_differences() -> None:
    """Pulay's part is D L + ½ ∂ω. The local part is the derivative of the warped Hamiltonian.

    With X Pulay's part and T the kinetic energy, the derivative of E_L in the moving coordinates is

        D E_L = −f + (T − T_L)(X ψ)/ψ + ½ Σ ∇(∂ω)·∇L + ¼ Σ ∇²(∂ω),

    and the last two terms, of mean zero, are left out of the local part f.
    """
    h, nucleus, axis = 1e-4, 1, 2
    r = jax.random.normal(jax.random.key(1), (2, 3))

    @jax.jit
    def at(step: Array) -> tuple[Array, Array]:
        electrons, nuclei, volume = moved(r, step, nucleus, axis)
        one = sample_of(correlated, nuclei, electrons)
        return one.local.total, correlated(None, electrons, nuclei).log_abs + 0.5 * volume

    def log_psi(r: Array, positions: Array) -> Array:
        return correlated(None, r, Nuclei(positions, tilted().charges)).log_abs

    def score(r: Array) -> Array:
        return forces.changes(Walker(correlated, None, r, tilted()))[3 * nucleus + axis]

    def spread(r: Array) -> Array:
        return jnp.sum(forces.warp(r, tilted().positions).gradient[:, nucleus, axis])

    @jax.jit
    def expected() -> tuple[Array, Array]:
        one, along = sample_of(correlated, tilted(), r), jax.grad(log_psi)(r, tilted().positions)
        local = forces.measure(one).local[nucleus, axis, 0]
        curved, flat = (jnp.trace(jax.hessian(f)(r).reshape(6, 6)) for f in (score, spread))
        slopes = (jnp.sum(jax.grad(f)(r) * along) for f in (score, spread))
        of_score, of_spread = slopes
        return score(r), -local - 0.5 * curved - of_score + 0.5 * of_spread + 0.25 * flat

    energy, log_abs = ((x - y) / (2.0 * h) for x, y in zip(at(h), at(-h), strict=True))
    pulay, change = expected()
    assert float(pulay) == pytest.approx(float(log_abs), abs=1e-6)
    assert float(energy) == pytest.approx(float(change), abs=1e-6)


@pytest.mark.full_matrix  # each ansatz and its nuclei: test_ansatz.py
@pytest.mark.slow
@pytest.mark.timeout(900)  # a busy machine compiles for minutes
@pytest.mark.parametrize("name", list(ANSATZE))
def test_networks_follow_nuclei_as_finite_differences_say(name: str) -> None:
    """Every ansatz takes its nuclei as arguments: a molecule moved as a whole keeps log|ψ|."""
    system = System(((0.0, 0.1, 0.0), (0.3, 0.0, 2.5)), (3, 1), 2, 2)
    clamped = ANSATZE[name](system)
    psi, nuclei = make_psi(clamped.net), nuclei_of(system)
    r = jax.random.normal(jax.random.key(3), (4, 3)) + jnp.array([0.0, 0.0, 1.0])
    params = clamped.init(jax.random.key(4), r)
    one = sample_of(psi, nuclei, r, params)
    slopes = jax.jit(lambda: forces.slopes_of_log_psi(one))()

    @jax.jit
    def log_abs(positions: Array, r: Array) -> Array:
        return psi(params, r, Nuclei(positions, nuclei.charges)).log_abs

    h = 1e-5
    for nucleus, axis in ((0, 0), (1, 2)):
        step = jnp.zeros((2, 3)).at[nucleus, axis].set(h)
        above, below = (log_abs(nuclei.positions + s * step, r) for s in (1, -1))
        slope = (above - below) / (2.0 * h)
        assert float(slopes.nuclei[nucleus, axis]) == pytest.approx(float(slope), abs=1e-6)
    second = jax.jit(jax.hessian(partial(log_abs, nuclei.positions)))(r)
    own = jnp.stack([second[i, :, i] for i in range(4)])
    np.testing.assert_allclose(slopes.second, own, atol=1e-8)
    total = slopes.nuclei.sum(axis=0) + slopes.electrons.sum(axis=0)
    np.testing.assert_allclose(total, 0.0, atol=1e-9)
    found = forces.measure(one)
    np.testing.assert_allclose(found.local[..., 0].sum(axis=0), 0.0, atol=1e-8)


def test_the_force_on_exact_hydrogen_is_zero() -> None:
    """At every walker, by both forms: less than 1e-6 hartree/bohr, and so is every product."""

    def psi(params: None, r: Array, nuclei: Nuclei) -> Psi:
        del params
        return Psi(jnp.ones(()), -jnp.linalg.norm(r[0] - nuclei.positions[0]))

    nuclei = Nuclei(jnp.array([[0.3, -0.1, 0.7]]), jnp.ones(1))
    r = 0.7 * jax.random.normal(jax.random.key(0), (200, 1, 3)) + nuclei.positions
    found = jax.jit(jax.vmap(lambda r: forces.measure(sample_of(psi, nuclei, r))))(r)
    np.testing.assert_allclose(found.local, 0.0, atol=1e-6)
    np.testing.assert_allclose(found.energy, -0.5, atol=1e-9)
    series = dict(zip(COLUMNS, map(np.asarray, found), strict=True))
    quantities = Forces(1).estimate(series)
    for name in ("forces", "forces_gradient", "forces_difference"):
        np.testing.assert_allclose(quantities[name].means(), 0.0, atol=1e-6)
    assert bond_force(series) is None


def test_a_term_that_is_of_no_nucleus_is_refused() -> None:
    """The form by the gradient alone does not know its potential, and would be wrong."""
    one = sample_of(two_centres(1.0), protons(1.0), jnp.ones((1, 3)))
    trap = {**one.hamiltonian.terms, "trap": Multiplicative(lambda r, nuclei: jnp.sum(r**2))}
    with pytest.raises(ValueError, match="trap: only potentials of nuclei and cores have forces"):
        forces.measure(replace(one, hamiltonian=Hamiltonian(trap)))
