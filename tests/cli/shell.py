"""The command line as users have it: a process of its own, in a directory of its own.

Commands are forks of a process that has imported their modules, but for tests that ask for a new
interpreter by `python=COMMAND`.
"""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import vmcjob
from tests.forks import COMMANDS, Fork
from tests.runs import end_everything
from vmcjob.rundir import Activity, Heartbeat, Outcome, OutcomeRecord, RunDir
from vmcjob.scheduler.local import slot_folder

COMMAND = (sys.executable, "-m", "vmcjob")
STAND_IN = Path(__file__).parents[1] / "cluster" / "stand_in"
TIMEOUT_S = 240


@dataclass(frozen=True)
class Shell:
    """A working directory and an environment without a site, a scheduler or colours."""

    cwd: Path
    extra: Mapping[str, str] = field(default_factory=dict)
    modules: tuple[str, ...] = COMMANDS  # a command imports all others itself

    @property
    def runs(self) -> Path:
        """The embedded default's runs root."""
        return self.cwd / "runs"

    @property
    def environment(self) -> dict[str, str]:
        """Ours, without what would make the commands behave as on this very machine."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("VMCJOB_", "NO_COLOR"))}
        package = str(Path(vmcjob.__file__).parents[1])
        isolated = {"HOME": str(self.cwd), "PATH": str(self.cwd), "PYTHONPATH": package}
        return kept | isolated | dict(self.extra)

    def run(
        self, *arguments: str, python: tuple[str, ...] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, output as text; `python` starts a new interpreter instead."""
        if python is None:
            with self.start(*arguments, errors="surrogateescape") as process:
                stdout, stderr = process.communicate(timeout=TIMEOUT_S)
            return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)
        return subprocess.run(
            [*python, *arguments],
            cwd=self.cwd,
            env=self.environment,
            capture_output=True,
            timeout=TIMEOUT_S,
            encoding="utf-8",
            errors="surrogateescape",
            check=False,
        )

    def start(self, *arguments: str, errors: str = "strict") -> subprocess.Popen[str]:
        """Start a command with pipes for its output."""
        return Fork(
            self.modules,
            [*COMMAND, *arguments],
            cwd=self.cwd,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors=errors,
        )

    def run_on_terminal(self, *arguments: str, n_columns: int = 80) -> tuple[int, str]:
        """Run a command on a terminal of so many columns: exit code and everything shown."""
        parent, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, n_columns, 0, 0))
        environment = {"TERM": "xterm"} | self.environment
        for name in ("COLUMNS", "LINES"):
            environment.pop(name, None)
        process = Fork(
            self.modules,
            [*COMMAND, *arguments],
            cwd=self.cwd,
            env=environment,
            stdin=child,
            stdout=child,
            stderr=child,
        )
        os.close(child)
        try:
            shown = b"".join(_read_terminal(parent))
        finally:
            process.kill()
            os.close(parent)
        return process.wait(), shown.decode().replace("\r\n", "\n")


def fake_shell(cwd: Path) -> Shell:
    """A shell whose workers calculate by tests/run/fake.py, which compiles nothing."""
    folders = STAND_IN, Path(vmcjob.__file__).parents[1]
    return Shell(cwd, {"PYTHONPATH": os.pathsep.join(map(str, folders))})


@contextmanager
def busy_slot(root: Path) -> Iterator[None]:
    """Occupy the only slot of this machine, so that everything submitted stays queued."""
    (root / ".local").mkdir(parents=True, exist_ok=True)
    folder = slot_folder()
    assert folder is not None
    with open(folder / "slot-0", "w") as slot:
        with suppress(BlockingIOError):  # busy already, for another root
            fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            yield
        finally:
            end_everything(root)  # before the slot is free for what is still queued


def finish(run: RunDir, **changes) -> RunDir:
    """Make a run look finished to everybody who does not open its store."""
    run.store_path.mkdir(exist_ok=True)
    (run.store_path / "zarr.json").write_text("{}")
    heartbeat = Heartbeat(
        phase=Activity.DONE, step=1000, n_steps=1000, energy=-1.174476, error=0.000012
    )
    run.write_heartbeat(replace(heartbeat, **changes))
    run.write_outcome(OutcomeRecord(outcome=Outcome.FINISHED))
    return run


def _read_terminal(descriptor: int) -> Iterator[bytes]:
    while True:
        ready, _, _ = select.select([descriptor], [], [], TIMEOUT_S)
        try:
            piece = os.read(descriptor, 1 << 16) if ready else b""
        except OSError:  # Linux says so when the last process has closed its side
            return
        if not piece:
            return
        yield piece
