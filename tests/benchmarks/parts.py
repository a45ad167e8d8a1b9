"""The parts of a training step, each timed alone, by turns with the step itself.

Sampling and local energies are parts of every step. SPRING and MinSR cannot do without scores, the
Gram matrix of these, and one factorisation of it with one solution; SR not without scores. What a
step has beside its parts is its rest: clipping, products with scores, iterations, the update.
It is below zero where a step makes do with a part of the Gram matrix (`gram`).
"""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from vmcjob.vmc import devices
from vmcjob.vmc.centred_scores import CentredScores, Gram, centred_scores
from vmcjob.vmc.contracts import ChainState, LogPsi, LoopState, Nuclei, Params
from vmcjob.vmc.energy import make_local_energies
from vmcjob.vmc.layers import Factors
from vmcjob.vmc.loop import Vmc
from vmcjob.vmc.sampler import Sampled, sample
from vmcjob.vmc.scores import lazy_scores, score_matrix
from vmcjob.vmc.spring import Spring
from vmcjob.vmc.sr import StochasticReconfiguration
from vmcjob.vmc.wavefunction import log_modulus

PASS, STEP = "pass of log|psi|", "step"
SAMPLING, LOCAL_ENERGIES = "sampling", "local energies"
SCORES, GRAM_MATRIX, SOLUTION = "scores", "Gram matrix", "solution"
MIN_TURNS = 3

Call = Callable[[], object]
"""Does the same again and again; its results are there when their arrays are."""


class StepTimes(NamedTuple):
    """Seconds on all devices."""

    step: float
    one_pass: float  # of log|ψ| over all walkers
    parts: dict[str, float]  # by name, in the order of the step

    @property
    def floor(self) -> float:
        """What the step cannot do without: the sum of its parts."""
        return sum(self.parts.values())

    @property
    def rest(self) -> float:
        """What it takes beyond; below zero where the parts are done sooner together than alone."""
        return self.step - self.floor


class Stepping:
    """A training that goes on whenever it is called."""

    def __init__(self, vmc: Vmc, state: LoopState, n_steps: int = 0) -> None:
        """From a state after `n_steps` steps, on all devices; it is consumed."""
        self._step, self._state, self._n_steps = vmc.train_step(), state, n_steps

    def __call__(self) -> object:
        """One step; what it reports, on its way."""
        self._state, info = self._step(self._state, jnp.asarray(self._n_steps))
        self._n_steps += 1
        return info


def time_step(
    vmc: Vmc, state: LoopState, n_steps: int, n_turns: int, limit_s: float = math.inf
) -> StepTimes:
    """How long the training step takes that follows `n_steps` of them, and what it consists of.

    Args:
        vmc: whose step.
        state: to begin with, on all devices; it is consumed.
        n_steps: of training, before.
        n_turns: of which the fastest counts.
        limit_s: when to be content with fewer turns.
    """
    calls = parts(vmc, state) | {STEP: Stepping(vmc, state, n_steps)}
    seconds = fastest(calls, n_turns, limit_s)
    return StepTimes(seconds.pop(STEP), seconds.pop(PASS), seconds)


def parts(vmc: Vmc, state: LoopState) -> dict[str, Call]:
    """What a step consists of, by name in its order, after one pass of log|ψ| over all walkers.

    Always of the same walkers, copies of those of the state.
    """
    given = _Given(*jax.tree.map(jnp.copy, (state.params, state.chain)))
    shared = _Shared(vmc.nuclei, jnp.uint32(vmc.seed))
    of_one = _Programs(vmc)
    programs: dict[str, Callable[[_Given, _Shared], object]] = {
        PASS: of_one.one_pass,
        SAMPLING: of_one.sampling,
        LOCAL_ENERGIES: of_one.local_energies,
    }
    match vmc.optimizer:
        case StochasticReconfiguration(is_lazy=is_lazy):
            programs[SCORES] = of_one.lazy_product if is_lazy else of_one.score_matrix
    found = {name: _prepared(program, given, shared) for name, program in programs.items()}
    if isinstance(vmc.optimizer, Spring):
        found |= _spring_parts(_prepared(of_one.centred_scores, given, shared))
    return found


