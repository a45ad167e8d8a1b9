"""The response of parameters to changes of ψ: fitted to walkers, measured with, and kept."""

from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from tests.ansatze import small_ferminet
from tests.matrix import rest
from tests.two_centres import ZETA, protons, two_centres
from vmcjob.columns import Column
from vmcjob.observables import Forces
from vmcjob.run.state import RESPONSE, from_arrays, to_arrays
from vmcjob.vmc import devices, response
from vmcjob.vmc.contracts import (
    Batch,
    ChainState,
    LoopState,
    Made,
    Metric,
    Nuclei,
    Params,
    Proposal,
    Psi,
)
from vmcjob.vmc.hamiltonian import molecular_hamiltonian
from vmcjob.vmc.loop import Vmc, iterate
from vmcjob.vmc.observing import Observed, Observing, Sample, Walker
from vmcjob.vmc.sampler import Moves
from vmcjob.vmc.schedule import Decay
from vmcjob.vmc.scores import score_matrix
from vmcjob.vmc.system import System
from vmcjob.vmc.update import UpdateRule

CARBON_LIKE = System(((0.0, 0.0, 0.0), (0.0, 0.5, 1.0)), (4, 1), 3, 2)
PARAMS = {"b": jnp.zeros((2, 1)), "a": jnp.zeros(3)}
EXACT = np.array([[0.3, -1.2, 0.4, 0.5, 2.0], [1.0, 0.0, -0.7, 0.2, 0.1]], np.float32)
"""The response to `changes`; JAX sorts the leaves of a tree, so that those of a come first."""


def log_psi(params: Params, r: Array) -> Array:
    """Of one electron; linear in five parameters."""
    return jnp.sum(params["b"][:, 0] * jnp.sin(r[0, :2])) + jnp.sum(params["a"] * r[0])


def changes(r: Array) -> Array:
    """Two changes that the scores explain, but for a constant."""
    return 5.0 - jnp.asarray(EXACT) @ jnp.concatenate([r[0], jnp.sin(r[0, :2])])


def fitted(n_devices: int, of_walkers: Array, n_batches: int = 1) -> np.ndarray:
    """The response after batches of walkers (batch, walker, 1, 3); vmap stands for devices."""

    def improve(r: Array, before: Array) -> Array:
        return response.improve(log_psi, PARAMS, r, changes, before)

    on_all = jax.jit(jax.vmap(improve, axis_name=devices.AXIS))
    found = jnp.zeros((n_devices, *EXACT.shape))
    for r in of_walkers[:n_batches]:
        found = on_all(r.reshape(n_devices, -1, 1, 3), found)
    np.testing.assert_array_equal(found, np.broadcast_to(found[:1], found.shape))
    return np.asarray(found[0])


@pytest.fixture(scope="module")
def walkers() -> Array:
    """Twenty batches of 64, around a place that is not the origin."""
    return 2.0 + jax.random.normal(jax.random.key(0), (20, 64, 1, 3))


def test_parameters_respond_so_that_nothing_changes_but_a_constant(walkers) -> None:
    """Catches a wrong sign, mean, scale, memory or order of parameters. λ leaves 1e-2 at first."""
    found = fitted(1, walkers, n_batches=20)
    np.testing.assert_allclose(found, EXACT, atol=2e-3)
    left = [changes(r) + response.added(log_psi, PARAMS, r, jnp.asarray(found)) for r in walkers[0]]
    np.testing.assert_allclose(left, 5.0, atol=2e-2)
    first = fitted(1, walkers)
    assert 2e-3 < np.abs(first - EXACT).max() < 0.3


def test_the_response_is_the_same_on_two_devices(walkers) -> None:
    """Catches means, roots and products of a device's own walkers. Sums in float32: 1e-4."""
    one, two = (fitted(n, walkers, n_batches=3) for n in (1, 2))
    np.testing.assert_allclose(two, one, atol=1e-4)


def test_a_walker_that_is_not_finite_leaves_the_response_as_it_is(walkers) -> None:
    """One such walker would make every later force of the run NaN."""
    bad = walkers.at[1, 3].set(jnp.nan)
    np.testing.assert_array_equal(fitted(1, bad, n_batches=2), fitted(1, walkers))


@pytest.mark.parametrize("n_devices", [2, *rest(1)])
def test_scores_that_are_kept_as_factors_give_the_same_response(n_devices, float64) -> None:
    """Those of a network's dense layers, against NumPy with the whole matrix."""
    net = small_ferminet(CARBON_LIKE, determinants=1)
    r = jax.random.normal(jax.random.key(1), (8, 5, 3))
    params = net.init(jax.random.key(2), r[0])

    def changes(r: Array) -> Array:
        return jnp.stack([jnp.sum(r**2), jnp.sum(r[0])])

    def improve(r: Array, before: Array) -> Array:
        return response.improve(net.log_psi, params, r, changes, before)

    matrix = np.asarray(score_matrix(net.log_psi, params, r))
    before = np.random.default_rng(3).normal(size=(2, matrix.shape[1])) / 100.0
    given = r.reshape(n_devices, -1, 5, 3), np.broadcast_to(before, (n_devices, *before.shape))
    found = jax.jit(jax.vmap(improve, axis_name=devices.AXIS))(*given)
    rows = (matrix - matrix.mean(axis=0)) / 8**0.5
    x = np.asarray(jax.vmap(changes)(r))
    left = (x - x.mean(axis=0)) / 8**0.5 + response.MEMORY * rows @ before.T
    solved = rows.T @ np.linalg.solve(rows @ rows.T + response.DAMPING * np.eye(8), left)
    expected = response.MEMORY * before - solved.T
    np.testing.assert_allclose(found[-1], expected, atol=1e-10)


