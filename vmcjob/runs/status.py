"""How the runs are doing: run directories joined with living processes and with a queue."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vmcjob.errors import RunDirError
from vmcjob.rundir import (
    DISK_FULL,
    REFUSED,
    SHORT_OF_MEMORY,
    Activity,
    Heartbeat,
    Outcome,
    RunDir,
    Sequel,
    is_disk_full,
)
from vmcjob.runs.observation import heard_of_s, observe, silence_s
from vmcjob.runs.state import (
    ADVICE,
    DO_WITHOUT,
    ENDINGS,
    NO_QUEUE,
    STALE_S,
    JobState,
    Observation,
    Queue,
    Stage,
    State,
    judge,
    waits_for_others,
)

__all__ = [
    "NO_QUEUE",
    "STALE_S",
    "JobState",
    "Queue",
    "RunStatus",
    "Stage",
    "State",
    "examine",
    "heard_of_s",
    "rows",
]

WITHOUT_A_WORD = (
    "the job ended without a word of the worker or its supervisor; "
    "vmcjob logs --err has the batch system's, vmcjob resume goes on"
)
SILENT = (
    f"nothing was heard for {STALE_S:g} s, and its job goes on: its setup is long, it hangs, or "
    "the clocks of hosts differ; vmcjob logs --err tells more, vmcjob cancel ends it"
)
DISPUTED = (
    "its worker was heard of {:.0f} s ago, and the batch system does not have its job any more; "
    "vmcjob cancel settles it, or wait until it has been silent for {:g} s"
)
OUTLIVES = (
    "cancelled, but its worker was heard of {:.0f} s ago on a node that the batch system does not "
    "reach; it stops at its next checkpoint"
)
HIDDEN = "it has ended, and the file system does not show this host how yet; look again in a minute"
TRAINED_ONLY = "trained only, so without an energy: evaluate.steps is 0"
NEVER_STARTED = (
    "its turn never came: the queue of this machine that it waited in was killed; "
    "vmcjob resume goes on"
)
NOT_FOLLOWED = "the next run of its path was not submitted: {}; vmcjob resume {} goes on"
MAY_FOLLOW = "its job submits the next run of its path; if none appears, vmcjob resume {} goes on"
REPLACED = (
    "its path was replaced by the path to {}, which begins with the same run; submit the spec of "
    "this path again to go on along it"
)
ITS_TURN = "waits for its turn on this machine"
OTHERS_FIRST = f"{SHORT_OF_MEMORY} when the other runs of its job have ended"
NOBODY_WAITS = (
    "waits for {}, and nobody waits with it any more: that had stopped meanwhile, or the queue of "
    "this machine was killed"
)


@dataclass(frozen=True)
class RunStatus:
    """The state and the numbers of one run; None for unknown values."""

    run: RunDir
    run_id: str
    name: str
    point: Mapping[str, Any]  # sweep coordinates: numbers and texts
    seed: int
    science_sha256: str
    state: State
    message: str
    phase: Activity | None
    step: int | None
    n_steps: int | None
    energy: float | None  # hartree
    error: float | None  # hartree
    acceptance: float | None
    steps_per_s: float | None
    eta_s: float | None
    heartbeat_age_s: float | None
    job_id: str | None
    replaced_by: str | None = None  # the run that has trained on from it, where that was asked


@dataclass(frozen=True)
class Block:
    """Why a run that waits for others will wait for ever, and who has to go on."""

    why: str
    stopped: tuple[str, ...] = ()  # those whose going on would help, the first one first
    advice: str = ""  # where that does not help

    def message(self, run_id: str) -> str:
        """The reason, with the command that unblocks the run."""
        again = f"vmcjob resume {' '.join((*self.stopped, run_id))} goes on"
        return f"{self.why}; {self.advice.format(run_id) or again}"


def rows(
    runs: Iterable[RunDir], queue: Queue = NO_QUEUE
) -> tuple[list[RunStatus], list[RunDirError]]:
    """The status of each run, and the error of every run whose record cannot be read."""
    found: list[RunStatus] = []
    errors: list[RunDirError] = []
    for run in runs:
        try:
            found.append(examine(run, queue))
        except RunDirError as error:
            errors.append(error)
    return found, errors


def examine(run: RunDir, queue: Queue = NO_QUEUE) -> RunStatus:
    """How one run is doing, now."""
    now = time.time()
    seen, state, block = _see(run, now, queue)
    beat = seen.heartbeat
    has_energy = beat is not None and not (state is State.FINISHED and run.is_trained_only)
    is_running = state in (State.RUNNING, State.STOPPING)
    return RunStatus(
        run=run,
        run_id=seen.record.run_id,
        name=seen.record.name,
        point=seen.record.point,
        seed=seen.record.seed,
        science_sha256=seen.record.calculation_sha256,
        state=state,
        message=_explain(run, state, seen) if block is None else block.message(run.path.name),
        phase=beat.phase if beat else None,
        step=beat.step if beat else None,
        n_steps=beat.n_steps if beat else None,
        energy=beat.energy if beat and has_energy else None,
        error=beat.error if beat and has_energy else None,
        acceptance=beat.acceptance if beat else None,
        steps_per_s=beat.steps_per_s if beat and is_running else None,
        eta_s=beat.eta_s if beat and is_running else None,
        heartbeat_age_s=max(0.0, now - beat.time) if beat else None,
        job_id=_job_id(seen),
    )


def _see(run: RunDir, now: float, queue: Queue) -> tuple[Observation, State, Block | None]:
    """What was seen of a run, its state, and why it waits in vain if it does."""
    seen = observe(run, now, queue.get(run.path))
    state = judge(seen)
    block = _find_block(run, state, seen, queue)
    return seen, state if block is None else State.BLOCKED, block


def _find_block(run: RunDir, state: State, seen: Observation, queue: Queue) -> Block | None:
    """Why a run that has not begun yet waits in vain; None if it does not, or waits for nobody.

    A launcher may have ended meanwhile, and the batch system may have cancelled the job.
    """
    submission, job = seen.submission, seen.job
    if submission is None or not submission.waits_for or seen.is_cancelled:
        return None
    has_begun = submission.started_at is not None or submission.cancelled_at is not None
    if has_begun or state not in (State.QUEUED, State.DEAD, State.CANCELLED):
        return None
    for run_id in submission.waits_for:
        if block := _why_never(run.beside(run_id), queue):
            return block
    if state is State.DEAD and job is None:
        return Block(NOBODY_WAITS.format(", ".join(submission.waits_for)))
    if job is not None and job.is_hopeless:
        return Block(
            f"waits for the job of {', '.join(submission.waits_for)}, which did not end well"
        )
    return None


def _why_never(other: RunDir, queue: Queue) -> Block | None:
    """Why a run that is waited for will not finish; None if it may, or has."""
    name = other.path.name
    if not other.exists:
        return Block(f"waits for {name}, which was removed or moved away", advice=DO_WITHOUT)
    if other.can_be_begun_with:
        return None
    try:
        _, state, block = _see(other, time.time(), queue)
    except RunDirError:
        return Block(f"waits for {name}, which cannot be read", advice=DO_WITHOUT)
    if block is not None:
        why = f"waits for {name}, which is blocked"
        return Block(why, (*block.stopped, name), block.advice)
    if state.is_active:
        return None
    return Block(f"waits for {name}, which {ENDINGS[state]}", (name,), ADVICE.get(state, ""))


def _job_id(seen: Observation) -> str | None:
    """The job's id, from the queue if the submission was cut short before it knew."""
    found = seen.submission.job_id if seen.submission else None
    return found or (seen.job.job_id if seen.job else None)


