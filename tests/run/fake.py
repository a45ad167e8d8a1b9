"""A worker with a calculation of its own, in NumPy: nothing to compile, and all else is real.

`python -m tests.run.fake RUN_DIR` is `vmcjob run RUN_DIR`, but for the molecule: its electrons are
in a harmonic well instead, each in ψ = exp(-a r²/2), and a is found by gradients with momentum.
Like the real one it depends on seed, step, retry, width and every device's walkers, and on the
optimizer's memory: whatever a checkpoint leaves out, or a device confuses, changes its numbers.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vmcjob.run import attempt
from vmcjob.run import start as beginning
from vmcjob.run.calculation import average_from
from vmcjob.run.optimizer import COLUMNS, learning_rate
from vmcjob.run.rollback import FIRST_TRY, RetryPolicy
from vmcjob.spec import JobSpec
from vmcjob.vmc import devices, ranks
from vmcjob.vmc.contracts import ChainState, LoopState, StepInfo, Trust, UpdateInfo
from vmcjob.vmc.energy import TALLY_BOUND
from vmcjob.vmc.hartree_fock import HartreeFock
from vmcjob.vmc.phases import Calculation, Phase
from vmcjob.vmc.pretrain import PretrainInfo
from vmcjob.vmc.steps import Index, Step
from vmcjob.vmc.streams import Stream

Number = Any  # NumPy's numbers, where the worker expects what comes back from devices as JAX's
PROGRAM = ("-m", "tests.run.fake")
STEP_S = 0.005  # as long as a step of a small molecule, in which there is time to be disturbed
MOMENTUM = 0.9


@dataclass(frozen=True)
class HarmonicWell:
    """Electrons in a well, sampled, measured and improved; steps as those of `Vmc`."""

    spec: JobSpec
    retry: int = 0
    chunk_divisor: int = 1  # only for those who look at it

    def warmup_step(self) -> Step:
        return self._make_step(self._sample, Stream.WARMUP)

    def train_step(self) -> Step:
        return self._make_step(self._train, Stream.TRAIN)

    def equilibrate_step(self) -> Step:
        return self._make_step(self._sample, Stream.EQUILIBRATE)

    def evaluate_step(self) -> Step:
        return self._make_step(self._evaluate, Stream.EVALUATE)

    def compare_step(self) -> Step:
        return self._make_step(self._evaluate, Stream.COMPARE)

    def step(self) -> Step:
        """One of pretraining."""
        return self._make_step(self._pretrain, Stream.PRETRAIN)

    def _make_step(self, work: Callable[..., tuple[LoopState, Any]], kind: Stream) -> Step:
        def step(state: LoopState, index: Index) -> tuple[LoopState, Any]:
            time.sleep(STEP_S)
            host = jax.tree.map(np.asarray, state)
            moved, acceptance = self._move(host, kind, int(index))
            new, info = work(moved, acceptance, int(index), kind)
            alike = new.params, new.optimizer, new.chain.width, new.average, info
            params, memory, width, average, info = devices.replicate(alike)
            of_walkers = (_shard(x) for x in (new.chain.r, new.chain.age, new.chain.tally))
            r, age, tally = of_walkers
            chain = ChainState(r, width, age, tally)
            return LoopState(params, memory, chain, average), info

        return step

    def _move(self, state: LoopState, kind: Stream, index: int) -> tuple[LoopState, Number]:
        """Walkers after a Metropolis move on each device; what all devices hold alike, once."""
        params, memory, width, average = (
            jax.tree.map(lambda leaf: leaf[0], tree)
            for tree in (state.params, state.optimizer, state.chain.width, state.average)
        )
        n_devices, accepted, moved = len(state.chain.r), [], []
        age = np.asarray(state.chain.age)
        for device, r in enumerate(state.chain.r):
            number = jax.process_index() * n_devices + device
            random = np.random.default_rng([self.spec.seed, kind.number(self.retry), index, number])
            new = r + (width * random.normal(size=r.shape)).astype(r.dtype)
            change = -params["a"] * np.sum(new**2 - r**2, axis=(1, 2))  # of 2 log|ψ|
            is_accepted = np.log(random.uniform(size=len(r))) < change
            moved.append(np.where(is_accepted[:, None, None], new, r))
            accepted.append(is_accepted)
        r: Number = np.stack(moved)
        ages: Number = np.where(accepted, 0, age + 1).astype(age.dtype)
        chain = ChainState(r, width, ages, state.chain.tally)
        return LoopState(params, memory, chain, average), _mean(np.mean(accepted, axis=1))

    def _measure(self, state: LoopState) -> tuple[np.ndarray, Number, Number]:
        """Local energies, 3a/2 + (1 - a²) r²/2 for each electron; their mean and variance."""
        a, r = state.params["a"], state.chain.r
        n_electrons = r.shape[2]
        r2 = np.sum(np.asarray(r, float) ** 2, axis=(2, 3))
        e_loc = 1.5 * a * n_electrons + (1 - a**2) * r2 / 2
        energy = _mean(e_loc)
        return e_loc, energy, _mean((e_loc - energy) ** 2)

    def _sample(
        self, state: LoopState, acceptance: Number, index: int, kind: Stream
    ) -> tuple[LoopState, Number]:
        return (self._tuned(state, acceptance) if kind == Stream.WARMUP else state), acceptance

    def _evaluate(
        self, state: LoopState, acceptance: Number, index: int, kind: Stream
    ) -> tuple[LoopState, StepInfo]:
        e_loc, energy, variance = self._measure(state)
        away, before = np.asarray(e_loc - energy), np.asarray(state.chain.tally)
        limit = TALLY_BOUND * _mean(np.abs(away))
        row = np.stack([np.ones_like(away), away, np.clip(away, -limit, limit)], axis=-1)
        tally: Number = ((before if index else 0.0 * before) + row).astype(before.dtype)
        state = state._replace(chain=state.chain._replace(tally=tally))
        is_finite = _is_finite(energy, variance, state.params["a"])
        info = StepInfo(energy, variance, acceptance, state.chain.width, None, is_finite)
        return state, info._replace(max_age=_oldest(state))

    def _train(
        self, state: LoopState, acceptance: Number, index: int, kind: Stream
    ) -> tuple[LoopState, StepInfo]:
        """One step down the gradient 2 cov(E_loc, ∂ log ψ/∂a), with momentum."""
        e_loc, energy, variance = self._measure(state)
        score = -np.sum(np.asarray(state.chain.r, float) ** 2, axis=(2, 3)) / 2
        gradient = 2 * _mean((e_loc - energy) * score)
        rate: Number = np.float64(learning_rate(self.spec)(jnp.asarray(index)))
        velocity = MOMENTUM * state.optimizer["velocity"] + 0.01 * gradient
        params = {"a": state.params["a"] - rate * velocity}
        average = state.average
        if average is not None:
            n_before = max(0, index - (average_from(self.spec) or 0))
            average = {"a": average["a"] + (params["a"] - average["a"]) / (n_before + 1)}
        new = LoopState(params, {"velocity": velocity}, state.chain, average)
        new = self._tuned(new, acceptance)
        is_finite = _is_finite(energy, variance, params["a"])
        update = UpdateInfo(abs(gradient), abs(rate * velocity), rate, 0 * rate)
        width, one = state.chain.width, np.float64(1.0)
        median: Number = np.median(ranks.exchange(e_loc))
        trust = Trust(one, one)  # pyright: ignore[reportArgumentType]
        info = StepInfo(energy, variance, acceptance, width, update, is_finite, median, trust)
        told = dict.fromkeys(COLUMNS[type(self.spec.optimizer)], one)
        return new, info._replace(told=told, max_age=_oldest(state))

    def _pretrain(
        self, state: LoopState, acceptance: Number, index: int, kind: Stream
    ) -> tuple[LoopState, PretrainInfo]:
        """A tenth of the way to a = 1, the exact one."""
        distance = state.params["a"] - 1
        new = state._replace(params={"a": 1 + 0.9 * distance})
        return self._tuned(new, acceptance), PretrainInfo(
            distance**2, acceptance, _is_finite(distance)
        )

    def _tuned(self, state: LoopState, acceptance: Number) -> LoopState:
        goal = self.spec.sampler.target_acceptance
        width = np.asarray(state.chain.width * np.exp(0.5 * (acceptance - goal)))
        return state._replace(chain=state.chain._replace(width=width))


@dataclass(frozen=True)
class WellCalculation:
    """What `vmcjob.run.calculation.Calculation` is to the worker, of a well."""

    vmc: HarmonicWell
    pretraining: HarmonicWell | None
    spec: JobSpec
    energy_bound: float = 0.0  # hartree
    identity: str = ""  # nothing is compiled

    def initial_state(self) -> LoopState:
        """Depends on the seed alone."""
        random = np.random.default_rng([self.spec.seed, Stream.INITIAL])
        sampler = self.spec.sampler
        width: Number = np.float64(sampler.width)
        shape = (sampler.walkers, self.spec.system.n_electrons, 3)
        r = random.normal(size=shape).astype(self.spec.numerics.dtype)
        age, tally = np.zeros(len(r), np.int32), np.zeros((len(r), 3), r.dtype)
        of_walkers = devices.shard(age), devices.shard(tally)
        chain = ChainState(devices.shard(r), devices.replicate(width), *of_walkers)
        params = devices.replicate({"a": np.float64(0.5)})
        average = None if average_from(self.spec) is None else {"a": np.float64(0.5)}
        return self.after_pretraining(LoopState(params, None, chain, devices.replicate(average)))

    def shapes(self) -> LoopState:
        """Nobody compiles anything for them."""
        return self.initial_state()

    def step_of(self, phase: Phase) -> Step:
        """Those of the well; its pretraining is one too."""
        return Calculation.step_of(self, phase)  # pyright: ignore[reportArgumentType] -- alike

    def after_pretraining(self, state: LoopState) -> LoopState:
        """The same parameters and walkers, at rest."""
        return state._replace(optimizer=devices.replicate({"velocity": np.float64(0.0)}))


def build(
    spec: JobSpec, start: HartreeFock | None = None, policy: RetryPolicy = FIRST_TRY
) -> WellCalculation:
    """In place of `vmcjob.run.calculation.build`."""
    spec = policy.of_steps(spec)
    well = HarmonicWell(spec, policy.retries, policy.chunk_divisor)
    return WellCalculation(well, well if start else None, spec)


def install() -> None:
    """Let this process's worker calculate with wells, of which Hartree-Fock knows nothing."""
    ours = {"build": build, "describe_blocks": lambda calculation: ()}
    attempt.__dict__.update(ours)
    beginning.__dict__.update(hartree_fock_to_compare=lambda spec: None)


def _mean(x: np.ndarray) -> Number:
    """Over the walkers of all devices of all ranks."""
    return np.mean(ranks.exchange(np.asarray(np.mean(x))))


def _oldest(state: LoopState) -> Number:
    return np.max(ranks.exchange(np.asarray(state.chain.age)))


def _is_finite(*numbers: Number) -> Number:
    return np.isfinite(numbers).all()


def _shard(r: Number) -> jax.Array:
    """This rank's walkers, back on its devices."""
    return devices.shard(ranks.exchange(r).reshape(-1, *r.shape[2:]))


def main() -> None:
    """The command line of a worker."""
    from vmcjob.cli import main as run_command

    install()
    sys.argv = ["vmcjob", "run", *sys.argv[1:]]
    run_command()


if __name__ == "__main__":
    main()
