"""The names of a run's files; no other module knows them."""

from dataclasses import dataclass
from pathlib import Path

from vmcjob.rundir.log import LogFiles


@dataclass(frozen=True)
class RunPaths:
    """The paths of all files in the directory of one run. Creating this value touches no disk."""

    path: Path

    @property
    def spec_path(self) -> Path:
        """The resolved spec: the only user input that the worker reads."""
        return self.path / "spec.toml"

    @property
    def record_path(self) -> Path:
        """The identity of the run (`Record`)."""
        return self.path / "run.json"

    @property
    def origins_path(self) -> Path:
        """The line or flag that gave each value of the resolved spec (`Origins`)."""
        return self.path / "origins.json"

    @property
    def submission_path(self) -> Path:
        """The last submission of the run (`Submission`)."""
        return self.path / "submission.json"

    @property
    def heartbeat_path(self) -> Path:
        """The progress of the worker (`Heartbeat`)."""
        return self.path / "heartbeat.json"

    @property
    def outcome_path(self) -> Path:
        """The end of the last attempt (`OutcomeRecord`)."""
        return self.path / "outcome.json"

    @property
    def reserve_path(self) -> Path:
        """Reserved disk space, so that a worker can write its outcome on a full disk."""
        return self.path / ".reserve"

    @property
    def cancellation_path(self) -> Path:
        """The cancellation of the run (`Cancellation`)."""
        return self.path / "cancel.json"

    @property
    def waits_path(self) -> Path:
        """The runs that have to finish before it begins (`Waits`)."""
        return self.path / "waits.json"

    @property
    def notification_path(self) -> Path:
        """The last end that was reported to the user's command (`Notification`)."""
        return self.path / "notified.json"

    @property
    def sequel_path(self) -> Path:
        """The sequel that the run's job has begun and not completed (`Sequel`)."""
        return self.path / "sequel.json"

    @property
    def attempts_path(self) -> Path:
        """The history: one JSON line per start and end of an attempt."""
        return self.path / "attempts.jsonl"

    @property
    def log_path(self) -> Path:
        """The output of the workers of all attempts, one after the other."""
        return self.log_path_of(0)

    def log_path_of(self, rank: int) -> Path:
        """The output of one rank's workers; two hosts must not append to the same file."""
        return self.path / _with_rank("log.txt", rank)

    def log_of(self, rank: int) -> LogFiles:
        """The log of one rank, with the predecessor of its current file."""
        return LogFiles(self.log_path_of(rank), self.path / _with_rank("log.old.txt", rank))

    def log_files(self) -> list[Path]:
        """The existing log files of all ranks."""
        return sorted(path for path in self.path.glob("log*.txt") if path.is_file())

    @property
    def environment_path(self) -> Path:
        """The environment of a worker in a container; every attempt replaces the file."""
        return self.environment_path_of(0)

    def environment_path_of(self, rank: int) -> Path:
        """The environment of one rank's container: every host has its own GPUs."""
        return self.path / _with_rank("container.env", rank)

    @property
    def lock_path(self) -> Path:
        """The lock file, held by the worker as long as it lives."""
        return self.path / "lock"

    @property
    def store_path(self) -> Path:
        """The store with the results."""
        return self.path / "run.zarr"

    @property
    def start_path(self) -> Path:
        """The start: a copy of the results of the run that this run starts from."""
        return self.path / "start.zarr"


def _with_rank(name: str, rank: int) -> str:
    """The file name of a rank; rank 0 has the plain name, like a run on one node."""
    stem, dot, ending = name.partition(".")
    return f"{stem}-{rank}{dot}{ending}" if rank else name
