"""The testbed as tests see it, and a folder in which a user of it works."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import vmcjob
from tests.cli.shell import STAND_IN
from tests.forks import COMMANDS, Fork
from vmcjob.rundir import Activity, RunDir, list_runs
from vmcjob.runs.status import rows
from vmcjob.scheduler import Watch
from vmcjob.store import RunStore

log = logging.getLogger(__name__)
TESTBED = str(Path(__file__).parents[2] / "slurm" / "testbed" / "testbed")
NUMBER = "VMCJOB_TESTBED_NUMBER"  # the variable that says which testbed is meant
PATIENCE_S = 900.0  # a loaded machine is slow, and no failure
HURRY_S = 0.5  # between looks at the queue
LOOK_S = 0.01  # between looks at a file: what has to be seen may pass in a second
LOGIN = """
import ctypes, socket
assert ctypes.CDLL(None).unshare(0x04000000) == 0  # CLONE_NEWUTS: a hostname of its own
socket.sethostname("login1")
from vmcjob.__main__ import main
main()
"""
"""A command on a host that sees no process of the compute nodes."""
# What a user has set for JAX stays out, except that jobs share what they compiled.
COMPILED = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")

SPEC = """
name = "h"
seeds = {seeds}
[system]
atoms = [["H", 0.0, 0.0, 0.0]]
[ansatz]
determinants = 1
layers = 1
one_electron_width = 4
two_electron_width = 4
jastrow = false
[sampler]
walkers = 16
warmup = 3
[pretrain]
steps = 0
[optimizer]
kind = "sr"
[train]
steps = {train}
[evaluate]
steps = {evaluate}
warmup = 3
[output]
flush_seconds = 0.2
snapshots = 0
[resources]
gpus = 0
{extra}
"""


class Cluster:
    """The testbed itself."""

    def __init__(self) -> None:
        self.environment: dict[str, str] = {}

    def up(self, *options: str) -> None:
        """Bring it up, or leave it as it is."""
        subprocess.run([TESTBED, "up", *options], check=True, timeout=PATIENCE_S)
        command = ["bash", "-c", 'eval "$("$0" env)"; env -0', TESTBED]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = dict(item.split("=", 1) for item in said.split("\0") if item)
        self.environment = {name: found[name] for name in ("PATH", "SLURM_CONF")}

    def down(self) -> None:
        """Nothing of it stays."""
        subprocess.run([TESTBED, "down"], check=True, timeout=PATIENCE_S)

    def call(self, *command: str) -> str:
        """What a program of SLURM says."""
        return subprocess.run(
            command,
            env=os.environ | self.environment | {"SLURM_TIME_FORMAT": "%s"},
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout

    def start(self, daemon: str, *arguments: str) -> None:
        """Start a daemon that is gone, and wait until both nodes are ready again."""
        environment = os.environ | self.environment
        subprocess.run([daemon, *arguments], env=environment, check=True, timeout=PATIENCE_S)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until both nodes answer and take jobs."""
        deadline = time.monotonic() + PATIENCE_S
        while subprocess.run([TESTBED, "status"], capture_output=True).returncode != 0:
            assert time.monotonic() < deadline, "its nodes do not answer"
            time.sleep(0.5)

    def pid(self, daemon: str) -> int:
        """One of its daemons: slurmctld, slurmd-n1, slurmd-n2."""
        state = Path(self.environment["SLURM_CONF"]).parent
        return int((state / f"{daemon}.pid").read_text())

    def linger(self, seconds: int) -> None:
        """Have jobs be COMPLETING for so long: the nodes' epilog sleeps."""
        state = Path(self.environment["SLURM_CONF"]).parent
        (state / "epilog-seconds").write_text(str(seconds))

    def undrain(self) -> None:
        """Have it use all nodes again."""
        for line in set(self.call("sinfo", "--noheader", "--Node", "--format=%N %T").splitlines()):
            node, state = line.split()
            if "drain" in state:
                log.warning("%s was drained: %s", node, self.call("sinfo", "--list-reasons"))
                self.call("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def wait_until_idle(self) -> None:
        """Wait until no job is left, also none that is COMPLETING.

        A job that ends while no controller answers drains its node: "Kill task failed".
        """
        deadline = time.monotonic() + PATIENCE_S
        while self.call("squeue", "--noheader"):
            assert time.monotonic() < deadline, self.call("squeue")
            time.sleep(0.2)
        self.undrain()

    def job_ids(self, below: Path) -> list[str]:
        """Jobs that have not ended and belong to runs below a folder, elements one by one."""
        text = self.call("squeue", "--noheader", "--array", "--format=%i|%Z")
        found = (line.split("|", 1) for line in text.splitlines())
        return [job_id for job_id, folder in found if Path(folder).is_relative_to(below)]


@dataclass
class Room:
    """Where a user types commands; `extra` is more of their environment.

    Jobs calculate by the fake of tests/run/fake.py, unless the room is real or contained. The fake
    compiles nothing, and takes 5 ms for a step, most of which it sleeps.
    """

    cluster: Cluster
    cwd: Path
    extra: Mapping[str, str] = field(default_factory=dict)
    is_contained: bool = False  # images keep what they compiled where vmcjob says
    is_elsewhere: bool = False  # commands are typed on a host of another name than the nodes'
    is_real: bool = False  # jobs calculate what users would

    @property
    def runs(self) -> Path:
        return self.cwd / "runs"

    @property
    def environment(self) -> dict[str, str]:
        ours_alone = ("VMCJOB_", "SLURM_", "JAX_")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(ours_alone)}
        if not self.is_contained:
            kept |= {name: os.environ[name] for name in COMPILED}
        folders = [*(() if self.is_real else (STAND_IN,)), Path(vmcjob.__file__).parents[1]]
        ours = {
            "HOME": str(self.cwd),
            "PYTHONPATH": os.pathsep.join(map(str, folders)),
            "JAX_PLATFORMS": "cpu",
            "OMP_NUM_THREADS": "1",
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # runs of seconds: compiling takes the most
        }
        return kept | ours | self.cluster.environment | dict(self.extra)

    def within(self, image: Path) -> "Room":
        """The same room, at a site that runs everything in an image."""
        site = self.cwd / "site.toml"
        site.write_text(f'[container]\nimage = "{image}"\noptions = ["--userns"]\n')
        extra = {**self.extra, "VMCJOB_SITE": str(site)}
        return replace(self, extra=extra, is_contained=True)

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Begin a vmcjob command: a fork of a process that has imported the commands."""
        program = ("-c", LOGIN) if self.is_elsewhere else ("-m", "vmcjob")
        return Fork(
            COMMANDS,
            [sys.executable, *program, *arguments],
            cwd=self.cwd,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a vmcjob command to its end, whatever that is."""
        with self.begin(*arguments) as command:
            try:
                stdout, stderr = command.communicate(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                command.kill()
                raise
        return subprocess.CompletedProcess(command.args, command.returncode, stdout, stderr)

    def run(self, *arguments: str) -> str:
        """Standard output of a vmcjob command that succeeds."""
        done = self.start(*arguments)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def spec(self, seeds: int = 1, train: int = 20, evaluate: int = 40, extra: str = "") -> str:
        """Write a spec of the hydrogen atom that takes seconds; its name."""
        text = SPEC.format(seeds=list(range(seeds)), train=train, evaluate=evaluate, extra=extra)
        (self.cwd / "h.toml").write_text(text)
        return "h.toml"

    def status(self, *selectors: str) -> list[dict[str, Any]]:
        """The rows of `vmcjob status`."""
        return json.loads(self.run("status", "--json", *selectors))["runs"]

    def states(self) -> Counter[str]:
        """The same states, without a process of its own for each of many looks."""
        if self.is_elsewhere:
            return Counter(row["state"] for row in self.status())
        with patch.dict(os.environ, self.environment, clear=True):
            runs = self.list()
            found, errors = rows(runs, Watch().look(runs))
        assert not errors
        return Counter(str(row.state) for row in found)

    def wait_for(self, **wanted: int) -> None:
        """Wait until so many runs are in these states, and no others."""
        self.wait_until(lambda: self.states() == Counter(wanted), f"{wanted}")

    def wait_until(
        self, is_reached: Callable[[], object], what: str, pause_s: float = HURRY_S
    ) -> None:
        """Return as soon as it is so; meanwhile requeued jobs need not wait two minutes."""
        deadline, hurry_at = time.monotonic() + PATIENCE_S, 0.0
        while not is_reached():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited in vain until {what}; {self.describe()}")
            if time.monotonic() > hurry_at:
                self.hurry()
                hurry_at = time.monotonic() + HURRY_S
            time.sleep(pause_s)

    def hold(
        self, *runs: RunDir, is_time: Callable[[RunDir], bool] | None = None
    ) -> dict[RunDir, int]:
        """Stop the worker of each run as soon as it computes, or as `is_time` holds; their pids.

        A fast machine would finish the run before a test has looked. SIGCONT lets a worker go on.
        """
        held: dict[RunDir, int] = {}
        is_it_time = is_time or is_computing

        def are_held() -> bool:
            for run in runs:
                beat = run.read_heartbeat()  # may be of a worker of before
                if beat is None or run in held or beat.process.is_alive() is False:
                    continue
                if is_it_time(run):
                    os.kill(beat.pid, signal.SIGSTOP)
                    held[run] = beat.pid
            return len(held) == len(runs)

        self.wait_until(are_held, "all workers are stopped", LOOK_S)
        return held

    def hurry(self) -> None:
        """Let requeued jobs start soon: SLURM would make them wait for two minutes.

        Not at once: a job that comes back within a second finds its credential revoked.
        """
        command = ["squeue", "--noheader", "--array", "--format=%i|%r|%S"]
        environment = self.environment | {"SLURM_TIME_FORMAT": "%s"}
        # No answer is no failure: tests take the controller away, and must not miss a moment then.
        with suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=2
            )
            self.let_start(done.stdout)

    def let_start(self, queue: str) -> None:
        """Have what is requeued, by lines of squeue, start in three seconds."""
        for job_id, reason, start in (line.split("|", 2) for line in queue.splitlines()):
            is_known = start.isdigit()
            if reason == "BeginTime" and is_known and int(start) - time.time() > 10:
                command = ["scontrol", "update", f"JobId={job_id}", "StartTime=now+3"]
                subprocess.run(command, env=self.environment, capture_output=True)

    def describe(self) -> str:
        """Everything that may tell why a test waited in vain."""
        logs = [*self.runs.glob(".slurm/*/*_log.err"), *self.runs.glob("*/log.txt")]
        texts = [f"{path}:\n{path.read_text()[-2000:]}" for path in logs]
        slurm = []
        with suppress(subprocess.SubprocessError):  # there may be no controller just now
            slurm += [self.cluster.call("squeue"), self.cluster.call("sinfo", "--list-reasons")]
        return "\n".join([self.start("status").stdout, *slurm, *texts])

    def list(self) -> list[RunDir]:
        return list_runs(self.runs)

    def only_run(self) -> RunDir:
        (run,) = self.list()
        return run

    def close(self) -> None:
        """End what still runs."""
        for job_id in self.cluster.job_ids(self.cwd):
            subprocess.run(["scancel", job_id], env=self.environment, capture_output=True)
            subprocess.run(
                ["scancel", "--full", "--signal=KILL", job_id],
                env=self.environment,
                capture_output=True,
            )


