"""The natural gradients' linear system in float32 against NumPy's float64."""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from vmcjob.vmc import devices
from vmcjob.vmc.centred_scores import CentredScores
from vmcjob.vmc.gram import MIN_WALKERS, PART, SolvedGram, solve_gram

N_WALKERS = 96


def make_scores(n_parameters: int, decades: float, n_walkers: int = N_WALKERS) -> np.ndarray:
    """Centred scores of which the squared singular values fall from 100 by so many decades."""
    return _scores(n_parameters, decades, n_walkers).copy()


@cache  # its factorisations of large matrices take seconds
def _scores(n_parameters: int, decades: float, n_walkers: int) -> np.ndarray:
    random = np.random.default_rng(int(n_parameters + 10 * decades))
    rank = min(n_walkers, n_parameters)
    left, _ = np.linalg.qr(random.normal(size=(n_walkers, rank)))
    right, _ = np.linalg.qr(random.normal(size=(n_parameters, rank)))
    scores = (left * 10.0 * np.logspace(0.0, -0.5 * decades, rank)) @ right.T
    return (scores - scores.mean(0)).astype(np.float32)


class Solution(NamedTuple):
    """What all devices agree about."""

    direction: np.ndarray
    condition: float
    shift: float
    iterations: float
    has_arrived: float


@jax.jit
def _solve_on_all(scores: Array, rhs: Array, damping: Array) -> SolvedGram:
    """On as many devices as there are slices; vmap stands for them."""

    def solve(rows: Array, rhs: Array) -> SolvedGram:
        columns = devices.rows_to_columns(rows)
        dense = CentredScores(columns, kernels=(), factors=(), shapes=((rows.shape[1],),))
        solved = solve_gram(dense, devices.concatenate(rhs), damping)
        return solved._replace(direction=dense.join(solved.direction))

    return jax.vmap(solve, axis_name=devices.AXIS)(scores, rhs)


def solve(scores: np.ndarray, rhs: np.ndarray, damping: float, n_devices: int = 1) -> Solution:
    """With the walkers dealt to so many devices."""
    dealt = [jnp.asarray(x.reshape(n_devices, -1, *x.shape[1:])) for x in (scores, rhs)]
    solved = _solve_on_all(*dealt, jnp.asarray(damping, dealt[0].dtype))
    for leaf in solved:
        np.testing.assert_array_equal(leaf, np.broadcast_to(leaf[:1], leaf.shape))
    return Solution(np.asarray(solved.direction[0]), *(float(leaf[0]) for leaf in solved[1:]))


def exact_direction(scores: np.ndarray, rhs: np.ndarray, damping: float) -> np.ndarray:
    wide = scores.astype(np.float64)
    return wide.T @ np.linalg.solve(wide @ wide.T + damping * np.eye(len(wide)), rhs)


def some_rhs(n_walkers: int = N_WALKERS) -> np.ndarray:
    """Centred, as local energies are."""
    rhs = np.random.default_rng(0).normal(size=n_walkers)
    return (rhs - rhs.mean()).astype(np.float32)


@pytest.mark.parametrize("damping", [1e-1, 1e-3, 1e-5])
@pytest.mark.parametrize(("n_parameters", "n_devices"), [(50, 1), (97, 2), (2000, 1), (2000, 4)])
def test_the_direction_is_that_of_float64(n_parameters, n_devices, damping) -> None:
    """To 1e-4 for conditions up to 1e7, with more walkers than parameters and with fewer."""
    scores, rhs = make_scores(n_parameters, decades=6.0), some_rhs()
    found = solve(scores, rhs, damping, n_devices)
    exact = exact_direction(scores, rhs, damping)
    assert np.linalg.norm(found.direction - exact) <= 1e-4 * np.linalg.norm(exact)
    assert found.iterations <= 10


@pytest.mark.parametrize("damping", [1e-1, 1e-2])
@pytest.mark.parametrize("n_devices", [1, 2, 4])
def test_a_part_of_the_matrix_leads_to_the_same_direction(n_devices, damping) -> None:
    """Where walkers are many, and most eigenvalues below the damping."""
    scores, rhs = make_scores(1500, 50.0, MIN_WALKERS), some_rhs(MIN_WALKERS)
    found = solve(scores, rhs, damping, n_devices)
    exact = exact_direction(scores, rhs, damping)
    assert np.linalg.norm(found.direction - exact) <= 1e-4 * np.linalg.norm(exact)
    assert found.shift == 0.0
    assert found.iterations <= 10
    # The factor of all of it would know of a tenth of that.
    wide = scores.astype(float)
    condition = 1.0 + np.linalg.eigvalsh(wide @ wide.T)[-1] / damping
    assert 0.3 * condition <= found.condition <= condition


