"""The origin of each value of a resolved spec: a line of the spec file, or a flag of a command.

A key without an origin has its default.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias  # Any: a parsed document, not validated yet

from vmcjob.document import Document, KeyPath
from vmcjob.document.text import WHOLE_TEXT

Origins: TypeAlias = Mapping[str, str]
"""Words by names of keys, like "sampler.walkers"."""

BEFORE: Final = "not in the spec file, which is older than this key"
"""The origin of a key that an old spec in full does not have (`growth`)."""
_NO_JOB: Final = ("sweep", "relax")
"""Tables of a spec that a job does not have."""
_BESIDE_TABLES: Final = {"name": "name", "seed": "seed", "seeds": "seed"}


def origin_at(document: Document, path: KeyPath) -> str:
    """The flag that gave the value at a path, else the line of the value."""
    if (flag := document.flag(path)) is not None:
        return flag
    offset = document.place(path).value
    line = 1 if offset == WHOLE_TEXT else document.text.count("\n", 0, offset) + 1
    return f"{document.source}:{line}"


def origins_in(document: Document) -> dict[str, str]:
    """The origins of all keys that a document or its flags give, apart from swept values."""
    found: dict[str, str] = {}
    for path in (*document.places, *_flagged(document)):
        if len(path) == 1 and path[0] in _BESIDE_TABLES:
            found[_BESIDE_TABLES[str(path[0])]] = origin_at(document, path)
        elif len(path) == 2 and path[0] not in _NO_JOB:
            found[".".join(map(str, path))] = origin_at(document, path)
    return found


def origins_of_point(
    document: Document,
    given: Origins,
    tables: Mapping[str, Any],
    moved: Mapping[KeyPath, KeyPath],
    geometry: KeyPath | None,
) -> dict[str, str]:
    """The origins of the values of one point of a sweep.

    Args:
        document: the spec.
        given: `origins_in` the document.
        tables: the values of the point, before defaults are added.
        moved: paths in the document of values that have another path in the tables.
        geometry: the path of the key that names the atoms' file or molecule, if there is one.
    """
    known = dict(given)
    for target, path in moved.items():
        known[".".join(map(str, target))] = origin_at(document, path)
    atoms = None if geometry is None else origin_at(document, geometry)
    found = {name: known[name] for name in ("name", "seed") if name in known}
    for table, values in tables.items():
        others = atoms if table == "system" and atoms else BEFORE
        for key in values if isinstance(values, dict) and table not in _NO_JOB else ():
            found[f"{table}.{key}"] = known.get(f"{table}.{key}", others)
    return found


def _flagged(document: Document) -> list[KeyPath]:
    """The paths of keys, or of all keys of a table, that flags give."""
    paths: list[KeyPath] = []
    for path in document.flags:
        inner = document.tables.get(str(path[0]))
        is_table = len(path) == 1 and isinstance(inner, dict)
        paths += [(path[0], key) for key in inner] if is_table and inner else [path[:2]]
    return paths
