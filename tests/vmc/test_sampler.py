"""Metropolis sampling, against moments of the hydrogen atom."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.matrix import rest
from tests.oracles import hydrogenic_1s
from vmcjob.vmc.contracts import ChainState, Nuclei
from vmcjob.vmc.sampler import Moves, distance_scale, sample, tune_width

LOG_PSI = hydrogenic_1s(1.0)


def chain(n_walkers: int = 4000, width: float = 1.0) -> ChainState:
    """Walkers around the origin."""
    r = jax.random.normal(jax.random.key(0), (n_walkers, 1, 3))
    return ChainState(r, jnp.asarray(width))


PROTON = Nuclei(jnp.zeros((1, 3)), jnp.ones(1))
TWO = Nuclei(jnp.asarray([[0.0, 0.0, 0.0], [0.0, 0.0, 3.0]]), jnp.asarray([3.0, 1.0]))


@pytest.mark.parametrize("scaled_by", [None, PROTON, TWO])
def test_the_hydrogen_atom_has_its_known_radii(scaled_by: Nuclei | None) -> None:
    """⟨r⟩ = 3/2 and ⟨r²⟩ = 3 bohr² in 1s; 4000 walkers know them to 1.4 % and 2.3 %.

    Catches a wrong power of ψ in the acceptance: |ψ| instead of |ψ|² gives ⟨r⟩ = 3; and moves
    whose way back is not as likely as they are, if nothing makes up for that.
    """
    begin, moves = chain(width=0.4 if scaled_by else 1.0), Moves(60, bool(scaled_by))
    given = LOG_PSI, None, jax.random.key(1), begin, moves, scaled_by or PROTON
    state, log_abs, acceptance = sample(*given)
    radius = np.linalg.norm(np.asarray(state.r)[:, 0], axis=-1)
    np.testing.assert_allclose(radius.mean(), 1.5, atol=4 * np.sqrt(0.75 / 4000))
    np.testing.assert_allclose((radius**2).mean(), 3.0, atol=4 * np.sqrt(13.5 / 4000))
    assert 0.4 < acceptance < 0.8
    np.testing.assert_allclose(log_abs, -radius, rtol=1e-6)


def test_the_age_of_a_walker_is_in_moves_that_it_has_refused_since_the_last_accepted_one() -> None:
    """Two at a place that nothing leads away from, two that accept whatever is proposed."""
    r = jnp.asarray([0.0, 0.0, 5.0, 5.0])[:, None, None] * jnp.ones((4, 1, 3))
    walkers = ChainState(r, jnp.asarray(0.1), jnp.asarray([0, 7, 0, 7], jnp.int32))

    def log_psi(params: None, r: jax.Array) -> jax.Array:
        return jnp.where(jnp.all(r == 0.0), 0.0, -100.0)

    moved, log_abs, acceptance = sample(log_psi, None, jax.random.key(0), walkers, Moves(5), PROTON)
    assert moved.age is not None
    assert moved.age.tolist() == [5, 12, 0, 0]
    assert moved.age.dtype == jnp.int32
    np.testing.assert_array_equal(moved.r[:2], r[:2])
    np.testing.assert_array_equal(log_abs, [0.0, 0.0, -100.0, -100.0])
    assert acceptance == 0.5


def test_moves_scale_with_the_size_of_shells() -> None:
    """At a nucleus 1/Z, far from all of them the distance; in between the nearest one's counts."""
    r = jnp.asarray([[0.0, 0.0, 0.0], [0.0, 0.0, 3.0], [0.0, 1000.0, 0.0], [0.0, -0.5, 0.0]])
    found = distance_scale(TWO)(r)
    np.testing.assert_allclose(found[:2], [1 / 3, 1.0], rtol=0.01)
    np.testing.assert_allclose(found[2], 1000.5 * 2 ** (-1 / 4), rtol=1e-3)
    np.testing.assert_allclose(found[3], 0.5 + 1 / 3, rtol=0.01)


def test_scaled_moves_forget_an_outer_shell_sooner() -> None:
    """Two shells of size 1/9 and 2: with one width for all, the inner one sets the pace."""
    nucleus = Nuclei(jnp.zeros((1, 3)), jnp.asarray([9.0]))
    exponents = jnp.asarray([9.0, 0.5])

    def log_psi(params: None, r: jax.Array) -> jax.Array:
        return -jnp.sum(exponents * jnp.linalg.norm(r, axis=-1))

    def memory(moves: Moves) -> float:
        """The correlation of outer radii ten moves apart, with a tuned width."""

        def step(state: ChainState, key: jax.Array) -> tuple[ChainState, jax.Array]:
            state, _, acceptance = sample(log_psi, None, key, state, moves, nucleus)
            return tune_width(state, acceptance, 0.5), jnp.linalg.norm(state.r[:, 1], axis=-1)

        r = jax.random.normal(jax.random.key(0), (1000, 2, 3)) / exponents[:, None]
        keys = jax.random.split(jax.random.key(3), 200)
        _, radii = jax.lax.scan(step, ChainState(r, jnp.asarray(0.1)), keys)
        return float(np.corrcoef(radii[-2], radii[-1])[0, 1])

    assert memory(Moves(10)) > 0.9  # 0.99, to 0.01
    assert memory(Moves(10, are_scaled=True)) < 0.8  # 0.66, to 0.02


