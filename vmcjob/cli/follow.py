"""Watching runs until they end: bars on a terminal, plain lines elsewhere."""

import sys
import time
from collections import Counter
from collections.abc import Sequence

from vmcjob.cli.screen import can_redraw, say, shows_colour
from vmcjob.cli.status import format_step
from vmcjob.cli.text import GAP, format_duration, format_energy
from vmcjob.rundir import RunDir
from vmcjob.runs.status import RunStatus, State, examine
from vmcjob.scheduler import Watch

POLL_S = 0.5  # between two looks at runs of this machine
JOB_POLL_S = 2.0  # at runs of a cluster
LOOKS_PER_S = 20.0  # at a large number of runs, each of several files
TALK_S = 5.0  # between two plain lines about the same run


def follow(runs: Sequence[RunDir]) -> list[RunStatus]:
    """Show the runs on standard error until all have ended; return their last states."""
    jobs, pause_s = Watch(), _pause_s(runs)
    view = BarView() if can_redraw(sys.stderr) else LineView()
    try:
        while True:
            queue = jobs.look(runs)
            rows = [examine(run, queue) for run in runs]
            view.show(rows)
            if not any(row.state.is_active for row in rows):
                return rows
            time.sleep(pause_s)
    finally:
        view.close()


def _pause_s(runs: Sequence[RunDir]) -> float:
    """Seconds between two looks, so that a shared file system is asked no more than it must be."""
    given = (run.read_submission() for run in runs)
    is_shared = any(submission is not None and submission.is_job for submission in given)
    return max(JOB_POLL_S if is_shared else POLL_S, len(runs) / LOOKS_PER_S)


def describe(row: RunStatus) -> list[str]:
    """Facts about a run, the most important first."""
    if not row.state.is_active:
        return [part for part in (format_energy(row.energy, row.error), row.message) if part]
    if row.state is State.QUEUED or row.step is None:
        return []
    if not row.n_steps:
        return [row.phase or ""]
    parts = [
        format_step(row),
        format_energy(row.energy, row.error),
        "" if row.eta_s is None else f"{format_duration(row.eta_s)} left",
        "" if row.acceptance is None else f"accept {row.acceptance:.0%}",
        "" if row.steps_per_s is None else f"{row.steps_per_s:.3g} steps/s",
    ]
    return [part for part in parts if part]


class LineView:
    """For logs: a line when a run's state changes, and every few seconds while it runs."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, float]] = {}

    def show(self, rows: Sequence[RunStatus]) -> None:
        """Print news."""
        now = time.monotonic()
        for row in rows:
            state, said_at = self._last.get(row.run_id, ("", 0.0))
            is_due = row.state is State.RUNNING and now - said_at >= TALK_S
            if row.state == state and not is_due:
                continue
            say(GAP.join([row.run_id, row.state.lower(), *describe(row)]))
            self._last[row.run_id] = (row.state, now)

    def close(self) -> None:
        """Do nothing: there is no terminal to restore."""


class BarView:
    """For people: a bar per running run, and a line that counts the others."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(
            stderr=True, no_color=not shows_colour(sys.stderr), highlight=False, markup=False
        )
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def show(self, rows: Sequence[RunStatus]) -> None:
        """Draw bars and counts again."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        running = [row for row in rows if row.state is State.RUNNING]
        counts = Counter(row.state for row in rows if row.state is not State.RUNNING)
        bars = Table.grid(padding=(0, len(GAP)))
        for row in running:
            bar = ProgressBar(row.n_steps or 1, row.step or 0, width=self._bar_width())
            room = self._console.width - len(row.run_id) - self._bar_width() - 2 * len(GAP)
            bars.add_row(row.run_id, bar, _fit(describe(row) or ["starting"], room))
        others = ", ".join(f"{number} {state.lower()}" for state, number in counts.items())
        self._live.update(Group(bars, others) if running else others, refresh=True)

    def close(self) -> None:
        """Remove the bars."""
        self._live.stop()

    def _bar_width(self) -> int:
        return 20 if self._console.width >= 100 else 10


def _fit(parts: Sequence[str], width: int) -> str:
    """The first parts that fit the width, at least one."""
    text = parts[0]
    for part in parts[1:]:
        if len(text) + len(GAP) + len(part) > width:
            break
        text += GAP + part
    return text
