"""The small JSON files of a run as values, checked when they are read."""

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
LOCAL = "local"  # scheduler of a submission to this machine
RESULTS = "results"  # in `waits_for`: the run needs the results of the other run
END = "end"  # in `waits_for`: the run only has to come after the other
SHORT_OF_MEMORY = "had too little memory; begins again at its last commit"
"""Outcome message of a run that goes on by itself after that."""
REFUSED = "refused"
"""Event in the history of a run: its new worker found another one at work."""


class Activity(StrEnum):
    """The activity of a worker; steps are counted within a phase."""

    STARTING = "starting"
    COMPILING = "compiling"  # compiling the next phase
    PRETRAIN = "pretrain"
    WARMUP = "warmup"
    TRAIN = "train"
    COMPARE = "compare"  # choosing the parameters to evaluate: the last ones or their average
    EQUILIBRATE = "equilibrate"
    EVALUATE = "evaluate"
    DONE = "done"


class Outcome(StrEnum):
    """How an attempt ended. A worker that was killed leaves no outcome."""

    FINISHED = "FINISHED"
    PREEMPTED = "PREEMPTED"
    EXHAUSTED = "EXHAUSTED"  # the budget is used up
    DIVERGED = "DIVERGED"
    FAILED = "FAILED"


@dataclass(frozen=True, kw_only=True)
class Record:
    """run.json: the identity of the run. Written once, when its directory is created."""

    run_id: str
    name: str
    point: Mapping[str, Any]  # sweep coordinates: numbers and strings, as in TOML
    seed: int
    science_sha256: str
    source: str  # path of the spec file
    vmcjob_version: str
    created: float = field(default_factory=time.time)  # seconds since the epoch, as all times
    pool_sha256: str | None = None  # only in a chain: the same for the runs of all seeds

    @property
    def calculation_sha256(self) -> str:
        """Hash that runs share if they differ by their seeds only."""
        return self.pool_sha256 or self.science_sha256


@dataclass(frozen=True, kw_only=True)
class Origins:
    """origins.json: the origins of the values of the spec; a key without one has its default."""

    origins: Mapping[str, Any]  # words by names of keys, like "sampler.walkers"


@dataclass(frozen=True, kw_only=True)
class Submission:
    """submission.json: scheduler and job of the run; the worker is added after its start.

    In a local submission, `pid` and `process_start` identify the launcher. In a batch system they
    are missing until the job's supervisor has started and recorded itself. `job_name` and
    `array_index` find the job if a crash happened before the job id was recorded.
    """

    scheduler: str
    job_id: str | None  # None until the batch system has answered
    host: str = field(default_factory=host_name)
    pid: int | None = None
    process_start: int | None = None
    submitted_at: float = field(default_factory=time.time)
    worker_pid: int | None = None
    worker_start: int | None = None
    started_at: float | None = None
    job_name: str | None = None  # unique among the submissions to a batch system
    array_index: int | None = None
    number: int = 0  # number of earlier submissions to a batch system
    cancelled_at: float | None = None
    place: int | None = None  # index among the runs that share this job
    waits_for: Mapping[str, Any] | None = None  # RESULTS or END of other runs, by their ids
    memory_mb: int | None = None  # per node, if the job asks for more than its script
    cluster: str | None = None  # name of the cluster that has the job
    asked_by: Mapping[str, Any] | None = None  # who gave each option of the job, by its name

    @property
    def is_job(self) -> bool:
        """Whether the run belongs to a batch system; else its processes run on this machine."""
        return self.scheduler != LOCAL

    @property
    def launcher(self) -> Process | None:
        """The local process that starts the worker when its turn comes."""
        return None if self.pid is None else Process(self.host, self.pid, self.process_start)

    @property
    def worker(self) -> Process | None:
        """The worker that the launcher started; None while the run waits."""
        if self.worker_pid is None:
            return None
        return Process(self.host, self.worker_pid, self.worker_start)

    def has_come_to(self, outcome: "OutcomeRecord") -> bool:
        """Whether the outcome is from this submission, not from an earlier one.

        An attempt starts without an outcome. Clocks of hosts differ, so times decide only if no
        start was recorded.
        """
        return self.started_at is not None or outcome.time > self.submitted_at


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """heartbeat.json: the worker's progress; None for values that are not known yet.

    The defaults name this process and this moment, so the writer leaves them out.
    """

    phase: Activity
    step: int
    n_steps: int
    energy: float | None = None  # hartree
    error: float | None = None  # hartree
    acceptance: float | None = None
    steps_per_s: float | None = None
    eta_s: float | None = None  # seconds until the end of the run, not of the phase
    # expected number of steps to a target error; n_steps if it is never reached
    n_expected: int | None = None
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
    """cancel.json: the run is cancelled for now; without a worker to stop, `pid` is None."""

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
    """notified.json: the last end of the run that was reported to the user's command."""

    submission: str  # name of the submission; empty without one
    state: str
    time: float = field(default_factory=time.time)

    def is_of(self, other: "Notification") -> bool:
        """Whether both are about the same end."""
        return (self.submission, self.state) == (other.submission, other.state) != ("", "")


