"""Progress of a run for its heartbeat: energy so far, speed, time left."""

from collections.abc import Mapping

import numpy as np

from vmcjob.run import comparison
from vmcjob.run.heartbeat import HeartbeatWriter
from vmcjob.run.target import forecast
from vmcjob.rundir import Activity, Heartbeat
from vmcjob.spec import Evaluate, JobSpec
from vmcjob.stats import estimate
from vmcjob.vmc.phases import Phase

# Training energies move; the last so many tell where they are now.
TRAINING_WINDOW = 100


def steps_of(spec: JobSpec) -> dict[Phase, int]:
    """Largest number of steps of each phase, in the order of the run."""
    return {
        Phase.PRETRAIN: spec.pretrain.steps,
        Phase.WARMUP: spec.sampler.warmup,
        Phase.TRAIN: spec.train.steps,
        Phase.COMPARE: comparison.n_steps(spec),
        Phase.EQUILIBRATE: spec.evaluate.warmup if spec.evaluate.steps else 0,
        Phase.EVALUATE: spec.evaluate.steps,
    }


class Progress:
    """Writes the run's heartbeat.

    Args:
        heartbeat: the writer.
        planned: steps of each phase, in the order of the run.
        energies: recorded energies of each phase from earlier attempts, in hartree.
        evaluate: options that may end an evaluation early.
    """

    def __init__(
        self,
        heartbeat: HeartbeatWriter,
        planned: Mapping[Phase, int],
        energies: Mapping[Phase, np.ndarray],
        evaluate: Evaluate,
    ) -> None:
        self._heartbeat = heartbeat
        self._planned = planned
        self._evaluate = evaluate
        self._energies = {phase: energies[phase].tolist() for phase in energies}
        self._speeds: dict[Phase, float] = {}
        self._acceptance: float | None = None

    def begin(self, phase: Phase, step: int) -> None:
        """A phase starts or continues; its first step compiles."""
        self._acceptance = None
        self._beat(phase, step, shown_as=Activity.COMPILING)

    def advance(
        self, phase: Phase, step: int, speed: float | None, rows: Mapping[str, np.ndarray]
    ) -> None:
        """A block of steps is done.

        Args:
            phase: the phase of the block.
            step: steps of the phase done so far.
            speed: steps per second, if known.
            rows: the block's series; "acceptance" and "energy" are used.
        """
        if speed is not None:
            self._speeds[phase] = speed
        if phase in self._energies:
            self._energies[phase].extend(rows["energy"].tolist())
        self._acceptance = float(np.mean(rows["acceptance"]))
        self._beat(phase, step)

    def finish(self) -> None:
        """All phases are done; the last numbers stay, but an energy of training is not shown."""
        last = Phase.EVALUATE if self._planned[Phase.EVALUATE] else Phase.TRAIN
        if last is Phase.TRAIN:
            self._energies.clear()
        self._beat(last, self._planned[last], shown_as=Activity.DONE)

    def energy(self, phase: Phase) -> tuple[float | None, float | None]:
        """Energy and error of a recorded phase so far, in hartree; None if unknown."""
        energies = self._energies.get(phase, [])
        if phase is Phase.TRAIN:
            energies = energies[-TRAINING_WINDOW:]
        if len(energies) < 2:
            return (energies[0] if energies else None), None
        result = estimate(np.array(energies))
        # Of energies that are all alike no error is known: walkers may be stuck.
        return result.mean, result.error or None

    def _beat(self, phase: Phase, step: int, shown_as: Activity | None = None) -> None:
        energy, error = self.energy(phase)
        is_evaluated = phase is Phase.EVALUATE and shown_as is None
        n_expected = forecast(self._evaluate, step, error) if is_evaluated else None
        self._heartbeat.beat(
            Heartbeat(
                phase=shown_as or Activity(phase),
                step=step,
                n_steps=self._planned[phase],
                n_expected=n_expected,
                energy=energy,
                error=error,
                acceptance=self._acceptance,
                steps_per_s=self._speeds.get(phase),
                eta_s=self._time_left(phase, step, n_expected or self._planned[phase]),
            )
        )

    def _time_left(self, phase: Phase, step: int, end: int) -> float | None:
        """Seconds to the end of the run; phases without timing count as fast as this one."""
        speed = self._speeds.get(phase)
        if speed is None:
            return None
        phases = list(self._planned)
        later = phases[phases.index(phase) + 1 :]
        ahead = sum(self._planned[other] / self._speeds.get(other, speed) for other in later)
        return (end - step) / speed + ahead
