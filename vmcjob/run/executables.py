"""Programs as they were compiled, kept whole: a start that finds them traces nothing.

JAX's own cache knows a program by its text, and to write that down takes most of a start. Here it
is known by all that the text comes from: the sources of this package, the releases of those below,
what JAX and XLA were told, and the spec but for what programs take as arguments.
"""

import hashlib
import json
import logging
import os
import pickle
import platform
import tempfile
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeVar

import jax
import jax.extend.backend
import jax.monitoring
import jax.numpy as jnp
from jax.experimental import serialize_executable
from jax.stages import Compiled, Lowered

from vmcjob.run.programs import processor
from vmcjob.run.rollback import RetryPolicy
from vmcjob.run.startup import XLA_FLAGS
from vmcjob.run.surroundings import device_names, versions
from vmcjob.spec import JobSpec, Kfac, science
from vmcjob.vmc import devices, ranks
from vmcjob.vmc.contracts import LoopState
from vmcjob.vmc.loop import StepOfPhase

Tree = TypeVar("Tree")

SUFFIX: Final = ".executable"
LEVEL: Final = 1  # of zlib: a quarter of the bytes, hardly any time
SOURCES: Final = Path(__file__).parents[1]

FOUND: Final = "/jax/compilation_cache/cache_hits"
MISSED: Final = "/jax/compilation_cache/cache_misses"

log = logging.getLogger("vmcjob")
_heard = threading.local()
_made_once: dict[str, Compiled] = {}


def identity(spec: JobSpec, policy: RetryPolicy) -> str:
    """A name for the programs of a calculation: of two that share it, they have the same text.

    Positions of nuclei are arguments, and so are seeds, but for K-FAC's own samples; whose
    checkpoint a run starts from is of no concern to them.
    """
    told = json.loads(science(spec))
    told["seed"] = spec.seed if isinstance(spec.optimizer, Kfac) else None
    for atom in told["system"]["atoms"]:
        del atom["position"]
    told["train"]["start_from"] = told["train"]["start_from"] is not None
    return hashlib.sha256(repr((told, policy, _surroundings())).encode()).hexdigest()


def can_be_ready() -> bool:
    """Whether programs may be made before they are called: ranks have to compile in step."""
    return ranks.count() == 1


@dataclass(frozen=True)
class Traced:
    """A step whose program is kept, or else traced: what is left to do is not Python's."""

    step: StepOfPhase
    path: Path | None  # where its program is kept, if anywhere
    lower: Callable[[], Lowered]  # at once, if it was traced

    def ready(self) -> StepOfPhase:
        """The step with its program as it was kept, or else compiled now, and kept."""
        return replace(self.step, program=_made(self.path, self.lower, self.step.options))


def trace(identity: str, step: StepOfPhase, state: Callable[[], LoopState]) -> Traced:
    """Trace the step's program, unless it is kept.

    Args:
        identity: of the step's calculation; "": of one that keeps nothing.
        step: whose program it is about.
        state: of arrays, or of `jax.ShapeDtypeStruct`, like all states to come; not consumed.
    """
    # Of one identity all states are alike: none is needed to find a program.
    path = _path(_name(identity, step.name, step.given())) if identity else None

    def lower() -> Lowered:
        return step.lower(state())

    if path is not None and path.exists():
        return Traced(step, path, lower)
    lowered = lower()
    return Traced(step, path, lambda: lowered)


def once(identity: str, function: Callable[..., Tree]) -> Callable[..., Tree]:
    """A function as a program that is called once, which the next run shall find as well.

    Args:
        identity: as in `trace`; with it, the function's name has to say what it computes.
        function: of arrays.
    """
    program: Any = devices.run_once(function)

    def call(*arguments: Any) -> Tree:
        if not can_be_ready():
            return program(*arguments)
        name = _name(identity, function.__name__, arguments)
        if name not in _made_once:
            _made_once[name] = _made(_path(name), partial(program.lower, *arguments))
        return _made_once[name](*arguments)

    return call if identity else program


