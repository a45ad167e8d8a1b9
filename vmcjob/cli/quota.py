"""The check of `doctor` for quotas of disk space and files, as the program `quota` tells them."""

import re
import shutil
from collections.abc import Iterator
from typing import Final, NamedTuple

from vmcjob.cli.checks import OK, WARNING, Check, ask
from vmcjob.cli.text import format_size

NEARLY_FULL: Final = 0.9
BLOCK: Final = 1024  # bytes, in the output of quota
COMMAND: Final = ("quota", "--no-wrap", "--show-mntpoint", "--hide-device")


class Quota(NamedTuple):
    """The use of one file system by this user, and its limits; 0: no limit."""

    place: str
    used_bytes: int
    max_bytes: int
    n_files: int
    max_files: int

    @property
    def is_nearly_full(self) -> bool:
        """Whether little is left of space or files."""
        uses = (self.used_bytes, self.max_bytes), (self.n_files, self.max_files)
        return any(limit and used >= NEARLY_FULL * limit for used, limit in uses)

    def __str__(self) -> str:
        """The use of the limits that there are."""
        space = f"{format_size(self.used_bytes)} of {format_size(self.max_bytes)}"
        files = f"{self.n_files} of {self.max_files} files"
        return f"{self.place}: " + " and ".join(
            words for words, limit in ((space, self.max_bytes), (files, self.max_files)) if limit
        )


def check_quota() -> Iterator[Check]:
    """One line for each file system with a limit; none where there is no program `quota`."""
    if shutil.which(COMMAND[0]) is None:
        return
    for found in read_quotas(ask(*COMMAND).stdout):
        level = WARNING if found.is_nearly_full else OK
        command = f"du -sh {found.place}/* | sort -h" if found.is_nearly_full else ""
        yield Check("quota", level, str(found), command)


def read_quotas(output: str) -> list[Quota]:
    """The quotas in the output of `quota`, of file systems with a limit.

    A line names the file system, and for blocks and for files: use, soft and hard limit. A use
    above its soft limit has a star, and the time of grace follows.
    """
    found: list[Quota] = []
    for line in output.splitlines():
        place, *words = line.split() or [""]
        numbers = [int(word.rstrip("*")) for word in words if re.fullmatch(r"\d+\*?", word)]
        if len(numbers) == 6:
            used, soft, hard, n_files, soft_files, hard_files = numbers
            space = BLOCK * used, BLOCK * (soft or hard)
            quota = Quota(place, *space, n_files, soft_files or hard_files)
            found += [quota] if quota.max_bytes or quota.max_files else []
    return found
