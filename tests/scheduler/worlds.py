"""Backends with somebody who decides when jobs start: the same tests are made of all of them."""

import fcntl
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import Any, Protocol

from tests.runs import Programs, end_everything, wait_until
from tests.scheduler import slurm_programs
from tests.scheduler.fake import Fake, FakeContext, FakeSystem
from vmcjob import scheduler
from vmcjob.plan import Plan, make_plan
from vmcjob.protocol.batch import BatchContext
from vmcjob.rundir import RunDir, list_runs
from vmcjob.runs.status import RunStatus, Stage, State, examine
from vmcjob.scheduler import Local, Receipt, Slurm, SubmissionOptions
from vmcjob.scheduler.local import slot_folder
from vmcjob.slurm import SlurmJob
from vmcjob.spec import parse_spec
from vmcjob.supervisor import Supervisor
from vmcjob.supervisor.watch import Inbox

SPEC = """
name = "h"
seeds = {seeds}
[system]
atoms = [["H", 0.0, 0.0, 0.0]]
"""
# Works until the file "gate" is there; stops at a checkpoint when asked to, as the real one does.
WORKER = """
import signal, sys, time
from pathlib import Path
from vmcjob.rundir import Heartbeat, Outcome, OutcomeRecord, Activity, RunDir

run = RunDir(Path(sys.argv[1]))

def stop(number, frame):
    run.write_outcome(OutcomeRecord(outcome=Outcome.PREEMPTED, message="stopped"))
    sys.exit(75)

signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGUSR2, stop)
before = run.read_heartbeat()
step = 1 + (before.step if before else 0)
run.write_heartbeat(Heartbeat(phase=Activity.TRAIN, step=step, n_steps=99))
while not (run.path.parent / "gate").exists():
    time.sleep(0.02)
run.store_path.mkdir(exist_ok=True)
(run.store_path / "zarr.json").write_text("{}")
run.write_outcome(OutcomeRecord(outcome=Outcome.FINISHED))
"""
COMMAND = (sys.executable, "-c", WORKER)
SPARE_S = 1.0


def plan(seeds: int = 1) -> list[Plan]:
    """As many runs as seeds."""
    return [make_plan(parse_spec(SPEC.format(seeds=list(range(seeds))), "h.toml"))]


def plan_from(origin: RunDir, learning_rate: float = 0.01) -> Plan:
    """A run that begins with what another has learnt."""
    text = f'[train]\nstart_from = "{origin.path.name}"\n[optimizer]\n'
    text += f"learning_rate = {learning_rate}\n"
    return make_plan(parse_spec(SPEC.format(seeds=[0]) + text, "child.toml"))


class World(Protocol):
    """A backend, and what happens to the jobs that it has."""

    backend: Any  # a Backend of whatever batches
    options: SubmissionOptions
    processes: list[Popen[bytes]]

    def start(self, run: RunDir) -> None:
        """Its job gets a machine; back when its worker works."""
        ...

    def settle(self, run: RunDir) -> None:
        """Wait until its worker has ended, and its job with it if it was not requeued."""
        ...

    def refuse(self, is_refusing: bool) -> None:
        """Take nothing, or everything again."""
        ...

    def close(self) -> None:
        """End everything."""
        ...


def submit(world: World, seeds: int = 1, *, is_restart: bool = False) -> Receipt:
    """Submit so many runs."""
    given = world.options
    options = SubmissionOptions(given.root, given.site, max_parallel=1, is_restart=is_restart)
    receipt = scheduler.submit(world.backend, plan(seeds), options)
    world.processes.extend(receipt.launchers)
    return receipt


def submit_plans(world: World, *plans: Plan) -> Receipt:
    """Submit what is planned."""
    receipt = scheduler.submit(world.backend, plans, world.options)
    world.processes.extend(receipt.launchers)
    return receipt


def seen(run: RunDir) -> RunStatus:
    """As `status` shows it."""
    return examine(run, scheduler.look([run]))


def state(run: RunDir) -> State:
    """As `status` shows it."""
    return seen(run).state


def finish(world: World, run: RunDir) -> None:
    """Let the worker come to its end."""
    gate = run.path.parent / "gate"
    gate.touch()
    world.settle(run)
    gate.unlink()


class LocalWorld:
    """This machine, with its only slot taken until a run is to start."""

    def __init__(self, root: Path) -> None:
        self.backend = Local(COMMAND)
        self.options = SubmissionOptions(root, max_parallel=1)
        self.processes: list[Popen[bytes]] = []
        folder = slot_folder()
        assert folder is not None
        self._slot = os.open(folder / "slot-0", os.O_RDWR | os.O_CREAT)
        fcntl.flock(self._slot, fcntl.LOCK_EX)

    def start(self, run: RunDir) -> None:
        fcntl.flock(self._slot, fcntl.LOCK_UN)
        wait_until(lambda: state(run) is State.RUNNING, "it runs")
        wait_until(lambda: run.read_heartbeat() is not None, "its worker works")

    def settle(self, run: RunDir) -> None:
        wait_until(lambda: not state(run).is_active, "it has ended")
        fcntl.flock(self._slot, fcntl.LOCK_EX)

    def refuse(self, is_refusing: bool) -> None:
        log = self.options.root / ".local" / "launchers.log"
        if is_refusing:
            log.mkdir(parents=True)
        else:
            log.rmdir()

    def close(self) -> None:
        for launcher in self.processes:
            launcher.kill()
            launcher.wait()
        end_everything(self.options.root)
        os.close(self._slot)


