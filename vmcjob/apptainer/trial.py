"""A trial of Apptainer without an image: whether a container starts, and by which options."""

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vmcjob.apptainer.container import host_environment

USERNS: Final = "--userns"
TIMEOUT_S: Final = 60.0
_BOUND: Final = ("bin", "lib", "lib64", "usr")
"""Folders of this machine that the container sees, so that it has a program to start."""
_OWN: Final = ("dev", "etc", "proc", "sys", "tmp", "var")
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Trial:
    """What Apptainer said to a container with some options, and what helps."""

    problem: str  # Apptainer's last line; empty if the container has started
    options: tuple[str, ...] | None  # with these, a container starts; None: with none that we know

    @property
    def advice(self) -> str:
        """The line of the site profile that helps, as the end of a sentence; empty without one."""
        if not self.problem or self.options is None:
            return ""
        words = ", ".join(f'"{option}"' for option in self.options)
        return (
            f"; with {USERNS} a container starts here: write options = [{words}] into [container] "
            "of the site profile"
        )


def try_start(options: Sequence[str] = ()) -> Trial:
    """Start a container of this machine's own programs; if it does not start, with --userns too.

    A root without all capabilities can start containers only so.
    """
    options = tuple(options)
    problem = _start(options)
    if not problem or USERNS in options:
        return Trial(problem, None if problem else options)
    more = (*options, USERNS)
    return Trial(problem, None if _start(more) else more)


def last_line(text: str) -> str:
    """The last line of a program's output, without colours; empty without one."""
    lines = [line.strip() for line in _COLOURS.sub("", text).splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _start(options: Sequence[str]) -> str:
    """Apptainer's last line if a container with these options does not start; else empty."""
    with tempfile.TemporaryDirectory(prefix="vmcjob-trial-") as folder:
        for name in (*_BOUND, *_OWN):
            Path(folder, name).mkdir()
        seen = [f"/{name}" for name in _BOUND if os.path.isdir(f"/{name}")]
        command = ["apptainer", "exec", "--cleanenv", "--no-home", "--bind", ",".join(seen)]
        try:
            done = subprocess.run(
                [*command, *options, folder, "/bin/true"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                env=host_environment(os.environ),
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"no answer within {TIMEOUT_S:g} s"
        except OSError as error:
            return (error.strerror or type(error).__name__).lower()
    if done.returncode == 0:
        return ""
    return last_line(done.stderr or done.stdout) or f"exit code {done.returncode}"