def _made(
    path: Path | None, lower: Callable[[], Lowered], options: dict[str, str | bool] | None = None
) -> Compiled:
    """The program as it was kept, or else compiled now, and kept."""
    if path is None:
        return lower().compile(options)
    program = _read(path)
    if program is None:
        program, is_new = _compile(lower, options)
        if is_new:  # nobody waits for that but the process, at its end
            threading.Thread(target=_write, args=(path, program)).start()
    return program


@cache
def _surroundings() -> tuple[Any, ...]:
    """What programs depend on beside their calculation; `Any`: all that has a text."""
    sources = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*.py")):
        sources.update(path.read_bytes())
    told = {name: value for name, value in jax.config.values.items() if "cache" not in name}
    flags = os.environ.get(XLA_FLAGS, "")
    pyscf = os.environ.get("PYSCF_CONFIG_FILE", "~/.pyscf_conf.py")  # its norms of basis functions
    files = [_text(flags), _text(pyscf)]
    threads = os.environ.get("NPROC")  # of as many parts are the loops of a program
    backend = jax.extend.backend.get_backend().platform_version
    machine = processor(), device_names(), backend, threads, platform.python_version()
    return sources.hexdigest(), versions(), machine, flags, files, sorted(told.items())


def _text(path: str) -> str | None:
    """What a file says that somebody may have written."""
    try:
        return Path(path).expanduser().read_text()
    except (OSError, ValueError, RuntimeError):
        return None


def _path(name: str) -> Path | None:
    """Where a program is kept: among JAX's, if it keeps any."""
    settings = jax.config.values
    folder = settings["jax_compilation_cache_dir"]
    if not folder or not settings["jax_enable_compilation_cache"]:
        return None
    return path / name if (path := Path(folder)).is_dir() else None


def _name(identity: str, program: str, arguments: tuple[Any, ...]) -> str:
    """Of a file: the same for the same program and arguments of the same kinds."""
    leaves, structure = jax.tree.flatten(arguments)
    kinds = [(leaf.shape, str(leaf.dtype)) for leaf in leaves]
    digest = hashlib.sha256(repr((identity, str(structure), kinds)).encode()).hexdigest()
    return f"{program}-{digest}{SUFFIX}"


def _compile(
    lower: Callable[[], Lowered], options: dict[str, str | bool] | None
) -> tuple[Compiled, bool]:
    """The program, and whether it is new: one that JAX has found in its cache is not to be kept.

    Of such a one XLA writes down a part only.
    """
    _listen()
    lowered = lower()
    _heard.event = None
    program = lowered.compile(options)
    return program, _heard.event == MISSED


@cache
def _listen() -> None:
    """Have JAX say, from now on, whether it found a program; to the thread that asked for it."""

    def hear(event: str, **_: Any) -> None:
        if event in (FOUND, MISSED):
            _heard.event = event

    jax.monitoring.register_event_listener(hear)


def _read(path: Path) -> Compiled | None:
    """The program in a file; None if there is no such file, or it is damaged."""
    try:
        name, *kept = pickle.loads(zlib.decompress(path.read_bytes()))
        if name != path.name:
            raise ValueError(f"it is {name}")
        _prepare_lapack()
        return serialize_executable.deserialize_and_load(*kept)
    except FileNotFoundError:
        return None
    except Exception as error:
        log.debug("%s: %s", path, error)
        return None


def _write(path: Path, program: Compiled) -> None:
    """Keep a program for others; where that is not possible, they will compile it as well."""
    try:
        kept = path.name, *serialize_executable.serialize(program)
        data = zlib.compress(pickle.dumps(kept), LEVEL)
        file, name = tempfile.mkstemp(dir=path.parent)
    except Exception as error:
        log.debug("%s: %s", path, error)
        return
    try:
        with os.fdopen(file, "wb") as out:
            out.write(data)
        Path(name).replace(path)
    except OSError as error:
        log.debug("%s: %s", path, error)
        with suppress(OSError):
            Path(name).unlink()


@cache
def _prepare_lapack() -> None:
    """Have JAX find LAPACK, which it does where a program with a call of it is traced."""
    jax.jit(jnp.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), "float32"))
