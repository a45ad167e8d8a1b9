"""Columns of the table of energies, for people."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vmcjob.cli.columns import TableColumn
from vmcjob.cli.text import Cell, format_energy
from vmcjob.results.units import PER_HARTREE, EnergyUnit

if TYPE_CHECKING:
    from vmcjob.cli.energies import Difference
    from vmcjob.results.table import Row

VERDICT_STYLES = {
    "converged": "green",
    "unsettled": "yellow",
    "not yet": "yellow",
    "suspect": "red",
}


def _verdict(word: str) -> Cell:
    return Cell(word, VERDICT_STYLES[word])


def _with_error(value: float | None, error: float | None, factor: float = 1.0) -> str:
    """A number with its error; nothing if one of the two is not known."""
    if value is None or error is None:
        return ""
    return format_energy(factor * value, factor * error)


def _spin(row: "Row") -> str:
    """S² beside what it should be."""
    return _with_error(row.s2, row.s2_error) if row.s2_error else ""


def _force(row: "Row") -> str:
    """The force along the bond of two nuclei."""
    return _with_error(row.bond_force, row.bond_force_error)


def _basis(rows: "Sequence[Row]") -> str:
    """The basis of Hartree–Fock, where it is the same for all rows that have one."""
    found = {row.hartree_fock_basis for row in rows} - {None}
    return f"/{found.pop()}" if len(found) == 1 else ""


def table_columns(unit: EnergyUnit, rows: "Sequence[Row]" = ()) -> "list[TableColumn[Row]]":
    """For people, energies in their unit; JSON and CSV have the fields of a row, in hartree."""
    factor, difference = PER_HARTREE[unit], _Difference(unit)

    def off(row: "Row") -> str:
        return difference.of(row.energy, row.reference, row.error)

    def correlation(row: "Row") -> str:
        return difference.of(row.energy, row.hartree_fock, row.error)

    def left(row: "Row") -> str:
        return _with_error(row.left, row.left_error, difference.factor)

    def extrapolated(row: "Row") -> str:
        return _with_error(row.extrapolated, row.extrapolated_error, factor)

    above_hf = f"E - HF{_basis(rows)}, {difference.unit}"
    return [
        TableColumn("name", lambda row: row.name),
        TableColumn(
            "energy" if unit == "hartree" else f"energy, {unit}",
            lambda row: format_energy(factor * row.energy, factor * row.error),
            "point",
        ),
        TableColumn(f"left, {difference.unit}", left, "point"),
        TableColumn(f"off by {difference.unit}", off, "point", dispensable=2),
        TableColumn("S²", _spin, "point", dispensable=3),
        TableColumn("-dE/dR, Ha/bohr", _force, "point", dispensable=2),
        TableColumn(above_hf, correlation, "point", dispensable=3),
        TableColumn("extrapolated", extrapolated, "point", dispensable=5),
        TableColumn("runs", lambda row: str(row.runs), "right", dispensable=3),
        TableColumn("steps", lambda row: str(row.n_steps), "right", dispensable=4),
        TableColumn("variance", lambda row: f"{row.variance:.3g}", "right", dispensable=5),
        TableColumn("tau", lambda row: f"{row.tau:.1f}", "right", dispensable=6),
        TableColumn("n_eff", lambda row: f"{math.floor(row.n_eff)}", "right", dispensable=2),
        TableColumn("verdict", lambda row: _verdict(row.verdict)),
        TableColumn("note", lambda row: Cell(row.why, "dim"), "note", dispensable=1),
    ]


class _Difference:
    """How differences of energies are told: in the unit of the table, and not in hartree."""

    def __init__(self, unit: EnergyUnit) -> None:
        """Millihartree where the table has hartree."""
        self.unit = "mHa" if unit == "hartree" else unit
        self.factor = 1e3 if unit == "hartree" else PER_HARTREE[unit]

    def of(self, energy: float, other: float | None, error: float) -> str:
        """An energy minus another one, with the error of the first; nothing without the other."""
        if other is None:
            return ""
        return format_energy(self.factor * (energy - other), self.factor * error)


def sum_columns(unit: EnergyUnit) -> "list[TableColumn[Difference]]":
    """Columns of sums of energies, in their unit."""
    factor = PER_HARTREE[unit]
    return [
        TableColumn("sum", lambda found: found["sum"]),
        TableColumn(
            "energy" if unit == "hartree" else f"energy, {unit}",
            lambda found: format_energy(factor * found["energy"], factor * found["error"]),
            "point",
        ),
        TableColumn("verdict", lambda one: _verdict(one["verdict"])),
    ]
