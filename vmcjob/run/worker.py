"""The course of a run: warm up, train, equilibrate, evaluate; commit, stop, resume."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from vmcjob.errors import DivergedError
from vmcjob.run.blocks import Block, run_blocks
from vmcjob.run.calculation import Calculation
from vmcjob.run.progress import Progress
from vmcjob.run.pulse import Pulse
from vmcjob.run.state import from_arrays, take_over, to_arrays
from vmcjob.run.stop import StoppedError, StopRequest
from vmcjob.rundir import Phase
from vmcjob.spec import JobSpec
from vmcjob.store import Checkpoint, Commit, RunStore
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import LoopState, StepInfo
from vmcjob.vmc.loop import Step

Rows = dict[str, np.ndarray]


@dataclass
class Position:
    """Where a run stands: the phase, the steps done in it, the state after them."""

    phase: Phase
    step: int
    state: LoopState


class Worker:
    """Takes one run from wherever its store left off to its end.

    What is recorded depends on spec, seed and number of devices alone: blocks and commits fall
    where the clock puts them and change no number.
    """

    def __init__(
        self,
        spec: JobSpec,
        calculation: Calculation,
        store: RunStore,
        stop: StopRequest,
        pulse: Pulse,
        start: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Begin with the checkpoint `start` of another run, unless there is one of this run."""
        self._spec, self._vmc, self._store, self._stop = spec, calculation.vmc, store, stop
        self._calculation = calculation
        self._planned = {
            Phase.PRETRAIN: spec.pretrain.steps,
            Phase.WARMUP: spec.sampler.warmup,
            Phase.TRAIN: spec.train.steps,
            Phase.EQUILIBRATE: spec.evaluate.warmup if spec.evaluate.steps else 0,
            Phase.EVALUATE: spec.evaluate.steps,
        }
        self.position, self.warning = self._restore(calculation, start)
        recorded = {Phase.TRAIN: store.series("train"), Phase.EVALUATE: store.series("evaluate")}
        energies = {phase: series["energy"] for phase, series in recorded.items()}
        self._progress = Progress(pulse, self._planned, energies)
        clocks = [series["wall_time"][-1] for series in recorded.values() if len(series["step"])]
        self._began = time.monotonic() - max(clocks, default=0.0)
        self._pending: dict[Phase, list[Rows]] = {Phase.TRAIN: [], Phase.EVALUATE: []}
        self._snapshots: list[tuple[int, np.ndarray]] = []
        self._flushed = time.monotonic()

    @property
    def standing(self) -> str:
        """Where the run stands, in words."""
        done, planned = self.position.step, self._planned[self.position.phase]
        return f"{self.position.phase} step {done}/{planned}"

    def run(self) -> None:
        """All phases that are left.

        Raises StoppedError after a commit if a stop was requested, DivergedError if numbers cease
        to be finite (the last commit is then the last finite state).
        """
        steps = {
            Phase.PRETRAIN: self._pretrain_step,
            Phase.WARMUP: self._vmc.warmup_step,
            Phase.TRAIN: self._vmc.train_step,
            Phase.EQUILIBRATE: self._vmc.equilibrate_step,
            Phase.EVALUATE: self._vmc.evaluate_step,
        }
        phases = list(steps)
        for phase in phases[phases.index(self.position.phase) :]:
            if phase is not self.position.phase:
                self._enter(phase)
            if self.position.step < self._planned[phase]:
                self._progress.begin(phase, self.position.step)
                self._at_edge()  # while the program was loaded, a stop may have been asked for
                self._run_phase(phase, steps[phase]())
        self._commit()
        self._progress.finish()

    def _pretrain_step(self) -> Step:
        if self._calculation.pretraining is None:
            raise RuntimeError("pretraining was planned without a Hartree-Fock start")
        return self._calculation.pretraining.step()

    def _enter(self, phase: Phase) -> None:
        """Go on to the next phase; from pretraining, after a commit, with a new optimizer."""
        state = self.position.state
        if self.position.phase is Phase.PRETRAIN and self._planned[Phase.PRETRAIN]:
            self._commit()
            state = self._calculation.after_pretraining(state)
        self.position = Position(phase, 0, state)

    def _run_phase(self, phase: Phase, step: Step) -> None:
        start = self.position
        edges = [edge for edge in self._edges(phase) if edge > start.step]
        for block in run_blocks(step, start.state, start.step, edges):
            rows = self._rows(block, first=self.position.step)
            self._require_finite(phase, block)
            if phase in self._pending:
                self._pending[phase].append(rows)
            self.position = Position(phase, block.last, block.state)
            if phase is Phase.EVALUATE and block.last in self._snapshot_steps():
                self._snapshots.append((block.last, devices.gather(block.state.chain.r)))
            self._progress.advance(phase, block.last, block.steps_per_s, rows)
            self._at_edge()

    def _at_edge(self) -> None:
        """Between blocks: commit if it is time, stop if that was asked."""
        due = time.monotonic() - self._flushed >= self._spec.output.flush_seconds
        if due or self._stop.reason:
            self._commit()
        if self._stop.reason:
            if self.position.phase is Phase.WARMUP and not self._planned[Phase.PRETRAIN]:
                raise StoppedError(f"{self._stop.reason} before its first commit; begins anew")
            raise StoppedError(f"{self._stop.reason}; continues from {self.standing}")

    def _commit(self) -> None:
        """Write what is pending and where to go on; warm-up is short and simply done again."""
        phase, step, state = self.position.phase, self.position.step, self.position.state
        if phase is Phase.WARMUP:
            return
        self._store.commit(
            Commit(
                checkpoint=Checkpoint(str(phase), step, to_arrays(state)),
                train=_concatenate(self._pending[Phase.TRAIN]),
                evaluate=_concatenate(self._pending[Phase.EVALUATE]),
                snapshots=self._snapshots,
            )
        )
        for rows in self._pending.values():
            rows.clear()
        self._snapshots = []
        self._flushed = time.monotonic()

    def _restore(
        self, calculation: Calculation, start: Mapping[str, np.ndarray] | None
    ) -> tuple[Position, str | None]:
        """Where the last attempt left off, or the beginning."""
        state = calculation.initial_state()
        restored = self._store.checkpoint()
        if restored is None:
            state = take_over(start, like=state) if start else state
            return Position(Phase.PRETRAIN, 0, state), None
        checkpoint = restored.checkpoint
        phase = Phase(checkpoint.phase)
        if phase is not Phase.PRETRAIN:
            state = calculation.after_pretraining(state)
        state = from_arrays(checkpoint.arrays, like=state)
        return Position(phase, checkpoint.step, state), restored.warning

    def _edges(self, phase: Phase) -> list[int]:
        """Steps after which the worker must look up: snapshots, and the phase's end."""
        inner = self._snapshot_steps() if phase is Phase.EVALUATE else set()
        return sorted(inner | {self._planned[phase]})

    def _snapshot_steps(self) -> set[int]:
        """Evaluation steps whose walkers are kept, evenly spread, the last one included.

        As many as the store was made for: a spec submitted again may ask for another number.
        """
        n_steps, kept = self._planned[Phase.EVALUATE], self._store.n_planned["snapshots"]
        return {n_steps * (k + 1) // kept for k in range(kept)}

    def _require_finite(self, phase: Phase, block: Block) -> None:
        first = block.last - len(block.infos) + 1
        for step, info in enumerate(block.infos, start=first):
            if getattr(info, "is_finite", True):
                continue
            where = f"energy, parameters or walkers ceased to be finite in {phase} step {step}"
            if phase is Phase.PRETRAIN:
                raise DivergedError(f"{where}. Try a smaller pretrain.learning_rate")
            committed = self._store.n_committed[str(phase)]
            raise DivergedError(
                f"{where}; step {committed} is kept. Try a smaller optimizer.learning_rate or "
                "optimizer.norm_constraint, or a larger optimizer.damping"
            )

    def _rows(self, block: Block, first: int) -> Rows:
        """The series of one block, by column."""
        rows = [_row(info) for info in block.infos]
        columns = {name: np.array([row[name] for row in rows], float) for name in rows[0]}
        elapsed = time.monotonic() - self._began
        return columns | {"wall_time": np.full(block.last - first, elapsed)}


def _row(info: StepInfo | jax.Array) -> Mapping[str, object]:
    """One step's numbers under their names in the store."""
    if not isinstance(info, StepInfo):
        return {"acceptance": getattr(info, "acceptance", info)}
    row = {"energy": info.energy, "variance": info.variance, "acceptance": info.acceptance}
    return row if info.update is None else row | {"width": info.width, **info.update._asdict()}


def _concatenate(parts: Sequence[Rows]) -> Rows | None:
    """Blocks of rows, one behind the other."""
    if not parts:
        return None
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
