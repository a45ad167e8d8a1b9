"""The small JSON files of a run as values, checked when they are read back."""

import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from vmcjob.rundir.process import Process, host_name, start_time

T = TypeVar("T")
LOCAL = "local"  # the scheduler of a submission to this machine
RESULTS = "results"  # what a run needs of another that it begins with
END = "end"  # of one that it only comes after


class Phase(StrEnum):
    """What a worker is doing; steps are counted within a phase."""

    STARTING = "starting"
    COMPILING = "compiling"  # whichever phase comes next, with its steps
    PRETRAIN = "pretrain"
    WARMUP = "warmup"
    TRAIN = "train"
    COMPARE = "compare"  # of what is to be evaluated: the last parameters, or their average
    EQUILIBRATE = "equilibrate"
    EVALUATE = "evaluate"
    DONE = "done"


class Outcome(StrEnum):
    """How an attempt ended. A worker that could not say has no outcome."""

    FINISHED = "FINISHED"
    PREEMPTED = "PREEMPTED"
    EXHAUSTED = "EXHAUSTED"  # its budget is
    DIVERGED = "DIVERGED"
    FAILED = "FAILED"


@dataclass(frozen=True, kw_only=True)
class Record:
    """run.json: what the run is. Written once, when its directory is made."""

    run_id: str
    name: str
    point: Mapping[str, Any]  # sweep coordinates: numbers and texts, as TOML has them
    seed: int
    science_sha256: str
    source: str  # the spec file it came from
    vmcjob_version: str
    created: float = field(default_factory=time.time)  # seconds since the epoch, as all times
    pool_sha256: str | None = None  # in a chain: of the runs of all seeds

    @property
    def calculation_sha256(self) -> str:
        """What runs share that differ by their seeds only."""
        return self.pool_sha256 or self.science_sha256


@dataclass(frozen=True, kw_only=True)
class Submission:
    """submission.json: who was asked to run it; the worker is added once it has been started.

    For a local submission, `pid` and `process_start` are the launcher's. For a batch system they
    are missing until the job's supervisor has started and put itself there; `job_name` and
    `array_index` find the job when a crash came between this record and the job id.
    """

    scheduler: str
    job_id: str | None  # None: written before the batch system has answered
    host: str = field(default_factory=host_name)
    pid: int | None = None
    process_start: int | None = None
    submitted_at: float = field(default_factory=time.time)
    worker_pid: int | None = None
    worker_start: int | None = None
    started_at: float | None = None
    job_name: str | None = None  # no two submissions to a batch system share one
    array_index: int | None = None
    number: int = 0  # how many submissions to a batch system there were before
    cancelled_at: float | None = None
    place: int | None = None  # which of the runs it is that have this job together
    waits_for: Mapping[str, Any] | None = None  # what it needs of other runs, by their ids

    @property
    def is_job(self) -> bool:
        """Whether a batch system answers for it; else it is seen among this machine's processes."""
        return self.scheduler != LOCAL

    @property
    def launcher(self) -> Process | None:
        """The local process that starts the worker when its turn comes."""
        return None if self.pid is None else Process(self.host, self.pid, self.process_start)

    @property
    def worker(self) -> Process | None:
        """The worker that the launcher started, None while the run waits."""
        if self.worker_pid is None:
            return None
        return Process(self.host, self.worker_pid, self.worker_start)

    def has_come_to(self, outcome: "OutcomeRecord") -> bool:
        """Whether that is how it ended, and not one before: an attempt starts without an outcome.

        Clocks of different hosts differ, so times decide only where no start was recorded.
        """
        return self.started_at is not None or outcome.time > self.submitted_at


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """heartbeat.json: where the worker is, None for what it does not know (yet).

    The writer leaves out who and when: the defaults name this process and this moment.
    """

    phase: Phase
    step: int
    n_steps: int
    energy: float | None = None  # hartree
    error: float | None = None  # hartree
    acceptance: float | None = None
    steps_per_s: float | None = None
    eta_s: float | None = None  # until the run's end, not the phase's
    n_expected: int | None = None  # steps after which a target error is reached, n_steps if never
    pid: int = field(default_factory=os.getpid)
    host: str = field(default_factory=host_name)
    process_start: int | None = field(default_factory=lambda: start_time(os.getpid()))
    time: float = field(default_factory=time.time)

    @property
    def process(self) -> Process:
        """The worker that wrote this."""
        return Process(self.host, self.pid, self.process_start)