@pytest.mark.parametrize("apart", [20.0, *rest(3.0)])
def test_jumps_share_walkers_out_as_the_wave_function_does(apart: float) -> None:
    """All start at one nucleus; |ψ|² has weights of 1 : 2 : 4 at three, of different charges.

    4000 walkers know a share to 0.8 % at most. Without jumps hardly any leaves at 20 bohr; at 3,
    where clouds overlap, jumps must not change what displacements find.
    """
    places = apart * jnp.asarray([[0.0, 0, 0], [0, 0, 1], [0, 0, 2]])
    nuclei, charges = Nuclei(places, jnp.asarray([1.0, 1.0, 2.0])), jnp.asarray([1.0, 1.0, 1.5])
    weights = jnp.asarray([1.0, 2.0, 4.0])

    def log_psi(params: None, r: jax.Array) -> jax.Array:
        distance = jnp.linalg.norm(r[0] - places, axis=-1)
        return 0.5 * jnp.log(jnp.sum(weights * charges**3 * jnp.exp(-2 * charges * distance)))

    begin = ChainState(jax.random.normal(jax.random.key(0), (4000, 1, 3)), jnp.asarray(0.5))

    def shares(moves: Moves) -> np.ndarray:
        def step(state: ChainState, key: jax.Array) -> tuple[ChainState, None]:
            return sample(log_psi, None, key, state, moves, nuclei).chain, None

        keys = jax.random.split(jax.random.key(1), 60)
        r = np.asarray(jax.lax.scan(step, begin, keys)[0].r)
        near = np.linalg.norm(r - np.asarray(places), axis=-1).argmin(axis=1)
        return np.bincount(near, minlength=3) / len(near)

    wanted = np.array([1, 2, 4]) / 7 if apart > 10 else shares(Moves(60, are_scaled=True))
    found = shares(Moves(5, are_scaled=True, with_jump=True))
    np.testing.assert_allclose(found, wanted, atol=4 * 0.008 * (1 if apart > 10 else 2**0.5))
    if apart > 10:
        assert shares(Moves(5, are_scaled=True))[0] > 0.99


def test_sampling_leaves_the_width_alone() -> None:
    """A width that moves during evaluation would bias it."""
    state, *_ = sample(LOG_PSI, None, jax.random.key(1), chain(100), Moves(5), PROTON)
    assert state.width == 1.0


def test_proposals_that_are_not_numbers_are_refused() -> None:
    """Where log|ψ| is NaN nothing moves, instead of everything."""

    def broken(params: None, r: jax.Array) -> jax.Array:
        return jnp.where(r[0, 0] > 0, jnp.nan, 0.0)

    before = chain(200)
    before = before._replace(r=-jnp.abs(before.r))
    state, *_ = sample(broken, None, jax.random.key(1), before, Moves(20), PROTON)
    assert (np.asarray(state.r)[:, 0, 0] <= 0).all()
    assert not np.array_equal(state.r, before.r)


@pytest.mark.parametrize("weight", [jnp.nan, -jnp.inf, jnp.inf])
def test_a_walker_whose_weight_is_undefined_takes_the_first_move_that_is_defined(weight) -> None:
    """A walker with log|ψ| = NaN refuses every move, and is lost for the whole run."""

    def broken(params: None, r: jax.Array) -> jax.Array:
        return jnp.where(jnp.linalg.norm(r) > 3.0, weight, LOG_PSI(params, r))

    before = chain(200)
    before = before._replace(r=before.r.at[:50].set(3.5 / jnp.sqrt(3.0)))
    state, *_ = sample(broken, None, jax.random.key(1), before, Moves(200), PROTON)
    assert (np.linalg.norm(state.r, axis=-1) <= 3.0).all()


def test_tuning_finds_the_target_acceptance() -> None:
    """From a width far too small, 50 times ten moves reach 52.5 % within 3 %."""

    def tuned(state: ChainState, key: jax.Array) -> tuple[ChainState, jax.Array]:
        state, _, acceptance = sample(LOG_PSI, None, key, state, Moves(10), PROTON)
        return tune_width(state, acceptance, 0.525), acceptance

    keys = jax.random.split(jax.random.key(2), 50)
    _, acceptance = jax.lax.scan(tuned, chain(1000, width=0.05), keys)
    np.testing.assert_allclose(acceptance[-1], 0.525, atol=0.03)
