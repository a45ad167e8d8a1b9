"""Groups of runs that were submitted together: one small file per group below the runs root."""

import hashlib
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any  # Any: numbers, as JSON has them

from vmcjob.errors import RunDirError
from vmcjob.rundir.directory import RunDir
from vmcjob.rundir.files import read_text, replace_file
from vmcjob.rundir.records import decode, encode

FOLDER = ".groups"


@dataclass(frozen=True, kw_only=True)
class Group:
    """The runs of one submission and their common limits; None means no limit."""

    # number of devices that each run is charged for while it works, by run id
    devices: Mapping[str, Any]
    gpu_hours: float | None = None
    max_failures: int | None = None
    submitted_at: float = field(default_factory=time.time)
    # number of the submission among those of its runs, since clocks of hosts differ
    number: int = 0

    @property
    def name(self) -> str:
        """A name that depends on the run ids only, the same for every submission of these runs."""
        return hashlib.sha256("\n".join(sorted(self.devices)).encode()).hexdigest()[:16]

    @property
    def has_limits(self) -> bool:
        """Whether the group has a limit to watch."""
        return self.gpu_hours is not None or self.max_failures is not None

    def runs(self, root: Path) -> list[RunDir]:
        """The runs of the group that exist."""
        return [run for run_id in self.devices if (run := RunDir(root / run_id)).exists]

    def write(self, root: Path) -> None:
        """Write the group's file, replacing that of an earlier submission of the same runs."""
        try:
            (root / FOLDER).mkdir(parents=True, exist_ok=True)
            (root / FOLDER / f"{self.name}.told").unlink(missing_ok=True)
        except OSError as error:
            raise RunDirError(f"{root / FOLDER}: cannot be written: {error.strerror}") from None
        replace_file(root / FOLDER / f"{self.name}.json", encode(self))

    def tell_once(self, root: Path) -> bool:
        """Whether the end of the group is not reported yet; from now on it counts as reported."""
        try:
            with open(root / FOLDER / f"{self.name}.told", "x", encoding="utf-8"):
                return True
        except OSError:  # if the mark cannot be written: never report, rather than many times
            return False


def find_groups(root: Path, run_ids: Iterable[str]) -> dict[str, Group]:
    """The group of each run's last submission, for runs that have a group."""
    wanted, found = set(run_ids), dict[str, Group]()
    groups = [group for _, group in _read_all(root) if group is not None]
    for group in sorted(groups, key=lambda group: (group.number, group.submitted_at)):
        found |= dict.fromkeys(wanted & group.devices.keys(), group)
    return found


def find_damaged_groups(root: Path) -> list[Path]:
    """Group files that cannot be read, so that their limits do not apply."""
    return [path for path, group in _read_all(root) if group is None]


def _read_all(root: Path) -> list[tuple[Path, Group | None]]:
    """All groups of a runs root; None for a damaged one."""
    try:
        names = [name for name in os.listdir(root / FOLDER) if name.endswith(".json")]
    except OSError:
        return []
    return [(path, _read(path)) for path in (root / FOLDER / name for name in sorted(names))]


def _read(path: Path) -> Group | None:
    try:
        group = decode(Group, read_text(path))
    except (OSError, ValueError):
        return None
    are_numbers = all(isinstance(count, int | float) for count in group.devices.values())
    return group if are_numbers else None
