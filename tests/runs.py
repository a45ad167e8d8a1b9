"""Run directories and processes for tests: small, real, and quick to make."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from vmcjob.rundir import Record, RunDir, list_runs
from vmcjob.spec import dump_spec, parse_spec

PATIENCE_S = 120.0  # for things that take a moment; far more than they need


def make_record(run_id: str = "h2-0123456789", **changes) -> Record:
    """A record whose name is the beginning of its run id."""
    values = {
        "run_id": run_id,
        "name": run_id.rpartition("-")[0],
        "point": {"R": 1.4},
        "seed": 0,
        "science_sha256": "ab" * 32,
        "source": "jobs/h2.toml",
        "vmcjob_version": "0.1.0",
    }
    return Record(**(values | changes))


@cache
def spec_text() -> str:
    """The resolved spec of H₂ with two walkers."""
    atoms = [["H", 0.0, 0.0, 0.0], ["H", 0.0, 0.0, 1.4]]
    text = f'name = "h2"\n[system]\natoms = {atoms}\n[sampler]\nwalkers = 2\n'
    (point,) = parse_spec(text, "h2.toml").points
    return dump_spec(point.spec)


def make_run(
    root: Path, run_id: str = "h2-0123456789", text: str = 'name = "h2"\n', **changes
) -> RunDir:
    """The directory of one run, by default with a spec that only names it."""
    return RunDir.create(root, make_record(run_id, **changes), text)


class Programs:
    """A PATH with nothing on it but stand-ins, which note how they were called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(
        self, name: str, output: str = "", *, code: int = 0, error: str = "", hangs: bool = False
    ) -> None:
        (self.folder / f"{name}.out").write_text(output)
        (self.folder / f"{name}.err").write_text(error)
        path = self.folder / name
        path.write_text(
            f'#!/bin/sh\necho "$@" >> {self.folder}/{name}.calls\n'
            f"/usr/bin/env > {self.folder}/{name}.env\n"
            f"/bin/cat {self.folder}/{name}.out\n/bin/cat {self.folder}/{name}.err >&2\n"
            f"{'exec /bin/sleep 60' if hangs else f'exit {code}'}\n"
        )
        path.chmod(0o755)

    def calls(self, name: str) -> list[str]:
        path = self.folder / f"{name}.calls"
        return path.read_text().splitlines() if path.exists() else []

    def variables(self, name: str) -> set[str]:
        """What the program saw of the environment when it was called last."""
        lines = (self.folder / f"{name}.env").read_text().splitlines()
        return {line.partition("=")[0] for line in lines}


@contextmanager
def sleeping_process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing until it is killed, at the latest on leaving."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def end_everything(root: Path) -> None:
    """End launchers first, that they start nothing more, and then the workers they started."""
    submissions = [run.read_submission() for run in list_runs(root)]
    launchers = [found.launcher for found in submissions if found is not None]
    workers = [found.worker for found in submissions if found is not None]
    for process in (*launchers, *workers):
        if process is not None and process.is_alive():
            os.kill(process.pid, signal.SIGKILL)


def wait_until(is_reached: Callable[[], object], what: str) -> None:
    """Return as soon as it is, and fail when it never is."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_reached():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE_S:g} s in vain until {what}")
        time.sleep(0.02)
