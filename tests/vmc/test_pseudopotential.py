"""Core potentials: quadratures, rotations, and local energies that are known in closed form."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vmcjob.vmc.contracts import Nuclei, Psi
from vmcjob.vmc.hamiltonian import ECP_LOCAL, ECP_NONLOCAL, V_EN, make_hamiltonian
from vmcjob.vmc.nucleus import NEGLIGIBLE, Core, Gaussian, values
from vmcjob.vmc.quadrature import DEGREES, quadrature, random_rotation
from vmcjob.vmc.system import System, core_orbitals, energy_bound, nuclei_of

S, P = (Gaussian(2, 1.1, 3.0),), (Gaussian(2, 0.9, -2.0), Gaussian(3, 0.7, 0.5))
SODIUM = Core(10, (Gaussian(1, 5.0, 1.0), Gaussian(2, 4.0, -3.0)), (S, P))
DIMER = System(((0.3, -0.2, -2.9), (0.3, -0.2, 2.9)), (1, 1), 1, 1, (SODIUM, SODIUM))
R = jnp.array([[0.5, 0.1, -1.2], [0.2, -0.9, 1.0]])  # both electrons are in range of both nuclei
SLOPE = np.array([0.2, -0.1, 0.15])


def moment(powers: tuple[int, ...]) -> float:
    """Mean of x^a y^b z^c over the sphere: Π (a − 1)!! / (a + b + c + 1)!!; 0 if one is odd."""
    if any(power % 2 for power in powers):
        return 0.0
    odd = [np.prod(np.arange(1, power, 2, dtype=float)) for power in powers]
    return float(np.prod(odd) / np.prod(np.arange(1, sum(powers) + 2, 2, dtype=float)))


@pytest.mark.parametrize(("n_points", "degree"), DEGREES.items())
def test_a_quadrature_is_exact_to_its_degree_and_no_further(n_points: int, degree: int) -> None:
    """A wrong weight, or two orbits turned against each other, loses degrees without a word."""
    rule = quadrature(n_points)
    assert rule.directions.shape == (n_points, 3)

    def error(degree: int) -> float:
        powers = (p for p in itertools.product(range(degree + 1), repeat=3) if sum(p) == degree)
        return max(
            abs(rule.weights @ np.prod(rule.directions**p, axis=1) - moment(p)) for p in powers
        )

    assert max(error(d) for d in range(degree + 1)) < 1e-14
    assert error(degree + 1) > 1e-5


def test_rotations_follow_the_measure_of_haar() -> None:
    """E[R_ab] = 0 and E[R_ab R_cd] = δ_ac δ_bd / 3; two random angles are not enough for this."""
    n = 4000
    keys = jax.random.split(jax.random.key(3), n)
    found = np.asarray(
        jax.vmap(lambda key: random_rotation(key, jnp.dtype("float32")))(keys), float
    )
    ones = np.tile(np.eye(3), (n, 1, 1))
    np.testing.assert_allclose(found @ found.swapaxes(1, 2), ones, atol=1e-5)  # of float32
    np.testing.assert_allclose(np.linalg.det(found), 1.0, atol=1e-5)
    flat = found.reshape(n, 9)
    error = flat.std(axis=0) / np.sqrt(n)
    assert (np.abs(flat.mean(axis=0)) < 4.0 * error).all()
    products = flat[:, :, None] * flat[:, None]
    error = products.std(axis=0) / np.sqrt(n)
    assert (np.abs(products.mean(axis=0) - np.eye(9) / 3.0) < 4.0 * error).all()


def linear(params: float, r: jax.Array, nuclei: Nuclei) -> Psi:
    """Π_i (1 + s a·r_i), which has an s and a p part around every nucleus; negative far out."""
    del nuclei
    factors = 1.0 + params * (r @ jnp.asarray(SLOPE, r.dtype))
    return Psi(jnp.prod(jnp.sign(factors)), jnp.sum(jnp.log(jnp.abs(factors))))


def energies(system: System, slope: float, r: jax.Array, seed: int = 0) -> dict[str, float]:
    """The terms of the local energy of `linear`, with the smallest exact quadrature."""
    hamiltonian = make_hamiltonian(system, 12)
    wanted = (V_EN, ECP_LOCAL, ECP_NONLOCAL)
    terms = {name: term for name, term in hamiltonian.terms.items() if name in wanted}
    key, nuclei = jax.random.key(seed), nuclei_of(system)
    return {name: float(term(linear, slope, r, nuclei, key)) for name, term in terms.items()}


def closed_form(slope: float, r: np.ndarray) -> float:
    """Σ_iI [ V_s (1 + a·R_I) + V_p a·(r_i − R_I) ] / (1 + a·r_i), over both nuclei."""
    total = 0.0
    for x, centre in itertools.product(r, np.array(DIMER.nuclei)):
        d, a = np.array([np.linalg.norm(x - centre)]), slope * SLOPE
        s, p = float(values(S, d)[0]), float(values(P, d)[0])
        total += (s * (1.0 + a @ centre) + p * (a @ (x - centre))) / (1.0 + a @ x)
    return total


def test_only_the_s_channel_acts_on_a_constant() -> None:
    """V_s exactly, nothing of V_p, and the local part as the table says."""
    found = energies(DIMER, 0.0, R)
    d = np.linalg.norm(np.asarray(R)[:, None] - np.array(DIMER.nuclei), axis=-1)
    assert found[ECP_NONLOCAL] == pytest.approx(values(S, d).sum(), rel=1e-5)
    whole = values(SODIUM.local, d) - 1.0 / d
    assert found[ECP_LOCAL] == pytest.approx(whole.sum(), rel=1e-5)


@pytest.mark.parametrize("slope", [0.5, 4.0])
def test_both_nuclei_act_on_each_electron(slope: float) -> None:
    """The nearest nucleus alone, a missing sign of ψ, or a missing factor 2l + 1 is off by more.

    With the larger slope ψ changes its sign among the points. The result is the same for all
    rotations, because a quadrature of 12 points integrates it exactly.
    """
    r = np.asarray(R, float)
    expected = closed_form(slope, r)
    for seed in range(3):
        assert energies(DIMER, slope, R, seed)[ECP_NONLOCAL] == pytest.approx(expected, rel=1e-4)


def test_nothing_acts_beyond_the_range_of_the_table() -> None:
    """The range ends where (2l + 1) |V_l| is negligible for all l."""
    reach = SODIUM.reach
    at = np.array([reach - 0.01, reach + 0.01])
    strengths = np.max([np.abs(values(S, at)), 3.0 * np.abs(values(P, at))], axis=0)
    assert strengths[0] > NEGLIGIBLE > strengths[1]
    far = jnp.array([[0.3, -0.2, 2.9 + reach + 0.01], [0.3, -0.2, -2.9 - reach - 0.01]])
    assert energies(DIMER, 0.5, far)[ECP_NONLOCAL] == 0.0


def test_a_batch_has_the_energies_of_its_walkers(float64) -> None:
    """Pairs in range are treated together; walkers have none to all four of them in range.

    Catches a block that is cut off, and energies or keys that go to another walker; also where only
    walkers, keys or parameters are many.
    """
    scales = jnp.array([1.0, 30.0, 2.0, 1.1, 1.5, 30.0, 0.9])
    r = jnp.asarray(R, float) * scales[:, None, None]
    keys = jax.random.split(jax.random.key(7), len(r))
    slopes = jnp.linspace(0.0, 4.0, len(r))
    d = np.linalg.norm(np.asarray(r)[:, :, None] - np.array(DIMER.nuclei), axis=-1)
    counts = (d < SODIUM.reach).sum(axis=(1, 2))
    assert (counts.min(), counts.max()) == (0, 4)
    term = make_hamiltonian(DIMER, 4).terms[ECP_NONLOCAL]  # few points: rotations matter

    def energy(slope: jax.Array, r: jax.Array, key: jax.Array) -> jax.Array:
        return term(linear, slope, r, nuclei_of(DIMER), key)

    one_by_one, many = jax.jit(energy), (slopes, r, keys)
    for axes in ((None, 0, 0), (None, 0, None), (None, None, 0), (0, 0, 0), (0, None, None)):
        given = [x[4] if axis is None else x for x, axis in zip(many, axes, strict=True)]
        found = jax.jit(jax.vmap(energy, axes))(*given)
        for walker, value in enumerate(found):
            own = [x if axis is None else x[walker] for x, axis in zip(given, axes, strict=True)]
            np.testing.assert_allclose(value, one_by_one(*own), rtol=1e-12, atol=1e-14)


def test_the_local_part_is_finite_at_the_nucleus() -> None:
    """−Z/r and Z exp(−αr²)/r are one expression; apart, float32 would lose 0.01 hartree here."""
    near = jnp.array(DIMER.nuclei, jnp.float32) + jnp.float32(1e-5)
    d = np.linalg.norm(np.asarray(near, float)[:, None] - np.array(DIMER.nuclei), axis=-1)
    smooth = 1.0 * np.expm1(-5.0 * d**2) / d - 3.0 * np.exp(-4.0 * d**2)
    assert energies(DIMER, 0.0, near)[ECP_LOCAL] == pytest.approx(smooth.sum(), abs=1e-4)


def test_a_core_lowers_the_bound_of_the_energy_and_fills_orbitals() -> None:
    """An energy between both bounds is no explosion."""
    bare = System(DIMER.nuclei, DIMER.charges, 1, 1)
    assert core_orbitals(DIMER) == (5, 5)
    assert energy_bound(DIMER) == pytest.approx(energy_bound(bare) - 4.0 * SODIUM.depth)
    assert 2.0 < SODIUM.depth < 6.0
    assert Core(2, (Gaussian(1, 1.0, -1.0),)).depth == np.inf


def test_each_nucleus_attracts_by_its_charge_or_by_its_potential(float64) -> None:
    """Coulomb's attraction of a nucleus with a core would count its charge a second time."""
    hydride = System(DIMER.nuclei, (1, 1), 1, 1, (SODIUM, None))
    alone = System(DIMER.nuclei[:1], (1,), 1, 1, (SODIUM,))
    r = jnp.asarray(R, float)
    found, of_sodium = energies(hydride, 0.1, r), energies(alone, 0.1, r)
    distances = np.linalg.norm(np.asarray(r) - np.array(DIMER.nuclei[1]), axis=1)
    assert found[V_EN] == pytest.approx(-float(np.sum(1.0 / distances)), rel=1e-12)
    assert found[ECP_LOCAL] == pytest.approx(of_sodium[ECP_LOCAL], rel=1e-12)
    assert V_EN not in of_sodium
