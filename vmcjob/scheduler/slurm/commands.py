"""SLURM's own programs, each started with a list of arguments and never through a shell."""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from vmcjob.errors import SchedulerError
from vmcjob.slurm.environment import is_away, is_unclear, plain

TIMEOUT_S = 25.0  # SLURM takes ten to say that nobody listens, twice for jobs by their ids
HURRIED_S = 12.0
_JOB_ID = re.compile(r"\d+(\+\d+)?(_(\d+|\[[^]|]*\]))?")  # 22, 22+1, 22_3, 22_[4-6,9%2]
_SUBMITTED = re.compile(r"Submitted batch job (\d+)")
_OF_ACCOUNTING = ("sacct", "sacctmgr")  # programs that ask slurmdbd
_RETRY = re.compile(r", attempt number -?\d+$")


class Hurry:
    """A dry run: SLURM gets a few seconds to answer, and after a silence no more questions.

    The accounting answers by itself: its silence leaves the questions to slurmctld open.
    """

    silence: SchedulerError | None = None  # of slurmctld
    silence_of_accounting: SchedulerError | None = None

    def silence_for(self, program: str) -> SchedulerError | None:
        """The silence of the daemon that a program asks."""
        return self.silence_of_accounting if program in _OF_ACCOUNTING else self.silence

    def note(self, program: str, silence: SchedulerError) -> None:
        """Keep the silence of the daemon that a program has asked."""
        if program in _OF_ACCOUNTING:
            self.silence_of_accounting = silence
        else:
            self.silence = silence


_hurry: ContextVar[Hurry | None] = ContextVar("hurry", default=None)


@contextmanager
def hurried() -> Iterator[Hurry]:
    """Ask in a hurry within this context; afterwards, `silence` says whether slurmctld answered."""
    hurry = Hurry()
    token = _hurry.set(hurry)
    try:
        yield hurry
    finally:
        _hurry.reset(token)


def current_hurry() -> Hurry | None:
    """The hurry that this process is in; None if it can wait."""
    return _hurry.get()


def call(*command: str, text: str | None = None) -> str:
    """Standard output of a command; SchedulerError with its own words if it fails."""
    done = start(command, text)
    if done.returncode != 0:
        raise SchedulerError(f"{command[0]}: {words(done.stderr) or f'exit {done.returncode}'}")
    return done.stdout


def start(command: Sequence[str], text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, whatever that is; SchedulerError if there is no such command."""
    hurry = current_hurry()
    if hurry is None:
        return _start(command, text, TIMEOUT_S)
    if silence := hurry.silence_for(command[0]):
        raise SchedulerError(str(silence))
    try:
        done = _start(command, text, HURRIED_S)
    except SchedulerError as error:
        if is_unclear(str(error)):
            hurry.note(command[0], error)
        raise
    if done.returncode and (is_away(done.stderr) or is_unclear(done.stderr)):
        hurry.note(command[0], SchedulerError(f"{command[0]}: {words(done.stderr)}"))
    return done


def _start(
    command: Sequence[str], text: str | None, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a command for at most so many seconds."""
    try:
        return subprocess.run(
            command,
            input=text or "",
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            env=plain(os.environ),
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError:
        raise SchedulerError(f"{command[0]} is not on PATH; is this a SLURM machine?") from None
    except subprocess.TimeoutExpired as error:
        said = words((error.stderr or b"").decode("utf-8", "replace"))
        reason = f"no answer within {timeout_s:g} s" + (f": {said}" if said else "")
        raise SchedulerError(f"{command[0]}: {reason}") from None


def fields(text: str, count: int) -> Iterator[list[str]]:
    """The columns of every line that is about a job; what a site's wrappers say beside is not."""
    for line in text.splitlines():
        columns = line.split("|", count - 1)
        if len(columns) == count and _JOB_ID.fullmatch(columns[0]):
            yield columns


def submitted_id(answer: str) -> str:
    """The id of the job that sbatch was given; a wrapper may speak of others, before and after."""
    found = _SUBMITTED.findall(answer)
    if not found:
        raise SchedulerError(f"sbatch: expected 'Submitted batch job ...', got {answer.strip()!r}")
    return found[-1]


def words(stderr: str) -> str:
    """What SLURM said, in one line and without its program's name before every clause."""
    lines = [_RETRY.sub("", line.strip()) for line in stderr.splitlines() if line.strip()]
    said = (line.partition(": ")[2] or line for line in lines)
    return "; ".join(dict.fromkeys(line.removeprefix("error: ") for line in said))
