"""The traits of a state that every evaluation measures: its total spin, its outermost electron."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from tests.updates import Updating
from tests.wavefunctions import make_vmc
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import ChainState, LoopState, Nuclei, Psi
from vmcjob.vmc.first_order import FirstOrder, adam
from vmcjob.vmc.loop import iterate
from vmcjob.vmc.sampler import Moves
from vmcjob.vmc.schedule import Decay
from vmcjob.vmc.traits import EVERY, TraitsOf, n_measured
from vmcjob.vmc.update import UpdateRule

N_WALKERS = 40
NUCLEI = Nuclei(jnp.array([[0.0, 0.0, 0.0], [0.0, 0.0, 9.0]]), jnp.ones(2))


def two_electrons(sign: float | Array) -> Any:
    """1s(1) 2s(2) ± 2s(1) 1s(2), of unlike spins: a singlet, or a triplet."""

    def psi(params: None, r: Array, nuclei: Nuclei) -> Psi:
        d = jnp.linalg.norm(r, axis=-1)
        inner, outer = jnp.exp(-2.0 * d), (1.0 - d) * jnp.exp(-d)
        value = inner[0] * outer[1] + sign * outer[0] * inner[1]
        return Psi(jnp.sign(value), jnp.log(jnp.abs(value)))

    return psi


def measure(traits_of: TraitsOf, r: Array, steps: range) -> dict[str, np.ndarray]:
    """What is measured of walkers that rest, step by step."""
    program = devices.pmap(lambda r, step: traits_of(None, r, step))
    rows = [devices.unreplicate(program(devices.shard(r), jnp.asarray(step))) for step in steps]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


@pytest.mark.parametrize(("sign", "exact"), [(1.0, 0.0), (-1.0, 2.0)])
def test_every_tenth_step_has_the_spin_and_the_outermost_electron(
    sign: float, exact: float
) -> None:
    """Mutants in mind: exchanges without the sign of ψ; distances from the origin."""
    r = jax.random.normal(jax.random.key(0), (N_WALKERS, 2, 3))
    r = r.at[:, 1, 2].add(9.0)  # one electron at each nucleus
    found = measure(TraitsOf(two_electrons(sign), NUCLEI, 1, 10), r, range(2 * EVERY))
    is_due = np.arange(1, 2 * EVERY + 1) % EVERY == 0
    for values in found.values():
        np.testing.assert_array_equal(np.isfinite(values), is_due)
    # An eigenstate has the same S² at every walker; float32 rounds ratios far from 1 by some 1e-4.
    np.testing.assert_allclose(found["s2"][is_due], exact, atol=1e-2)
    own = np.asarray(r) - np.asarray(NUCLEI.positions)[None]
    expected = np.linalg.norm(own, axis=-1).max(axis=1).mean()
    np.testing.assert_allclose(found["outermost"][is_due], expected, rtol=1e-5)


def test_walkers_take_turns() -> None:
    """A walker in a wrong arrangement of spins is found in time. Mutant: the same ones again."""

    def psi(params: None, r: Array, nuclei: Nuclei) -> Psi:
        """ψ(P r) / ψ(r) is the exponential of x of the second electron less that of the first."""
        return Psi(jnp.ones(()), r[0, 0])

    x = jnp.linspace(0.0, 1.0, N_WALKERS)
    r = jnp.zeros((N_WALKERS, 2, 3)).at[:, 1, 0].set(x)
    n = n_measured(N_WALKERS, 2, 1, 1)
    assert 1 <= n < N_WALKERS
    n_turns = -(-N_WALKERS // n)
    due = range(EVERY - 1, n_turns * EVERY, EVERY)
    found = measure(TraitsOf(psi, NUCLEI, 1, 1), r, due)["s2"]
    each = [
        1.0 - np.exp(x[np.arange(k * n, (k + 1) * n) % N_WALKERS]).mean() for k in range(n_turns)
    ]
    np.testing.assert_allclose(found, each, rtol=1e-4)


@pytest.mark.parametrize("n_up", [0, 2, None])
def test_a_spin_that_is_known_is_not_measured(n_up: int | None) -> None:
    """Electrons all of one spin need no ratios; nor can any be had where n_up is not known."""
    r = jax.random.normal(jax.random.key(0), (N_WALKERS, 2, 3))
    found = measure(TraitsOf(two_electrons(1.0), NUCLEI, n_up, 10), r, range(EVERY - 1, EVERY))
    assert np.isnan(found["s2"]).all()
    assert np.isfinite(found["outermost"]).all()


@pytest.mark.parametrize(("n_electrons", "n_up"), [(2, 1), (14, 7), (60, 30)])
def test_the_spin_of_a_few_walkers_is_within_its_cost(n_electrons: int, n_up: int) -> None:
    """Values of ψ for S² are at most 2 % of those for moves and local energies, on average."""
    n_walkers, n_moves = 512, 10
    n = n_measured(n_walkers, n_electrons, n_up, n_moves)
    n_values = n * (n_up * (n_electrons - n_up) + 1)
    assert 1 <= n <= n_walkers
    assert n == 1 or n_values <= 0.02 * EVERY * n_walkers * (n_moves + n_electrons)


@pytest.mark.parametrize(("penalty", "falls"), [(0.0, False), (0.5, True)])
def test_training_under_a_penalty_leaves_the_wrong_spin(penalty: float, falls: bool) -> None:
    """A singlet with half as much of a triplet, both of one energy: the half becomes less.

    Mutants in mind: a penalty that is forgotten, that has the wrong sign, or that is reported as a
    part of the energy.
    """

    def psi(a: Array, r: Array, nuclei: Nuclei) -> Psi:
        return two_electrons((1.0 - a) / (1.0 + a))(None, r, nuclei)

    def log_psi(a: Array, r: Array) -> Array:
        return psi(a, r, NUCLEI).log_abs

    optimizer = FirstOrder(log_psi, adam(0.9, 0.999))
    updating = Updating(log_psi, optimizer, UpdateRule(Decay(0.02, 1e9)))
    made = make_vmc(
        log_psi,
        lambda a, r: jnp.full((), -1.0),
        updating,
        seed=0,
        moves=Moves(5),
        target_acceptance=0.5,
    )
    vmc = replace(made, psi=psi, n_up=1, spin_penalty=penalty)
    a = jnp.full((), 0.5)
    r = jax.random.normal(jax.random.key(0), (256, 2, 3))
    chain = ChainState(devices.shard(r), devices.replicate(jnp.full((), 0.5)))
    state = LoopState(devices.replicate(a), devices.replicate(optimizer.init(a)), chain)
    for done in iterate(vmc.train_step(), state, 0, 10):
        state = done.state
        assert devices.unreplicate(done.info).energy == -1.0
    reached = float(devices.unreplicate(state.params))
    assert reached == pytest.approx(0.3 if falls else 0.5, abs=0.06 if falls else 1e-6)
