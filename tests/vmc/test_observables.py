"""Observables against states whose moments are known exactly."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from tests.oracles import hydrogenic_1s, hydrogenic_2pz
from tests.wavefunctions import unsigned
from vmcjob.columns import Axis, Column
from vmcjob.observables import TABLE, Dipole, Quantity, make
from vmcjob.stats import estimate, estimate_function
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import ChainState, LoopState, Nuclei, Psi, SignedWaveFunction
from vmcjob.vmc.hamiltonian import molecular_hamiltonian
from vmcjob.vmc.loop import Vmc, iterate
from vmcjob.vmc.observing import Observed, Observing, Sample
from vmcjob.vmc.sampler import Moves, sample
from vmcjob.vmc.schedule import Decay
from vmcjob.vmc.steps import StepOfPhase
from vmcjob.vmc.update import UpdateRule

pytestmark = pytest.mark.usefixtures("float64")
STEPS = 400


def observe(
    psi: SignedWaveFunction,
    nuclei: list[tuple[float, float, float, float]],
    n_up: int,
    n_down: int,
    names: tuple[str, ...],
) -> dict[str, Quantity]:
    """All quantities of a wave function; nuclei as x, y, z and charge."""
    table = jnp.array(nuclei, float)
    vmc = Vmc(
        psi=psi,
        hamiltonian=molecular_hamiltonian(),
        nuclei=Nuclei(table[:, :3], table[:, 3]),
        make_optimizer=lambda log_psi, local_energies: NotImplemented,
        rule=UpdateRule(Decay(0.1, 1.0)),
        seed=0,
        moves=Moves(5),
        target_acceptance=0.5,
        n_up=n_up,
        observing=Observing(make(names)),
    )
    r = jax.random.normal(jax.random.key(0), (512, n_up + n_down, 3)) + table[0, :3]
    chain = ChainState(devices.shard(r), devices.replicate(jnp.asarray(0.8)))
    state = LoopState(devices.replicate(jnp.zeros(())), None, chain)
    for step, n_steps in ((vmc.equilibrate_step(), 30), (vmc.evaluate_step(), STEPS)):
        rows = []
        for done in iterate(step, state, 0, n_steps):
            state = done.state
            rows.append(done.info)
    infos = [devices.unreplicate(row) for row in rows]
    series = {name: np.array([i.observed[name] for i in infos]) for name in infos[0].observed}
    return {name: q for one in make(names) for name, q in one.estimate(series).items()}


def assert_is(quantity: Quantity, exact: object, tolerance: float) -> None:
    """Within three error bars and the tolerance, which some error bars are well below."""
    off = np.abs(quantity.means() - np.asarray(exact))
    assert (off <= 3.0 * quantity.errors() + 1e-9).all()
    assert (off <= tolerance).all()


@pytest.mark.slow
def test_the_hydrogen_atom() -> None:
    """⟨r²⟩ = 3, T = ½, V = −1, −V/T = 2, no moments; one electron, wherever it is."""
    names = ("components", "r2", "dipole", "density", "pairs", "spin")
    found = observe(unsigned(hydrogenic_1s(1.0)), [(0, 0, 0, 1)], 1, 0, names)
    assert_is(found["r2"], 3.0, 0.04)
    assert_is(found["r2_controlled"], 3.0, 1e-9)  # of an eigenstate, the controls know all
    assert_is(found["kinetic_controlled"], 0.5, 1e-9)
    assert_is(found["virial_controlled"], 2.0, 1e-9)
    assert_is(found["kinetic"], 0.5, 0.01)
    assert_is(found["potential"], -1.0, 0.01)
    assert_is(found["virial"], 2.0, 0.02)
    assert_is(found["dipole"], [0.0, 0.0, 0.0], 0.03)
    assert_is(found["s2"], 0.75, 1e-12)
    for name in ("density_radial", "density_axial"):
        np.testing.assert_allclose(found[name].means().sum(), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(found["pairs_radial"].means(), 0.0)
    centre = found["density"].means()[9]  # 0.9 to 1.0 bohr
    np.testing.assert_allclose(centre, np.exp(-1.9) / np.pi, rtol=0.05)


@pytest.mark.slow
def test_an_ion_off_the_origin_has_a_dipole_moment() -> None:
    """He+ at z = 1: 2 · 1 − 1, for the moment of an ion depends on where the origin is."""

    def psi(params: None, r: Array, nuclei: Nuclei) -> Psi:
        return unsigned(hydrogenic_1s(2.0))(params, r - nuclei.positions[0], nuclei)

    found = observe(psi, [(0, 0, 1, 2)], 1, 0, ("dipole",))
    assert_is(found["dipole"], [0.0, 0.0, 1.0], 0.02)
    assert_is(found["dipole_length"], 1.0, 0.02)
    assert_is(found["dipole_controlled"], [0.0, 0.0, 1.0], 1e-9)


@pytest.mark.slow
def test_the_quadrupole_moment_of_2p() -> None:
    """⟨z²⟩ = 18 and ⟨r²⟩ = 30 in 2p_z: Q_zz = −12 and Q_xx = Q_yy = 6."""
    found = observe(unsigned(hydrogenic_2pz(1.0)), [(0, 0, 0, 1)], 1, 0, ("quadrupole",))
    assert_is(found["quadrupole"], np.diag([6.0, 6.0, -12.0]), 1.5)


def two_electrons(sign: float) -> Callable[..., Psi]:
    """1s(1) 2s(2) ± 2s(1) 1s(2), of unlike spins: a singlet, or a triplet."""

    def psi(params: None, r: Array, nuclei: Nuclei) -> Psi:
        d = jnp.linalg.norm(r, axis=-1)
        inner, outer = jnp.exp(-2.0 * d), (1.0 - d) * jnp.exp(-d)
        value = inner[0] * outer[1] + sign * outer[0] * inner[1]
        return Psi(jnp.sign(value), jnp.log(jnp.abs(value)))

    return psi


@pytest.mark.slow
@pytest.mark.full_matrix  # at one walker: below; in steps: the doublet
@pytest.mark.parametrize(("sign", "exact"), [(-1.0, 2.0), (1.0, 0.0)])
def test_the_spin_of_two_electrons(sign: float, exact: float) -> None:
    """At every single walker. Without the sign of ψ, both would be singlets."""
    found = observe(two_electrons(sign), [(0, 0, 0, 2)], 1, 1, ("spin",))
    np.testing.assert_allclose(found["s2"].means(), exact, atol=1e-9)


@pytest.mark.slow
def test_the_spin_of_a_doublet() -> None:
    """1s² 2s: ¾ on average, and at no walker by itself."""

    def psi(params: None, r: Array, nuclei: Nuclei) -> Psi:
        d = jnp.linalg.norm(r, axis=-1)
        inner, outer = jnp.exp(-3.0 * d), (1.0 - d) * jnp.exp(-d)
        value = (inner[0] * outer[1] - outer[0] * inner[1]) * inner[2]
        return Psi(jnp.sign(value), jnp.log(jnp.abs(value)))

    assert_is(observe(psi, [(0, 0, 0, 3)], 2, 1, ("spin",))["s2"], 0.75, 0.02)


N_RUNS, RUN_WALKERS, RUN_STEPS = 100, 32, 300
ZETA = 1.6


def helium_orbitals(params: None, r: Array) -> Array:
    """log of exp(−ζ (r₁ + r₂)), nobody's eigenstate."""
    return -ZETA * jnp.sum(jnp.linalg.norm(r, axis=-1))


