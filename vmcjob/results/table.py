"""Many runs become one table of energies with error bars, and a reason for every run left out."""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vmcjob.results.evaluation import Attempts, Evaluated, RunResult, UnusableError, attempt_all
from vmcjob.results.fields import of_force, of_spin, of_training
from vmcjob.results.frames import to_dataframe, to_dataset
from vmcjob.results.html import html_table
from vmcjob.results.naming import tell_apart
from vmcjob.results.provenance import summarize
from vmcjob.results.replaced import replaced_by
from vmcjob.results.units import format_energy
from vmcjob.stats import Estimate, pool
from vmcjob.verdict.evidence import MIN_SHIFT
from vmcjob.verdict.judgement import CONVERGED, by_run, explain, resume_options, verdict_of
from vmcjob.verdict.pooled import judge_together

if TYPE_CHECKING:
    from vmcjob.results.frames import DataFrame, Dataset

SCHEMA_VERSION = 1
UNITS = {"variance": "hartree^2", "tau": "steps"} | dict.fromkeys(
    (
        *("energy", "error", "reference", "hartree_fock", "extrapolated", "extrapolated_error"),
        *("left", "left_error"),
    ),
    "hartree",
)
LAST_IN_CSV = ("bond_force", "bond_force_error")
"""Columns behind all that earlier releases have, so that a script that counts columns works on."""
UNITS |= dict.fromkeys(LAST_IN_CSV, "hartree/bohr")
NOT_IN_CSV = {
    "findings",
    "unsettled",
    "point",
    "provenance",
    "science_sha256",
    "resume_with",
}  # fields of a row; `why` has the findings and the command


@dataclass(frozen=True)
class Row:
    """The energy of one system and method, from all its finished runs."""

    name: str  # with the sweep's coordinates, "h2 R=1.2"
    runs: int
    n_steps: int  # evaluation steps used, of all runs
    energy: float  # hartree
    error: float  # hartree, one standard error, statistical
    variance: float  # of the local energy, hartree²
    tau: float  # steps
    n_eff: float
    converged: bool
    why: str  # what is against it or not known, and a command that helps; empty where nothing is
    findings: tuple[str, ...]  # what the runs' own numbers say against the state; see `verdict`
    reference: float | None  # hartree
    hartree_fock: float | None  # energy of the start, hartree
    rollbacks: int  # of all runs
    run_ids: tuple[str, ...]
    seeds: tuple[int, ...]
    point: Mapping[str, int | float | str]
    science_sha256: str
    provenance: Mapping[str, str | None]  # versions, devices, precision; see `provenance`
    wall_time_s: float  # of all runs
    extrapolated: float | None  # to no variance, hartree; beside the energy, never in its place
    extrapolated_error: float | None  # hartree
    not_extrapolated: str  # the reason if not extrapolated, else empty
    training_slope: float | None  # of the last fifth of training, hartree per 1000 steps
    training_slope_error: float | None
    verdict: str  # "converged", "unsettled", "not yet" or "suspect"; see `judgement`
    unsettled: tuple[str, ...]  # why training should go on
    left: float | None  # to gain by longer training, hartree; None where that is not known
    left_error: float | None  # hartree, a factor of about two
    s2: float | None  # squared total spin; None where it was not measured
    s2_error: float | None
    s2_expected: float | None  # S(S + 1) of the spin that was asked for
    hartree_fock_basis: str | None
    bond_force: float | None  # −dE/dR of two nuclei, hartree/bohr; None without forces
    bond_force_error: float | None
    resume_with: str  # options of `resume` that help, like "--more-steps 1000"; else empty


class Exclusion(NamedTuple):
    """A run that is in no row of its own, and why."""

    run_id: str
    reason: str


