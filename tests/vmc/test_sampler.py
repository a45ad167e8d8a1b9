"""Metropolis sampling, against moments of the hydrogen atom."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.oracles import hydrogenic_1s
from vmcjob.vmc.contracts import ChainState, Nuclei
from vmcjob.vmc.sampler import Scale, distance_scale, sample, tune_width

LOG_PSI = hydrogenic_1s(1.0)


def chain(n_walkers: int = 4000, width: float = 1.0) -> ChainState:
    """Walkers around the origin."""
    r = jax.random.normal(jax.random.key(0), (n_walkers, 1, 3))
    return ChainState(r, jnp.asarray(width))


PROTON = Nuclei(jnp.zeros((1, 3)), jnp.ones(1))
TWO = Nuclei(jnp.asarray([[0.0, 0.0, 0.0], [0.0, 0.0, 3.0]]), jnp.asarray([3.0, 1.0]))


@pytest.mark.parametrize("scale", [None, distance_scale(PROTON), distance_scale(TWO)])
def test_the_hydrogen_atom_has_its_known_radii(scale: Scale | None) -> None:
    """⟨r⟩ = 3/2 and ⟨r²⟩ = 3 bohr² in 1s; 4000 walkers know them to 1.4 % and 2.3 %.

    Catches a wrong power of ψ in the acceptance: |ψ| instead of |ψ|² gives ⟨r⟩ = 3; and moves
    whose way back is not as likely as they are, if nothing makes up for that.
    """
    begin = chain(width=1.0 if scale is None else 0.4)
    state, log_abs, acceptance = sample(LOG_PSI, None, jax.random.key(1), begin, 60, scale)
    radius = np.linalg.norm(np.asarray(state.r)[:, 0], axis=-1)
    np.testing.assert_allclose(radius.mean(), 1.5, atol=4 * np.sqrt(0.75 / 4000))
    np.testing.assert_allclose((radius**2).mean(), 3.0, atol=4 * np.sqrt(13.5 / 4000))
    assert 0.4 < acceptance < 0.8
    np.testing.assert_allclose(log_abs, -radius, rtol=1e-6)


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

    def memory(scale: Scale | None) -> float:
        """The correlation of outer radii ten moves apart, with a tuned width."""

        def step(state: ChainState, key: jax.Array) -> tuple[ChainState, jax.Array]:
            state, _, acceptance = sample(log_psi, None, key, state, 10, scale)
            return tune_width(state, acceptance, 0.5), jnp.linalg.norm(state.r[:, 1], axis=-1)

        r = jax.random.normal(jax.random.key(0), (1000, 2, 3)) / exponents[:, None]
        keys = jax.random.split(jax.random.key(3), 200)
        _, radii = jax.lax.scan(step, ChainState(r, jnp.asarray(0.1)), keys)
        return float(np.corrcoef(radii[-2], radii[-1])[0, 1])

    assert memory(None) > 0.9  # 0.99, to 0.01
    assert memory(distance_scale(nucleus)) < 0.8  # 0.66, to 0.02


def test_sampling_leaves_the_width_alone() -> None:
    """A width that moves during evaluation would bias it."""
    state, *_ = sample(LOG_PSI, None, jax.random.key(1), chain(100), 5)
    assert state.width == 1.0


def test_proposals_that_are_not_numbers_are_refused() -> None:
    """Where log|ψ| is NaN nothing moves, instead of everything."""

    def broken(params: None, r: jax.Array) -> jax.Array:
        return jnp.where(r[0, 0] > 0, jnp.nan, 0.0)

    before = chain(200)
    before = before._replace(r=-jnp.abs(before.r))
    state, *_ = sample(broken, None, jax.random.key(1), before, 20)
    assert (np.asarray(state.r)[:, 0, 0] <= 0).all()
    assert not np.array_equal(state.r, before.r)


@pytest.mark.parametrize("weight", [jnp.nan, -jnp.inf, jnp.inf])
def test_a_walker_whose_weight_is_undefined_takes_the_first_move_that_is_defined(weight) -> None:
    """A walker with log|ψ| = NaN refuses every move, and is lost for the whole run."""

    def broken(params: None, r: jax.Array) -> jax.Array:
        return jnp.where(jnp.linalg.norm(r) > 3.0, weight, LOG_PSI(params, r))

    before = chain(200)
    before = before._replace(r=before.r.at[:50].set(3.5 / jnp.sqrt(3.0)))
    state, *_ = sample(broken, None, jax.random.key(1), before, 200)
    assert (np.linalg.norm(state.r, axis=-1) <= 3.0).all()


def test_tuning_finds_the_target_acceptance() -> None:
    """From a width far too small, 50 times ten moves reach 52.5 % within 3 %."""

    def tuned(state: ChainState, key: jax.Array) -> tuple[ChainState, jax.Array]:
        state, _, acceptance = sample(LOG_PSI, None, key, state, 10)
        return tune_width(state, acceptance, 0.525), acceptance

    keys = jax.random.split(jax.random.key(2), 50)
    _, acceptance = jax.lax.scan(tuned, chain(1000, width=0.05), keys)
    np.testing.assert_allclose(acceptance[-1], 0.525, atol=0.03)
