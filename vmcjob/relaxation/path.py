"""The path of a relaxation: where it begins, how it goes on, and why it ends.

A path is a function of the spec and of the finished runs. Each run of a path is an ordinary run
with an id of its own. So a path goes on where it was, whatever was killed on the way.
"""

import time
from dataclasses import replace
from enum import Enum
from pathlib import Path

import numpy as np

from vmcjob.errors import RunDirError
from vmcjob.observables.forces import COLUMNS, NUCLEI, doubts, forces_along
from vmcjob.plan import GEOMETRY, Plan, Task, make_moved, make_task
from vmcjob.relaxation.hessian import hartree_fock_hessian
from vmcjob.relaxation.internals import gradient, internals_of, value
from vmcjob.relaxation.modes import modes_of, trust_radius
from vmcjob.rundir import RunDir
from vmcjob.rundir.relaxations import (
    NEVER,
    Found,
    Geometry,
    Internal,
    Relaxation,
    Vectors,
    paths_beside,
)
from vmcjob.spec import Relax, dump_spec, load_resolved
from vmcjob.stats import estimate
from vmcjob.store import RunStore

DIGITS = 6
"""Of positions in bohr. The last bits of a sum on another machine lead to the same geometry."""
CERTAIN = 2.0
"""A force below so many standard errors may be chance."""
MAX_NOISE = 10.0
"""If an error exceeds this many tolerances, the path is not called relaxed."""


class Ending(Enum):
    """Why a path goes no further."""

    BELOW_TOLERANCE = "below tolerance"
    BELOW_ERROR = "below error"
    TOO_NOISY = "too noisy"
    OUT_OF_STEPS = "out of steps"


def begin(task: Task, source: str, relax: Relax, root: Path) -> Relaxation:
    """The path of a spec: as its file remembers it, or with the first geometry only.

    The tolerance, the number of steps and the resources are those of the spec as it is now. Of the
    paths that begin with the same run, the one that was submitted last goes on.
    """
    system = task.spec.system
    positions = tuple(atom.position for atom in system.atoms)
    fresh = Relaxation(
        name=task.name,
        source=source,
        spec=dump_spec(task.spec),
        symbols=system.symbols,
        fixed=relax.fixed,
        updates=relax.updates(task.spec),
        force_tolerance=relax.force_tolerance,
        max_steps=relax.max_steps,
        geometries=(Geometry(run_id=task.run_id, positions=positions),),
    )
    fresh = replace(fresh, submitted_at=_latest_time(fresh, root))
    known = fresh.recorded(root)
    return fresh if known is None else replace(fresh, geometries=known.geometries)


def _latest_time(path: Relaxation, root: Path) -> float:
    """Now, or later: after the times of the paths beside this one. Clocks of hosts differ."""
    earlier = max((one.submitted_at for one in paths_beside(path, root)), default=0.0)
    return max(time.time(), earlier + 1.0)


def record_submission(path: Relaxation, root: Path) -> None:
    """Write that a run of the path was taken, so that the path replaces the paths beside it."""
    with path.lock(root):
        known = path.recorded(root) or path
        at = max(path.submitted_at, known.submitted_at)
        at = _latest_time(path, root) if at == NEVER else at
        if at != known.submitted_at:
            replace(known, submitted_at=at).write(root)


def go_on(path: Relaxation, root: Path, is_new: bool = False) -> Relaxation:
    """The path with the geometry of the next run, as its file remembers it afterwards.

    A job and a user may extend the same path at the same time. The first one decides where the
    next geometry is, because another machine may round differently. Tolerance and number of steps
    are those of the file, or those of `path` if it is new: if its spec was read just now. The file
    of a new path keeps the earlier time of submission, until a run is taken (`record_submission`).
    """
    with path.lock(root):
        known = path.recorded(root)
        if is_new:
            further = advance(replace(path, geometries=(known or path).geometries), root)
            replace(further, submitted_at=known.submitted_at if known else NEVER).write(root)
        else:
            further = advance(known or path, root)
            further.write(root)
    return further


def advance(path: Relaxation, root: Path) -> Relaxation:
    """The path as far as its finished runs lead, with the geometry of the next run.

    Geometries behind a run that was removed, or that has other results by now, are forgotten.
    """
    path = _without_the_outdated(path, root)
    while (further := _one_further(path, root)) != path:
        path = further
    return path


def _without_the_outdated(path: Relaxation, root: Path) -> Relaxation:
    """The path up to the first run whose results are no longer those that it remembers."""
    for place, one in enumerate(path.geometries):
        if one.found is not None and one.found.finished_at != _finished_at(root, one.run_id):
            return replace(path, geometries=(*path.geometries[:place], replace(one, found=None)))
    return path


def _finished_at(root: Path, run_id: str) -> float | None:
    """The time of a run's outcome; None without one."""
    run = RunDir(root / run_id)
    run.refresh()  # on a cluster, another host has finished the run
    outcome = run.read_outcome() if run.exists else None
    return None if outcome is None else outcome.time