@dataclass(frozen=True, kw_only=True)
class Cancellation:
    """cancel.json: the run is not wanted for now; `pid` is None where no worker had to be asked."""

    host: str = field(default_factory=host_name)
    pid: int | None = None
    process_start: int | None = None
    time: float = field(default_factory=time.time)

    @property
    def worker(self) -> Process | None:
        """The worker that was asked to stop."""
        return None if self.pid is None else Process(self.host, self.pid, self.process_start)


@dataclass(frozen=True, kw_only=True)
class Waits:
    """waits.json: runs that have to finish before this run begins, named by its user."""

    after: Mapping[str, Any]  # END by run id


@dataclass(frozen=True, kw_only=True)
class Notification:
    """notified.json: of which end of the run its user's command has been told last."""

    submission: str  # its name; empty where nothing was handed over
    state: str
    time: float = field(default_factory=time.time)

    def is_of(self, other: "Notification") -> bool:
        """Whether both are about the same end."""
        return (self.submission, self.state) == (other.submission, other.state) != ("", "")


@dataclass(frozen=True, kw_only=True)
class OutcomeRecord:
    """outcome.json: how the last attempt ended, in a word and in a sentence."""

    outcome: Outcome
    message: str = ""
    time: float = field(default_factory=time.time)


def encode(record: object) -> str:
    """JSON of one of the dataclasses above; numbers that are not finite become null."""
    values = {f.name: getattr(record, f.name) for f in fields(record)}  # pyright: ignore[reportArgumentType] -- any dataclass
    return json.dumps({key: _finite(value) for key, value in values.items()}, indent=2) + "\n"


def decode(kind: type[T], text: str) -> T:
    """Read back what `encode` wrote; ValueError says which field is missing or wrong.

    Unknown fields are left aside: a newer version may have added them. Fields whose default is
    made on the spot (this process, this moment) must be there.
    """
    data = parse_object(text)
    if data is None:
        raise ValueError("not a JSON object")
    values: dict[str, Any] = {}  # any field of any of the dataclasses
    types = _field_types(kind)
    for item in fields(kind):  # pyright: ignore[reportArgumentType] -- any dataclass
        if item.name in data:
            values[item.name] = _convert(item.name, data[item.name], types[item.name])
        elif item.default is MISSING:
            raise ValueError(f"'{item.name}' is missing")
    return kind(**values)


def parse_object(text: str) -> dict[str, Any] | None:
    """The object that a JSON text is, None for any other text, however odd."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):  # no JSON, or a number or nesting beyond all use
        return None
    return data if isinstance(data, dict) else None


@cache
def _field_types(kind: type) -> dict[str, tuple[type, ...]]:
    """The types that each field may have: `float | None` is two."""
    hints = get_type_hints(kind)
    options = {
        name: get_args(hint) if get_origin(hint) is UnionType else (hint,)
        for name, hint in hints.items()
    }
    return {name: tuple(get_origin(o) or o for o in found) for name, found in options.items()}


def _convert(name: str, value: object, types: tuple[type, ...]) -> object:
    """The value as its field wants it, or a ValueError."""
    if issubclass(types[0], StrEnum):
        return types[0](value)
    parts = value.values() if isinstance(value, dict) else [value]
    if isinstance(value, types) and (value is None or all(map(_is_scalar, parts))):
        return value
    if float in types and type(value) is int and _is_scalar(value):
        return float(value)
    raise ValueError(f"'{name}' cannot be {json.dumps(value)[:40]}")


def _is_scalar(value: object) -> bool:
    """A text, an integer of 64 bits or a finite number: all that our records are made of."""
    if type(value) is int:
        return -(2**63) <= value < 2**63
    return isinstance(value, str) or (isinstance(value, float) and math.isfinite(value))


def _finite(value: object) -> object:
    """JSON knows neither NaN nor infinity; what is not a number is unknown."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return dict(value) if isinstance(value, Mapping) else value
