"""The command `plot --curve`: points from the table of energies, and constants from the fit."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from vmcjob.cli.energies import (
    Energies,
    add_up,
    make_energies,
    name_of,
    read_reactions,
    require_balance,
    spec_of,
)
from vmcjob.cli.outfile import write_output
from vmcjob.cli.screen import put, say
from vmcjob.cli.text import align_facts, count, format_energy
from vmcjob.errors import IncompleteError, NotFoundError, UsageError

if TYPE_CHECKING:
    from vmcjob.plot import CurvePoint, Figure
    from vmcjob.results.curve import Fit, Value
    from vmcjob.results.reaction import Reaction
    from vmcjob.results.table import Row
    from vmcjob.rundir import RunDir
    from vmcjob.spec import JobSpec

FRAGMENTS = "--fragments"
N_DIATOMIC = 2
MAX_CURVES = 6  # in one picture, the number of colours
MAX_NAMED = 5  # rows in a sentence


def plot_curve(
    chosen: "Sequence[RunDir]",
    path: Path,
    fragments: "Fragments | None",
) -> None:
    """Draw the curves of one or several sweeps, and print the constants at their minima."""
    from vmcjob.plot import render

    energies = make_energies(chosen)
    drawn = draw_sweeps(energies, fragments)
    for name, facts in drawn.facts.items():
        title = {"curve": name} if drawn.is_several else {}
        put(align_facts({**title, **facts}))
    write_output(path, render(drawn.figure, path))
    if contained := energies.table.contained:
        words = "that newer runs contain or have trained on; vmcjob aggregate names them"
        say(f"left out: {count(len(contained), 'run')} {words}", "dim")
    problems = [str(error) for error in energies.errors]
    problems += note_open_points(energies.table.rows)
    problems += [f"left out: {run_id}  {reason}" for run_id, reason in energies.table.excluded]
    problems += [f"no minimum: {why}" for why in drawn.missing]
    if problems:
        raise IncompleteError("\n".join(problems))


def note_open_points(rows: "Sequence[Row]") -> list[str]:
    """One note about the points that are not converged; empty if all are."""
    open_rows = [row for row in rows if not row.converged]
    if len(open_rows) < 2:
        return [f"{row.name}: {row.why}" for row in open_rows]
    some = f"{len(open_rows)} of {len(rows)} points are not converged"
    return [f"{some}; vmcjob aggregate says why, and what helps"]


@dataclass(frozen=True)
class DrawnSweeps:
    """A picture of one curve or several, and the constants of each that has a minimum, by name."""

    figure: "Figure"
    facts: Mapping[str, Mapping[str, str]]
    missing: Sequence[str]  # why the other curves have no minimum
    is_several: bool


def draw_sweeps(energies: Energies, fragments: "Fragments | None" = None) -> DrawnSweeps:
    """The curve of a sweep, or several side by side; UsageError where the rows are no curves."""
    from vmcjob.plot import draw_curve, draw_curves

    sweeps = _sweeps(energies)
    curves = {name: _read(rows, energies) for name, rows in sweeps.items()}
    limit = None
    if fragments is not None:
        limit = _limit(fragments, [rows[0] for rows in sweeps.values()], energies)
    coordinates = {curve.coordinate: curve.points for curve in curves.values()}
    if len(coordinates) > 1:
        raise UsageError(f"{' and '.join(coordinates)} are no one axis; draw them apart")
    (coordinate,) = coordinates
    if len(curves) == 1:
        (curve,) = curves.values()
        figure = draw_curve(curve.points, coordinate, curve.fit, limit)
    else:
        drawn = {name: (curve.points, curve.fit) for name, curve in curves.items()}
        figure = draw_curves(drawn, coordinate, limit)
    facts = {
        name: _facts(curve.fit, limit, curve.elements)
        for name, curve in curves.items()
        if curve.fit is not None
    }
    missing = [curve.why for curve in curves.values() if curve.fit is None]
    return DrawnSweeps(figure, facts, missing, len(curves) > 1)


@dataclass(frozen=True)
class Curve:
    """One sweep, with its minimum or the reason for not having one."""

    points: "Sequence[CurvePoint]"
    coordinate: str
    elements: tuple[int, ...] | None  # of a diatomic molecule
    fit: "Fit | None"
    why: str


def _read(rows: "list[Row]", energies: Energies) -> Curve:
    """The points of one sweep, in order."""
    specs = [spec_of(row, energies) for row in rows]
    at, coordinate = _places(rows, specs, next(iter(rows[0].point)))
    points = _points(rows, at)
    system = specs[0].system
    elements = system.elements if len(system.atoms) == N_DIATOMIC else None
    return Curve(points, coordinate, elements, *_fit(points))


def _sweeps(energies: Energies) -> "dict[str, list[Row]]":
    """The rows of each sweep along its coordinate, by name."""
    rows = list(energies.table.rows)
    if not rows:
        raise NotFoundError("none of these runs has an energy yet; `vmcjob aggregate` says why")
    known = {row.name.partition(" ")[0] for row in rows}
    in_order = dict.fromkeys(run.name for run in energies.runs.values())
    names = [name for name in in_order if name in known]
    keys = {tuple(row.point) for row in rows}
    if len(names) > MAX_CURVES or len(keys) > 1 or any(len(key) != 1 for key in keys):
        some = ", ".join(
            [*(row.name for row in rows[:MAX_NAMED]), *["..."][: len(rows) > MAX_NAMED]]
        )
        raise UsageError(f"a curve is one sweep over one key, not {some}; name the runs of a sweep")
    return {name: [row for row in rows if row.name.partition(" ")[0] == name] for name in names}


def _places(rows: "Sequence[Row]", specs: "Sequence[JobSpec]", key: str) -> tuple[list[float], str]:
    """The coordinate of each row; for two atoms their distance in bohr."""
    if all(len(spec.system.atoms) == N_DIATOMIC for spec in specs):
        pairs = [[atom.position for atom in spec.system.atoms] for spec in specs]
        return [math.dist(*pair) for pair in pairs], "distance (bohr)"
    try:
        return [float(row.point[key]) for row in rows], key
    except ValueError:
        raise UsageError(f"sweep.{key} has words for values; a curve needs numbers") from None


def _points(rows: "Sequence[Row]", at: Sequence[float]) -> "list[CurvePoint]":
    from vmcjob.plot import CurvePoint

    in_order = sorted(zip(at, rows, strict=True), key=lambda pair: pair[0])
    for (place, row), (other_place, other) in pairwise(in_order):
        if place == other_place:
            raise UsageError(
                f"two rows are at {place:g}: {_with_runs(row)} and {_with_runs(other)}; "
                "name the runs of the curve by their ids, without the runs of one of these rows"
            )
    return [CurvePoint(at, row.energy, row.error, row.converged) for at, row in in_order]


def _with_runs(row: "Row") -> str:
    """The name of a row, and the ids of its runs."""
    return f"'{row.name}' ({', '.join(row.run_ids)})"


def _fit(points: "Sequence[CurvePoint]") -> "tuple[Fit | None, str]":
    from vmcjob.results.curve import NoMinimumError, fit

    known = [point for point in points if point.error > 0.0]
    at, energies = [point.at for point in known], [point.energy for point in known]
    try:
        return fit(at, energies, [point.error for point in known]), ""
    except NoMinimumError as error:
        return None, str(error)


@dataclass(frozen=True)
class Fragments:
    """The sum of what a molecule breaks into, and the runs among which its rows are."""

    reaction: "Reaction"
    runs: "Sequence[RunDir]"
    unbalanced: bool  # whether the sum may have other nuclei or electrons than the molecule


def read_fragments(text: str, runs: "Sequence[RunDir]", *, unbalanced: bool) -> Fragments:
    """The fragments of a sum; UsageError if it is no sum, or names no run."""
    (reaction,) = read_reactions(FRAGMENTS, [text], runs)
    return Fragments(reaction, runs, unbalanced)


def _limit(fragments: Fragments, molecules: "Sequence[Row]", energies: Energies) -> "Value":
    """The energy of the fragments; UsageError if these are not the atoms of each molecule."""
    from vmcjob.results.curve import Value

    reaction, option = fragments.reaction, FRAGMENTS
    names = {name.split()[0] for name in reaction.factors}
    named = [run for run in fragments.runs if name_of(run) in names]
    parts = make_energies(named or fragments.runs)  # all rows, to list them in messages
    (found,) = add_up(option, [reaction], parts, unbalanced=True)
    rows = {row.name: row for row in parts.table.rows if row.name in reaction.factors}
    both = parts._replace(runs=energies.runs | parts.runs)
    for molecule in () if fragments.unbalanced else molecules:
        factors = dict(reaction.factors)
        factors[molecule.name] = factors.get(molecule.name, 0.0) - 1.0
        whole = reaction._replace(text=f"{reaction.text} - {molecule.name}", factors=factors)
        require_balance(option, whole, rows | {molecule.name: molecule}, both)
    return Value(found["energy"], found["error"])


def _facts(fit: "Fit", limit: "Value | None", elements: tuple[int, ...] | None) -> dict[str, str]:
    """The constants in words, each with its error."""
    from vmcjob.results.curve import reduced_mass

    facts = {
        "minimum": f"{format_energy(fit.minimum.value, fit.minimum.error)} bohr",
        "energy there": f"{format_energy(fit.energy.value, fit.energy.error)} hartree",
        "force constant": (
            f"{format_energy(fit.force_constant.value, fit.force_constant.error)} hartree/bohr²"
        ),
    }
    if elements is not None:
        mass = reduced_mass((elements[0], elements[1]))
        frequency = fit.frequency(mass)
        facts["frequency"] = (
            f"{format_energy(frequency.value, frequency.error)} cm⁻¹, harmonic, "
            f"reduced mass {mass:.6f} u"
        )
    if limit is not None:
        depth = fit.depth(limit)
        facts["dissociation energy"] = f"{format_energy(depth.value, depth.error)} hartree, D_e"
    facts["fit"] = (
        f"{fit.n_points} points, {fit.first:g} to {fit.last:g}; polynomial of degree "
        f"{fit.coefficients.size - 1}, χ² per degree of freedom {fit.chi_squared:.2g}"
    )
    return facts
