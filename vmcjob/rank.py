"""Which of a run's processes this is: a run on several nodes has one on each, its ranks.

The supervisor finds out and says it to the worker in options of `vmcjob run`, since a container
lets no more of the environment in than it must.
"""

import re
import zlib
from dataclasses import dataclass

from vmcjob.errors import UsageError

_ADDRESS = re.compile(r".+:\d{1,5}")
FIRST_PORT, N_PORTS = 61440, 4096  # above those that Linux gives to outgoing connections


@dataclass(frozen=True)
class Rank:
    """One of `count` processes; the first alone writes, and the others find it at `coordinator`."""

    index: int = 0
    count: int = 1
    coordinator: str | None = None  # host:port, where the first one listens

    def __post_init__(self) -> None:
        """UsageError if there can be no such rank."""
        if self.index not in range(self.count):
            raise UsageError(
                f"--rank {self.index}: expected less than --ranks, which is {self.count}; "
                "ranks are counted from 0"
            )
        if self.count > 1 and not _ADDRESS.fullmatch(self.coordinator or ""):
            raise UsageError(
                f"--coordinator: expected HOST:PORT, where rank 0 listens, got {self.coordinator}; "
                f"--ranks {self.count} needs it"
            )

    @property
    def is_first(self) -> bool:
        """Whether it is the one that writes."""
        return self.index == 0

    @property
    def is_alone(self) -> bool:
        """Whether there are no others."""
        return self.count == 1

    def options(self) -> tuple[str, ...]:
        """What tells `vmcjob run` that it is this rank."""
        if self.coordinator is None:
            return ()
        return (
            *("--rank", str(self.index), "--ranks", str(self.count)),
            *("--coordinator", self.coordinator),
        )


ALONE = Rank()


def port_of(job_id: str) -> int:
    """Where the ranks of a job meet: other jobs on the same machine have another port."""
    number = int(job_id) if job_id.isdecimal() else zlib.crc32(job_id.encode())
    return FIRST_PORT + number % N_PORTS