def test_of_many_walkers_the_first_ones_are_enough(walkers, monkeypatch) -> None:
    """The same ones on one and on two devices."""
    monkeypatch.setattr(response, "MAX_WALKERS", 32)
    one, two, four = (fitted(n, walkers) for n in (1, 2, 4))
    np.testing.assert_allclose(two, one, atol=1e-4)
    np.testing.assert_allclose(four, one, atol=1e-4)
    np.testing.assert_array_equal(one, fitted(1, walkers[:, :32]))


class Still:
    """An optimizer that leaves the parameters where they are."""

    columns: ClassVar[Mapping[str, Column]] = {}
    metric: Metric = "euclidean"

    def init(self, params: Array) -> Array:
        return jnp.zeros(())

    def propose(self, params: Array, state: Array, batch: Batch) -> Proposal:
        return Proposal(jnp.zeros(1), jnp.zeros(()), jnp.zeros(1), memory=state)

    def remember(self, proposal: Proposal, made: Made) -> Array:
        return proposal.memory


def tilting(place: Array, r: Array, nuclei: Nuclei) -> Psi:
    """One electron on two centres; ψ tilts when the second moves, unless the parameter moves, too.

    As of a network that measures all distances from one nucleus.
    """
    psi = two_centres(1.0)(jnp.asarray(ZETA), r, nuclei)
    return psi._replace(log_abs=psi.log_abs + 3.0 * (nuclei.positions[1, 2] - place) * r[0, 2])


def molecule(observing: Observing) -> tuple[Vmc, LoopState]:
    """One electron on two protons; walkers wherever."""
    vmc = Vmc(
        psi=tilting,
        hamiltonian=molecular_hamiltonian(),
        nuclei=protons(2.0),
        make_optimizer=lambda log_psi, local_energies: Still(),
        rule=UpdateRule(Decay(0.1, 1.0)),
        seed=0,
        moves=Moves(2),
        target_acceptance=0.5,
        observing=observing,
    )
    r = jax.random.normal(jax.random.key(0), (64, 1, 3))
    chain = ChainState(devices.shard(r), devices.replicate(jnp.asarray(0.8)))
    params = vmc.nuclei.positions[1, 2]
    kept = devices.replicate((params, vmc.observing.no_response(params)))
    memory = devices.replicate(jnp.zeros(()))
    return vmc, LoopState(kept[0], memory, chain, None, kept[1])


def test_waiting_for_an_evaluation_fits_the_response() -> None:
    """The tilt is gone from the changes: catches a fit or a measurement without the response."""
    spreads = []
    for n_steps in (0, 20):
        vmc, state = molecule(Observing([Forces(2)]))
        before, width = devices.gather(state.chain.r), devices.unreplicate(state.chain.width)
        for done in iterate(vmc.equilibrate_step(), state, 0, n_steps):
            state = done.state
        assert (n_steps > 0) == bool(np.any(devices.gather(state.chain.r) != before))
        assert devices.unreplicate(state.chain.width) == width  # as evaluation keeps it
        rows = [done.info for done in iterate(vmc.evaluate_step(), state, 0, 20)]
        means = [devices.unreplicate(row).observed["force_score"][1, 2, 0] for row in rows]
        spreads.append(np.std(means))
    assert spreads[1] < 0.2 * spreads[0]


def test_training_hands_the_response_on() -> None:
    """Else the warm-up of evaluation would find none to improve, and say nothing."""
    vmc, state = molecule(Observing([Forces(2)]))
    known = devices.replicate(jnp.arange(6.0)[:, None])
    before = np.array(known)
    (done,) = iterate(vmc.train_step(), state._replace(response=known), 0, 1)
    np.testing.assert_array_equal(done.state.response, before)


def test_a_checkpoint_keeps_the_response_and_an_older_one_has_none() -> None:
    """A run of an earlier release goes on with the estimator that it began with."""
    _, like = molecule(Observing([Forces(2)]))
    state = like._replace(response=devices.replicate(jnp.arange(6.0)[:, None]))
    arrays = to_arrays(state)
    again = from_arrays(arrays, like)
    np.testing.assert_array_equal(again.response, state.response)
    del arrays[RESPONSE]
    np.testing.assert_array_equal(from_arrays(arrays, like).response, 0.0)
    _, without = molecule(Observing())
    assert without.response is None
    assert RESPONSE not in to_arrays(without)


class Other:
    """Another observable that takes a response."""

    n_changes = 1

    @property
    def columns(self) -> dict[str, Column]:
        return {}

    def changes(self, walker: Walker) -> Array:
        return jnp.zeros(1)

    def measure(self, sample: Sample) -> Observed:
        return {}


def test_a_second_response_is_refused() -> None:
    """There is one place for it; the second observable would be measured with the first one's."""
    with pytest.raises(ValueError, match="Forces, Other: a response of one observable at a time"):
        Observing([Forces(1), Other()])