def short_runs(names: tuple[str, ...]) -> list[dict[str, np.ndarray]]:
    """Series of many runs of that wave function for helium, all in one batch of walkers."""
    (observable,), hamiltonian = make(names), molecular_hamiltonian()
    psi, nuclei = unsigned(helium_orbitals), Nuclei(jnp.zeros((1, 3)), jnp.full(1, 2.0))

    def of_one(r: Array) -> Observed:
        key = jax.random.key(0)
        local = hamiltonian.local_energy(psi, None, r, nuclei, key)
        return observable.measure(Sample(hamiltonian, psi, None, r, nuclei, 1, local, key))

    def step(chain: ChainState, key: Array) -> tuple[ChainState, Observed]:
        chain = sample(helium_orbitals, None, key, chain, Moves(2), nuclei).chain
        of_all = jax.vmap(of_one)(chain.r)
        runs = {n: x.reshape(N_RUNS, RUN_WALKERS, *x.shape[1:]) for n, x in of_all.items()}
        return chain, {name: x.mean(axis=1) for name, x in runs.items()}

    keys = jax.random.split(jax.random.key(1), 50 + RUN_STEPS)
    r = 0.6 * jax.random.normal(jax.random.key(2), (N_RUNS * RUN_WALKERS, 2, 3))
    start = ChainState(r, jnp.asarray(0.4))
    series = jax.jit(lambda: jax.lax.scan(step, start, keys)[1])()
    return [{n: np.asarray(x[50:, k]) for n, x in series.items()} for k in range(N_RUNS)]


@pytest.mark.slow
def test_error_bars_of_a_ratio_cover_as_they_should() -> None:
    """The virial ratio in 100 short runs of one wave function, of which two thirds should hold it.

    T = ζ² and V = −4 ζ + ⅝ ζ, measured along one chain: correlated with themselves and with each
    other. As of independent numbers, numerator's and denominator's errors would be far too large;
    without correlation times, all too small. With control variates the errors are a
    twentieth.
    """
    exact = (4.0 - 0.625) / ZETA
    found = [make(["components"])[0].estimate(series) for series in short_runs(("components",))]
    middle = {}
    for name in ("virial", "virial_controlled"):
        estimates = [one[name].estimates[0] for one in found]
        hits = sum(abs(one.mean - exact) < one.error for one in estimates)
        assert 60 <= hits <= 75
        middle[name] = np.median([one.error for one in estimates])
        spread = np.std([one.mean for one in estimates])
        np.testing.assert_allclose(middle[name], spread, rtol=0.25)
    assert middle["virial_controlled"] < 0.1 * middle["virial"]


