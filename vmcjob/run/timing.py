"""A run as it stands, and how long its next training step takes here; nothing of it is changed."""

from typing import Any, Final, NamedTuple

from vmcjob.errors import DeviceError, NotFoundError, RunDirError
from vmcjob.run.attempt import device_names, read_own_spec
from vmcjob.run.calculation import build, configure_jax
from vmcjob.run.level import with_training
from vmcjob.run.parts import StepTimes, time_step
from vmcjob.run.rollback import RetryPolicy, Rollback, is_out_of_memory
from vmcjob.run.state import from_arrays, take_over
from vmcjob.rundir import RESULTS_LOST, Outcome, Phase, RunDir
from vmcjob.spec import JobSpec
from vmcjob.store import Checkpoint, RunStore, peek
from vmcjob.vmc.contracts import LoopState
from vmcjob.vmc.loop import Vmc
from vmcjob.vmc.phases import Calculation

N_TURNS: Final = 30
LIMIT_S: Final = 30.0


class Timing(NamedTuple):
    """What was timed, and what came of it."""

    run_id: str
    phase: str  # of the last commit, and its step
    step: int
    walkers: int
    devices: str
    times: StepTimes
    warning: str | None  # about the checkpoint

    def to_json(self) -> dict[str, Any]:
        """What `show --parts --json` prints."""
        times = self.times
        named = times.parts | {"rest": times.rest}
        return {
            "schema_version": 1,
            **{key: getattr(self, key) for key in ("run_id", "phase", "step")},
            **{key: getattr(self, key) for key in ("walkers", "devices")},
            "pass_s": times.one_pass,
            "step_s": times.step,
            "floor_s": times.floor,
            "step_over_floor": times.step / times.floor,
            "parts": [
                {
                    "name": name,
                    "seconds": seconds,
                    "share": seconds / times.step,
                    "passes": seconds / times.one_pass,
                }
                for name, seconds in named.items()
            ],
        }


def time_run(run_dir: RunDir) -> Timing:
    """A training step from the run's last commit on, and its parts, on all devices there are.

    Neither a lock is taken nor anything written, and a worker may go on meanwhile.

    Raises NotFoundError where nothing is committed yet, DeviceError without memory, UsageError
    where these devices or packages cannot do the step, StoreError where the results are damaged.
    """
    spec = read_own_spec(run_dir)
    configure_jax(spec.numerics)
    store = _open_store(run_dir)
    calculation = _calculation(spec, store)
    restored = store.checkpoint()
    if restored is None:
        raise _nothing_yet(run_dir)
    checkpoint, n_steps = restored.checkpoint, store.n_committed["train"]  # at this checkpoint
    return Timing(
        run_id=run_dir.read_record().run_id,
        phase=checkpoint.phase,
        step=checkpoint.step,
        walkers=spec.sampler.walkers,
        devices=device_names(),
        times=_times(run_dir, calculation.vmc, _state(calculation, checkpoint), n_steps),
        warning=restored.warning,
    )


def _open_store(run_dir: RunDir) -> RunStore:
    if not peek.exists(run_dir.store_path):
        last = run_dir.read_outcome()
        if last is not None and last.outcome is Outcome.FINISHED:
            raise RunDirError(f"{run_dir.path}: finished, but {RESULTS_LOST}")
        raise _nothing_yet(run_dir)
    return RunStore.open(run_dir.store_path, run_id=run_dir.read_record().run_id)


def _nothing_yet(run_dir: RunDir) -> NotFoundError:
    return NotFoundError(
        f"{run_dir.path}: has no results yet; its steps can be timed from its first commit on"
    )


def _calculation(spec: JobSpec, store: RunStore) -> Calculation:
    """As the worker has it, but for pretraining."""
    rollbacks = [Rollback.from_json(record) for record in store.rollbacks]
    spec = with_training(spec, store.n_due["train"])
    return build(spec, policy=RetryPolicy.after(rollbacks))


def _state(calculation: Calculation, checkpoint: Checkpoint) -> LoopState:
    """On all devices; from pretraining, what it has come to, and an optimizer without a past."""
    like = calculation.initial_state()
    if checkpoint.phase == Phase.PRETRAIN:
        return take_over(checkpoint.arrays, like)
    return from_arrays(checkpoint.arrays, like)


def _times(run_dir: RunDir, vmc: Vmc, state: LoopState, n_steps: int) -> StepTimes:
    try:
        return time_step(vmc, state, n_steps, N_TURNS, LIMIT_S)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        reason = "a training step takes more memory than is free here"
        raise DeviceError(f"{run_dir.path}: {reason}") from None
