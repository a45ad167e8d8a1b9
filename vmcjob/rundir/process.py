"""Identity of a process: its pid together with its host and start time."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


def host_name() -> str:
    """Name of this machine, as in every record."""
    return os.uname().nodename


def start_time(pid: int) -> int | None:
    """Start of a process in clock ticks since boot; None without /proc or without the process."""
    stat = _read_stat(pid)
    return None if stat is None else stat[1]


@dataclass(frozen=True)
class Process:
    """One process on one machine."""

    host: str
    pid: int
    start: int | None

    @classmethod
    def of_pid(cls, pid: int) -> "Process":
        """The process with this pid on this machine."""
        return cls(host_name(), pid, start_time(pid))

    def is_alive(self) -> bool | None:
        """Whether it still runs; None for a process of another host, which cannot be seen.

        A zombie counts as dead: it computes nothing and only waits for its parent. The process is
        also dead if a younger process has its pid.
        """
        if self.host != host_name():
            return None
        if not (PROC / "self" / "stat").exists():
            return _signal(self.pid, 0)
        stat = _read_stat(self.pid)
        if stat is None or stat[0] in "ZX":
            return False
        return self.start is None or stat[1] == self.start

    def terminate(self) -> bool:
        """Ask the process to end (SIGTERM); False if it is not alive on this machine.

        The pid may be reused between check and signal. So, where the kernel offers a handle of the
        process (pidfd), the handle is opened before the check.
        """
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        except (AttributeError, OSError, OverflowError):  # not Linux, an old kernel, or no pid
            return bool(self.is_alive()) and _signal(self.pid)
        try:
            if not self.is_alive():
                return False
            signal.pidfd_send_signal(handle, signal.SIGTERM)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True


def _read_stat(pid: int) -> tuple[str, int] | None:
    """State letter and start time (fields 3 and 22 of stat in proc(5)), or None."""
    try:
        text = (PROC / str(pid) / "stat").read_bytes()
        # The command name is in parentheses and may itself contain spaces and parentheses.
        fields = text.rpartition(b")")[2].split()
        return fields[0].decode("ascii"), int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def _signal(pid: int, number: int = signal.SIGTERM) -> bool:
    """Send a signal and return whether the process exists; signal 0 only checks.

    A pid of 0 would mean the caller's own process group.
    """
    if pid <= 0:
        return False
    try:
        os.kill(pid, number)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True