def _explain(run: RunDir, state: State, seen: Observation) -> str:
    """Why a run waits or has ended: in its own words, else in those of who lost it."""
    outcome, job = seen.outcome, seen.job
    if state is State.QUEUED or (job is not None and job.is_suspended):
        is_at_work = job is not None and job.stage is Stage.ACTIVE  # on the other runs of the job
        if is_at_work and seen.submission and waits_for_others(seen.submission, outcome):
            return OTHERS_FIRST
        waits = f"waits for {', '.join(run.open_waits)}" if run.open_waits else ""
        is_here = seen.submission is not None and not seen.submission.is_job
        return waits or (job.words if job else "") or (ITS_TURN if is_here else "")
    if state is State.DEAD:
        return (job.words if job else "") or _explain_death(run, seen)
    if state is State.NOT_KNOWN:
        return _explain_doubt(seen)
    if state is State.RUNNING:
        return SILENT if _is_silent(seen) else _forecast(seen.heartbeat)
    if state is State.FINISHED and (damage := run.damage):
        return damage
    if state is State.FINISHED and (sequel := run.read_sequel()):
        return _explain_sequel(sequel, run.path.name)
    if state is State.FINISHED and run.is_trained_only:
        return TRAINED_ONLY
    if state is State.STOPPING and job is not None and job.stage is Stage.ENDED:
        return OUTLIVES.format(silence_s(seen))
    is_failed = outcome is not None and outcome.outcome is Outcome.FAILED
    is_told = not state.is_active or (state is State.STOPPING and is_failed)
    return outcome.message if outcome and is_told else ""


