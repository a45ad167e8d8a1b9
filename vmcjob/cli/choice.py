"""Options that choose among rows of `status`, and the exit code that tells how they are."""

import re
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from vmcjob.errors import IncompleteError, UsageError

if TYPE_CHECKING:
    from vmcjob.runs.status import RunStatus

UNITS_S = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

InStates = Annotated[
    list[str] | None,
    typer.Option(
        "--state", metavar="STATE", help="Only runs in this state, like failed; may be given again."
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only runs made or at work since: 30min, 2h, 3d, 2026-11-21.",
    ),
]
IsChecked = Annotated[
    bool,
    typer.Option("--check", help="Exit with 3 if a shown run neither finished nor will go on."),
]


IsAll = Annotated[
    bool, typer.Option("--all", help="Also finished runs that resume --more-training has replaced.")
]


@dataclass(frozen=True)
class RowChoice:
    """Which rows are shown."""

    in_states: InStates = None
    since: Since = None
    is_checked: IsChecked = False
    is_all: IsAll = False

    def require_known(self) -> None:
        """UsageError for a state or a time that does not exist."""
        from vmcjob.document import closest
        from vmcjob.runs.status import State

        known = [state.lower() for state in State]
        for name in self.in_states or ():
            if name.lower() not in known:
                near = closest(name, known)
                advice = f"did you mean '{near}'?" if near else f"known are {', '.join(known)}"
                raise UsageError(f"--state {name}: no state of a run; {advice}")
        if self.since is not None:
            begin_of(self.since, time.time())

    def of(self, found: "list[RunStatus]") -> "list[RunStatus]":
        """The chosen rows, in their order."""
        states = {name.upper() for name in self.in_states or ()}
        if states:
            found = [row for row in found if row.state in states]
        if self.since is not None:
            now = time.time()
            begin = begin_of(self.since, now)
            found = [row for row in found if _last_sign(row, now) >= begin]
        return found

    def judge(self, shown: "list[RunStatus]") -> None:
        """With --check, exit if a run has ended otherwise than finished, or waits in vain."""
        bad = [row for row in shown if not (row.state.is_active or row.state == "FINISHED")]
        if self.is_checked and bad:
            raise typer.Exit(IncompleteError.exit_code)


def begin_of(text: str, now: float) -> float:
    """The time that `--since` means, in seconds since the epoch; UsageError for other texts."""
    if span := re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h|d|w)", text.strip()):
        return now - float(span[1]) * UNITS_S[span[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        words = "expected a time like 30min, 2h, 3d, 2026-11-21 or 2026-11-21T17:00"
        raise UsageError(f"--since {text}: {words}") from None


def _last_sign(row: "RunStatus", now: float) -> float:
    """When the run was made, or its latest heartbeat."""
    beat = now - row.heartbeat_age_s if row.heartbeat_age_s is not None else 0.0
    return max(row.run.read_record().created, beat)