def fastest(
    calls: Mapping[str, Callable[[], object]],
    n_turns: int,
    limit_s: float = math.inf,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Seconds of the fastest of so many turns of each, after one to compile.

    All take turns, so that whatever else the machine does slows all of them alike; what it does
    between two turns counts for none. After `limit_s` there are no more, MIN_TURNS apart.
    """
    seconds = dict.fromkeys(calls, math.inf)
    begun = time.perf_counter()
    for turn in range(n_turns + 1):
        if turn == 1:
            begun = time.perf_counter()
        if turn > MIN_TURNS and time.perf_counter() - begun > limit_s:
            break
        for name, call in calls.items():
            began = clock()
            jax.block_until_ready(call())
            if turn:
                seconds[name] = min(seconds[name], clock() - began)
    return seconds


class _Given(NamedTuple):
    """What a part is done with, on each device."""

    params: Params
    chain: ChainState


class _Shared(NamedTuple):
    """What is the same on all devices; as in the step, no constant of a program."""

    nuclei: Nuclei
    seed: Array

    @property
    def key(self) -> Array:
        """For random numbers, which need not be those of any step."""
        return jax.random.key(self.seed)


class _Programs:
    """What the parts compute, on one device of all; inside pmap."""

    def __init__(self, vmc: Vmc) -> None:
        self._vmc = vmc

    def one_pass(self, given: _Given, shared: _Shared) -> Float[Array, " walker"]:
        log_psi = self._log_psi(shared)
        return jax.vmap(log_psi, (None, 0))(given.params, given.chain.r)

    def sampling(self, given: _Given, shared: _Shared) -> Sampled:
        about = self._vmc.moves, shared.nuclei
        return sample(self._log_psi(shared), given.params, shared.key, given.chain, *about)

    def local_energies(self, given: _Given, shared: _Shared) -> Float[Array, " walker"]:
        vmc = self._vmc
        about = vmc.hamiltonian, vmc.psi, shared.nuclei, shared.key, vmc.chunk_divisor
        return make_local_energies(*about)(given.params, given.chain.r)

    def score_matrix(self, given: _Given, shared: _Shared) -> Array:
        return score_matrix(self._log_psi(shared), given.params, given.chain.r)

    def lazy_product(self, given: _Given, shared: _Shared) -> Array:
        """The linearization, and the one product that the gradient is."""
        scores = lazy_scores(self._log_psi(shared), given.params, given.chain.r)
        return scores.apply_transpose(jnp.ones(len(given.chain.r), given.chain.r.dtype))

    def centred_scores(
        self, given: _Given, shared: _Shared
    ) -> tuple[Float[Array, "every column"], tuple[Factors, ...]]:
        r = given.chain.r
        scale = 1.0 / jnp.sqrt(devices.total(len(r))).astype(r.dtype)
        about = self._log_psi(shared), given.params, r, scale, self._vmc.chunk_divisor
        scores = centred_scores(*about)
        return scores.columns, scores.factors

    def _log_psi(self, shared: _Shared) -> LogPsi:
        return log_modulus(self._vmc.psi, shared.nuclei)


def _prepared(program: Callable[..., object], given: object, shared: object) -> Call:
    mapped = devices.pmap(program)
    return lambda: mapped(given, shared)


def _spring_parts(scores: Call) -> dict[str, Call]:
    """Scores and what is done with them, in this order: each has what the one before has left.

    None of that outlives the turn, so that beside a step's own scores there are no others.
    """
    held: dict[str, Any] = {}  # arrays, and trees of them
    multiply, solve = devices.pmap(_gram_matrix), devices.pmap(_solution)

    def first() -> object:
        held[SCORES] = scores()
        return held[SCORES]

    def second() -> object:
        held[GRAM_MATRIX] = multiply(held.pop(SCORES), None)
        return held[GRAM_MATRIX]

    def third() -> object:
        return solve(held.pop(GRAM_MATRIX), None)

    return {SCORES: first, GRAM_MATRIX: second, SOLUTION: third}


def _gram_matrix(scores: tuple[Float[Array, "every column"], tuple[Factors, ...]], _: None) -> Gram:
    columns, factors = scores
    return CentredScores(columns, (), factors, ()).gram()  # which needs no kernel's shape


def _solution(gram: Gram, _: None) -> Float[Array, " every"]:
    """Of one factorisation, as in `gram`; with a λ that leaves no doubt that there is one.

    LAPACK would give up early, and a shift make another one necessary.
    """
    damping = jnp.mean(jnp.diagonal(gram))
    factor = jax.scipy.linalg.cho_factor(gram + damping * jnp.eye(len(gram), dtype=gram.dtype))
    return jax.scipy.linalg.cho_solve(factor, gram[0])
