"""New physics from this file alone: a wave function, a term, an observable and an optimizer.

Two electrons that do not repel each other, in a harmonic trap: E = 3ω for ψ = exp(−ω Σ r²/2).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from vmcjob.columns import Axis, Column
from vmcjob.observables import Observable, Quantity, means
from vmcjob.stats import estimate
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import (
    Batch,
    ChainState,
    LogPsi,
    LoopState,
    Made,
    Metric,
    Nuclei,
    Proposal,
    Psi,
)
from vmcjob.vmc.hamiltonian import Hamiltonian, Kinetic, Multiplicative, molecular_hamiltonian
from vmcjob.vmc.loop import Vmc, iterate
from vmcjob.vmc.observing import Observing, Sample
from vmcjob.vmc.sampler import Moves
from vmcjob.vmc.schedule import Decay
from vmcjob.vmc.update import UpdateRule

OMEGA = 0.7  # hartree
EVERY = 5
NO_NUCLEI = Nuclei(jnp.zeros((0, 3)), jnp.zeros(0))


def gaussian(a: Array, r: Array, nuclei: Nuclei) -> Psi:
    """A toy ansatz of one parameter: exp(−a Σ r²/2)."""
    del nuclei
    return Psi(jnp.ones((), r.dtype), -0.5 * a * jnp.sum(r**2))


def trap(r: Array, nuclei: Nuclei) -> Array:
    """A potential: ½ ω² Σ r²."""
    del nuclei
    return 0.5 * OMEGA**2 * jnp.sum(r**2)


@dataclass(frozen=True)
class ScreenedAttraction:
    """A potential: Coulomb's attraction, screened, −Σ Z exp(−κd)/d."""

    kappa: float  # 1/bohr

    def __call__(self, r: Array, nuclei: Nuclei) -> Array:
        d = jnp.linalg.norm(r[:, None] - nuclei.positions, axis=-1)
        return -jnp.sum(nuclei.charges * jnp.exp(-self.kappa * d) / d)


def make_screened(kappa: float) -> Hamiltonian:
    """The Hamiltonian of a molecule, with the attraction by nuclei replaced."""
    screened = {"v_en": Multiplicative(ScreenedAttraction(kappa))}
    return Hamiltonian({**molecular_hamiltonian().terms, **screened})


class SquaredCoordinates:
    """A vector observable: Σ x², Σ y², Σ z²."""

    columns: Mapping[str, Column] = {
        "squares": Column("bohr^2", "sums of squared coordinates", (Axis("xyz", 3),))
    }

    def measure(self, sample: Sample) -> dict[str, Array]:
        return {"squares": jnp.sum(sample.r**2, axis=0)}

    def estimate(self, series: Mapping[str, np.ndarray]) -> dict[str, Quantity]:
        return means(self.columns, series)


@dataclass(frozen=True)
class Descent:
    """An optimizer: down the gradient of the energy; tells how steep that is."""

    columns: ClassVar[Mapping[str, Column]] = {"slope": Column("hartree", "of the energy")}

    log_psi: LogPsi

    @property
    def metric(self) -> Metric:
        return "euclidean"

    def init(self, params: Array) -> Array:
        return jnp.zeros_like(params)

    def propose(self, params: Array, state: Array, batch: Batch) -> Proposal:
        scores = jax.vmap(jax.grad(self.log_psi), (None, 0))(params, batch.r)
        gradient = jnp.atleast_1d(2.0 * devices.mean(jnp.mean(batch.deviations * scores)))
        square = jnp.vdot(gradient, gradient)
        return Proposal(gradient, square, gradient, memory=state, told={"slope": gradient[0]})

    def remember(self, proposal: Proposal, made: Made) -> Array:
        return proposal.memory


