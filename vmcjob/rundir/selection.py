"""Find the run directories that are named on a command line."""

import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

from vmcjob.errors import NotFoundError, RunDirError, UsageError
from vmcjob.rundir.directory import RunDir
from vmcjob.rundir.records import Submission

LAST = "@last"


def list_runs(root: Path) -> list[RunDir]:
    """All runs below `root`, oldest first; empty if the directory does not exist."""
    try:
        names = os.listdir(root)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise RunDirError(f"{root}: cannot be listed: {error.strerror}") from None
    runs = [RunDir(root / name) for name in names if not name.startswith(".")]
    return sorted((run for run in runs if run.exists), key=_age_order)


def select(root: Path, selectors: Sequence[str]) -> list[RunDir]:
    """The runs that the selectors name, each once, oldest first; all runs without selectors.

    A selector is a run id, a spec's name, a row's name ("h2 R=1.4"), the path of a run directory,
    `@last` (all runs of the latest submission), a glob over run ids or rows' names, or the unique
    beginning of a run id. If some runs continue one another, a name means the longest of these.
    """
    runs = list_runs(root)
    if not selectors:
        return runs
    chosen = [run for selector in selectors for run in _match(root, runs, selector)]
    # Two selectors may spell the same directory differently.
    distinct = {os.path.realpath(run.path): run for run in chosen}
    return sorted(distinct.values(), key=_age_order)


def _match(root: Path, runs: list[RunDir], selector: str) -> list[RunDir]:
    """The runs of one selector, by the first kind of selector that matches."""
    if selector == LAST:
        return _last(root, runs)
    if exact := [run for run in runs if selector == run.path.name]:
        return exact
    if named := [run for run in runs if _plain(selector) in map(_plain, _names(run))]:
        return _longest(named)
    if RunDir(Path(selector)).exists:
        return [RunDir(Path(selector))]
    if matching := [run for run in runs if fnmatchcase(run.path.name, selector)]:
        return matching
    if rows := [run for run in runs if any(fnmatchcase(x, selector) for x in _names(run))]:
        return _longest(rows)
    starting = [run for run in runs if selector and run.path.name.startswith(selector)]
    if len(starting) > 1:
        names = ", ".join(run.path.name for run in starting[:3])
        more = ", …" if len(starting) > 3 else ""
        raise UsageError(
            f"'{selector}' could be any of {len(starting)} runs ({names}{more}); "
            f"write more of it, or '{selector}*' for all"
        )
    if not starting:
        advice = _advice(runs, selector)
        raise NotFoundError(f"no run matches '{selector}' in {root}{advice and f'; {advice}'}")
    return starting


def _advice(runs: list[RunDir], selector: str) -> str:
    """What to type instead of a selector that names nothing; empty if there are no runs."""
    known = dict.fromkeys(name for run in runs for name in (*_names(run), run.path.name))
    name = Path(selector).stem if selector.endswith(".toml") else selector
    if near := get_close_matches(name, known, n=1):
        return f"did you mean '{near[0]}'?"
    return "vmcjob status lists all runs" if runs else ""


def _longest(runs: list[RunDir]) -> list[RunDir]:
    """The run with the most evaluation steps of each line of runs that continue one another."""
    continued = {run.path.name: run.continues for run in runs}
    lines: dict[str, list[RunDir]] = {}
    for run in runs:
        lines.setdefault(_origin(run.path.name, continued), []).append(run)
    return [max(line, key=lambda run: run.n_due or 0) for line in lines.values()]


def _origin(run_id: str, continued: Mapping[str, str | None]) -> str:
    """The first run of a line of runs, as far as it is known here."""
    passed = {run_id}
    before = continued[run_id]
    while before is not None and before in continued and before not in passed:
        passed.add(before)
        run_id, before = before, continued[before]
    return run_id


def _last(root: Path, runs: list[RunDir]) -> list[RunDir]:
    """The runs of the latest submission."""
    submitted = [(run, found) for run in runs if (found := run.read_submission())]
    if not submitted:
        raise NotFoundError(f"no run has been submitted in {root}")
    latest = max((submission for _, submission in submitted), key=lambda s: s.submitted_at)
    return [run for run, found in submitted if _batch(found) == _batch(latest)]


def _batch(submission: Submission) -> tuple[object, ...]:
    """A key that the runs of one submission share; a local job id is a pid, which may be reused."""
    if submission.is_job:  # all jobs of a submission have the same time
        return (submission.submitted_at,)
    return submission.job_id, submission.launcher


def _age_order(run: RunDir) -> tuple[float, str]:
    """Sort key: time of creation; runs with a damaged record come first, where users see them."""
    try:
        return run.read_record().created, run.path.name
    except RunDirError:
        return 0.0, run.path.name


def _plain(row: str) -> str:
    """A row's name with each number spelled one way: 2, 2.0 and 2e0 are all 2.0."""
    name, *point = row.split(" ")
    return " ".join((name, *map(_plain_part, point)))


def _plain_part(part: str) -> str:
    """One "key=value" of a row's name; the value stays as it is if it is no number."""
    key, _, value = part.partition("=")
    try:
        return f"{key}={float(value)}"
    except ValueError:
        return part


def _names(run: RunDir) -> tuple[str, ...]:
    """The name of a run's spec, and with its place in the sweep the name of its row in tables."""
    try:
        record = run.read_record()
    except RunDirError:
        return ()
    point = (f"{key}={value}" for key, value in record.point.items())
    return record.name, " ".join((record.name, *point))
