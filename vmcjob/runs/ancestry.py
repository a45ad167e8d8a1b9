"""The parents of runs (the runs that they start from, continue or wait for), and their trees."""

from collections.abc import Sequence
from dataclasses import replace

from vmcjob.document import Document
from vmcjob.errors import VmcJobError
from vmcjob.rundir import RunDir
from vmcjob.runs.status import RunStatus

BRANCH, LAST, BAR, GAP = "├─ ", "└─ ", "│  ", "   "


def parent_of(run: RunDir) -> str | None:
    """The run that a run starts from, else the one that it continues, else the one it waits for."""
    try:
        train = Document.parse(run.read_spec_text(), str(run.spec_path)).tables.get("train")
    except VmcJobError:  # reported by `show`
        train = None
    origin = run.continues or (train.get("start_from") if isinstance(train, dict) else None)
    if isinstance(origin, str):
        return origin
    submission = run.read_submission()
    return next(iter((submission.waits_for if submission else None) or ()), None)


def as_trees(rows: Sequence[RunStatus]) -> list[RunStatus]:
    """The rows, each below its parent if that is listed, with ids indented by branches."""
    by_id = {row.run_id: row for row in rows}
    children: dict[str | None, list[RunStatus]] = {}
    for row in rows:
        parent = parent_of(row.run)
        children.setdefault(parent if parent in by_id else None, []).append(row)
    found: list[RunStatus] = []
    further = [(row, "", "", "") for row in reversed(children.get(None, []))]
    while further:  # no recursion: chains may be long
        row, stem, mark, bar = further.pop()
        found.append(replace(row, run_id=f"{stem}{mark}{row.run_id}"))
        below = list(reversed(children.get(row.run_id, [])))
        marks = [(LAST, GAP)] + [(BRANCH, BAR)] * (len(below) - 1)
        further += [(child, stem + bar, *pair) for child, pair in zip(below, marks, strict=False)]
    shown = {row.run for row in found}
    return found + [row for row in rows if row.run not in shown]  # a circle, made by hand