@dataclass(frozen=True, kw_only=True)
class Sequel:
    """sequel.json: the job of this finished run was to submit the next run, and has not yet."""

    why: str = ""  # the reason; empty while the command is at work, or if it was killed
    replaced_by: str = ""  # last run of another path from the same first run, which goes on instead
    time: float = field(default_factory=time.time)


@dataclass(frozen=True, kw_only=True)
class OutcomeRecord:
    """outcome.json: how the last attempt ended, as a word and a sentence."""

    outcome: Outcome
    message: str = ""
    time: float = field(default_factory=time.time)


def encode(record: object) -> str:
    """JSON of one of the dataclasses above; numbers that are not finite become null."""
    values = {f.name: getattr(record, f.name) for f in fields(record)}  # pyright: ignore[reportArgumentType] -- any dataclass
    return json.dumps({key: _finite(value) for key, value in values.items()}, indent=2) + "\n"


def decode(kind: type[T], text: str) -> T:
    """Read the output of `encode`; ValueError names a missing or wrong field.

    Unknown fields are ignored: a newer version may have added them. Fields with a `default_factory`
    (this process, this moment) are required.
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
    """The object in a JSON text; None for any other text."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):  # no JSON, or too large a number, or nested too deeply
        return None
    return data if isinstance(data, dict) else None


@cache
def _field_types(kind: type) -> dict[str, tuple[type, ...]]:
    """The types that each field may have; `float | None` counts as two."""
    hints = get_type_hints(kind)
    options = {
        name: get_args(hint) if get_origin(hint) is UnionType else (hint,)
        for name, hint in hints.items()
    }
    return {name: tuple(get_origin(o) or o for o in found) for name, found in options.items()}


def _convert(name: str, value: object, types: tuple[type, ...]) -> object:
    """The value in its field's type, or a ValueError."""
    if issubclass(types[0], StrEnum):
        return types[0](value)
    parts = value.values() if isinstance(value, dict) else [value]
    if isinstance(value, types) and (value is None or all(map(_is_scalar, parts))):
        return value
    if float in types and type(value) is int and _is_scalar(value):
        return float(value)
    raise ValueError(f"'{name}' cannot be {json.dumps(value)[:40]}")


def _is_scalar(value: object) -> bool:
    """Whether a value is a string, an integer of 64 bits or a finite number."""
    if type(value) is int:
        return -(2**63) <= value < 2**63
    return isinstance(value, str) or (isinstance(value, float) and math.isfinite(value))


def _finite(value: object) -> object:
    """The value for JSON, which has neither NaN nor infinity: these become None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return dict(value) if isinstance(value, Mapping) else value
