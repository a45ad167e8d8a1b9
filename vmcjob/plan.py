"""What a spec file asks for, as a list of runs: who they are and what each of them computes."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from vmcjob.spec import (
    JobSpec,
    Point,
    SpecFile,
    dump_spec,
    load_resolved,
    science,
    science_sha256,
)

_RUN_ID_DIGITS = 10  # 40 bits: a million runs of one name share a digest once in two


@dataclass(frozen=True)
class Task:
    """One run: a point of the sweep with one seed."""

    run_id: str
    name: str
    point: Mapping[str, int | float | str]
    seed: int
    spec: JobSpec
    science_sha256: str
    continues: str | None = None  # the run of fewer evaluation steps whose results it begins with
    after: tuple[str, ...] = ()  # runs that have to finish before, whose results it does not need
    pool_sha256: str | None = None  # of all seeds, where each starts from a run of its own


@dataclass(frozen=True)
class Plan:
    """All runs of a spec file, in its order."""

    source: str
    tasks: tuple[Task, ...]
    is_whole: bool = True  # all that the file asks for, not runs of it that somebody chose


def make_plan(spec_file: SpecFile) -> Plan:
    """Name every run after its science and seed, so that planning it again finds it again."""
    tasks: list[Task] = []
    for point in spec_file.points:
        if point.previous is not None:
            origin = next(
                t for t in tasks if (t.point, t.seed) == (point.previous, point.spec.seed)
            )
            tasks.append(_make_link(point, origin))
        else:
            tasks.append(_make_task(point))
    return Plan(spec_file.source, tuple(tasks))


def make_longer(
    task: Task, more_steps: int, *, n_done: int | None = None, target_error: float | None = None
) -> Task:
    """The run that has so many evaluation steps more; SpecError if these are too many.

    Args:
        task: the run to go on from.
        more_steps: with a target, at most.
        n_done: steps of its evaluation, if they may be fewer than its spec says.
        target_error: of the longer run, hartree; that of the task has had its day.
    """
    evaluate = task.spec.evaluate
    steps = (evaluate.steps if n_done is None else n_done) + more_steps
    evaluate = replace(evaluate, steps=steps, target_error=target_error)
    spec = replace(task.spec, evaluate=evaluate)
    spec = load_resolved(dump_spec(spec), f"{task.run_id} with --more-steps {more_steps}")
    longer = replace(_make_task(Point(task.point, spec)), continues=task.run_id)
    return replace(longer, pool_sha256=_digest_after(task.pool_sha256, spec))


def _make_link(point: Point, origin: Task) -> Task:
    """The run of a chain that starts from another; seeds have chains of their own."""
    train = replace(point.spec.train, start_from=origin.run_id)
    task = _make_task(replace(point, spec=replace(point.spec, train=train)))
    before = origin.pool_sha256 or origin.science_sha256
    return replace(task, pool_sha256=_digest_after(before, point.spec))


def _digest_after(before: str | None, spec: JobSpec) -> str | None:
    """Digest of a calculation and of those that led to it, whatever the ids of their runs."""
    if before is None:
        return None
    train = replace(spec.train, start_from=None)
    decides = f"{science(replace(spec, train=train))}\nafter = {before}\n"
    return hashlib.sha256(decides.encode()).hexdigest()


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
    )
