"""A job that is written and read back is the same job."""

import dataclasses

import tomli
from hypothesis import given, settings

from tests.spec.specs import jobs
from vmcjob.spec import JobSpec, dump_spec, load_resolved, science


@given(jobs)
@settings(max_examples=200, derandomize=True, deadline=None)
def test_a_job_survives_being_written_and_read(job: JobSpec) -> None:
    """A worker computes from what it reads in its run directory: not a bit may be lost there."""
    text = dump_spec(job)
    again = load_resolved(text, "spec.toml")
    assert again == job
    assert dump_spec(again) == text
    assert science(again) == science(job)


@given(jobs)
@settings(max_examples=50, derandomize=True, deadline=None)
def test_every_key_that_has_a_value_is_written(job: JobSpec) -> None:
    """A later version may change a default; what a run was made of must not change with it."""
    written = tomli.loads(dump_spec(job))
    for table in dataclasses.fields(job):
        value = getattr(job, table.name)
        if not dataclasses.is_dataclass(value):
            assert written[table.name] == value
            continue
        given_keys = {
            f.name for f in dataclasses.fields(value) if getattr(value, f.name) is not None
        }
        assert given_keys <= written.get(table.name, {}).keys()
