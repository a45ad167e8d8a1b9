"""The course of a run: warm up, train, equilibrate, evaluate; commit, stop, resume."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

import numpy as np

from vmcjob.errors import DivergedError
from vmcjob.run import comparison
from vmcjob.run.ahead import Steps
from vmcjob.run.blocks import Block, in_blocks, require_finite
from vmcjob.run.consensus import reach_consensus, share_finding
from vmcjob.run.ending import is_out_of_memory
from vmcjob.run.explosion import NOTHING_STRANGE, ExplosionWatch, Judgement
from vmcjob.run.heartbeat import HeartbeatWriter
from vmcjob.run.level import Level, with_training
from vmcjob.run.looks import Looks
from vmcjob.run.progress import Progress, steps_of
from vmcjob.run.replica import Replica, share
from vmcjob.run.rollback import (
    DIVERGENCES,
    MAX_HALVINGS,
    Cause,
    ExplosionError,
    NotFiniteError,
    RetryPolicy,
    Rollback,
    advice,
)
from vmcjob.run.rows import RECORDED, Pending, rows_of
from vmcjob.run.state import from_arrays, take_over, to_arrays
from vmcjob.run.stop import StoppedError, StopRequest
from vmcjob.run.target import Finding
from vmcjob.spec import JobSpec
from vmcjob.store import Checkpoint, RunStore, peek
from vmcjob.vmc import devices, phases, ranks
from vmcjob.vmc.contracts import StepInfo
from vmcjob.vmc.phases import Calculation, Phase, Position

log = logging.getLogger("vmcjob")
CHANGING = (Phase.PRETRAIN, Phase.TRAIN)
"""Phases whose end is committed, because the next phase begins with another state."""


class Worker:
    """Takes one run from its last commit to its end.

    Recorded numbers depend on spec, seed and number of devices only. Blocks and commits depend on
    the clock and change no number, except the point to which a rollback leads.
    """

    def __init__(
        self,
        spec: JobSpec,
        make_calculation: Callable[..., Calculation],  # takes a spec and a policy
        store: RunStore | Replica,
        stop: StopRequest,
        heartbeat: HeartbeatWriter,
        start: Mapping[str, np.ndarray] | None = None,
        steps: Steps | None = None,  # steps that are being compiled
        after_commit: Callable[[], None] = lambda: None,  # work that can wait
    ) -> None:
        """Begin with the checkpoint `start` of another run, unless this run has one."""
        self._spec, self._make_calculation, self._store = spec, make_calculation, store
        self._stop, self._heartbeat, self._start, self._steps = stop, heartbeat, start, steps
        self._looks, self._planned, self._after_commit = Looks(spec), steps_of(spec), after_commit
        self._snapshot_steps = store.snapshot_steps
        self._rollbacks = [Rollback.from_json(record) for record in store.rollbacks]
        self._begin()

    def _begin(self) -> None:
        """Begin at the last commit, with the policy that follows from the rollbacks so far."""
        self._plan()
        self.position, self.warning = self._restore()
        series = {phase: self._store.series(phase.value) for phase in RECORDED}
        energies = {phase: series[phase]["energy"] for phase in RECORDED}
        self._progress = Progress(self._heartbeat, self._planned, energies, self._spec.evaluate)
        clocks = [rows["wall_time"][-1] for rows in series.values() if len(rows["step"])]
        self._began = time.monotonic() - max(clocks, default=0.0)
        self._pending, self._flushed = Pending(), time.monotonic()
        self._watch = ExplosionWatch(self.calculation.energy_bound, self._spec.sampler.walkers)
        self._watch.accept(series[Phase.TRAIN])

    def _plan(self) -> None:
        """Plan the lengths of phases; the length of a level training is known late."""
        spec = with_training(self._spec, self._store.n_due["train"])
        self._planned.update(steps_of(spec))
        policy = RetryPolicy.after(self._rollbacks)
        self.calculation = self._make_calculation(spec, policy=policy)

    @property
    def _wall_time(self) -> float:
        """Seconds of all attempts of the run so far."""
        return time.monotonic() - self._began

    @property
    def standing(self) -> str:
        """The position of the run, in words."""
        return self._in_words(self.position.phase, self.position.step)

    def _in_words(self, phase: Phase, step: int) -> str:
        planned = self._planned[phase]
        return f"{phase} step {step}/{planned}" if planned else "the beginning"

    def run(self) -> Finding | None:
        """Run all remaining phases; return the finding about a target error, if there is one.

        Numbers that are not finite, explosions of the energy and lack of memory send the run back
        to its last commit, from where it continues with a more careful policy.

        Raises StoppedError after a commit if a stop was requested, DivergedError if the run failed
        more often than the spec allows (the last commit is then the last good state), and
        MemoryError if fewer walkers at a time did not help.
        """
        while (setback := self._run_phases()) is not None:
            self._go_back(*setback)
        self._commit()
        found = self._settle()
        self._progress.finish()
        return found

    def _run_phases(self) -> tuple[Cause, int] | None:
        """Run all remaining phases; return the cause and step of a failure, or None.

        The traceback is dropped, because it would keep arrays on the devices alive.
        """
        try:
            self._run_each_phase()
        except NotFiniteError as error:
            return Cause.NOT_FINITE, error.step
        except ExplosionError as error:
            return Cause.EXPLOSION, error.step
        except Exception as error:
            # A rank that had memory enough waits in the middle of the step: no way back for it.
            if not is_out_of_memory(error) or not ranks.meet(f"rollback {len(self._rollbacks)}"):
                raise
            return Cause.OUT_OF_MEMORY, self.position.step + 1
        return None

    def _run_each_phase(self) -> None:
        """Run all remaining phases, until the last one ends or has reached its target error."""
        position = self.position
        steps = self._steps or Steps.during(self.calculation, position.phase, position.state)
        while self._follow_course(steps) is not None:
            self._plan()

    def _follow_course(self, steps: Steps) -> Level | None:
        """Run phase after phase; return at once the finding that changes the length of training."""
        course = phases.course(
            self.calculation, self._planned, self.position, self._choose, steps.step_of
        )
        for block in in_blocks(course, self._edges):
            self.position = block.position
            found = self._complete(block) if block.infos else self._begin_phase()
            if isinstance(found, Finding) and found.is_reached:
                return None
            if isinstance(found, Level) and found.is_reached:
                log.info("%s", found)
                self._store.record(peek.LEVEL, found.to_json())
                if found.steps != self._planned[Phase.TRAIN]:
                    return found
        return None

    def _edges(self, phase: Phase) -> set[int]:
        """The steps of a phase after which a block ends."""
        snapshots = self._snapshot_steps if phase is Phase.EVALUATE else set()
        return {self._planned[phase], *snapshots, *self._looks.steps(phase, self._planned)}

    def _go_back(self, cause: Cause, step: int) -> None:
        """Return to the last commit, record the rollback, and continue more carefully."""
        phase, (to_phase, to_step) = self.position.phase, self._committed
        so_far = RetryPolicy.after(self._rollbacks)
        if cause in DIVERGENCES and so_far.retries >= self._spec.train.rollbacks:
            raise DivergedError(
                f"{DIVERGENCES[cause]} in {phase} step {step}, after "
                f"{so_far.retries} rollbacks; {to_phase} step {to_step} is kept. {advice(phase)}"
            )
        if cause is Cause.OUT_OF_MEMORY and so_far.chunk_divisor >= 2**MAX_HALVINGS:
            raise MemoryError
        rollback = Rollback(cause, phase, step, to_phase, to_step)
        log.warning("%s", rollback)
        self._store.record_rollback(asdict(rollback))
        self._rollbacks.append(rollback)
        self._store = share(self._store)  # a slot that is damaged is so for all ranks
        del self.calculation, self.position  # the devices need the memory for what comes
        self._begin()

    def _begin_phase(self) -> Finding | Level | None:
        """Begin or continue a phase; return the finding about the steps already done."""
        phase, step = self.position.phase, self.position.step
        if step < self._planned[phase]:
            self._progress.begin(phase, step)
            self._at_block_end()  # while the program was loaded, a stop may have been asked for
        return self._commit_and_judge()

    def _complete(self, block: Block) -> Finding | Level | None:
        """Take over the results of a block; return the finding about the phase."""
        phase, step = block.position.phase, block.position.step
        rows = rows_of(block, self._wall_time)
        require_finite(block)
        self._pending.add(phase, rows)
        if phase is Phase.EVALUATE:
            self._pending.observe(block, self._spec.evaluate.observe_every)
            if step in self._snapshot_steps:
                self._pending.keep_walkers(step, devices.gather(block.position.state.chain.r))
        self._progress.advance(phase, step, block.steps_per_s, rows)
        judgement = self._watch.judge(rows, step) if phase is Phase.TRAIN else NOTHING_STRANGE
        is_strange = self._at_block_end(judgement)
        if phase in CHANGING and step == self._planned[phase]:
            self._commit()
        return None if is_strange else self._commit_and_judge()

    def _commit_and_judge(self) -> Finding | Level | None:
        """Commit, and return the finding about the phase; None at most lengths.

        The finding follows from committed rows alone, so that interruptions do not change it.
        """
        phase, step = self.position.phase, self.position.step
        if step not in self._looks.steps(phase, self._planned):
            return None
        self._commit()
        rows = self._store.series("train" if phase is Phase.TRAIN else "evaluate")
        return share_finding(self._looks.judge(phase, rows))

    def _settle(self) -> Finding | None:
        """Record the finding about a target error: length of the evaluation, and reason."""
        found = self._commit_and_judge()
        if not isinstance(found, Finding):
            return None
        self._planned[Phase.EVALUATE] = self.position.step
        self._store.record(peek.TARGET, found.to_json())
        return found

    def _choose(self, steps: Mapping[str, Sequence[StepInfo]]) -> str:
        """Choose the parameters to evaluate, and record the reason if they were compared."""
        if not self._planned[Phase.COMPARE]:
            return "average" if self._spec.evaluate.parameters == "average" else "last"
        measured = comparison.measure(steps)
        chosen = comparison.better(measured)
        log.info("evaluates the %s parameters: %s", chosen, comparison.describe(measured))
        self._store.record("evaluated", comparison.to_json(chosen, measured))
        return chosen

    def _at_block_end(self, judgement: Judgement = NOTHING_STRANGE) -> bool:
        """Commit if it is time, stop if requested; return whether the last step is strange.

        While the last step is strange, nothing is committed: an explosion may have begun.
        """
        due = time.monotonic() - self._flushed >= self._spec.output.flush_seconds
        found = reach_consensus(due, self._stop, judgement)
        if found.judgement.explosion is not None:
            raise ExplosionError(found.judgement.explosion)
        if (found.is_commit_due or found.stop_reason) and not found.judgement.is_strange:
            self._commit()
        if found.stop_reason:
            if self.position.phase is Phase.WARMUP and not self._planned[Phase.PRETRAIN]:
                raise StoppedError(f"{found.stop_reason} before its first commit; begins anew")
            committed = self._in_words(*self._committed)
            raise StoppedError(f"{found.stop_reason}; continues from {committed}")
        return found.judgement.is_strange

    def _commit(self) -> None:
        """Write pending results and a checkpoint; short phases are repeated instead."""
        phase, step, state = self.position.phase, self.position.step, self.position.state
        if phase in (Phase.WARMUP, Phase.COMPARE) or self._committed == (phase, step):
            return
        checkpoint = Checkpoint(str(phase), step, to_arrays(state))
        self._store.commit(self._pending.commit(checkpoint))
        self._committed = phase, step
        self._pending, self._flushed = Pending(), time.monotonic()
        if not self._stop.number:
            self._after_commit()

    def _restore(self) -> tuple[Position, str | None]:
        """Position and state of the last commit, or the beginning; a checkpoint warning."""
        state = self.calculation.initial_state()
        restored = self._store.checkpoint()
        if restored is None:
            self._committed = Phase.PRETRAIN, 0
            state = take_over(self._start, like=state) if self._start else state
            return Position(Phase.PRETRAIN, 0, state), None
        checkpoint = restored.checkpoint
        self._committed = phase, step = Phase(checkpoint.phase), checkpoint.step
        if phase is not Phase.PRETRAIN:
            state = self.calculation.after_pretraining(state)
        return Position(phase, step, from_arrays(checkpoint.arrays, like=state)), restored.warning
