"""Forces from series: error bars, contradictions, and the force of a bond."""

from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from tests.matrix import rest
from tests.two_centres import DISTANCE, ZETA, exact_force, protons, sample_of, two_centres
from vmcjob.observables import Forces
from vmcjob.observables.forces import COLUMNS, CONTROLS, bond_force, doubts
from vmcjob.vmc import forces
from vmcjob.vmc.contracts import ChainState
from vmcjob.vmc.sampler import Moves, sample

pytestmark = pytest.mark.usefixtures("float64")
RUN_WALKERS, RUN_STEPS, WAIT = 16, 300, 100


@cache
def short_runs(n_runs: int) -> list[dict[str, np.ndarray]]:
    """Series of many runs of one electron with a node, all in one batch of walkers."""
    psi, nuclei = two_centres(-1.0), protons(DISTANCE)

    def log_psi(params: float, r: Array) -> Array:
        return psi(params, r, nuclei).log_abs

    def step(chain: ChainState, key: Array) -> tuple[ChainState, forces.Measured]:
        chain = sample(log_psi, ZETA, key, chain, Moves(4), nuclei).chain
        found = jax.vmap(lambda r: forces.measure(sample_of(psi, nuclei, r)))(chain.r)
        runs = (x.reshape(n_runs, RUN_WALKERS, *x.shape[1:]).mean(axis=1) for x in found)
        return chain, forces.Measured(*runs)

    keys = jax.random.split(jax.random.key(1), WAIT + RUN_STEPS)
    r = 1.5 * jax.random.normal(jax.random.key(2), (n_runs * RUN_WALKERS, 1, 3))
    start = ChainState(r, jnp.asarray(1.0))
    found = jax.jit(lambda: jax.lax.scan(step, start, keys)[1])()
    named = zip(COLUMNS, (np.asarray(one)[WAIT:] for one in found), strict=True)
    series = dict(named)
    return [{name: x[:, k] for name, x in series.items()} for k in range(n_runs)]


@pytest.mark.full_matrix  # of all ratios of means: vmc/test_observables.py
@pytest.mark.slow
def test_error_bars_of_forces_cover_as_they_should() -> None:
    """Two thirds of 200 short runs hold the force, 60 to 75 %, at a node and with its zones.

    The product of means makes an error of its own, and tails at the node would make error bars too
    small: without zones, single walkers carry the mean.
    """
    exact = exact_force(-1.0)
    found = [one for series in short_runs(200) if (one := bond_force(series))]
    hits = np.mean([abs(one.mean - exact) < one.error for one in found])
    assert 0.60 <= hits <= 0.75
    means = np.array([one.mean for one in found])
    assert abs(means.mean() - exact) < 4.0 * means.std() / len(means) ** 0.5
    assert np.median([one.error for one in found]) == pytest.approx(means.std(), rel=0.25)


def noise_of_a_dimer() -> dict[str, np.ndarray]:
    """White noise in all columns of a dimer along z, opposite on its two nuclei."""
    series, random = plain_series(np.zeros((2, 3, 2))), np.random.default_rng(3)
    for name, column in series.items():
        noise = 0.05 * random.normal(size=column.shape)
        if noise.ndim > 1:
            noise[:, 1] = -noise[:, 0]
        series[name] = noise
    nuclei = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 2.0]])
    series["force_nuclei"] = np.broadcast_to(nuclei, series["force_nuclei"].shape)
    return series


