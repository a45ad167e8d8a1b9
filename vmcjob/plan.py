"""The list of runs that a spec file asks for, each with its id and spec."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from vmcjob.spec import (
    JobSpec,
    Point,
    Relax,
    SpecFile,
    dump_spec,
    load_resolved,
    science,
    science_sha256,
)

# 40 bits: among a million runs of one name, two share a digest with probability 1/2
_RUN_ID_DIGITS = 10
KEYS_OF_TRAINING_ON: Final = (
    *("train.steps", "train.start_from", "train.follow_nuclei"),
    *("pretrain.steps", "pretrain.active_space"),
)
"""Keys of a run that begins with the results of a finished run."""
GEOMETRY: Final = "geometry"
"""Coordinate of the runs of a relaxation: the place of their geometry on its path."""
Positions: TypeAlias = Sequence[tuple[float, float, float]]
"""Of all nuclei, in bohr."""


@dataclass(frozen=True)
class Task:
    """One run: a point of the sweep with one seed."""

    run_id: str
    name: str
    point: Mapping[str, int | float | str]
    seed: int
    spec: JobSpec
    science_sha256: str
    continues: str | None = None  # the shorter run whose results it continues
    after: tuple[str, ...] = ()  # runs that must finish first, but whose results are not needed
    pool_sha256: str | None = None  # the same for all seeds, if each starts from its own run
    # the line or flag that gave each value that is not a default; None: not known
    origins: Mapping[str, str] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Plan:
    """All runs of a spec file, in the file's order."""

    source: str
    tasks: tuple[Task, ...]
    is_whole: bool = True  # all runs of the file, not a selection
    relax: Relax | None = None  # the only run is the first of a path


def make_plan(spec_file: SpecFile) -> Plan:
    """Give each run an id from its science and seed, so that planning again finds the same runs."""
    tasks: list[Task] = []
    for point in spec_file.points:
        if point.previous is not None:
            origin = next(
                t for t in tasks if (t.point, t.seed) == (point.previous, point.spec.seed)
            )
            tasks.append(_make_link(point, origin))
        else:
            tasks.append(_make_task(point))
    if spec_file.relax is not None:
        tasks = [replace(task, point={GEOMETRY: 0}) for task in tasks]
    return Plan(spec_file.source, tuple(tasks), relax=spec_file.relax)


def make_longer(
    task: Task,
    more_steps: int,
    *,
    n_done: int | None = None,
    target_error: float | None = None,
    is_reckoned: bool = False,
) -> Task:
    """The run with `more_steps` further evaluation steps; SpecError if these are too many.

    Args:
        task: the run to continue.
        more_steps: with a target error, the maximum.
        n_done: steps of its evaluation, if these may be fewer than in its spec.
        target_error: of the longer run, in hartree; replaces the target of `task`.
        is_reckoned: whether `more_steps` follow from the target error.
    """
    evaluate = task.spec.evaluate
    steps = (evaluate.steps if n_done is None else n_done) + more_steps
    evaluate = replace(evaluate, steps=steps, target_error=target_error)
    spec = replace(task.spec, evaluate=evaluate)
    spec = load_resolved(dump_spec(spec), f"{task.run_id} with --more-steps {more_steps}")
    longer = replace(_make_task(Point(task.point, spec)), continues=task.run_id)
    given = {"evaluate.steps": f"resume --more-steps {more_steps}"}
    if target_error is not None:
        given["evaluate.target_error"] = by_target = f"resume --target-error {target_error:g}"
        given |= {"evaluate.steps": by_target} if is_reckoned else {}
    origins = _changed(task, given)
    return replace(longer, pool_sha256=_digest_after(task.pool_sha256, spec), origins=origins)


def make_trained_on(task: Task, more_training: int) -> Task:
    """The run that trains so many steps more; SpecError if these are too many.

    It begins with the parameters and walkers that the finished run ends with, and evaluates anew.
    Its optimizer and learning rate begin anew too, so that its numbers are not those of one longer
    training, and its id is its own.
    """
    train = replace(
        task.spec.train, steps=more_training, start_from=task.run_id, follow_nuclei=True
    )
    pretrain = replace(task.spec.pretrain, steps=0, active_space=())
    spec = replace(task.spec, train=train, pretrain=pretrain)
    spec = load_resolved(dump_spec(spec), f"{task.run_id} with --more-training {more_training}")
    before = task.pool_sha256 or task.science_sha256
    by = f"resume --more-training {more_training}"
    origins = _changed(task, dict.fromkeys(KEYS_OF_TRAINING_ON, by))
    longer = _make_task(Point(task.point, spec))
    return replace(longer, pool_sha256=_digest_after(before, spec), origins=origins)


def make_moved(task: Task, place: int, positions: Positions, start: str, updates: int) -> Task:
    """The run at another geometry, which begins with the results of the run before.

    Args:
        task: the first run of a path.
        place: the number of the geometry on the path; the first is 0.
        positions: the nuclei.
        start: the id of the run before.
        updates: of the parameters.
    """
    spec = task.spec
    atoms = zip(spec.system.atoms, positions, strict=True)
    system = replace(spec.system, atoms=tuple(replace(atom, position=at) for atom, at in atoms))
    train = replace(spec.train, steps=updates, start_from=start, follow_nuclei=True)
    pretrain = replace(spec.pretrain, steps=0, active_space=())
    spec = replace(spec, system=system, train=train, pretrain=pretrain)
    spec = load_resolved(dump_spec(spec), f"{task.name} at geometry {place}")
    keys = (*KEYS_OF_TRAINING_ON, "system.atoms")
    moved = _make_task(Point({GEOMETRY: place}, spec))
    return replace(moved, origins=_changed(task, dict.fromkeys(keys, "[relax]")))


def _changed(task: Task, origins: Mapping[str, str]) -> Mapping[str, str] | None:
    """The origins of a task's values, some of which are changed."""
    return None if task.origins is None else {**task.origins, **origins}


def _make_link(point: Point, origin: Task) -> Task:
    """A run of a chain, which starts from the run `origin`; each seed has its own chain."""
    train = replace(point.spec.train, start_from=origin.run_id)
    task = _make_task(replace(point, spec=replace(point.spec, train=train)))
    before = origin.pool_sha256 or origin.science_sha256
    return replace(task, pool_sha256=_digest_after(before, point.spec))


def _digest_after(before: str | None, spec: JobSpec) -> str | None:
    """Digest of a calculation and of all calculations before it, independent of run ids."""
    if before is None:
        return None
    train = replace(spec.train, start_from=None)
    decides = f"{science(replace(spec, train=train))}\nafter = {before}\n"
    return hashlib.sha256(decides.encode()).hexdigest()


def make_task(spec: JobSpec, point: Mapping[str, int | float | str]) -> Task:
    """The run of a resolved spec."""
    return _make_task(Point(point, spec))


def _make_task(point: Point) -> Task:
    spec = point.spec
    decides = f"{science(spec)}\nseed = {spec.seed}\n"
    digest = hashlib.sha256(decides.encode()).hexdigest()[:_RUN_ID_DIGITS]
    return Task(
        run_id=f"{spec.name}-{digest}",
        name=spec.name,
        point=point.coordinates,
        seed=spec.seed,
        spec=spec,
        science_sha256=science_sha256(spec),
        origins=point.origins,
    )
