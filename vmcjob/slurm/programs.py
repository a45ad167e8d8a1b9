"""SLURM's programs as a job starts them: with patience, for a controller may be away."""

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from vmcjob.slurm.environment import plain

QUERY_TIMEOUT_S = 60.0


def ask(*command: str, patience_s: float = QUERY_TIMEOUT_S) -> str:
    """What a command of the batch system says; nothing if it fails."""
    done = start(command, patience_s)
    return done.stdout.strip() if done is not None and done.returncode == 0 else ""


def start(command: Sequence[str], patience_s: float) -> subprocess.CompletedProcess[str] | None:
    """Run a command of the batch system; None if it does not end, or cannot begin."""
    with suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=plain(os.environ),
            timeout=patience_s,
            check=False,
        )
    return None
