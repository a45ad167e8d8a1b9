"""Paths of geometries that relax: one small file per path below the runs root.

The file remembers the geometries, and the results of the runs there. Without the file, the same
path follows from the finished runs.
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any  # JSON

from vmcjob.errors import RunDirError
from vmcjob.rundir.files import read_text, refresh, replace_file
from vmcjob.rundir.lock import lock

FOLDER = ".relaxations"
SCHEMA_VERSION = 1
PATIENCE_S = 600.0  # of a process that waits for another one's Hessian
NEVER = -1.0
"""When a path was submitted of which no run was taken; files of earlier versions say 0."""
Vectors = tuple[tuple[float, float, float], ...]
"""A vector of each nucleus."""


@dataclass(frozen=True, kw_only=True)
class Internal:
    """A distance of two atoms, or an angle at the second of three, where the forces vanish."""

    atoms: tuple[int, ...]
    value: float  # bohr or degrees
    error: float


@dataclass(frozen=True, kw_only=True)
class Found:
    """The results of a finished run of a path."""

    energy: float  # hartree
    error: float  # hartree
    forces: Vectors  # hartree/bohr, without the parts that move or turn the whole molecule
    force_errors: Vectors
    move: Vectors  # bohr, from this geometry to the next
    internals: tuple[Internal, ...]
    # The time of the run's outcome; another time means other results.
    finished_at: float = field(compare=False)
    least_curvature: float  # of Hartree-Fock, hartree/bohr²; negative along a way downhill
    doubt: str = ""  # a reason not to trust the error bars


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """A geometry of a path, with the run there and its results."""

    run_id: str
    positions: Vectors  # bohr
    found: Found | None = None


@dataclass(frozen=True, kw_only=True)
class Relaxation:
    """A path of geometries, and the spec that it belongs to."""

    name: str  # of the spec
    source: str  # path of the spec file
    spec: str  # of the first run, resolved
    symbols: tuple[str, ...]
    fixed: tuple[int, ...]  # numbers of atoms that stay
    updates: int  # of the parameters at each geometry but the first
    force_tolerance: float  # hartree/bohr
    max_steps: int
    geometries: tuple[Geometry, ...]
    submitted_at: float = field(default=0.0, compare=False)  # the last time that its spec was taken

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The runs of the path, the first one first."""
        return tuple(geometry.run_id for geometry in self.geometries)

    @property
    def last(self) -> Geometry:
        """The last geometry."""
        return self.geometries[-1]

    def found(self, results: Found) -> "Relaxation":
        """The path with results of the last geometry."""
        return replace(self, geometries=(*self.geometries[:-1], replace(self.last, found=results)))

    def file(self, root: Path) -> Path:
        """The file of the path; its name tells what decides the path."""
        decides = f"{sorted(self.fixed)} {self.updates}"
        digest = hashlib.sha256(decides.encode()).hexdigest()[:8]
        return root / FOLDER / f"{self.geometries[0].run_id}.{digest}.json"

    def write(self, root: Path) -> None:
        """Write the file of the path, in one step."""
        file = self.file(root)
        _make_folder(file.parent)
        document = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        replace_file(file, json.dumps(document, indent=1) + "\n")

    @contextmanager
    def lock(self, root: Path) -> Iterator[None]:
        """Hold the path while its next geometry is computed and written; others wait."""
        file = self.file(root)
        _make_folder(file.parent)
        words = f"{self.name}: its next geometry is being computed"
        with lock(file.with_suffix(".lock"), words, PATIENCE_S):
            refresh(file.parent)  # another host may have written just now
            yield

    @contextmanager
    def turn(self, root: Path) -> Iterator[None]:
        """Hold all paths from the same first run while a run is submitted; others wait."""
        folder = self.file(root).parent
        _make_folder(folder)
        words = f"{self.name}: a run of its path is being submitted"
        with lock(folder / f"{self.run_ids[0]}.submission.lock", words, PATIENCE_S):
            refresh(folder)  # another host may have submitted just now
            yield

    def recorded(self, root: Path) -> "Relaxation | None":
        """Return the same path with the geometries of its file; None without a file."""
        return _read(self.file(root))


def paths_beside(path: Relaxation, root: Path) -> list[Relaxation]:
    """The other paths that begin with the same run: their atoms or trainings follow otherwise."""
    found, _ = find_relaxations(root, path.run_ids[:1])
    same_start = (one for one in found if one.run_ids[0] == path.run_ids[0])
    return [one for one in same_start if one.file(root) != path.file(root)]


def replacement(path: Relaxation, root: Path) -> Relaxation | None:
    """The path from the same first run that was submitted last; None if it is this path."""

    def rank(one: Relaxation) -> tuple[float, str]:
        return one.submitted_at, one.file(root).name

    latest = max([path, *paths_beside(path, root)], key=rank)
    return None if latest is path else latest


def find_relaxations(
    root: Path, run_ids: Collection[str]
) -> tuple[list[Relaxation], list[RunDirError]]:
    """The paths that some of the runs belong to, by the names of their files; damaged files."""
    try:
        names = sorted(name for name in os.listdir(root / FOLDER) if name.endswith(".json"))
    except OSError:
        return [], []
    wanted, paths, errors = set(run_ids), [], []
    for name in names:
        if name.startswith("."):
            continue
        try:
            path = _read(root / FOLDER / name)
        except RunDirError as error:
            errors.append(error)
            continue
        if path is not None and not wanted.isdisjoint(path.run_ids):
            paths.append(path)
    return paths, errors


def _make_folder(folder: Path) -> None:
    """Make the folder of all paths, unless it exists."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirError(f"{folder}: cannot be made: {error.strerror}") from None


def _read(file: Path) -> Relaxation | None:
    """The path in a file; None without a file, RunDirError for a damaged one."""
    try:
        document = json.loads(read_text(file))
        if document["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"its schema is {document['schema_version']}, not {SCHEMA_VERSION}")
        return _relaxation(document)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        advice = "remove it and submit the spec again: finished runs lead along the same path"
        raise RunDirError(f"{file}: cannot be read ({error}); {advice}") from None


def _relaxation(document: dict[str, Any]) -> Relaxation:
    """Read a path from JSON; KeyError, TypeError or ValueError for other JSON."""
    values = {key: value for key, value in document.items() if key != "schema_version"}
    values["symbols"], values["fixed"] = tuple(values["symbols"]), tuple(values["fixed"])
    values["geometries"] = tuple(map(_geometry, values["geometries"]))
    found = Relaxation(**values)
    if not found.geometries:
        raise ValueError("it has no geometry")
    return found


def _geometry(values: dict[str, Any]) -> Geometry:
    found = values["found"] and dict(values["found"])
    if found:
        for key in ("forces", "force_errors", "move"):
            found[key] = _vectors(found[key])
        internals = ({**one, "atoms": tuple(one["atoms"])} for one in found["internals"])
        found["internals"] = tuple(Internal(**one) for one in internals)
    results = Found(**found) if found else None
    return Geometry(run_id=values["run_id"], positions=_vectors(values["positions"]), found=results)


def _vectors(values: list[list[float]]) -> Vectors:
    return tuple((float(x), float(y), float(z)) for x, y, z in values)
