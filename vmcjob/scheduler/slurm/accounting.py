"""Wall times that the accounting allows: sbatch takes a job beyond them, and it waits for ever."""

import os
import pwd
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vmcjob.errors import SchedulerError
from vmcjob.resources import wall_time_s
from vmcjob.scheduler.slurm import commands
from vmcjob.scheduler.slurm.partitions import Partition, choose
from vmcjob.scheduler.slurm.script import Options

_ENFORCED = re.compile(r"^AccountingStorageEnforce\s*=.*\b(limits|safe)\b", re.MULTILINE)
_FIRST = "OverPartQOS"  # the flag of a quality of service whose limits go before the partition's


@dataclass(frozen=True)
class Qos:
    """A quality of service."""

    max_wall: str  # empty without a limit
    flags: str


@dataclass(frozen=True)
class Association:
    """What a user has with an account, in one partition or in all of them."""

    default_account: str
    account: str
    partition: str  # empty: all
    default_qos: str
    max_wall: str


@dataclass(frozen=True)
class WallLimits:
    """All that a job's wall time is compared with."""

    qos: Mapping[str, Qos]
    associations: Sequence[Association]

    def require(self, options: Options, partitions: Sequence[Partition]) -> None:
        """SchedulerError if the job's wall time is beyond the limit, wherever it may go."""
        found = [self._find(options, partition) for partition in choose(options, partitions)]
        beyond = [limit for limit in found if limit and wall_time_s(limit[1]) < options.wall_time_s]
        if beyond and len(beyond) == len(found):
            who, most = beyond[0]
            raise SchedulerError(f"{who} allows a wall time of {most}; ask for less (-t)")

    def _find(self, options: Options, partition: Partition) -> tuple[str, str] | None:
        """Who limits the wall time, and to what: the first in SLURM's order; None without."""
        association = self._associate(options.first("account"), partition.name)
        name = options.first("qos") or (association.default_qos if association else "")
        own, theirs = self._limit_of(name), self._limit_of(partition.qos)
        goes_first = name in self.qos and _FIRST in self.qos[name].flags
        ordered = [own, theirs] if goes_first else [theirs, own]
        if association and association.max_wall:
            ordered.append((f"account {association.account}", association.max_wall))
        return next((limit for limit in ordered if limit), None)

    def _limit_of(self, name: str) -> tuple[str, str] | None:
        known = self.qos.get(name)
        return (f"quality of service {name}", known.max_wall) if known and known.max_wall else None

    def _associate(self, account: str | None, partition: str) -> Association | None:
        """The association that counts for a job; the one for its partition goes first."""
        fit = [a for a in self.associations if a.account == (account or a.default_account)]
        places = [[a for a in fit if a.partition == place] for place in (partition, "")]
        return next((found[0] for found in places if found), None)


def read_wall_limits() -> WallLimits | None:
    """The limits of the accounting; None if SLURM enforces no limits."""
    try:
        if not _ENFORCED.search(commands.call("scontrol", "show", "config")):
            return None
        user = pwd.getpwuid(os.geteuid()).pw_name
        columns = "format=DefaultAccount,Account,Partition,DefaultQOS,MaxWall"
        shown = _show("user", f"name={user}", "withassoc", columns)
        qos = _show("qos", "format=Name,MaxWall,Flags")
        return WallLimits(
            {name: Qos(most, flags) for name, most, flags in _rows(qos, 3)},
            [Association(*row) for row in _rows(shown, 5)],
        )
    except (SchedulerError, KeyError):  # sbatch has the last word
        return None


def _show(*what: str) -> str:
    return commands.call("sacctmgr", "--noheader", "--parsable2", "show", *what)


def _rows(text: str, count: int) -> Iterator[list[str]]:
    """Lines of so many columns; a site's wrapper may say more."""
    for line in text.splitlines():
        columns = line.split("|")
        if len(columns) == count:
            yield columns
