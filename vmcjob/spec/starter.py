"""A starter spec: the keys that people change most, with default and meaning, as comments."""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from vmcjob.document import expected, format_value, keys_of, variants_of
from vmcjob.spec.model import JobSpec
from vmcjob.spec.system import System

COMMON: Final[dict[str, tuple[str, ...]]] = {
    "system": ("charge", "spin", "reference"),
    "ansatz": ("kind", "determinants", "layers"),
    "sampler": ("walkers", "steps"),
    "pretrain": ("steps", "basis"),
    "optimizer": ("kind", "learning_rate", "damping"),
    "train": ("steps", "until"),
    "evaluate": ("steps", "target_error", "observables"),
    "resources": ("gpus", "time", "mem"),
}
"""Keys of a starter spec by table; `vmcjob keys` lists all."""
_EXAMPLES: Final = {
    "system.spin": "0",
    "system.reference": "-1.174476",
    "pretrain.steps": "1000",
    "evaluate.target_error": "1e-4",
    "evaluate.observables": '["dipole"]',
    "resources.time": '"01:00:00"',
    "resources.mem": '"16GB"',
}
"""Values of keys that have no default, or none that shows how to write one."""
_MEANING_COLUMN: Final = 34
SWEEP: Final = (
    "# One run for each value: of a key, or of a variable in a coordinate.",
    "# [sweep]",
    '# "optimizer.learning_rate" = [0.02, 0.05]',
)


STRETCHES: Final = (0.75, 0.85, 0.95, 1.05, 1.15, 1.3, 1.5, 1.8, 2.2, 3.0)
"""Distances of a curve, as multiples of the distance of the geometry."""


class NoCurveError(Exception):
    """The reason why a system has no curve, as the end of a sentence that begins with it."""


def starter(name: str, geometry: str, schema: str) -> str:
    """The text of a starter spec.

    Args:
        name: of the runs.
        geometry: the line of `[system]` that gives the nuclei.
        schema: the path of the JSON Schema, for editors.
    """
    return "\n".join(_lines(name, geometry, schema, SWEEP)) + "\n"


def curve_starter(name: str, system: System, schema: str) -> str:
    """The text of a starter spec with a sweep over the distance of two atoms.

    NoCurveError if the system has another number of atoms.

    Args:
        name: of the runs.
        system: the two atoms; their distance is in the middle of the curve.
        schema: the path of the JSON Schema, for editors.
    """
    if len(system.atoms) != 2:
        raise NoCurveError(
            f'has {len(system.atoms)} atoms, and a curve has 2; write a variable like "{{R}}" into '
            "a coordinate, and its values into [sweep]"
        )
    first, second = system.atoms
    distance = math.dist(first.position, second.position)
    atoms = f'[["{first.symbol}", 0.0, 0.0, 0.0], ["{second.symbol}", 0.0, 0.0, "{{R}}"]]'
    geometry = f"atoms = {atoms}   # in bohr\nspin = {system.spin}"
    values = [round(stretch * distance, 2) for stretch in STRETCHES]
    sweep = (
        "# One run for each distance R, in bohr.",
        "[sweep]",
        f"R = {format_value(values)}",
    )
    return "\n".join(_lines(name, geometry, schema, sweep)) + "\n"


def _lines(name: str, geometry: str, schema: str, sweep: Sequence[str]) -> Iterator[str]:
    yield f"#:schema {schema}"
    yield "# Lines that begin with # show defaults, or examples; `vmcjob keys` explains every key."
    yield f"name = {format_value(name)}"
    yield _comment("# seeds = [0, 1, 2]", "one run for each; their spread checks the error bar")
    for table, keys in COMMON.items():
        yield from ("", f"[{table}]")
        if table == "system":
            yield geometry
        yield from (_line(table, key) for key in keys if f"\n{key} = " not in geometry)
    yield from ("", *sweep)


def _line(table: str, name: str) -> str:
    """A key as a comment, with its value and its meaning."""
    type_ = keys_of(JobSpec)[table].kind.type
    variants = variants_of(type_)
    key = keys_of(next(iter(variants.values()), type_))[name]
    value = _EXAMPLES.get(f"{table}.{name}") or format_value(key.default)
    words = key.kind.meaning.partition(";")[0].partition(", `")[0]
    if name == "kind":
        words = "or " + ", ".join(kind for kind in variants if kind != key.default)
    elif not words:
        words = expected(key.kind)
    return _comment(f"# {name} = {value}", words)


def _comment(text: str, words: str) -> str:
    return f"{text:<{_MEANING_COLUMN}}# {words}"
