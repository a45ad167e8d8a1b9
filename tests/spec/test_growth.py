"""Runs keep their names while the spec grows."""

from pathlib import Path

import pytest

from vmcjob.plan import make_plan
from vmcjob.spec import dump_spec, load_resolved, read_spec, science

SPECS = Path(__file__).parents[1] / "golden" / "specs"
"""Written in full by vmcjob of ddd29ed, lih-8ab7f70482 by d63bd12; named after their ids."""
FULL = sorted(SPECS.glob("*.toml"))


@pytest.mark.parametrize("path", FULL, ids=lambda path: path.stem)
def test_a_spec_written_in_full_of_before_keeps_its_run(path: Path) -> None:
    """Its run is resumed, and its seeds are pooled: another id would make it a stranger."""
    (task,) = make_plan(read_spec(path)).tasks
    assert task.run_id == path.stem, "a new key of science wants a Before: see vmcjob/spec/growth"


@pytest.mark.parametrize("path", FULL, ids=lambda path: path.stem)
def test_what_new_keys_meant_is_written_out_and_read_back(path: Path) -> None:
    """A run directory made today of a spec of before has all keys, and still the same name."""
    spec = load_resolved(path.read_text(), str(path))
    again = load_resolved(dump_spec(spec), "again")
    assert (again, science(again)) == (spec, science(spec))


def test_a_spec_without_a_key_that_old_specs_give_is_new() -> None:
    """`optimizer.clip` has no fixed default any more; without it, a spec is no old spec."""
    old = FULL[0].read_text()
    lines = [line for line in old.splitlines() if not line.startswith("clip = ")]
    assert len(lines) == len(old.splitlines()) - 1
    new = load_resolved("\n".join(lines), "new")
    assert load_resolved(old, "old").sampler.proposal == "plain"
    assert new.sampler.proposal == "scaled"
    assert new.optimizer.clip == 5.0
