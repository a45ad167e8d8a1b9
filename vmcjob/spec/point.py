"""One point of a sweep: the spec with the swept values inserted."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from vmcjob.document import (
    FAILED,
    Document,
    Failure,
    KeyPath,
    Kind,
    Reader,
    format_value,
)
from vmcjob.spec.expression import Expression, ExpressionError, is_expression
from vmcjob.spec.geometry import ATOMS, Geometries
from vmcjob.spec.growth import with_keys_of_before
from vmcjob.spec.model import JobSpec
from vmcjob.spec.origin import Origins, origins_of_point
from vmcjob.spec.sweep import Sweep, Swept, Variations, is_chain
from vmcjob.spec.system import COORDINATE

Tables: TypeAlias = dict[str, Any]  # a parsed document; not validated yet


class PointReader(Reader):
    """Reads the job at one point; mistakes in swept values are shown in [sweep]."""

    def __init__(
        self,
        document: Document,
        sweep: Sweep,
        coordinates: Mapping[str, Swept],
        geometries: Geometries,
        given: Origins,
    ) -> None:
        moved: dict[KeyPath, KeyPath] = {
            axis.target: (*axis.origin, axis.values.index(coordinates[axis.name]))
            for axis in sweep.axes
            if axis.target
        }
        super().__init__(document, JobSpec, Variations, moved=moved)
        self.sweep = sweep
        self.coordinates = coordinates
        self.geometries = geometries
        self.given = given
        self.origins: Origins = {}
        """Origins of the values, after `read`."""

    @property
    def variables(self) -> dict[str, float]:
        return {
            axis.name: float(self.coordinates[axis.name])
            for axis in self.sweep.axes
            if not axis.target
        }

    @property
    def swept_offsets(self) -> set[int]:
        """Offsets of the swept values of this point in the text."""
        origins = {axis.origin for axis in self.sweep.axes}
        moved = (origin for origin in self.moved.values() if origin[:-1] in origins)
        return {self.document.place(origin).value for origin in moved}

    def read(self) -> JobSpec | Failure:
        tables = self.document.tables
        for axis in self.sweep.axes:
            if axis.target:
                tables = _put(tables, axis.target, self.coordinates[axis.name])
        tables, origin = self.geometries.fill_in(tables, self)
        if origin is not None:
            self.moved = {**self.moved, ATOMS: self.moved.get(origin, origin)}
        tables = with_keys_of_before(self._in_chain(tables))
        geometry = self.moved.get(ATOMS)
        self.origins = origins_of_point(self.document, self.given, tables, self.moved, geometry)
        return self.root(JobSpec, tables)

    @property
    def previous(self) -> dict[str, Swept] | None:
        """The point whose run this one starts from; None without one."""
        is_one_of_many = is_chain(self.document.tables)
        return self.sweep.nearest_before(self.coordinates) if is_one_of_many else None

    def _in_chain(self, tables: Tables) -> Tables:
        """In a chain, only the first point is pretrained, and all others start from another run."""
        if not is_chain(tables):
            return tables
        if self.previous is not None:
            return {name: table for name, table in tables.items() if name != "pretrain"}
        train = {key: value for key, value in tables["train"].items() if key != "start_from"}
        return tables | {"train": train}

    def scalar(self, kind: Kind, value: Any, path: KeyPath) -> Any:
        """Read a scalar; a coordinate may be an expression."""
        if kind is not COORDINATE or not is_expression(value):
            return super().scalar(kind, value, path)
        try:
            expression = Expression(value)
            if not self.sweep.broken.isdisjoint(expression.variables):
                return FAILED  # the complaint is in [sweep]
            return expression.evaluate(self.variables)
        except ExpressionError as problem:
            return self.complain(path, f"{format_value(value)} {problem}")


def _put(tables: Tables, target: tuple[str, str], value: Any) -> Tables:
    """A copy of the tables with a swept value inserted, unless the table is malformed."""
    table, key = target
    inner = tables.get(table, {})
    return tables | {table: inner | {key: value}} if isinstance(inner, dict) else tables
