"""The parts of a step: which there are, that they compute what they are named after, and turns."""

import time
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.run.harness import HELIUM
from vmcjob.run.calculation import build
from vmcjob.run.parts import (
    GRAM_MATRIX,
    LOCAL_ENERGIES,
    MIN_TURNS,
    PASS,
    SAMPLING,
    SCORES,
    SOLUTION,
    StepTimes,
    fastest,
    parts,
)
from vmcjob.spec import Adam, JobSpec, Optimizer, Spring, Sr, parse_spec
from vmcjob.vmc import devices
from vmcjob.vmc.phases import Calculation
from vmcjob.vmc.scores import score_matrix
from vmcjob.vmc.wavefunction import log_modulus

ALWAYS = [PASS, SAMPLING, LOCAL_ENERGIES]


@cache
def spec() -> JobSpec:
    return parse_spec(HELIUM, "test.toml").points[0].spec


def calculation(optimizer: Optimizer) -> Calculation:
    return build(replace(spec(), optimizer=optimizer))


@pytest.mark.parametrize(
    ("optimizer", "names"),
    [
        (Sr(scores="lazy"), [*ALWAYS, SCORES]),
        (Sr(scores="dense"), [*ALWAYS, SCORES]),
        (Adam(), ALWAYS),
    ],
    ids=["lazy", "dense", "adam"],
)
def test_parts_are_those_that_the_optimizer_cannot_do_without(
    optimizer: Optimizer, names: list[str]
) -> None:
    """Each can be called twice in turn: none takes from the walkers, or from the others."""
    found = calculation(optimizer)
    calls = parts(found.vmc, found.initial_state())
    assert list(calls) == names
    for _ in range(2):
        for call in calls.values():
            assert all(np.isfinite(leaf).all() for leaf in numbers(call()))


def numbers(tree: object) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def test_the_gram_matrix_is_that_of_the_centred_scores() -> None:
    """Above its diagonal; and the solution solves what was factorised."""
    found = calculation(Spring())
    state = found.initial_state()
    calls = parts(found.vmc, state)
    assert list(calls) == [*ALWAYS, SCORES, GRAM_MATRIX, SOLUTION]
    calls[SCORES]()
    (gram,) = (np.asarray(leaf)[0] for leaf in numbers(calls[GRAM_MATRIX]()))
    (solution,) = (np.asarray(leaf)[0] for leaf in numbers(calls[SOLUTION]()))
    log_psi = log_modulus(found.vmc.psi, found.vmc.nuclei)
    params, r = devices.unreplicate(state.params), jnp.asarray(devices.gather(state.chain.r))
    scores = np.asarray(score_matrix(log_psi, params, r), np.float64)
    scores = (scores - scores.mean(0)) / len(scores) ** 0.5
    expected = scores @ scores.T
    size = np.abs(expected).max()
    np.testing.assert_allclose(np.triu(gram), np.triu(expected), rtol=1e-4, atol=1e-5 * size)
    damped = expected + np.trace(expected) / len(expected) * np.eye(len(expected))
    np.testing.assert_allclose(damped @ solution, expected[0], atol=1e-4 * size)


def test_a_step_is_its_parts_and_its_rest() -> None:
    """The rest is what is left, even where that is below zero."""
    times = StepTimes(step=3.0, one_pass=0.5, parts={SAMPLING: 1.5, LOCAL_ENERGIES: 2.0})
    assert (times.floor, times.rest) == (3.5, -0.5)


def test_the_fastest_turn_counts_and_the_first_one_does_not() -> None:
    """It compiles, and here it would be the fastest."""
    waits_s = iter([0.0, 0.05, 0.02, 0.05])
    order = []

    def one() -> None:
        order.append("one")
        time.sleep(next(waits_s))

    seconds = fastest({"one": one, "other": lambda: order.append("other")}, 3)
    assert 0.02 <= seconds["one"] < 0.05
    assert order == ["one", "other"] * 4


def test_a_limit_ends_the_turns_but_for_a_few() -> None:
    calls = []
    fastest({"one": lambda: calls.append(None)}, 100, limit_s=0.0)
    assert len(calls) == 1 + MIN_TURNS