def _explain_sequel(sequel: Sequel, name: str) -> str:
    """Why no run of a path follows a finished run so far."""
    if sequel.replaced_by:
        return REPLACED.format(sequel.replaced_by)
    return NOT_FOLLOWED.format(sequel.why, name) if sequel.why else MAY_FOLLOW.format(name)


def _explain_doubt(seen: Observation) -> str:
    """Why the state of a run is not known."""
    if seen.is_outcome_hidden:
        return HIDDEN
    if seen.job is not None and seen.job.stage is Stage.UNKNOWN:
        return seen.job.words
    return DISPUTED.format(silence_s(seen), STALE_S)


def _forecast(beat: Heartbeat | None) -> str:
    """When an evaluation will have its target error, if it has one."""
    if beat is None or beat.n_expected is None:
        return ""
    if beat.n_expected >= beat.n_steps:
        return f"its target error is not expected within {beat.n_steps} steps"
    return f"its target error is expected after {beat.n_expected} steps"


def _is_silent(seen: Observation) -> bool:
    """Whether nothing of a run is heard whose job has had a machine for a while."""
    if seen.job is None or seen.job.stage is not Stage.ACTIVE or seen.is_worker_alive:
        return False
    return time.time() - (seen.job.started_at or 0.0) > STALE_S


def _explain_death(run: RunDir, seen: Observation) -> str:
    """What the disk, the queue or the run's own history knows of the end of its last worker."""
    if is_disk_full(run.path):
        return DISK_FULL
    if seen.submission and not seen.submission.is_job and not seen.submission.worker:
        return NEVER_STARTED  # its launcher or job is gone, or the run would be queued
    last, job = (run.read_attempts() or [{}])[-1], seen.job
    is_of_before = seen.submission is not None and seen.submission.started_at is None
    if last.get("event") == "lost" and not (is_of_before and job):
        who = f"the worker of rank {last['rank']}" if "rank" in last else "the worker"
        how = str(last.get("how"))
        end = f"was killed by {how}" if how.startswith("SIG") else f"ended: {how}"
        return f"{who} {end}; vmcjob resume goes on"
    if last.get("event") == REFUSED:
        return f"{last.get('how')}; vmcjob resume goes on when that has ended"
    return WITHOUT_A_WORD if job is not None and job.stage is Stage.ENDED else ""
