"""Many jobs from one spec: its seeds and the values of [sweep]."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from vmcjob.document import (
    FAILED,
    Failure,
    KeyPath,
    Kind,
    Reader,
    Rule,
    Schema,
    closest,
    enumerate_words,
    format_value,
    keys_of,
)
from vmcjob.spec.expression import names_in_braces
from vmcjob.spec.model import PREVIOUS, JobSpec, Seed
from vmcjob.spec.relax import Relax
from vmcjob.spec.science import is_science

Swept: TypeAlias = int | float | str

MAX_JOBS = 10_000
"""A spec with more jobs is probably a mistake, and more than schedulers accept."""

MAX_NUCLEI = 200_000
"""Largest number of nuclei in all geometries of a spec: reading them takes seconds."""

_NUMBER = Kind(float)
_NO_NAME = 'expected a variable, like R, or a key, like "optimizer.damping"'
_SWEPT_KEYS = {
    f"{table}.{name}": (table, name)
    for table, key in keys_of(JobSpec).items()
    if key.is_table
    for name in keys_of(key.kind.type)
}


@dataclass(frozen=True)
class Axis:
    """One line of [sweep]: a variable such as ``R``, or a key such as ``"optimizer.damping"``."""

    name: str
    values: tuple[Swept, ...]
    origin: KeyPath
    """Path of the values in the document."""

    @property
    def target(self) -> tuple[str, str] | None:
        """Table and key that take the values; None for a variable."""
        return _SWEPT_KEYS.get(self.name)


@dataclass(frozen=True)
class Sweep:
    """All axes, the slowest first."""

    axes: tuple[Axis, ...] = ()
    broken: frozenset[str] = frozenset()
    """Names of axes with complaints."""

    @classmethod  # `Any`, because a user may write anything
    def from_toml(cls, value: Any, path: KeyPath, reader: Reader) -> "Sweep | Failure":
        """Read as many axes as possible, so that the rest of the spec can be checked with them."""
        if not isinstance(value, dict):
            return reader.refuse(path, "a table", value)
        axes = {
            name: _read_axis(name, values, (*path, name), reader) for name, values in value.items()
        }
        good = tuple(axis for axis in axes.values() if axis is not FAILED)
        return cls(good, frozenset(axes) - {axis.name for axis in good})

    @staticmethod
    def json_schema() -> Schema:
        """One array of values for each variable or key."""
        value = {"type": ["number", "string", "boolean"]}
        axis = {"type": "array", "minItems": 1, "items": value}
        return {"type": "object", "additionalProperties": axis}

    @property
    def n_points(self) -> int:
        return math.prod(len(axis.values) for axis in self.axes)

    @property
    def is_line(self) -> bool:
        """Whether there is a single axis of numbers, so that points have distances."""
        values = self.axes[0].values if len(self.axes) == 1 else ("",)
        return not self.broken and all(isinstance(value, int | float) for value in values)

    def nearest_before(self, coordinates: Mapping[str, Swept]) -> dict[str, Swept] | None:
        """The nearest of the points listed before one in a sweep of numbers; None for the first.

        Of two points at the same distance, the one listed later.
        """
        if not self.is_line:
            return None
        (axis,) = self.axes
        here = coordinates[axis.name]
        before = axis.values[: axis.values.index(here)]
        if not before:
            return None
        near = min(reversed(before), key=lambda value: abs(float(value) - float(here)))
        return {axis.name: near}

    def points(self) -> Iterator[dict[str, Swept]]:
        """The coordinates of all points, the last axis fastest; a single point without axes."""
        names = [axis.name for axis in self.axes]
        for values in itertools.product(*(axis.values for axis in self.axes)):
            yield dict(zip(names, values, strict=True))


@dataclass(frozen=True)
class Variations:
    """The keys that make many jobs from one spec; a resolved job has none of them."""

    seeds: Annotated[
        tuple[Seed, ...],
        Rule("{} of at least one seed", bool, schema=(("minItems", 1),)),
        "one job for each",
    ] = ()
    sweep: Annotated[Sweep, "one job for each combination of values"] = Sweep()
    relax: Relax | None = None


def read_variations(reader: Reader) -> Variations:
    """Seeds, sweep and relaxation as far as they are valid; too many jobs are refused at once."""
    tables = reader.document.tables
    _refuse_too_many(reader, tables)
    results = {
        name: reader.value(key.kind, tables[name], (name,))
        for name, key in keys_of(Variations).items()
        if name in tables
    }
    good = Variations(**{name: value for name, value in results.items() if value is not FAILED})
    reader.complain_of_repeats(good.seeds, ("seeds",))
    if "seed" in tables and "seeds" in tables:
        reader.complain(("seeds",), "give either seed or seeds, not both", at_key=True)
    used = set(names_in_braces(tables.get("system")))
    if is_chain(tables) and not (good.sweep.is_line or good.sweep.broken):
        words = f"{format_value(PREVIOUS)} goes along [sweep]; expected one line of numbers there"
        reader.complain(("train", "start_from"), words)
    for axis in good.sweep.axes:
        if not axis.target and axis.name not in used:
            reader.complain(axis.origin, _about_unused(axis.name), at_key=True)
    return good


def is_chain(tables: dict[str, Any]) -> bool:
    """Whether each point of the sweep starts from an earlier one."""
    train = tables.get("train")
    return isinstance(train, dict) and train.get("start_from") == PREVIOUS


def _refuse_too_many(reader: Reader, tables: dict[str, Any]) -> None:
    """Refuse too many jobs or nuclei before the spec is expanded."""
    sweep, seeds, system = (tables.get(name) for name in ("sweep", "seeds", "system"))
    values = list(sweep.values()) if isinstance(sweep, dict) else []
    n_points = math.prod(len(axis) for axis in values if isinstance(axis, list) and axis)
    n_jobs = n_points * (len(seeds) if isinstance(seeds, list) and seeds else 1)
    where = ("sweep",) if n_points > 1 else ("seeds",)
    atoms = system.get("atoms") if isinstance(system, dict) else None
    n_nuclei = n_points * len(atoms) if isinstance(atoms, list) else 0
    if n_jobs > MAX_JOBS:
        words = f"{n_jobs} jobs are more than the {MAX_JOBS} that one spec may ask for"
        reader.complain(where, words, at_key=True)
    elif n_points > 1 and n_nuclei > MAX_NUCLEI:
        words = f"{n_points} geometries of {len(atoms or ())} nuclei are too many for one spec"
        reader.complain(where, f"{words}; split it", at_key=True)
    reader.document.refuse(reader.complaints)


def _read_axis(name: str, values: Any, origin: KeyPath, reader: Reader) -> Axis | Failure:
    axis = Axis(name, (), origin)
    if isinstance(values, dict):
        full = f'"{name}.{next(iter(values), "…")}"'
        return reader.complain(origin, f"a dotted key needs quotes here: {full}", at_key=True)
    if problem := _misnamed(name):
        return reader.complain(origin, problem, at_key=True)
    if not isinstance(values, list) or not values:
        return reader.refuse(origin, "an array of at least one value", values)
    values = [value + 0.0 if isinstance(value, float) else value for value in values]  # no -0.0
    results = [_read_value(axis, value, (*origin, i), reader) for i, value in enumerate(values)]
    if FAILED in results or reader.complain_of_repeats(values, origin):
        return FAILED
    return Axis(name, tuple(values), origin)


def _read_value(axis: Axis, value: Any, path: KeyPath, reader: Reader) -> Any:
    """A variable takes numbers; a value of a key is checked later by the key."""
    if not axis.target:
        return reader.value(_NUMBER, value, path)
    return reader.refuse(path, "a single value", value) if isinstance(value, list | dict) else value


def _misnamed(name: str) -> str | None:
    """The reason why this name cannot be swept; None if it can."""
    if name == "system.atoms":
        return "atoms cannot be swept; put a variable in place of a coordinate"
    if name != "seed" and not is_science(_SWEPT_KEYS.get(name, (name,))):
        return "does not change the numbers, so its jobs would all be the same"
    if name in _SWEPT_KEYS:
        return None
    if inner := [f'"{full}"' for full, (table, _) in _SWEPT_KEYS.items() if table == name]:
        return f"a whole table cannot be swept; sweep one of its keys, like {inner[-1]}"
    if name.isidentifier() and name.isascii():
        return None
    near = closest(name, _SWEPT_KEYS)
    return f"unknown key; did you mean '{near}'?" if near else _NO_NAME


def _about_unused(name: str) -> str:
    """Advice about a variable that no coordinate mentions."""
    if name in ("seed", *keys_of(Variations)):
        return "cannot be swept; write seeds = [0, 1, 2] at the top of the file"
    if homes := [f'"{full}"' for full, (_, key) in _SWEPT_KEYS.items() if key == name]:
        return f"a key is swept under its full name in quotes: {enumerate_words(homes, 'or')}"
    return f'no atom uses this variable, as in ["H", 0.0, 0.0, "{{{name}}}"]'
