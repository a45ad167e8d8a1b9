"""The names of a run's files: the only place that knows them."""

from dataclasses import dataclass
from pathlib import Path

from vmcjob.rundir.log import LogFiles


@dataclass(frozen=True)
class RunPaths:
    """Where everything is in the directory of one run. Making the value touches no disk."""

    path: Path

    @property
    def spec_path(self) -> Path:
        """The resolved spec, all that the worker reads of the user's wishes."""
        return self.path / "spec.toml"

    @property
    def record_path(self) -> Path:
        """What the run is (`Record`)."""
        return self.path / "run.json"

    @property
    def submission_path(self) -> Path:
        """Who was asked to run it (`Submission`)."""
        return self.path / "submission.json"

    @property
    def heartbeat_path(self) -> Path:
        """Where the worker is (`Heartbeat`)."""
        return self.path / "heartbeat.json"

    @property
    def outcome_path(self) -> Path:
        """How the last attempt ended (`OutcomeRecord`)."""
        return self.path / "outcome.json"

    @property
    def reserve_path(self) -> Path:
        """Space that a worker keeps, so that it can say how it ended on a disk that is full."""
        return self.path / ".reserve"

    @property
    def cancellation_path(self) -> Path:
        """That it was cancelled (`Cancellation`)."""
        return self.path / "cancel.json"

    @property
    def waits_path(self) -> Path:
        """The runs that have to finish before it begins (`Waits`)."""
        return self.path / "waits.json"

    @property
    def notification_path(self) -> Path:
        """Of which end the user's command has been told (`Notification`)."""
        return self.path / "notified.json"

    @property
    def attempts_path(self) -> Path:
        """One JSON line per start and end of an attempt."""
        return self.path / "attempts.jsonl"

    @property
    def log_path(self) -> Path:
        """Everything the workers said, all attempts one after the other."""
        return self.log_path_of(0)

    def log_path_of(self, rank: int) -> Path:
        """What the workers of one rank said; two hosts must not append to the same file."""
        return self.path / _with_rank("log.txt", rank)

    def log_of(self, rank: int) -> LogFiles:
        """The same with what it was before it became too large."""
        return LogFiles(self.log_path_of(rank), self.path / _with_rank("log.old.txt", rank))

    def log_files(self) -> list[Path]:
        """What the workers of all ranks said, as far as there is something."""
        return sorted(path for path in self.path.glob("log*.txt") if path.is_file())

    @property
    def environment_path(self) -> Path:
        """What a worker in a container sees of the environment; written anew by every attempt."""
        return self.environment_path_of(0)

    def environment_path_of(self, rank: int) -> Path:
        """The same for one rank: every host has GPUs of its own."""
        return self.path / _with_rank("container.env", rank)

    @property
    def lock_path(self) -> Path:
        """Held by the worker as long as it lives."""
        return self.path / "lock"

    @property
    def store_path(self) -> Path:
        """The results."""
        return self.path / "run.zarr"

    @property
    def start_path(self) -> Path:
        """What it begins with: a copy of the results of the run that it starts from."""
        return self.path / "start.zarr"


def _with_rank(name: str, rank: int) -> str:
    """The file of a rank; the first one's bears the plain name, as that of a run without others."""
    stem, dot, ending = name.partition(".")
    return f"{stem}-{rank}{dot}{ending}" if rank else name
