"""The rank of this process: a run on several nodes has one process on each node.

The supervisor determines the rank and passes it to the worker as options of `vmcjob run`, because a
container sees little of the environment.
"""

import re
import zlib
from dataclasses import dataclass

from vmcjob.errors import UsageError

_ADDRESS = re.compile(r".+:\d{1,5}")
FIRST_PORT, N_PORTS = 61440, 4096  # above the ports that Linux uses for outgoing connections


@dataclass(frozen=True)
class Rank:
    """One of `count` processes; only rank 0 writes, and the others meet it at `coordinator`."""

    index: int = 0
    count: int = 1
    coordinator: str | None = None  # host:port, where rank 0 listens

    def __post_init__(self) -> None:
        """UsageError if the numbers do not fit together."""
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
        """Whether this is rank 0, which writes."""
        return self.index == 0

    @property
    def is_alone(self) -> bool:
        """Whether there are no other ranks."""
        return self.count == 1

    def options(self) -> tuple[str, ...]:
        """Options of `vmcjob run` for this rank."""
        if self.coordinator is None:
            return ()
        return (
            *("--rank", str(self.index), "--ranks", str(self.count)),
            *("--coordinator", self.coordinator),
        )


ALONE = Rank()


def port_of(job_id: str) -> int:
    """Port where the ranks of a job meet; different for other jobs on the same machine."""
    number = int(job_id) if job_id.isdecimal() else zlib.crc32(job_id.encode())
    return FIRST_PORT + number % N_PORTS