class _Jobs:
    """What worlds with a batch system have in common: a thread supervises each job."""

    options: SubmissionOptions

    def __init__(self) -> None:
        self.processes: list[Popen[bytes]] = []
        self.inboxes: dict[RunDir, Inbox] = {}
        self.codes: dict[RunDir, int] = {}
        self._threads: dict[RunDir, threading.Thread] = {}

    def supervise(self, run: RunDir, context: BatchContext) -> None:
        """Begin an attempt; back when the worker works."""
        submission = run.read_submission()
        assert submission is not None
        supervisor = Supervisor(
            str(run.path), submission.job_name or "", (*COMMAND, str(run.path)), SPARE_S
        )
        self.inboxes[run] = inbox = Inbox()
        before = run.read_heartbeat()

        def attempt() -> None:
            self.codes[run] = supervisor.supervise(context, inbox=inbox)

        self._threads[run] = threading.Thread(target=attempt)
        self._threads[run].start()
        wait_until(lambda: run.read_heartbeat() != before, "its worker works")

    def join(self, run: RunDir) -> None:
        """Wait for the end of the attempt."""
        self._threads[run].join()

    def close(self) -> None:
        for run in list_runs(self.options.root):
            (run.path.parent / "gate").touch()
        for thread in self._threads.values():
            thread.join()


class SlurmWorld(_Jobs):
    """SLURM, whose programs are a stand-in."""

    def __init__(self, root: Path, programs: Programs) -> None:
        super().__init__()
        self.backend = Slurm()
        self.options = SubmissionOptions(root)
        self._file = slurm_programs.install(programs.folder)

    def start(self, run: RunDir) -> None:
        with_state = self._change(run, lambda job: job.update(state="RUNNING"))
        self.supervise(run, self._context(with_state))

    def context(self, run: RunDir) -> SlurmJob:
        """Its job from within."""
        return self._context(self._change(run, lambda job: None))

    def _context(self, found: tuple[str, dict[str, Any]]) -> SlurmJob:
        job_id, job = found
        return SlurmJob.from_environment(
            {"SLURM_JOB_ID": job_id, "SLURM_RESTART_COUNT": str(job["restarts"])}
        )

    def ranks(self, run: RunDir) -> list[Any]:
        """The ranks of a job of two nodes."""
        step = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "n[1-2]"}
        return [self.context(run).rank(step | {"SLURM_PROCID": index}) for index in "01"]

    def tell(self, run: RunDir) -> None:
        """What SLURM does to a job that it ends: its processes are told."""
        self.inboxes[run].put("SIGTERM")

    def settle(self, run: RunDir) -> None:
        self.join(run)
        self._change(run, _leave_queue)

    def refuse(self, is_refusing: bool) -> None:
        self._switch("is_refusing", is_refusing)

    def lose_answers(self, is_deaf: bool) -> None:
        self._switch("is_deaf", is_deaf)

    def end_at(self, when: float) -> None:
        self._switch("end_time", int(when))

    def give_reason(self, run: RunDir, reason: str) -> None:
        """Why its job waits, in SLURM's word."""
        self._change(run, lambda job: job.update(reason=reason))

    def say(self, run: RunDir, text: str) -> None:
        submission = run.read_submission()
        assert submission is not None
        folder = self.options.root / ".slurm" / (submission.job_name or "")
        (folder / f"{submission.job_id}_0_log.err").write_text(text)

    def _switch(self, name: str, value: object) -> None:
        with slurm_programs.opened(self._file) as state:
            state[name] = value

    def _change(
        self, run: RunDir, change: Callable[[dict[str, Any]], object]
    ) -> tuple[str, dict[str, Any]]:
        submission = run.read_submission()
        assert submission is not None
        with slurm_programs.opened(self._file) as known:
            found = ((i, j) for i, j in known["jobs"].items() if j["name"] == submission.job_name)
            job_id, job = next(found)
            change(job)
        return job_id, job


def _leave_queue(job: dict[str, Any]) -> None:
    job["state"] = {"RUNNING": "COMPLETED", "COMPLETING": "CANCELLED"}.get(
        job["state"], job["state"]
    )


class FakeWorld(_Jobs):
    """The fake."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.system = FakeSystem()
        self.backend = Fake(self.system)
        self._registration = scheduler.registered(self.backend)
        self._registration.__enter__()
        self.options = SubmissionOptions(root)

    def start(self, run: RunDir) -> None:
        context = self.context(run)
        context.job.stage, context.job.started_at = Stage.ACTIVE, time.time()
        self.supervise(run, context)

    def context(self, run: RunDir) -> FakeContext:
        """Its job from within."""
        submission = run.read_submission()
        assert submission is not None
        job = self.system.find(submission.job_name or "")
        assert job is not None
        return FakeContext(self.system, job)

    def ranks(self, run: RunDir) -> list[Any]:
        """The ranks of a job of two nodes."""
        job = self.context(run).job
        return [FakeContext(self.system, job, index, 2).rank() for index in range(2)]

    def close(self) -> None:
        super().close()
        self._registration.__exit__(None, None, None)

    def tell(self, run: RunDir) -> None:
        self.inboxes[run].put("SIGTERM")

    def settle(self, run: RunDir) -> None:
        self.join(run)
        job = self.context(run).job
        if job.stage is Stage.ACTIVE:
            job.stage = Stage.ENDED

    def refuse(self, is_refusing: bool) -> None:
        self.system.is_refusing = is_refusing

    def lose_answers(self, is_deaf: bool) -> None:
        self.system.is_deaf = is_deaf

    def end_at(self, when: float) -> None:
        self.system.end_time = when

    def say(self, run: RunDir, text: str) -> None:
        script = self.backend.find_script(run)
        assert script is not None
        (script.parent / "said").write_text(text)
