"""Paths of geometries that relax, for people and for programs."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple  # Any: JSON

from vmcjob.cli.columns import TableColumn, make_table
from vmcjob.cli.screen import put, put_table, say
from vmcjob.cli.text import count, format_energy
from vmcjob.errors import StoreError, UsageError

if TYPE_CHECKING:
    from vmcjob.plot import Figure
    from vmcjob.rundir import RunDir
    from vmcjob.rundir.relaxations import Found, Geometry, Internal, Relaxation

MAX_SHOWN = 12
"""Largest number of distances and angles that are printed."""
MIN_DESCENT = 5e-3
"""Hartree/bohr²: a curvature below its negative is no rounding of a flat motion."""


class GeometryRow(NamedTuple):
    """A geometry of a path as a line of a table."""

    place: int
    geometry: "Geometry"


class ShownPath(NamedTuple):
    """A path, and whether another path from the same first run goes on instead."""

    path: "Relaxation"
    is_replaced: bool = False


def _largest(row: GeometryRow) -> str:
    from vmcjob.relaxation.path import largest_force

    found = row.geometry.found
    return "" if found is None else format_energy(*largest_force(found))


def _energy(row: GeometryRow) -> str:
    found = row.geometry.found
    return "" if found is None else format_energy(found.energy, found.error)


COLUMNS: list[TableColumn[GeometryRow]] = [
    TableColumn("geometry", lambda row: str(row.place), "right"),
    TableColumn("run", lambda row: row.geometry.run_id, dispensable=1),
    TableColumn("energy", _energy, "point"),
    TableColumn("largest force", _largest, "point"),
]


def known_paths(chosen: "Sequence[RunDir]") -> "list[tuple[Relaxation, Path]]":
    """The paths that some runs belong to, each with its runs root.

    A damaged file is told of and left out.
    """
    from vmcjob.rundir.relaxations import find_relaxations

    by_root: dict[Path, list[str]] = {}
    for run in chosen:
        by_root.setdefault(run.path.absolute().parent, []).append(run.path.name)
    found: list[tuple[Relaxation, Path]] = []
    for root, ids in by_root.items():
        paths, errors = find_relaxations(root, ids)
        found += [(path, root) for path in paths]
        for error in errors:
            say(f"warning: {error}")
    return found


def latest_of(found: "list[tuple[Relaxation, Path]]") -> "list[tuple[Relaxation, Path]]":
    """The paths that no other path has replaced; all paths if there is no such path."""
    from vmcjob.rundir.relaxations import replacement

    return [one for one in found if replacement(*one) is None] or found


def paths_of(chosen: "Sequence[RunDir]", xyz: Path | None = None) -> list[ShownPath]:
    """The paths that some runs belong to.

    With a file, the last geometry of the only path is written there.
    """
    found = known_paths(chosen)
    if xyz is not None:
        _write_xyz(xyz, _the_only_one(found, "--xyz writes the geometry of").path, chosen)
    return [_shown(*one) for one in found]


def the_only_path(chosen: "Sequence[RunDir]", purpose: str) -> ShownPath:
    """The only path that some runs belong to, or the latest of the paths from one first run.

    UsageError unless there is one.

    Args:
        chosen: the runs.
        purpose: an option and its verb, for the error.
    """
    return _the_only_one(known_paths(chosen), purpose)


def _the_only_one(found: "list[tuple[Relaxation, Path]]", purpose: str) -> ShownPath:
    paths = latest_of(found)
    if len(paths) != 1:
        names = ", ".join(path.name for path, _ in paths) or "none"
        advice = "name a run of one" if paths else "only a spec with a table [relax] makes one"
        raise UsageError(f"{purpose} one relaxation, and here is {names}; {advice}")
    return _shown(*paths[0])


def _shown(path: "Relaxation", root: Path) -> ShownPath:
    from vmcjob.rundir.relaxations import replacement

    return ShownPath(path, replacement(path, root) is not None)


def draw_relaxation(path: "Relaxation") -> "Figure":
    """Energy and largest force at each finished geometry; StoreError without one."""
    from vmcjob.plot import PathPoint, draw_path
    from vmcjob.relaxation.path import largest_force

    found = [one.found for one in path.geometries if one.found is not None]
    if not found:
        advice = "submit or resume reads those of a run that has finished"
        raise StoreError(f"{path.name}: no geometry has results yet; {advice}")
    points = [PathPoint(one.energy, one.error, *largest_force(one)) for one in found]
    return draw_path(points, path.force_tolerance, path.name)


def say_geometry(path: "Relaxation", n_told: int) -> int:
    """Tell of each finished geometry that was not told of; returns the number told of so far."""
    done = [one for one in path.geometries if one.found is not None]
    for place, one in list(enumerate(done))[n_told:]:
        row = GeometryRow(place, one)
        say(f"geometry {place}: {_energy(row)} hartree, largest force {_largest(row)} hartree/bohr")
    return len(done)


def ending_in_words(path: "Relaxation", is_replaced: bool = False) -> str:
    """Why the path goes no further, or that it does."""
    from vmcjob.relaxation.path import CERTAIN, MAX_NOISE, Ending, ending, largest_force

    number = count(len(path.geometries), "geometry").replace("geometrys", "geometries")
    why, found = ending(path), path.last.found
    if (why is None or found is None) and is_replaced:
        return f"{number}; replaced by another path from the same first run, submitted later"
    if why is None or found is None:
        return f"{number} so far; the path goes on"
    force = f"the largest force, {format_energy(*largest_force(found))} hartree/bohr,"
    if why is Ending.BELOW_TOLERANCE:
        return f"relaxed: {force} is below force_tolerance = {path.force_tolerance:g}"
    if why is Ending.BELOW_ERROR:
        return (
            f"relaxed as far as errors tell: {force} and all others are below force_tolerance or "
            f"within {CERTAIN:g} standard errors of zero; a longer evaluation would tell more"
        )
    if why is Ending.TOO_NOISY:
        return (
            f"not known to be relaxed: {force} and all others are below force_tolerance or "
            f"within {CERTAIN:g} standard errors of zero, but an error exceeds {MAX_NOISE:g} times "
            "force_tolerance; evaluate longer (evaluate.steps)"
        )
    return f"not relaxed: {force} is left after {number}; raise relax.max_steps and submit again"


def _write_xyz(file: Path, path: "Relaxation", chosen: "Sequence[RunDir]") -> None:
    """Write the last geometry of a path."""
    from vmcjob.cli.outfile import require_folder, write_output
    from vmcjob.cli.tablefile import refuse_folders_of_runs

    refuse_folders_of_runs(file, chosen)
    require_folder(file)
    atoms = zip(path.symbols, path.last.positions, strict=True)
    lines = [f"{symbol:<2} {_in_angstrom(at)}" for symbol, at in atoms]
    head = f"geometry {len(path.geometries) - 1} of {path.name}, run {path.last.run_id}, angstrom"
    head += "" if path.last.found else ", not computed yet"
    write_output(file, "\n".join([str(len(lines)), head, *lines, ""]))


def _in_angstrom(position: tuple[float, float, float]) -> str:
    from vmcjob.spec import BOHR_PER_ANGSTROM

    return " ".join(f"{x / BOHR_PER_ANGSTROM:15.9f}" for x in position)


def show_paths(paths: Sequence[ShownPath]) -> None:
    """Print paths below a table."""
    for one in paths:
        put("")
        show_relaxation(*one)


def show_relaxation(path: "Relaxation", is_replaced: bool = False) -> None:
    """Print the path and the distances and angles at its end."""
    put_table(*make_table(COLUMNS, [GeometryRow(*one) for one in enumerate(path.geometries)]))
    put(f"{path.name}: {ending_in_words(path, is_replaced)}")
    found = next((one.found for one in reversed(path.geometries) if one.found is not None), None)
    for words in _doubts(found) if found else ():
        put(f"{path.name}: {words}")
    internals = found.internals if found else ()
    for one in internals[:MAX_SHOWN]:
        put(_in_words(path, one))
    if len(internals) > MAX_SHOWN:
        say(f"{len(internals) - MAX_SHOWN} more distances and angles are in --json", "dim")


def _doubts(found: "Found") -> Iterator[str]:
    """What speaks against the end of a path."""
    if found.doubt:
        yield found.doubt
    if found.least_curvature < -MIN_DESCENT:
        yield (
            "this may be a saddle point: the energy of Hartree-Fock falls along a motion, with a "
            f"curvature of {found.least_curvature:.2g} hartree/bohr². Forces of a symmetric "
            "molecule do not show that; move an atom off its symmetry and submit again"
        )


def _in_words(path: "Relaxation", one: "Internal") -> str:
    """A distance or an angle, where the forces of the last finished run vanish."""
    from vmcjob.spec import BOHR_PER_ANGSTROM

    named = "-".join(f"{path.symbols[atom]}{atom}" for atom in one.atoms)
    if len(one.atoms) > 2:
        return f"{named}  {format_energy(one.value, one.error)} degrees"
    bohr = format_energy(one.value, one.error)
    angstrom = format_energy(one.value / BOHR_PER_ANGSTROM, one.error / BOHR_PER_ANGSTROM)
    return f"{named}  {bohr} bohr = {angstrom} angstrom"


def document_of(path: "Relaxation", is_replaced: bool = False) -> dict[str, Any]:
    """A path as JSON."""
    from dataclasses import asdict

    from vmcjob.relaxation.path import ending

    why = ending(path)
    return {
        "name": path.name,
        "ending": why and why.value,
        "is_replaced": is_replaced,
        "symbols": list(path.symbols),
        "fixed": list(path.fixed),
        "geometries": [asdict(one) for one in path.geometries],
    }
