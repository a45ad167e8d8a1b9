"""What decides the numbers of a run, and so its name."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings

from tests.spec.specs import jobs
from vmcjob.document import keys_of, variants_of
from vmcjob.resources import Retries
from vmcjob.spec import (
    Atom,
    Budget,
    Container,
    JobSpec,
    Output,
    Potential,
    Resources,
    System,
    parse_spec,
    science,
)
from vmcjob.spec.ecp import Ecp

JOB = JobSpec(
    name="lih",
    system=System((Atom("Li", (0.0, 0.0, 0.0)), Atom("H", (0.0, 0.0, 3.0)))),
)


@given(jobs)
@settings(max_examples=50, derandomize=True, deadline=None)
def test_name_seed_output_and_resources_decide_nothing(job: JobSpec) -> None:
    """Asking for a longer wall time has to continue a run, not to start another one."""
    other = dataclasses.replace(
        job,
        name="other",
        seed=job.seed // 2 + 1,
        system=dataclasses.replace(job.system, reference=-1.0),
        train=dataclasses.replace(job.train, rollbacks=1),
        output=Output(snapshots=3),
        resources=Resources(time="01:00:00"),
        container=Container(image="new.sif"),
        budget=Budget(gpu_hours=1.0),
        retries=Retries(preemption=3),
    )
    assert science(other) == science(job)


POTENTIAL = Ecp((("Li", Potential(2, (((1, 1.0, 1.0),),))),))


def changed(value: Any) -> Any:  # of any type that a key may have
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case int():
            return value + 2
        case float():
            return value + 1.5
        case None:  # a number that is left out
            return 1.5
        case str():
            return f"{value}!"
        case ():
            return ("another",)
    return value[::-1]


CHOSEN = [
    dataclasses.replace(JOB, **{table: variant()})
    for table, key in keys_of(JobSpec).items()
    for variant in variants_of(key.kind.type).values()
]
WRITTEN_ONLY = [
    ("system", name) for name in ("unit", "xyz", "molecule")
]  # other ways to write atoms
BESIDE = [*WRITTEN_ONLY, ("system", "reference"), ("train", "rollbacks")]
DECISIVE = [
    (job, table, name)
    for job in [JOB, *CHOSEN]
    for table, key in keys_of(JobSpec).items()
    if key.is_table and table not in ("output", "resources", "container", "budget", "retries")
    for name in keys_of(type(getattr(job, table)))
    if (table, name) not in BESIDE
    if job is JOB or getattr(job, table) is not getattr(JOB, table)
]


@pytest.mark.parametrize(("job", "table", "name"), DECISIVE)
def test_everything_else_decides(job: JobSpec, table: str, name: str) -> None:
    """Two runs that differ in such a key and shared a name would overwrite each other."""
    before = getattr(job, table)
    new = POTENTIAL if name == "ecp" else changed(getattr(before, name))
    after = dataclasses.replace(before, **{name: new})
    assert science(dataclasses.replace(job, **{table: after})) != science(job)


def test_the_spelling_of_a_spec_decides_nothing() -> None:
    """Order, units of numbers, comments and defaults that are written out are only spelling."""
    plain = 'name = "lih"\n[system]\natoms = [["Li", 0, 0, 0], ["H", 0, 0, 3]]\n'
    ornate = """
        [system]    # a comment
        spin = 0
        atoms = [
            ["Li", 0.0, -0.0, 0e0],
            ["H", 0.0, 0.0, 30e-1],
        ]
        [sampler]
        walkers = 512
    """
    spellings = [plain, f'name = "lih"\n{ornate}']
    texts = {science(parse_spec(text, "lih.toml").points[0].spec) for text in spellings}
    assert texts == {science(JOB)}


def test_the_canonical_text_is_sorted_json_without_blanks() -> None:
    """Run ids are made of this text: another layout would rename every run that ever was."""
    text = science(JOB)
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    assert '"system":{"atoms":[{"position":[0.0,0.0,0.0],"symbol":"Li"}' in text
