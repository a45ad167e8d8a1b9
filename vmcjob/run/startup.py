"""JAX's start: whatever goes wrong there is told in a sentence, not in the words of a library."""

import ctypes
import importlib
import os
from importlib import metadata
from typing import Any, Final, NamedTuple

from vmcjob.errors import DeviceError
from vmcjob.spec import JobSpec, Kfac

MIN_THREADS = 2
MANY_THREADS = 16
"""Of XLA's pool on a CPU, where threads may wait for each other. A batch of factorisations waits,
in a thread of the pool, for others of the pool to do their parts: where as many batches run at once
as there are threads, all wait for ever. On two processors a run hung in two batches that did not
depend on each other. More threads than processors cost up to a third of a step's time."""
MAX_ELIMINATED = 16  # as in `fwdlap.elimination`: rows of matrices that are not LAPACK's

M_MMAP_MAX, M_TRIM_THRESHOLD = -4, -1  # of glibc's malloc.h
KEEP_MEMORY: Final = ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1))
"""Options of glibc's mallopt. The system clears each page that it hands out. A training step of
`lih` takes 0.87(2) of the time if its memory stays with the process for the next step."""

XLA_FLAGS: Final = "XLA_FLAGS"


class Flag(NamedTuple):
    """Something to say to XLA, and the releases of jaxlib that know it, from and before.

    One that does not know a flag ends the process.
    """

    name: str
    value: str
    known_from: tuple[int, ...]
    known_before: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


ONLY_PRODUCTS: Final = Flag(
    "--xla_cpu_experimental_ynn_fusion_type", "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT", (0, 9), (0, 13)
)
"""What XLA leaves to another library on a CPU. As it is by default that has sums as well, with what
is summed: over a few nuclei or electrons, these take up to half of a pass of log|ψ|."""
PLAIN_LOOPS: Final = Flag("--xla_cpu_use_fusion_emitters", "false", (0, 9), (0, 11, 1))
"""How XLA writes loops for a CPU. By default they come of a longer way through a compiler, which
takes twice the time for a training step, and steps are not faster for it."""
BARRIERS: Final = Flag(
    "--xla_disable_hlo_passes", "cse_barrier_expander,small-while-loop-hoisting", (0, 9), (0, 13)
)
"""Needed by `fwdlap.cpu.kept`. The first pass takes barriers out before loops are put together; the
second makes one kernel of a small `while`, and fails where there is a barrier in it."""
SHORT_CODE: Final = Flag(
    "--xla_backend_extra_options", "-unroll-threshold=50,-disable-lsr", (0, 9), (0, 13)
)
"""Options of LLVM: it writes out loops of fewer rounds only, and does without its search for the
best way to count through arrays. Programs are compiled in a third less time, and are not slower."""
FOR_CPUS: Final = BARRIERS, SHORT_CODE  # a compiler for GPUs might make worse programs by them
LIBRARY_PRODUCTS: Final = Flag("--xla_gpu_enable_triton_gemm", "false", (0, 9), (0, 13))
"""Matrix products on a GPU are NVIDIA's own. By default XLA writes some itself, in many ways, of
which it compiles and tries all: three to twelve times the time to compile a training step, and
hardly any gain of it (tests/benchmarks/README.md)."""
FOR_GPUS: Final = (LIBRARY_PRODUCTS,)
PLUGINS: Final = "jax_plugins"  # the group of packages that bring JAX to other devices than CPUs


def settle_libraries(spec: JobSpec | None = None) -> None:
    """What libraries that compute are told where nobody has said so; before they are imported.

    Args:
        spec: of the job that this process is for, if it is known.
    """
    _settle_threads(MANY_THREADS if spec is None or _has_waiting(spec) else MIN_THREADS)
    _settle_memory()
    _settle_compiler()


def _has_waiting(spec: JobSpec) -> bool:
    """Whether threads may wait for each other: in batches of LAPACK's, or for other devices."""
    counts = spec.system.n_up, spec.system.n_down
    rows = sum(counts) if spec.ansatz.full_determinants else max(counts)
    has_batches = rows > MAX_ELIMINATED or isinstance(spec.optimizer, Kfac)
    said = os.environ.get(XLA_FLAGS, "")
    return has_batches or "device_count" in said or "JAX_NUM_CPU_DEVICES" in os.environ


def _settle_threads(at_least: int) -> None:
    # XLA sizes its pool by this variable, or else by the processors that the process may use.
    try:
        processors = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        processors = os.cpu_count() or 1
    os.environ.setdefault("NPROC", str(max(at_least, processors)))
    # OpenBLAS's own threads wait at full speed for the next factorisation, and keep XLA's waiting.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _settle_memory() -> None:
    """Keep freed memory in this process, unless the environment has options of the C library."""
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if set_option is not None:
        for option, value in KEEP_MEMORY:
            set_option(option, value)


def _settle_compiler() -> None:
    said = os.environ.get(XLA_FLAGS, "").strip()
    if said and not said.startswith("-"):  # a file, which XLA then reads its flags from
        return
    release = _release_of_jaxlib()
    flags = [
        str(flag)
        for flag in (ONLY_PRODUCTS, PLAIN_LOOPS, *(FOR_GPUS if _has_plugin() else FOR_CPUS))
        if flag.name not in said and flag.known_from <= release < flag.known_before
    ]
    if flags:
        os.environ[XLA_FLAGS] = " ".join([said, *flags]).strip()


def _has_plugin() -> bool:
    """Whether JAX may find other devices than CPUs."""
    return os.environ.get("JAX_PLATFORMS") != "cpu" and bool(metadata.entry_points(group=PLUGINS))


def _release_of_jaxlib() -> tuple[int, ...]:
    """Its first three numbers; none of them if there is no jaxlib to be asked."""
    try:
        return tuple(int(part) for part in metadata.version("jaxlib").split(".")[:3])
    except (metadata.PackageNotFoundError, ValueError):
        return ()


def import_jax(spec: JobSpec | None = None) -> None:
    """Import JAX; DeviceError where its parts do not fit together, or its settings are wrong.

    Args:
        spec: as in `settle_libraries`.
    """
    settle_libraries(spec)
    try:
        importlib.import_module("jax")
    except Exception as error:
        raise DeviceError(f"JAX cannot be imported{_setting()}: {_reason(error)}") from error


def find_devices() -> list[Any]:
    """The devices of this process, as JAX finds them; DeviceError if it finds none to use."""
    import jax

    try:
        return jax.local_devices()
    except Exception as error:
        raise DeviceError(
            f"JAX finds no device to compute on{_setting()}: {_reason(error)}; see that the device "
            "is there and that jax was installed for it, or unset JAX_PLATFORMS"
        ) from error


def _setting() -> str:
    """What the environment says to JAX: any of it may be wrong, but for the cache, which we set."""
    names = (name for name in sorted(os.environ) if name[:4] == "JAX_" and "_CACHE_" not in name)
    found = [f"{name}={value}" for name in names if (value := os.environ[name])]
    return f" with {', '.join(found)}" if found else ""


def _reason(error: BaseException) -> str:
    """The first line of what a library said, in the error or in one that it came from."""
    cause: BaseException | None = error
    while cause is not None:
        if first := str(cause).strip().partition("\n")[0]:
            return first
        cause = cause.__cause__ or cause.__context__
    return "JAX gives no reason"
