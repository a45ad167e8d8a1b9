"""The parents of runs (the runs that they start from, continue or wait for), and their trees."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vmcjob.document import Document
from vmcjob.errors import VmcJobError
from vmcjob.rundir import RunDir
from vmcjob.runs.status import RunStatus
from vmcjob.spec import load_resolved

BRANCH, LAST, BAR, GAP = "├─ ", "└─ ", "│  ", "   "


def parent_of(run: RunDir) -> str | None:
    """The run that a run continues, else the one that it starts from, else the one it waits for.

    Of several runs that it waits for, the first counts. None if there is no such run.
    """
    try:
        train = Document.parse(run.read_spec_text(), str(run.spec_path)).tables.get("train")
    except VmcJobError:  # reported by `show`
        train = None
    origin = run.continues or (train.get("start_from") if isinstance(train, dict) else None)
    if isinstance(origin, str):
        return origin
    submission = run.read_submission()
    return next(iter((submission.waits_for if submission else None) or ()), None)


def trained_from(run: RunDir) -> str | None:
    """The run of the same name, point and system that a run has trained on from, if any.

    A run without training steps takes no run's place. None where a file cannot be read.
    """
    try:
        text = run.read_spec_text()
        tables = Document.parse(text, "").tables if "start_from" in text else {}
        train = tables.get("train")
        if not isinstance(train, dict) or not isinstance(origin := train.get("start_from"), str):
            return None
        if not train.get("steps") or not _is_alike(run, other := run.beside(origin)):
            return None
        before = other.read_spec_text()
        is_same = _nuclei(Document.parse(before, "").tables) == _nuclei(tables)
        return origin if is_same or _is_same_system(text, before) else None
    except VmcJobError:
        return None


def _is_same_system(*texts: str) -> bool:
    """Whether two specs have one system in other words; reads the whole specs, which takes long."""
    first, second = (replace(load_resolved(text, "").system, reference=None) for text in texts)
    return first == second


def _is_alike(run: RunDir, other: RunDir) -> bool:
    """Whether two runs have the same name and point."""
    records = run.read_record(), other.read_record()
    return len({(one.name, repr(sorted(one.point.items()))) for one in records}) == 1


def _nuclei(tables: Mapping[str, Any]) -> dict[str, Any]:  # values as TOML has them
    """The table of the system without the reference energy."""
    system = tables.get("system")
    known = system if isinstance(system, dict) else {}
    return {key: value for key, value in known.items() if key != "reference"}


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
