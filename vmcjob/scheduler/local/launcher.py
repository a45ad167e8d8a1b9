"""Launcher processes, one for each submission to this machine, and the slots that they share."""

import json
import os
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from vmcjob.errors import RunDirError, SchedulerError
from vmcjob.rundir import (
    DISK_FULL,
    Outcome,
    OutcomeRecord,
    Process,
    RunDir,
    is_about_full_disk,
    list_runs,
)
from vmcjob.rundir.process import host_name
from vmcjob.runs.notification import notify_run, notify_submission
from vmcjob.runs.status import State, examine
from vmcjob.scheduler.command import python_command
from vmcjob.scheduler.local.limits import Limits
from vmcjob.scheduler.lock import lock_folder, open_lock, queue_lock, try_lock
from vmcjob.supervisor import note_end

LOG = "launchers.log"
POLL_S = 0.2  # how often a launcher looks for ended workers and free slots


@dataclass(frozen=True)
class Order:
    """The instructions to a launcher."""

    runs: tuple[Path, ...]
    max_parallel: int
    worker_command: tuple[str, ...]  # the run directory is appended
    notify: str | None = None  # the user's command for notifications

    def to_json(self) -> bytes:
        """The order as JSON for the launcher's standard input."""
        runs = [str(path) for path in self.runs]
        return json.dumps(vars(self) | {"runs": runs}).encode("ascii")

    @classmethod
    def from_json(cls, text: bytes) -> "Order":
        """Read an order from JSON."""
        document = json.loads(text)
        runs = tuple(Path(path) for path in document["runs"])
        command = tuple(document["worker_command"])
        return cls(runs, document["max_parallel"], command, document.get("notify"))


def start_launcher(root: Path) -> subprocess.Popen[bytes]:
    """Start a detached launcher that waits for its order.

    Without an order it ends and has done nothing. So its pid is recorded with the runs before
    anything starts, even if the submitting process dies in between.
    """
    command = [*python_command(), "local-queue", str(root)]
    try:
        with open(lock_folder(root) / LOG, "ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
    except OSError as error:
        raise RunDirError(f"cannot start a launcher in {root}: {error.strerror}") from None


def give_order(launcher: subprocess.Popen[bytes], order: Order, root: Path) -> None:
    """Let a launcher begin."""
    try:
        with launcher.stdin as pipe:  # pyright: ignore[reportOptionalContextManager] -- a PIPE
            pipe.write(order.to_json())
    except BrokenPipeError:
        log = lock_folder(root) / LOG
        raise SchedulerError(f"the launcher ended before its work began; see {log}") from None


def serve(root: Path, orders: BinaryIO) -> None:
    """Be a launcher: read the order, start each run when there is a slot, wait for all."""
    text = orders.read()
    if not text:
        return  # the submitting process gave no order
    order = Order.from_json(text)
    runs = [RunDir(path) for path in order.runs]
    # One after the other, beside the runs: no run waits for a command that takes its time.
    with ThreadPoolExecutor(max_workers=1) as told:
        for run in _work_on(root, runs, order):
            told.submit(notify_run, run, order.notify)
        talk = lock_folder(root) / LOG
        told.submit(notify_submission, runs, order.notify, talk)


def _work_on(root: Path, runs: Sequence[RunDir], order: Order) -> Iterator[RunDir]:
    """Start each run when there is a slot; yields each run when it has ended."""
    waiting = deque(runs)
    limits = Limits()
    workers: dict[subprocess.Popen[bytes], RunDir] = {}
    while waiting or workers:
        for worker in [worker for worker in workers if worker.poll() is not None]:
            run = workers.pop(worker)
            note_end(run, worker.pid, worker.returncode)
            limits.note_end(run)
            yield run
        limits.stop(workers)
        run = _find_next(waiting)
        slot = _take_slot(root, order.max_parallel) if run else None
        if slot is not None and run is not None and not _is_next(root, run):
            os.close(slot)
            slot = None
        if slot is None or run is None:
            time.sleep(POLL_S)
            continue
        waiting.remove(run)
        try:
            if limits.leave(run):
                yield run
                continue
            worker = _start(root, run, order.worker_command, slot)
        except RunDirError:  # recorded in the run's outcome
            yield run
            continue
        finally:
            os.close(slot)  # from here on the worker's copy holds it
        if worker is not None:
            workers[worker] = run


def _find_next(waiting: deque[RunDir]) -> RunDir | None:
    """The first run that waits only for a slot; runs that wait in vain are dropped."""
    for run in list(waiting):
        try:
            if not run.open_waits:
                return run
            if examine(run).state is State.BLOCKED:
                waiting.remove(run)
        except RunDirError:
            return run  # starting the run will report the error
    return None


def _is_next(root: Path, run: RunDir) -> bool:
    """Whether no run of other launchers has waited longer: first come, first served.

    Checked only when there is a free slot. Launchers that have ended, or that run on another host
    with its own slots, do not count.
    """
    ours = run.read_submission()
    if ours is None or ours.launcher != Process.of_pid(os.getpid()):
        return True  # cancelled or taken over: to be let go of, not to be started
    try:
        others = list_runs(root)
    except RunDirError:
        return True  # a file system that hiccups must not end the launcher; order can wait
    for other in others:
        theirs = other.read_submission()
        if (
            theirs is not None
            and theirs.worker is None
            and theirs.submitted_at < ours.submitted_at
            and theirs.launcher not in (None, ours.launcher)
            and theirs.launcher.is_alive()
            and not other.open_waits
        ):
            return False
    return True


def _start(
    root: Path, run: RunDir, command: tuple[str, ...], slot: int
) -> subprocess.Popen[bytes] | None:
    """Start a run's worker, if the run still belongs to this submission.

    The worker inherits the lock of the slot. So the slot stays taken as long as the worker lives,
    even if this launcher is killed. RunDirError, which is recorded, if it cannot be started.
    """
    with queue_lock(root, patience_s=float("inf")):
        submission = run.read_submission()
        if submission is None or submission.launcher != Process.of_pid(os.getpid()):
            return None  # cancelled, or taken over by a later submission
        try:
            run.take_start()
            run.clear_outcome()
            with open(run.log_path, "ab") as log:
                worker = subprocess.Popen(
                    [*command, str(run.path)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(slot,),
                )
        except (OSError, RunDirError) as error:
            advice = f"; {DISK_FULL}" if is_about_full_disk(error) else ""
            message = f"the worker could not be started: {error}{advice}"
            with suppress(RunDirError):
                run.clear_submission()
                run.write_outcome(OutcomeRecord(outcome=Outcome.FAILED, message=message))
            raise RunDirError(message) from None
        started = Process.of_pid(worker.pid)
        with suppress(RunDirError):  # a full disk: its heartbeat will tell of the worker, or not
            run.write_submission(
                replace(
                    submission,
                    worker_pid=started.pid,
                    worker_start=started.start,
                    started_at=time.time(),
                )
            )
        return worker


def _take_slot(root: Path, n_slots: int) -> int | None:
    """The locked file of a free slot; None if all are taken."""
    folder = slot_folder() or lock_folder(root)
    for number in range(n_slots):
        descriptor = open_lock(folder / f"slot-{number}")
        if try_lock(descriptor):
            return descriptor
        os.close(descriptor)
    return None


def slot_folder() -> Path | None:
    """The folder of this user's slots on this machine, for all runs roots.

    A home directory may be shared by many machines. None if nothing can be written; then each runs
    root has its own slots.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    folder = cache / "vmcjob" / "slots" / host_name()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
