"""The checks of `doctor`: each looks at one thing of this machine and starts nothing that lasts."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final

from vmcjob.cli.text import format_size
from vmcjob.errors import ContainerError
from vmcjob.version import __version__

if TYPE_CHECKING:
    from vmcjob.apptainer.container import Image
    from vmcjob.site import Site

OK: Final = "ok"
WARNING: Final = "warning"
FAILURE: Final = "failure"

TIMEOUT_S: Final = 60.0  # JAX takes some seconds to start, on a busy file system far more
MAX_SKEW_S: Final = 5.0
LEAST_MEMORY: Final = 4e9  # bytes; JAX, and compiling for it, take half
LEAST_DISK: Final = 5e9
LEAST_INODES: Final = 10_000
DEVICES: Final = "import jax; print(*(d.device_kind for d in jax.devices() if d.platform == 'gpu'))"


@dataclass(frozen=True)
class Check:
    """What was found, and the next command to type if it is not as it should be."""

    name: str
    level: str
    found: str
    command: str = ""


def check_python() -> Iterator[Check]:
    """This Python, and whether the packages are there that vmcjob needs."""
    yield Check("python", OK, f"{sys.version.split()[0]}, {sys.executable}")
    missing = []
    for line in metadata.requires("vmcjob") or ():
        name = re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]
        if "extra ==" not in line and not _is_installed(name):
            missing.append(name)
    if missing:
        words, command = f"missing: {', '.join(missing)}", f"pip install {' '.join(missing)}"
        yield Check("packages", FAILURE, words, command)
    else:
        yield Check("packages", OK, "all installed")


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def check_machine() -> Iterator[Check]:
    """Free memory, and CPUs that this process may use."""
    free = _free_memory()
    level = OK if free >= LEAST_MEMORY else WARNING
    words = f"{format_size(free)} free, {len(os.sched_getaffinity(0))} CPUs"
    yield Check("memory", level, words, "" if level == OK else "ps aux --sort=-rss | head")


def _free_memory() -> float:
    """Bytes that can be used without swapping."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB", _read("/proc/meminfo"), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def check_folders(site: "Site") -> Iterator[Check]:
    """The runs root and the folder of compiled programs: writable, with space and right clocks."""
    from vmcjob.apptainer.container import DEFAULT_CACHE, NO_CACHE

    yield from _check_folder("runs root", site.runs, "--runs DIR names another")
    cache = site.container.compile_cache or DEFAULT_CACHE
    if cache != NO_CACHE:
        yield from _check_folder("compile cache", Path(cache).expanduser(), "")


def _check_folder(name: str, folder: Path, advice: str) -> Iterator[Check]:
    there = next(place for place in (folder, *folder.absolute().parents) if place.is_dir())
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".vmcjob-doctor-") as file:
            skew = os.fstat(file.fileno()).st_mtime - time.time()
    except OSError as error:
        words = f"{folder}: cannot be written: {(error.strerror or '').lower()}"
        yield Check(name, FAILURE, f"{words}; {advice}" if advice else words, f"ls -ld {there}")
        return
    state = os.statvfs(there)
    space, inodes = state.f_bavail * state.f_frsize, state.f_favail
    words = f"{folder}: writable, {format_size(space)} and {inodes} files left"
    is_short = space < LEAST_DISK or (state.f_files and inodes < LEAST_INODES)
    yield Check(name, WARNING if is_short else OK, words, f"df -h {there}" if is_short else "")
    if abs(skew) > MAX_SKEW_S:
        words = f"its file system's clock is {skew:+.0f} s from this machine's: ages will be wrong"
        yield Check(f"{name}, clock", WARNING, words, "timedatectl")


def check_slurm(site: "Site") -> Iterator[Check]:
    """Whether a cluster answers and keeps accounts; nothing is asked where none is meant."""
    if shutil.which("sbatch") is None:
        if site.scheduler == "slurm":
            words = 'sbatch is not on PATH, and the site says scheduler = "slurm"'
            yield Check("slurm", FAILURE, words, "command -v sbatch")
        else:
            yield Check("slurm", OK, "none here: runs start on this machine")
        return
    done = ask("sinfo", "--version")
    answers = ask("sinfo", "--noheader", "--format=%P")
    if answers.returncode:
        yield Check(
            "slurm", FAILURE, f"sinfo: {_last(answers).removeprefix('sinfo: ')}", "scontrol ping"
        )
        return
    partitions = ", ".join(dict.fromkeys(answers.stdout.split()))
    yield Check("slurm", OK, f"{done.stdout.strip()}; partitions: {partitions}")
    accounts = ask("sacctmgr", "--noheader", "--parsable2", "list", "cluster")
    if accounts.returncode or not accounts.stdout.strip():
        words = "no accounting: how a job ended is known for minutes only"
        yield Check("accounting", WARNING, words, "sacctmgr list cluster")
    else:
        yield Check("accounting", OK, "slurmdbd answers")


