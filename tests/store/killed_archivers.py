"""Archive a store and restore it, killed before each of its touches of the disk in turn.

A process of its own, with one thread: whoever is killed is a fork.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

from tests.store.reference import N_COMMITS, assert_holds, create, go_on
from vmcjob.store.archive import (
    is_packed,
    pack,
    remove_archive,
    remove_directory,
    unpack,
)
from vmcjob.store.files import archive_of

TOUCHES = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"}


def archive(path: Path) -> None:
    """What `vmcjob archive --remove` does."""
    if path.exists():
        if not is_packed(path):
            pack(path, "h2-0123")
        remove_directory(path)


def restore(path: Path) -> None:
    """What `vmcjob archive --restore --remove` does."""
    if not path.exists():
        unpack(path)
    if archive_of(path).exists():
        remove_archive(path)


def kill_everywhere(path: Path, task: Callable[[Path], None], stride: int) -> int:
    """How often a task was killed; the store was whole each time, and the next one finished it."""
    whole = path.parent / "whole"
    shutil.copytree(path.parent, whole)
    for number in count():
        at = 1 + stride * number
        is_killed = _fork(lambda at=at: _run_until(at, path, task)) == -signal.SIGKILL
        if _fork(lambda: assert_holds(path, N_COMMITS)):
            sys.exit(f"killed at touch {at} of {task.__name__}, the store was not whole")
        if _fork(lambda: task(path)) or _fork(lambda: assert_holds(path, N_COMMITS)):
            sys.exit(f"killed at touch {at} of {task.__name__}, it could not be done again")
        if not is_killed:
            shutil.rmtree(whole)
            return number
        for left in path.parent.glob("*run.zarr*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        shutil.copytree(whole, path.parent, dirs_exist_ok=True)
    raise AssertionError("unreachable")


def _run_until(touch: int, path: Path, task: Callable[[Path], None]) -> None:
    """Do a task, and be killed before its n-th touch of the disk beside the store."""
    left = [touch]

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if event in TOUCHES and str(path.parent) in str(arguments[0]):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    task(path)


def _fork(task: Callable[[], int | None]) -> int:
    """The exit code of a new process that does a task: what that returns, or minus a signal."""
    pid = os.fork()
    if not pid:
        try:
            os._exit(task() or 0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201 -- for the parent's log
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    place = Path(sys.argv[1])
    if _fork(lambda: go_on(create(place)) and None):
        sys.exit("the store could not be made")
    kills = [kill_everywhere(place, task, int(sys.argv[2])) for task in (archive, restore)]
    sys.stdout.write(" ".join(map(str, kills)))