@dataclass(frozen=True)
class Table:
    """Every run given is either in one row, or excluded, or contained in a longer one of a row."""

    rows: tuple[Row, ...]
    excluded: tuple[Exclusion, ...]
    contained: tuple[Exclusion, ...] = ()

    def __repr__(self) -> str:
        lines = [" ".join(filter(None, cells)) for cells in self._cells()]
        return "\n".join([f"<table of {len(self.rows)} rows, {self._left_out}>", *lines])

    def _repr_html_(self) -> str:
        """The table as a notebook shows it: the main columns, and how many runs are left out."""
        head = ("name", "energy, hartree", "off by mHa", "runs", "verdict", "note")
        return f"{html_table(head, list(self._cells()))}<p>{self._left_out}</p>"

    @property
    def _left_out(self) -> str:
        return f"{len(self.excluded)} runs left out"

    def _cells(self) -> Iterator[tuple[str, ...]]:
        """The main columns of each row, in words."""
        for row in self.rows:
            off = ""
            if row.reference is not None:
                off = format_energy(1e3 * (row.energy - row.reference), 1e3 * row.error)
            energy = format_energy(row.energy, row.error)
            yield row.name, energy, off, str(row.runs), row.verdict, row.why

    def to_json(self) -> dict[str, object]:
        """A JSON object with `schema_version`, and the rest by name; energies in hartree."""
        return {
            "schema_version": SCHEMA_VERSION,
            "rows": [asdict(row) for row in self.rows],
            "excluded": [exclusion._asdict() for exclusion in self.excluded],
            "contained": [exclusion._asdict() for exclusion in self.contained],
        }

    def to_columns(self) -> dict[str, list[Any]]:
        """The columns of `to_csv` by name, with numbers as numbers and None for what is not known.

        Lists within a cell are texts, separated by spaces.
        """
        coordinates = list(dict.fromkeys(key for row in self.rows for key in row.point))
        elsewhere = NOT_IN_CSV.union(LAST_IN_CSV)
        names = [item.name for item in fields(Row) if item.name not in elsewhere]
        found: dict[str, list[Any]] = {
            name: [_plain(getattr(row, name)) for row in self.rows] for name in names
        }
        for key in coordinates:
            found[key] = [row.point.get(key) for row in self.rows]
        for name in dict.fromkeys(name for row in self.rows for name in row.provenance):
            found[name] = [row.provenance.get(name) for row in self.rows]
        for name in LAST_IN_CSV:
            found[name] = [getattr(row, name) for row in self.rows]
        return found

    def to_dataframe(self) -> "DataFrame":
        """A pandas data frame, a line for each row; needs pandas."""
        return to_dataframe(self.to_columns())

    def to_dataset(self) -> "Dataset":
        """An xarray dataset along "row", with units; needs xarray."""
        return to_dataset(self.to_columns(), UNITS, {"schema_version": SCHEMA_VERSION})

    def to_csv(self) -> str:
        """One line per row, every digit kept; lists within a cell are separated by spaces.

        A sweep's coordinates are columns of their own, behind the others. Columns that are newer
        than the first release stand behind these.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        columns = self.to_columns()
        writer.writerow(columns)
        for cells in zip(*columns.values(), strict=True):
            writer.writerow([_cell(value) for value in cells])
        return text.getvalue()


def make_table(runs: Iterable[RunResult], attempts: Attempts = attempt_all) -> Table:
    """One row per system and method, pooled over seeds; every other run excluded with a reason.

    `attempts` gets the runs' energies from their stores.
    """
    found: dict[str, Evaluated] = {}
    excluded: list[Exclusion] = []
    distinct: dict[str, RunResult] = {}
    for run in runs:
        if run.run_id in distinct:  # counted twice, it would seem to confirm itself
            excluded.append(Exclusion(run.run_id, "given twice, counted once"))
        distinct.setdefault(run.run_id, run)
    chosen = list(distinct.values())
    for run, item in zip(chosen, attempts(chosen), strict=True):
        if isinstance(item, UnusableError):
            excluded.append(Exclusion(run.run_id, str(item)))
        else:
            found[run.run_id] = item
    longer = {item.continues: run_id for run_id, item in found.items() if item.continues}
    trained_on = replaced_by(
        {run_id: item.continues for run_id, item in found.items()},
        {run_id: item.run.trained_from for run_id, item in found.items()},
    )
    groups: dict[tuple[str, str], list[Evaluated]] = defaultdict(list)
    contained: list[Exclusion] = []
    for run_id, item in found.items():
        if run_id in longer:  # in a row of its own, it would seem to confirm the longer one
            contained.append(Exclusion(run_id, f"all of it is in {longer[run_id]}"))
        elif run_id in trained_on:
            contained.append(Exclusion(run_id, f"trained on in {trained_on[run_id]}"))
        else:
            groups[_label(item.run), item.run.science_sha256].append(item)
    rows = _with_unique_names(sorted(groups.values(), key=_position))
    return Table(rows, tuple(excluded), tuple(contained))


def _row(group: Sequence[Evaluated]) -> Row:
    group = sorted(group, key=lambda item: item.run.seed)
    run = group[0].run
    pooled = pool([item.energy for item in group], negligible=MIN_SHIFT)
    weights = [item.energy.n for item in group]
    return Row(
        name=_label(run),
        runs=len(group),
        n_steps=pooled.n,
        energy=pooled.mean,
        error=pooled.error,
        variance=float(np.average([item.variance for item in group], weights=weights)),
        tau=pooled.tau,
        n_eff=pooled.n_eff,
        reference=next((one.run.reference for one in group if one.run.reference is not None), None),
        hartree_fock=group[0].hartree_fock,
        rollbacks=sum(item.rollbacks for item in group),
        run_ids=tuple(item.run.run_id for item in group),
        seeds=tuple(item.run.seed for item in group),
        point=dict(run.point),
        science_sha256=run.science_sha256,
        provenance=summarize([item.provenance for item in group]),
        wall_time_s=sum(item.wall_time_s for item in group),
        hartree_fock_basis=group[0].basis,
        **_verdict(group, pooled),
        **of_training(group),
        **of_spin(group),
        **of_force(group),
    )


def _verdict(group: Sequence[Evaluated], pooled: Estimate) -> dict[str, Any]:
    """The fields of a row that say whether to trust it."""
    judged, seeds = [item.judgement for item in group], [item.run.seed for item in group]
    together = judge_together(pooled, judged, group[0].hartree_fock)
    verdict = verdict_of(pooled, judged, together)
    return {
        "verdict": verdict,
        "converged": verdict == CONVERGED,
        "why": explain(pooled, judged, seeds, [item.run.run_id for item in group], together),
        "resume_with": resume_options(pooled, judged, together),
        "findings": (*by_run(seeds, [one.findings for one in judged]), *together.findings),
        "unsettled": (*by_run(seeds, [one.unsettled for one in judged]), *together.unsettled),
    }


def _label(run: RunResult) -> str:
    return " ".join([run.name, *(f"{key}={value}" for key, value in run.point.items())])


def _position(group: Sequence[Evaluated]) -> tuple[str, list[tuple[bool, float, str]]]:
    """Return the sort key of a row: name, then the sweep, numbers in numeric order."""
    run = group[0].run
    return run.name, [
        (True, 0.0, value) if isinstance(value, str) else (False, float(value), "")
        for value in run.point.values()
    ]


def _with_unique_names(groups: Sequence[Sequence[Evaluated]]) -> tuple[Row, ...]:
    """One row per group; those of one name but different science (an edited spec) told apart."""
    rows = [_row(group) for group in groups]
    names = tell_apart(
        [row.name for row in rows],
        [group[0].run.method for group in groups],
        [row.run_ids[0].rpartition("-")[2] for row in rows],
    )
    return tuple(replace(row, name=name) for row, name in zip(rows, names, strict=True))


def _plain(value: object) -> object:
    """A value that has room in a cell."""
    return " ".join(map(str, value)) if isinstance(value, tuple) else value


def _cell(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