def check_apptainer(image: "Image | None", options: Sequence[str]) -> Iterator[Check]:
    """Apptainer and what it needs of the kernel; without an image, it need not be there.

    Without an image, a container is tried with the options of the site.
    """
    need = WARNING if image is None else FAILURE
    if shutil.which("apptainer") is None:
        words = "not on PATH"
        if image is None:
            yield Check("apptainer", OK, f"{words}, and no image is named: runs use this Python")
        else:
            yield Check("apptainer", need, words, "module load apptainer")
        return
    yield Check("apptainer", OK, ask("apptainer", "--version").stdout.strip())
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        words = "not readable and writable: images are unpacked at each start"
        yield Check("/dev/fuse", WARNING, words, "ls -l /dev/fuse")
    if ask("unshare", "--user", "true").returncode:
        words = "not allowed: Apptainer needs its setuid installation"
        yield Check("user namespaces", WARNING, words, "sysctl user.max_user_namespaces")
    if image is None or not os.path.exists(image.path):
        yield _try_without_image(options)


def _try_without_image(options: Sequence[str]) -> Check:
    """Whether Apptainer starts a container here, where there is no image yet."""
    from vmcjob.apptainer.trial import try_start

    trial = try_start(options)
    if not trial.problem:
        return Check("container", OK, "starts; there is no image yet")
    return Check("container", WARNING, f"does not start: {trial.problem}{trial.advice}")


def check_image(image: "Image | None") -> Iterator[Check]:
    """The site's image: its file and its pin."""
    if image is None:
        return
    try:
        found = image.digest()
    except ContainerError as error:
        yield Check("image", FAILURE, str(error), f"vmcjob image build {quote(str(image.path))}")
        return
    pin = "as pinned" if image.pinned else "not pinned"
    yield Check("image", OK, f"{image.path}: sha256 {found[:12]}…, {pin}")
    if shutil.which("apptainer") is not None:
        yield _check_start(image)


def _check_start(image: "Image") -> Check:
    """Whether the image starts here, and has this release of vmcjob."""
    from vmcjob.apptainer.trial import try_start

    options = ("--cleanenv", "--no-home", *image.options)
    done = ask("apptainer", "exec", *options, str(image.path), "vmcjob", "--version")
    if done.returncode:
        words = f"does not start: {_last(done)}{try_start(image.options).advice}"
        return Check("container", FAILURE, words, "vmcjob image verify")
    said = done.stdout.strip()
    if said != f"vmcjob {__version__}":
        words = f"starts, but has {said}, and this is vmcjob {__version__}"
        return Check("container", WARNING, words, f"vmcjob image build {quote(str(image.path))}")
    return Check("container", OK, f"starts, with {said}")


def check_gpus(image: "Image | None") -> Iterator[Check]:
    """Check which GPUs this machine has, and whether JAX sees them.

    The JAX of runs is asked: that of the image, or without an image that of this Python.
    """
    if shutil.which("nvidia-smi") is None:
        yield _no_gpu()
        return
    listed = ask("nvidia-smi", "--list-gpus")
    gpus = [line for line in listed.stdout.splitlines() if line.startswith("GPU ")]
    if listed.returncode or not gpus:
        yield Check("gpu", WARNING, f"nvidia-smi: {_last(listed)}", "nvidia-smi")
        return
    yield Check("gpu", OK, f"{len(gpus)}: {gpus[0].partition(' (UUID')[0]}")
    command = [sys.executable, "-c", DEVICES]
    if image is not None:
        inside = ["python3", "-c", DEVICES]
        command = ["apptainer", "exec", "--nv", *image.options, str(image.path), *inside]
    seen = ask(*command)
    where = "JAX in the image" if image else "JAX of this Python"
    if seen.returncode or not seen.stdout.strip():
        words = f"{where} sees no GPU: {_last(seen)}"
        yield Check("jax", FAILURE, words, "pip install 'vmcjob[cuda12]'" if not image else "")
    else:
        yield Check("jax", OK, f"{where} sees {seen.stdout.strip()}")


def _no_gpu() -> Check:
    """A machine without NVIDIA's programs; a warning for a job that SLURM has given a GPU."""
    if os.environ.get("SLURM_GPUS_ON_NODE"):
        words = (
            "SLURM gave this job a GPU, but nvidia-smi is not on PATH; where no node has NVIDIA's "
            "driver, write gpus = 0 into [resources] of specs"
        )
        return Check("gpu", WARNING, words, "command -v nvidia-smi")
    is_node = "SLURM_JOB_ID" in os.environ
    words = "none on this node" if is_node else "none here; with --on-node, a node is asked"
    return Check("gpu", OK, words)


def ask(*command: str) -> subprocess.CompletedProcess[str]:
    """A command to its end; a missing or hanging one fails with a sentence."""
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        words = f"no answer within {TIMEOUT_S:g} s"
    except OSError as error:
        words = (error.strerror or type(error).__name__).lower()
    return subprocess.CompletedProcess(command, 127, "", words)


def _last(done: subprocess.CompletedProcess[str]) -> str:
    """The last line that a command said, or its exit code."""
    from vmcjob.apptainer.trial import last_line

    said = last_line(done.stderr) or last_line(done.stdout)
    return said or f"exit code {done.returncode}"


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""
