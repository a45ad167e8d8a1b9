"""This machine as a backend: a launcher process works on the runs, some at a time."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vmcjob.errors import SchedulerError, UsageError
from vmcjob.plan import Plan, Task
from vmcjob.resources import Request
from vmcjob.rundir import LOCAL, Process, RunDir, Submission
from vmcjob.runs.status import Queue
from vmcjob.runs.usage import Spent
from vmcjob.scheduler.command import python_command
from vmcjob.scheduler.contract import Answer, SubmissionOptions
from vmcjob.scheduler.local.cancel import cancel_here
from vmcjob.scheduler.local.launcher import Order, give_order, start_launcher
from vmcjob.scheduler.memory import why_too_large
from vmcjob.scheduler.receipt import Cancelled
from vmcjob.spec import Container, Resources


@dataclass(frozen=True)
class LocalBatch:
    """Runs of one launcher."""

    root: Path
    runs: tuple[RunDir, ...]
    max_parallel: int
    worker_command: tuple[str, ...]
    job_name: str = LOCAL
    after: str | None = None
    notify: str | None = None  # a command that is told of ends

    @property
    def n_jobs(self) -> int:
        """Each run counts as one job."""
        return len(self.runs)

    def first(self, n_jobs: int) -> "LocalBatch":
        """The batch with only its first runs."""
        return self.of(self.runs[:n_jobs])

    def of(self, runs: tuple[RunDir, ...]) -> "LocalBatch":
        """The batch with only these of its runs."""
        return replace(self, runs=runs)

    def preview(self) -> None:
        """None: there is no batch system."""


class LocalHandover:
    """A launcher that waits for its order; without one it ends and has done nothing."""

    def __init__(self, batch: LocalBatch, now: float) -> None:
        self._batch = batch
        self._launcher = start_launcher(batch.root)
        process = Process.of_pid(self._launcher.pid)
        record = Submission(
            scheduler=LOCAL,
            job_id=f"{LOCAL}-{process.pid}",
            host=process.host,
            pid=process.pid,
            process_start=process.start,
            submitted_at=now,
        )
        self.records = dict.fromkeys(batch.runs, record)

    @property
    def processes(self) -> tuple[subprocess.Popen[bytes], ...]:
        """The launcher."""
        return (self._launcher,)

    def complete(self) -> dict[RunDir, str]:
        """Let the launcher begin."""
        batch = self._batch
        paths = tuple(run.path for run in batch.runs)
        order = Order(paths, batch.max_parallel, batch.worker_command, batch.notify)
        give_order(self._launcher, order, batch.root)
        return {run: record.job_id or "" for run, record in self.records.items()}

    def abandon(self) -> bool:
        """End the launcher; the runs are then free."""
        self._launcher.kill()
        self._launcher.communicate()
        return True


@dataclass(frozen=True)
class Local:
    """Runs as background processes of this machine, without a queue."""

    worker_command: tuple[str, ...] | None = None  # the run directory is appended
    name: str = LOCAL
    title: str = "this machine"

    def is_available(self) -> bool:
        """Always true."""
        return True

    def announce(self, options: SubmissionOptions, plans: Sequence[Plan]) -> list[str]:
        """The number of runs at a time, and keys of the specs that only clusters use."""
        count = _n_slots(options)
        runs = "1 run" if count == 1 else f"{count} runs"
        specs = [task.spec for plan in plans for task in plan.tasks]
        tables = {
            "resources": any(spec.resources != Resources() for spec in specs),
            "container": any(spec.container != Container() for spec in specs),
        }
        asked = " and ".join(f"[{table}]" for table, is_asked in tables.items() if is_asked)
        unheeded = f"{asked}: for clusters only; here a run has all devices and this Python"
        here = f"local scheduler: on this machine, {runs} at a time"
        return [here, unheeded] if asked else [here]

    def require(self, options: SubmissionOptions, plans: Sequence[Plan]) -> None:
        """Refuse options of clusters, several nodes, and more memory than there is."""
        if options.request != Request():
            given = [f"--{key}" for key, value in vars(options.request).items() if value]
            verb, pronoun = ("is", "it") if len(given) == 1 else ("are", "them")
            raise UsageError(
                f"{' and '.join(given)} {verb} for SLURM, and the runs stay on this machine; leave "
                f"{pronoun} out, or name the profile of a cluster with --site"
            )
        if problems := [words for plan in plans if (words := why_too_large(plan))]:
            raise UsageError("\n".join(dict.fromkeys(problems)))
        for task in (task for plan in plans for task in plan.tasks):
            if task.spec.resources.nodes > 1:
                raise SchedulerError(
                    f"{task.run_id}: asks for {task.spec.resources.nodes} nodes, and this machine "
                    "is one; set resources.nodes = 1"
                )

    def draft(self, options: SubmissionOptions, wanted: Mapping[RunDir, Task]) -> list[LocalBatch]:
        """One launcher for all runs."""
        command = self.worker_command or (*python_command(), "run")
        notify = options.site.notify
        return [LocalBatch(options.root, tuple(wanted), _n_slots(options), command, notify=notify)]

    def is_other(self, run: RunDir, task: Task, options: SubmissionOptions) -> bool:
        """False: there are no options."""
        del run, task, options
        return False

    def preflight(self, batches: Sequence[LocalBatch]) -> list[Answer]:
        """Answers that take all jobs."""
        return [Answer(batch, self.title, batch.n_jobs) for batch in batches]

    def submit(self, batch: LocalBatch, after: str | None, now: float) -> LocalHandover:
        """Start a launcher."""
        del after
        return LocalHandover(batch, now)

    def adopt(self, run: RunDir, submission: Submission, job_id: str) -> None:
        """Do nothing: a launcher's runs never wait for an id."""

    def look(self, submissions: Mapping[RunDir, Submission]) -> Queue:
        """No states: run directories and processes tell everything."""
        del submissions
        return {}

    def cancel(self, runs: Sequence[RunDir]) -> list[Cancelled]:
        """Take runs from their launchers, or ask their workers to stop."""
        return [cancel_here(run) for run in runs]

    def find_logs(self, run: RunDir, rank: int | None) -> list[Path]:
        """UsageError: there is no job."""
        del rank
        advice = "vmcjob logs without --err has all that its workers said"
        raise UsageError(f"{run.path.name}: was not given to SLURM; {advice}")

    def find_script(self, run: RunDir) -> None:
        """None: there is no script."""
        del run

    def ask_for_use(self, submissions: Mapping[RunDir, Submission]) -> Mapping[RunDir, Spent]:
        """Nothing: this machine keeps no accounts."""
        del submissions
        return {}


def _n_slots(options: SubmissionOptions) -> int:
    """Number of runs at a time."""
    return options.max_parallel or options.site.max_parallel