def is_computing(run: RunDir) -> bool:
    """Whether the worker that spoke last has done steps that a commit keeps.

    A worker that is stopped in its warm-up begins anew.
    """
    beat = run.read_heartbeat()
    return beat is not None and beat.steps_per_s is not None and beat.phase is not Activity.WARMUP


def is_told_to_stop(run: RunDir) -> bool:
    """Whether the run's worker was asked to stop, in any attempt."""
    return any(line["event"] == "stop" for line in run.read_attempts())


def n_starts(run: RunDir) -> int:
    """How many workers have begun."""
    return sum(line["event"] == "start" for line in run.read_attempts())


def assert_same(run: RunDir, undisturbed: Mapping[str, np.ndarray]) -> None:
    """Bit for bit."""
    recorded = series(run)
    for name, column in undisturbed.items():
        np.testing.assert_array_equal(recorded[name], column, err_msg=name)


def series(run: RunDir) -> dict[str, np.ndarray]:
    """Everything that a finished run recorded, except the time that it took."""
    store = RunStore.open(run.store_path, "r", run_id=run.read_record().run_id)
    recorded: dict[str, np.ndarray] = {}
    for group in ("train", "evaluate"):
        for name, column in store.series(group).items():
            if name != "wall_time":
                recorded[f"{group}/{name}"] = column
    return recorded