def _one_further(path: Relaxation, root: Path) -> Relaxation:
    """The path with the results of its last run, if that has finished, and the next geometry."""
    if path.last.found is None:
        run = RunDir(root / path.last.run_id)
        run.refresh()  # on a cluster, another host has finished the run
        if not (run.exists and run.can_be_begun_with):
            return path
        path = path.found(_results(path, run))
    if path.last.found is None or ending(path) is not None:
        return path
    before = np.array(path.last.positions)
    at = np.round(before + np.array(path.last.found.move), DIGITS)
    at[list(path.fixed)] = before[list(path.fixed)]
    moved = _vectors(at + 0.0)  # no -0.0
    task = _task_at(path, len(path.geometries), moved)
    geometry = Geometry(run_id=task.run_id, positions=moved)
    return replace(path, geometries=(*path.geometries, geometry))


def ending(path: Relaxation) -> Ending | None:
    """Why the path ends at its last geometry; None if it goes on."""
    found = path.last.found
    if found is None:
        return None
    forces, errors = np.abs(found.forces), np.array(found.force_errors)
    is_small = forces < path.force_tolerance
    if is_small.all() and errors.max() < path.force_tolerance:
        return Ending.BELOW_TOLERANCE
    if (is_small | (forces <= CERTAIN * errors)).all():
        is_noisy = errors.max() > MAX_NOISE * path.force_tolerance
        return Ending.TOO_NOISY if is_noisy else Ending.BELOW_ERROR
    return Ending.OUT_OF_STEPS if len(path.geometries) >= path.max_steps else None


def largest_force(found: Found) -> tuple[float, float]:
    """The largest component of a force, and its standard error; hartree/bohr."""
    forces = np.abs(found.forces)
    place = np.unravel_index(np.argmax(forces), forces.shape)
    return float(forces[place]), float(np.array(found.force_errors)[place])


def plan_of(path: Relaxation, root: Path, first: Task | None = None) -> Plan:
    """The plan of the run at the last geometry; `first` is the first run if a spec was read.

    Without a spec, an existing run comes after the runs that its user named.
    """
    place = len(path.geometries) - 1
    task = first if first and not place else _task_at(path, place, path.last.positions, first)
    run = RunDir(root / task.run_id)
    if first is None and run.exists:
        task = replace(task, after=run.comes_after)
    return Plan(path.source, (task,))


def _task_at(path: Relaxation, place: int, positions: Vectors, first: Task | None = None) -> Task:
    """The run at a geometry of the path."""
    if first is None:
        first = make_task(load_resolved(path.spec, path.source), {GEOMETRY: 0})
    if not place:
        return first
    return make_moved(first, place, positions, path.run_ids[place - 1], path.updates)


def _results(path: Relaxation, run: RunDir) -> Found:
    """Energy, forces and next move at the last geometry; RunDirError without error bars."""
    store = RunStore.open(run.store_path, run_id=run.path.name)
    rows, series = store.series("evaluate", ("energy", "variance")), store.observed(COLUMNS)
    if len(series.get(NUCLEI, ())) == 0:
        raise RunDirError(f"{run.path.name}: its evaluation has no forces; evaluate longer")
    energy = estimate(rows["energy"], variance=rows["variance"])
    spec = load_resolved(run.read_spec_text(), str(run.spec_path))
    positions = np.array(path.last.positions)
    modes = modes_of(positions, hartree_fock_hessian(spec), path.fixed)
    shape = modes.directions.shape
    found = forces_along(series, [*modes.directions, *modes.projector.reshape(-1, *shape[1:])])
    means, errors = (np.array([getattr(one, key) for one in found]) for key in ("mean", "error"))
    if not (np.isfinite(means).all() and np.isfinite([*errors, energy.error]).all()):
        why = next(filter(None, (one.why for one in (energy, *found))), "too few steps")
        raise RunDirError(f"{run.path.name}: no force with an error bar: {why}; evaluate longer")
    reasons = (one.why for one in (energy, *found))
    n = shape[0]
    earlier = [one.found for one in path.geometries if one.found is not None]
    energies = [*(one.energy for one in earlier), energy.mean]
    radius = trust_radius(energies, [*(one.error for one in earlier), energy.error])
    internals = []
    for atoms in internals_of(spec.system.elements, positions):
        (way,) = forces_along(series, [modes.toward_minimum(gradient(atoms, positions))])
        at = value(atoms, positions) + way.mean
        internals.append(Internal(atoms=atoms, value=at, error=way.error))
    return Found(
        energy=energy.mean,
        error=energy.error,
        forces=_vectors(means[n:].reshape(shape[1:])),
        force_errors=_vectors(errors[n:].reshape(shape[1:])),
        move=_vectors(modes.move(means[:n], errors[:n], radius)),
        internals=tuple(internals),
        finished_at=_finished_at(run.path.parent, run.path.name) or 0.0,
        least_curvature=modes.least,
        doubt=next(filter(None, (*reasons, *doubts(series))), ""),
    )


def _vectors(array: np.ndarray) -> Vectors:
    return tuple((float(x), float(y), float(z)) for x, y, z in array)
