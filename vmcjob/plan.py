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


@dataclass(frozen=True)
class Plan:
    """All runs of a spec file, in its order."""

    source: str
    tasks: tuple[Task, ...]


def make_plan(spec_file: SpecFile) -> Plan:
    """Name every run after its science and seed, so that planning it again finds it again."""
    return Plan(spec_file.source, tuple(map(_make_task, spec_file.points)))


def make_longer(task: Task, more_steps: int) -> Task:
    """The run that has so many evaluation steps more; SpecError if these are too many."""
    steps = task.spec.evaluate.steps + more_steps
    spec = replace(task.spec, evaluate=replace(task.spec.evaluate, steps=steps))
    spec = load_resolved(dump_spec(spec), f"{task.run_id} with --more-steps {more_steps}")
    return replace(_make_task(Point(task.point, spec)), continues=task.run_id)


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
