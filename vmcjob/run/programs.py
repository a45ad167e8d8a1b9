"""Compiled programs are kept: every attempt, and a sweep's next run, begin sooner."""

import hashlib
import os
import platform
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from vmcjob.protocol import IMAGE_SHA256, JAX_CACHE

MAX_BYTES = 1 << 30
"""Of all that is kept for one kind of processor; a run's programs take two to twenty MB."""
SHORTEST = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
PROCESSOR = ("model name", "flags", "CPU implementer", "CPU part", "Features")
DIGITS = 16
COMPILER = "compile"
"""The name of a thread that compiles what is needed later, and of others that it begins."""


def keep_programs() -> None:
    """Have JAX keep what it compiles, in `~/.cache/vmcjob/compiled`; before JAX is imported.

    Where JAX's own variables say something, that counts. A run in an image has a place of the
    image's, or none. Where no folder can be made that nobody else may write to, nothing is kept:
    JAX runs what it finds there.
    """
    os.environ.setdefault(SHORTEST, "0")
    if JAX_CACHE in os.environ or IMAGE_SHA256 in os.environ:
        return
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    folder = home / "vmcjob" / "compiled" / processor()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:
        return
    if status.st_uid != os.geteuid() or status.st_mode & 0o022 or not os.access(folder, os.W_OK):
        return
    forget_oldest(folder, MAX_BYTES)
    os.environ[JAX_CACHE] = str(folder)


def is_compiling() -> bool:
    """Whether a thread is still at a program that is for later: nobody can call it off."""
    return any(thread.name.startswith(COMPILER) for thread in threading.enumerate())


def processor() -> str:
    """A name for all processors that have this one's instructions: a home may be on many machines.

    What was compiled for one ends by SIGILL on another, if it runs there at all.
    """
    facts = {platform.machine(), platform.processor()}
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.partition(":")[0].strip() in PROCESSOR:
                facts.add(line)
    return hashlib.sha256("\n".join(sorted(facts)).encode()).hexdigest()[:DIGITS]


def forget_oldest(folder: Path, n_bytes: int) -> None:
    """Remove the files that were not used for longest, until the rest are within `n_bytes`.

    Several may do so at once, while others read: a program that is gone is compiled again.
    """
    found = sorted(_files(folder), reverse=True)
    for _, size, path in found:
        n_bytes -= size
        if n_bytes < 0:
            with suppress(OSError):
                path.unlink()


def _files(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """When each file was used last, as far as the file system notes it, and its bytes."""
    with suppress(OSError):
        for path in folder.iterdir():
            with suppress(OSError):
                status = path.stat()
                yield max(status.st_atime, status.st_mtime), status.st_size, path