@pytest.mark.slow
@pytest.mark.parametrize(
    "make_series", [noise_of_a_dimer, *rest(lambda: short_runs(4)[0])], ids=["noise", "electron"]
)
def test_quantities_of_a_dimer_fit_together(
    make_series: Callable[[], dict[str, np.ndarray]],
) -> None:
    """The bond's force is the force on its second nucleus; sums and differences add up.

    Without control variates, which each quantity has its own coefficients of.
    """
    series = dict(make_series())
    series[CONTROLS] = np.zeros_like(series[CONTROLS])
    found = Forces(2).estimate(series)
    assert found["forces"].shape == (2, 3)
    force = found["forces"].means()
    assert found["bond_force"].means() == pytest.approx(force[1, 2], abs=1e-6)
    difference = force - found["forces_gradient"].means()
    np.testing.assert_allclose(found["forces_difference"].means(), difference, atol=1e-9)
    total = found["forces_gradient"].means().sum(axis=0)
    np.testing.assert_allclose(found["forces_sum"].means(), total, atol=1e-9)
    assert abs(found["forces_zones"].means()[1, 2]) < 0.01


def plain_series(local: np.ndarray, n: int = 400) -> dict[str, np.ndarray]:
    """A series of a dimer along x without Pulay's part, of white noise of 0.1 hartree/bohr."""
    noise = 0.1 * np.random.default_rng(0).normal(size=(n, 2, 3, 2))
    zeros, nuclei = np.zeros((n, 2, 3, 3)), np.array([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    zero = np.zeros((n, 2, 3, 7))
    values = (local + noise, zeros, zeros, np.zeros(n), np.broadcast_to(nuclei, (n, 2, 3)), zero)
    return dict(zip(COLUMNS, values, strict=True))


def test_a_field_may_act_on_each_nucleus_in_its_own_way() -> None:
    """A bond whose first nucleus varies with a field, and whose second one varies against it."""
    series = plain_series(np.zeros((2, 3, 2)))
    fields = np.random.default_rng(1).normal(size=(400, 2, 3, 7))
    series[CONTROLS] = fields
    series["force_local"] = series["force_local"].copy()
    series["force_local"][:, :, 0, 0] += np.array([3.0, -3.0]) * fields[:, :, 0, 2]
    found = bond_force(series)
    assert found is not None
    assert found.error == pytest.approx(0.1 / 2**0.5 / 400**0.5, rel=0.3)


def test_forces_that_contradict_each_other_are_told() -> None:
    """Two forms that differ, and a sum that is not zero: a sentence each, with the error."""
    assert list(doubts(plain_series(np.zeros((2, 3, 2))))) == []
    off = np.zeros((2, 3, 2))
    off[1, 0, 1] = 0.05
    found = list(doubts(plain_series(off)))
    assert len(found) == 2
    assert found[0].startswith("its forces by the warp and by the gradient alone differ by")
    assert found[1].startswith("its forces do not add up to zero but to")
    assert list(doubts({})) == []


@pytest.mark.parametrize(("n_errors", "is_told"), [(3.3, False), (4.5, True)])
def test_the_largest_of_many_forces_may_be_larger_by_chance(n_errors: float, is_told: bool) -> None:
    """Three errors of any of 60 numbers would be exceeded in one right run of six."""
    zeros = plain_series(np.zeros((2, 3, 2)))
    wide = {
        name: np.repeat(column, 10, axis=1) for name, column in zeros.items() if column.ndim > 1
    }
    half = 0.1 * np.random.default_rng(1).normal(size=(200, 20, 3, 1))
    first = np.random.default_rng(2).permutation(np.concatenate([half, -half]))  # of mean zero
    first[:, 7, 1] += n_errors * 0.1 / 400**0.5
    local = np.concatenate([first, np.zeros_like(first)], axis=-1)
    given = wide | {"force_energy": zeros["force_energy"], "force_local": local}
    assert any("differ by" in words for words in doubts(given)) == is_told


def test_the_force_of_a_bond_points_along_it() -> None:
    """−dE/dR is positive where nuclei are driven apart, also along x."""
    apart = np.zeros((2, 3, 2))
    apart[:, 0] = [[-0.2, -0.2], [0.2, 0.2]]
    found = bond_force(plain_series(apart))
    assert found is not None
    assert found.mean == pytest.approx(0.2, abs=5.0 * found.error)
    assert found.error == pytest.approx(0.1 / 2**0.5 / 400**0.5, rel=0.2)
