"""The registry of backends."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vmcjob.errors import SchedulerError, UsageError
from vmcjob.rundir import LOCAL, RunDir
from vmcjob.scheduler.contract import Backend

AnyBackend = Backend[Any]  # whatever its batches are: nobody but itself looks into them
_BACKENDS: dict[str, AnyBackend] = {}


def register(backend: AnyBackend) -> None:
    """Register a backend for submissions and queries."""
    _BACKENDS[backend.name] = backend


def backends() -> Iterator[AnyBackend]:
    """All registered backends."""
    yield from _BACKENDS.values()


@contextmanager
def registered(backend: AnyBackend) -> Iterator[None]:
    """Register a backend within a context."""
    before = _BACKENDS.get(backend.name)
    register(backend)
    try:
        yield
    finally:
        del _BACKENDS[backend.name]
        if before is not None:
            register(before)


def find_backend(name: str) -> AnyBackend:
    """The backend of this name; SchedulerError if it does not exist."""
    found = _BACKENDS.get(name)
    if found is None:
        known = ", ".join(sorted(_BACKENDS))
        raise SchedulerError(f"scheduler '{name}': expected one of {known}; use the vmcjob of then")
    return found


def backend_of(run: RunDir) -> AnyBackend:
    """The backend of the run's last submission; this machine, if it was never submitted."""
    submission = run.read_submission()
    return find_backend(LOCAL if submission is None else submission.scheduler)


def choose(scheduler: str, is_local: bool) -> AnyBackend:
    """The backend of the profile, or this machine if the flag asks for it.

    UsageError if the profile names an unknown backend.
    """
    if is_local:
        return find_backend(LOCAL)
    if scheduler in _BACKENDS:
        return _BACKENDS[scheduler]
    if scheduler != "auto":
        known = ", ".join(f'"{name}"' for name in sorted(_BACKENDS))
        raise UsageError(f'scheduler in the profile: expected "auto", {known}, got "{scheduler}"')
    clusters = (backend for backend in backends() if backend.name != LOCAL)
    return next((found for found in clusters if found.is_available()), find_backend(LOCAL))