@pytest.mark.parametrize("damping", [1e-1, 1e-5])
def test_where_a_part_says_too_little_all_of_it_is_factorised(damping) -> None:
    scores, rhs = make_scores(2000, 6.0, MIN_WALKERS), some_rhs(MIN_WALKERS)
    found = solve(scores, rhs, damping)
    exact = exact_direction(scores, rhs, damping)
    assert np.linalg.norm(found.direction - exact) <= 1e-4 * np.linalg.norm(exact)
    assert found.iterations <= 10


@pytest.mark.parametrize("damping", [1e-1, 1e-3])
@pytest.mark.parametrize("n_devices", [1, 2])
def test_walkers_unlike_the_first_ones_are_not_left_out(n_devices, damping) -> None:
    """The first eighth says that it is enough, for it has nearly no scores."""
    scores, rhs = make_scores(1500, 6.0, MIN_WALKERS), some_rhs(MIN_WALKERS)
    few = np.random.default_rng(3).normal(0.0, 1e-3, (MIN_WALKERS // PART, 1))
    scores[: MIN_WALKERS // PART] = few
    scores -= scores.mean(0)
    found = solve(scores, rhs, damping, n_devices)
    exact = exact_direction(scores, rhs, damping)
    assert np.linalg.norm(found.direction - exact) <= 1e-4 * np.linalg.norm(exact)
    assert found.has_arrived


@pytest.mark.parametrize("n_walkers", [1, 2, 3, 255, 300, 515, 1024])
def test_a_gram_matrix_is_whole_whatever_its_rows_are_cut_into(n_walkers: int) -> None:
    """On and above its diagonal; small whole numbers have products that are exact."""
    columns = np.random.default_rng(n_walkers).integers(-3, 4, (n_walkers, 5)).astype(np.float32)

    def gram(columns: Array) -> Array:
        return CentredScores(columns, kernels=(), factors=(), shapes=((5,),)).gram()

    (found,) = jax.jit(jax.vmap(gram, axis_name=devices.AXIS))(jnp.asarray(columns[None]))
    np.testing.assert_array_equal(np.triu(found), np.triu(columns @ columns.T))


def test_a_factor_alone_would_not_do() -> None:
    """What the iterations are for: the same without them is off by more than is allowed."""
    scores, rhs = make_scores(2000, decades=6.0), some_rhs()
    matrix = scores @ scores.T + np.float32(1e-5) * np.eye(N_WALKERS, dtype=np.float32)
    alone = scores.T @ np.linalg.solve(matrix, rhs)
    exact = exact_direction(scores, rhs, 1e-5)
    assert np.linalg.norm(alone - exact) > 1e-3 * np.linalg.norm(exact)
    assert solve(scores, rhs, 1e-5).iterations >= 1


def test_float64_needs_no_iterations(float64) -> None:
    scores, rhs = make_scores(97, decades=6.0).astype(np.float64), some_rhs().astype(np.float64)
    found = solve(scores, rhs, 1e-5)
    exact = exact_direction(scores, rhs, 1e-5)
    np.testing.assert_allclose(
        found.direction, exact, rtol=0, atol=1e-8 * float(np.linalg.norm(exact))
    )
    assert found.iterations == 0.0
    assert found.shift == 0.0


def test_a_matrix_without_a_factor_is_shifted_and_solved_all_the_same() -> None:
    """With next to no damping, rounding leaves O Oᵀ with eigenvalues below zero."""
    scores, rhs = make_scores(50, decades=2.0), some_rhs()
    found = solve(scores, rhs, 1e-9)
    assert found.shift > 0.0
    exact, *_ = np.linalg.lstsq(scores.astype(np.float64), rhs)
    assert np.linalg.norm(scores @ (found.direction - exact)) <= 0.1 * np.linalg.norm(rhs)


@pytest.mark.parametrize(("n_walkers", "decades"), [(N_WALKERS, 3.0), (MIN_WALKERS, 60.0)])
def test_the_condition_is_a_lower_bound(n_walkers, decades) -> None:
    scores = make_scores(2000, decades, n_walkers)
    found = solve(scores, some_rhs(n_walkers), 1e-2)
    eigenvalues = np.linalg.eigvalsh(
        scores.astype(np.float64) @ scores.T + 1e-2 * np.eye(n_walkers)
    )
    assert 10.0 < found.condition <= 1.01 * eigenvalues[-1] / eigenvalues[0]


def test_nothing_to_solve_is_solved_by_nothing() -> None:
    found = solve(make_scores(50, 2.0), np.zeros(N_WALKERS, np.float32), 1e-3)
    assert not found.direction.any()
    assert found.iterations == 0.0


@pytest.mark.parametrize("n_walkers", [N_WALKERS, MIN_WALKERS])
@pytest.mark.parametrize("where", ["scores", "rhs"])
def test_what_is_not_a_number_ends(where: str, n_walkers: int) -> None:
    """And remains visible, so that the step is refused."""
    scores, rhs = make_scores(50, 2.0, n_walkers), some_rhs(n_walkers)
    (scores if where == "scores" else rhs)[3] = np.nan
    assert not np.isfinite(solve(scores, rhs, 1e-3).direction).all()