def make_trapped_electrons() -> tuple[Vmc, LoopState]:
    """Not yet trained: a is twice what it should be."""
    vmc = Vmc(
        psi=gaussian,
        hamiltonian=Hamiltonian({"kinetic": Kinetic(), "trap": Multiplicative(trap)}),
        nuclei=NO_NUCLEI,
        make_optimizer=lambda log_psi, local_energies: Descent(log_psi),
        rule=UpdateRule(Decay(0.2, math.inf)),
        seed=0,
        moves=Moves(5),
        target_acceptance=0.5,
        observing=Observing((SquaredCoordinates(),), EVERY),
    )
    r = jax.random.normal(jax.random.key(0), (256, 2, 3))
    chain = ChainState(devices.shard(r), devices.replicate(jnp.asarray(0.7, r.dtype)))
    a = jnp.asarray(2.0 * OMEGA)
    return vmc, LoopState(devices.replicate(a), devices.replicate(vmc.optimizer.init(a)), chain)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_electrons_in_a_trap_are_trained_and_observed() -> None:
    """E = 3ω with no variance, ⟨x²⟩ = 1/2ω for each electron; observed in every fifth step."""
    vmc, state = make_trapped_electrons()
    assert isinstance(vmc.observing.observables[0], Observable)
    slopes = []
    for done in iterate(vmc.train_step(), state, 0, 150):
        state = done.state
        slopes.append(float(devices.unreplicate(done.info).told["slope"]))
    np.testing.assert_allclose(devices.unreplicate(state.params), OMEGA, rtol=1e-4)
    assert slopes[0] > 0.1
    assert abs(slopes[-1]) < 1e-4
    infos = []
    for done in iterate(vmc.evaluate_step(), state, 0, 500):
        state = done.state
        infos.append(devices.unreplicate(done.info))
    np.testing.assert_allclose([info.energy for info in infos], 3.0 * OMEGA, rtol=1e-4)
    rows = np.array([info.observed["squares"] for info in infos])
    is_due = np.arange(1, 501) % EVERY == 0
    np.testing.assert_array_equal(np.isfinite(rows).all(axis=1), is_due)
    found = SquaredCoordinates().estimate({"squares": rows[is_due]})["squares"]
    assert (np.abs(found.means() - 1.0 / OMEGA) < 4.0 * found.errors()).all()
    assert (found.errors() < 0.05).all()


@pytest.mark.usefixtures("float64")
def test_a_term_that_draws_has_numbers_of_its_own_for_every_walker_and_step() -> None:
    """Noise of mean 0 and variance 1, the same if a step is repeated, and on other devices."""

    def noise(psi: Any, params: Any, r: Array, nuclei: Nuclei, key: Array) -> Array:
        del psi, params, nuclei
        return jax.random.normal(key, (), r.dtype)

    vmc, state = make_trapped_electrons()
    noisy = replace(vmc, hamiltonian=Hamiltonian({"noise": noise}))
    step = noisy.evaluate_step()
    energies, variances = [], []
    for index in (0, 1, 1):
        copy = jax.tree.map(jnp.copy, state)
        info = devices.unreplicate(step(copy, jnp.asarray(index))[1])
        energies.append(float(info.energy))
        variances.append(float(info.variance))
    assert energies[1] == energies[2] != energies[0]
    assert abs(estimate(np.array(energies[:2])).mean) < 4.0 / (2 * 256) ** 0.5
    np.testing.assert_allclose(variances, 1.0, atol=0.4)


@pytest.mark.usefixtures("float64")
def test_a_screened_nucleus_binds_an_electron_less() -> None:
    """For ψ = exp(−a r), E = a²/2 − 4a³/(2a + κ)²; walkers are drawn from ψ² without a chain.

    With the best a, E is 0.3 mHa above the exact −0.407058 hartree of κ = 0.1 (F. J. Rogers et al.,
    Phys. Rev. A 1, 1577 (1970)). The attraction of a bare nucleus would give −0.498.
    """
    kappa, n = 0.1, 20_000

    def energy(a: float) -> float:
        return a**2 / 2.0 - 4.0 * a**3 / (2.0 * a + kappa) ** 2

    best = min(np.linspace(0.5, 1.5, 10_001), key=energy)
    assert 0.0 < energy(best) + 0.407058 < 4e-4
    rng = np.random.default_rng(3)
    directions = rng.normal(size=(n, 1, 3))
    directions /= np.linalg.norm(directions, axis=-1, keepdims=True)
    r = jnp.asarray(rng.gamma(3.0, 0.5 / best, (n, 1, 1)) * directions)
    proton = Nuclei(jnp.zeros((1, 3)), jnp.ones(1))

    def psi(a: Array, r: Array, nuclei: Nuclei) -> Psi:
        return Psi(jnp.ones(()), -a * jnp.sum(jnp.linalg.norm(r - nuclei.positions, axis=-1)))

    def local_energy(r: Array) -> Array:
        key = jax.random.key(0)
        return make_screened(kappa).local_energy(psi, jnp.asarray(best), r, proton, key).total

    found = np.asarray(jax.jit(jax.vmap(local_energy))(r))
    assert abs(found.mean() - energy(best)) < 4.0 * found.std() / n**0.5 < 2e-3