def test_a_function_of_a_vector_is_estimated_without_its_bias() -> None:
    """|⟨x⟩|² of n normal numbers in three dimensions is too large by 3/n; and a mean is a mean."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 200, 3))
    square = [estimate_function(lambda m: (m**2).sum(axis=-1), one).mean for one in x]
    assert abs(np.mean(square)) < 4.0 * np.std(square) / 20.0
    one = x[0, :, 0]
    assert estimate_function(lambda m: m, one).mean == pytest.approx(estimate(one).mean)


@pytest.mark.parametrize("length", [0.0, 0.1, 1.0])
def test_the_length_of_a_dipole_moment_is_not_negative_and_near_what_it_is(length: float) -> None:
    """Also where there is none: within 4 error bars, where once were 15 below zero."""
    moments = np.random.default_rng(0).normal((0.0, 0.0, length), size=(300, 400, 3))
    found = [Dipole().estimate({"dipole": one})["dipole_length"].estimates[0] for one in moments]
    assert min(one.mean for one in found) >= 0.0
    assert max(abs(one.mean - length) / one.error for one in found) < 4.0
    hits = np.mean([abs(one.mean - length) < one.error for one in found])
    assert hits >= 0.5


def sample_of(psi: SignedWaveFunction, r: Array, n_up: int | None) -> Sample:
    """One walker about a proton."""
    nuclei, key = Nuclei(jnp.zeros((1, 3)), jnp.ones(1)), jax.random.key(0)
    hamiltonian = molecular_hamiltonian()
    local = hamiltonian.local_energy(psi, None, r, nuclei, key)
    return Sample(hamiltonian, psi, None, r, nuclei, n_up, local, key)


@pytest.mark.slow
def test_a_spin_without_a_number_of_electrons_of_spin_up_is_none() -> None:
    """Not that of a triplet, which all electrons of spin down would be."""
    r = jnp.array([[0.3, 0.0, 0.0], [0.0, 0.7, 0.0]])
    with pytest.raises(ValueError, match=r"S² needs the number of electrons of spin up"):
        make(["spin"])[0].measure(sample_of(two_electrons(1.0), r, None))
    for sign, exact in ((1.0, 0.0), (-1.0, 2.0)):
        found = make(["spin"])[0].measure(sample_of(two_electrons(sign), r, 1))
        assert float(found["s2"]) == pytest.approx(exact, abs=1e-9)


class Bins:
    """Measures what it is told to."""

    def __init__(self, measured: dict[str, int], declared: dict[str, int]) -> None:
        self.columns = {n: Column("1", n, (Axis("bin", k),)) for n, k in declared.items()}
        self.measured = measured

    def measure(self, sample: Sample) -> Observed:
        return {name: jnp.ones(length) for name, length in self.measured.items()}


@pytest.mark.parametrize("measured", [{"a": 3}, {"b": 2}, {"a": 2, "b": 2}])
def test_what_was_not_declared_so_is_refused(measured: dict[str, int]) -> None:
    """In a sentence that names the observable, and not by what compiles the step."""
    sample = sample_of(unsigned(hydrogenic_1s(1.0)), jnp.ones((1, 3)), 1)
    with pytest.raises(ValueError, match=r"Bins: measures columns of shapes .* has declared"):
        Observing((Bins(measured, {"a": 2}),)).measure(sample)
    assert Observing((Bins({"a": 2}, {"a": 2}),)).measure(sample)["a"].shape == (2,)


def test_columns_that_cannot_be_told_apart_are_refused() -> None:
    """Neither could the arrays of a store."""
    a, longer = Bins({}, {"a": 2}), Bins({}, {"b": 3})
    with pytest.raises(ValueError, match="a: a column of two observables"):
        Observing((a, a))
    with pytest.raises(ValueError, match="b: its axis 'bin' has length 3, that of another column"):
        Observing((a, longer))
    with pytest.raises(ValueError, match="every 0 steps; give 1 or more"):
        Observing((a,), 0)
    assert Observing(make(TABLE)).columns()


def test_comparison_and_evaluation_are_one_program() -> None:
    """A job with observables would compile two programs of much the same."""
    vmc = Vmc(
        psi=unsigned(hydrogenic_1s(1.0)),
        hamiltonian=molecular_hamiltonian(),
        nuclei=Nuclei(jnp.zeros((1, 3)), jnp.ones(1)),
        make_optimizer=lambda log_psi, local_energies: NotImplemented,
        rule=UpdateRule(Decay(0.1, 1.0)),
        seed=0,
        moves=Moves(5),
        target_acceptance=0.5,
        observing=Observing(make(("dipole",))),
    )
    comparison, evaluation = vmc.compare_step(), vmc.evaluate_step()
    assert isinstance(comparison, StepOfPhase)
    assert isinstance(evaluation, StepOfPhase)
    assert comparison.program is evaluation.program
